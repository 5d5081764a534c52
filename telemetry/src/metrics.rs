//! The server's metrics by OTLP: those of `/metrics`, once in a while.

use std::sync::Arc;
use std::time::Duration;

use lastword_broker::metrics::{Family, Measured, Sample};
use lastword_facts::Time;
use lastword_server::Context;
use prost::{Message, Oneof};

use crate::Signal;
use crate::otlp::{KeyValue, Resource, SCHEMA_URL, Scope, attribute, nanoseconds};
use crate::post::{Failed, Poster};

/// Sums count from the start of the server.
const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricsData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_metrics: Vec<ScopeMetrics>,
    #[prost(string, tag = "3")]
    pub(crate) schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metric {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) description: String,
    #[prost(string, tag = "3")]
    pub(crate) unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 9")]
    pub(crate) data: Option<Data>,
}

/// The points of a metric.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub(crate) points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub(crate) points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    pub(crate) temporality: i32,
    #[prost(bool, tag = "3")]
    pub(crate) is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub(crate) points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    pub(crate) temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(oneof = "Number", tags = "4, 6")]
    pub(crate) value: Option<Number>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// The value of a point.
#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum Number {
    #[prost(double, tag = "4")]
    Float(f64),
    #[prost(sfixed64, tag = "6")]
    Count(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(crate) sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub(crate) bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub(crate) bounds: Vec<f64>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Exemplar {
    #[prost(fixed64, tag = "2")]
    pub(crate) time_unix_nano: u64,
    #[prost(double, tag = "3")]
    pub(crate) value: f64,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) trace_id: Vec<u8>,
}

/// Posts the metrics for ever. One that isn't taken is not repeated: the next has all that it has.
pub(crate) async fn run(ctx: &Context, poster: &Arc<Poster>, every: Duration) {
    let start = ctx.handle.now();
    let mut is_taken = true;
    loop {
        tokio::time::sleep(every).await;
        let data = data(&ctx.metrics(), start, ctx.handle.now());
        let count = data.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics).count();
        let tried = poster.try_post(Signal::Metrics, count, data.encode_to_vec()).await;
        if let Err(Failed::Later(reason, _) | Failed::Never(reason)) = &tried
            && is_taken
        {
            tracing::warn!(reason, "metrics are not exported");
        }
        is_taken = tried.is_ok();
    }
}

/// Returns metrics by OTLP, as counted since a start.
pub(crate) fn data(families: &[Family], start: Time, now: Time) -> MetricsData {
    let metrics = families.iter().filter_map(|family| metric(family, nanoseconds(start), nanoseconds(now))).collect();
    let scope_metrics = vec![ScopeMetrics { scope: Some(Scope::own()), metrics }];
    let resource = Some(Resource::own());
    let of = ResourceMetrics { resource, scope_metrics, schema_url: SCHEMA_URL.to_owned() };
    MetricsData { resource_metrics: vec![of] }
}

fn metric(family: &Family, start: u64, now: u64) -> Option<Metric> {
    let (mut numbers, mut histograms) = (Vec::new(), Vec::new());
    let mut is_sum = false;
    for Sample { labels, value } in &family.samples {
        let attributes: Vec<_> = labels.iter().map(|(key, value)| attribute(key, value.as_str())).collect();
        let number = |value| NumberPoint {
            start_time_unix_nano: start,
            time_unix_nano: now,
            value: Some(value),
            attributes: attributes.clone(),
        };
        match value {
            Measured::Counter(count) => {
                is_sum = true;
                numbers.push(number(Number::Count(i64::try_from(*count).unwrap_or(i64::MAX))));
            }
            Measured::Gauge(level) => {
                numbers.push(NumberPoint { start_time_unix_nano: 0, ..number(Number::Float(*level)) })
            }
            Measured::Histogram(histogram) => {
                let exemplar = |seen: lastword_broker::metrics::Exemplar| Exemplar {
                    time_unix_nano: nanoseconds(seen.at),
                    value: seen.value,
                    span_id: seen.span.to_vec(),
                    trace_id: seen.trace.to_vec(),
                };
                histograms.push(HistogramPoint {
                    start_time_unix_nano: start,
                    time_unix_nano: now,
                    count: histogram.count(),
                    sum: Some(histogram.sum),
                    bucket_counts: histogram.buckets.iter().map(|bucket| bucket.count).collect(),
                    bounds: histogram
                        .buckets
                        .iter()
                        .map(|bucket| bucket.bound)
                        .filter(|bound| bound.is_finite())
                        .collect(),
                    exemplars: histogram.buckets.iter().filter_map(|bucket| bucket.exemplar).map(exemplar).collect(),
                    attributes,
                });
            }
        }
    }
    let data = match (is_sum, numbers.is_empty(), histograms.is_empty()) {
        (_, true, true) => return None,
        (_, true, false) => Data::Histogram(Histogram { points: histograms, temporality: CUMULATIVE }),
        (true, ..) => Data::Sum(Sum { points: numbers, temporality: CUMULATIVE, is_monotonic: true }),
        (false, ..) => Data::Gauge(Gauge { points: numbers }),
    };
    let (name, unit) = named(family.name);
    Some(Metric { name, description: family.help.to_owned(), unit, data: Some(data) })
}

/// Returns a metric's name and unit as OpenTelemetry has them; a collector makes the name of Prometheus of both again.
fn named(name: &str) -> (String, String) {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let units = [("_seconds", "s"), ("_bytes", "By")];
    let measured = units.iter().find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, *unit)));
    let (name, unit) = measured.unwrap_or((name, ""));
    (name.replacen('_', ".", 1), unit.to_owned())
}
