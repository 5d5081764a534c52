//! Metrics as values, and the text formats that show them: that of Prometheus, and OpenMetrics, which has exemplars.

use std::fmt::Write as _;

use lastword_facts::Time;

/// A metric with all its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name; a counter's ends in `_total`, another's in its unit.
    pub name: &'static str,
    /// One sentence on what it is.
    pub help: &'static str,
    /// The samples, which are all of one kind.
    pub samples: Vec<Sample>,
}

/// A value, and its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// What is measured.
    pub value: Measured,
}

/// What a metric measures.
#[derive(Clone, Debug, PartialEq)]
pub enum Measured {
    /// A count that only grows.
    Counter(u64),
    /// A level.
    Gauge(f64),
    /// A distribution.
    Histogram(Histogram),
}

/// A distribution over ranges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The ranges by their upper bounds, ascending; the last has none.
    pub buckets: Vec<Bucket>,
    /// The sum of all values.
    pub sum: f64,
}

/// A range of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// The upper bound, included; infinite for the last.
    pub bound: f64,
    /// The number of values in this range alone.
    pub count: u64,
    /// One of them, and where it was seen.
    pub exemplar: Option<Exemplar>,
}

/// A value of a histogram that leads to its trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The value.
    pub value: f64,
    /// When it was measured.
    pub at: Time,
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
}

impl Family {
    /// Returns a counter without labels.
    pub fn counter(name: &'static str, help: &'static str, count: u64) -> Self {
        Self::of(name, help, [(Vec::new(), Measured::Counter(count))])
    }

    /// Returns a gauge without labels.
    pub fn gauge(name: &'static str, help: &'static str, level: f64) -> Self {
        Self::of(name, help, [(Vec::new(), Measured::Gauge(level))])
    }

    /// Returns a metric with labels.
    pub fn of(
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Vec<(&'static str, String)>, Measured)>,
    ) -> Self {
        let samples = samples.into_iter().map(|(labels, value)| Sample { labels, value });
        Self { name, help, samples: samples.collect() }
    }
}

impl Measured {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Histogram {
    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum()
    }
}

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl TextFormat {
    /// Returns its media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Formats metrics.
    #[must_use]
    pub fn text(self, families: &[Family]) -> String {
        let mut out = String::new();
        for Family { name, help, samples } in families {
            let Some(first) = samples.first() else { continue };
            let family = match self {
                Self::Prometheus => name,
                Self::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
            };
            // Writing to a string can't fail.
            let _ok = write!(out, "# HELP {family} {help}\n# TYPE {family} {}\n", first.value.kind());
            for Sample { labels, value } in samples {
                let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
                let labels = labels.join(",");
                match value {
                    Measured::Counter(count) => line(&mut out, name, &labels, &count.to_string()),
                    Measured::Gauge(level) => line(&mut out, name, &labels, &level.to_string()),
                    Measured::Histogram(histogram) => self.histogram(&mut out, name, &labels, histogram),
                }
            }
        }
        if self == Self::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }

    fn histogram(self, out: &mut String, name: &str, labels: &str, histogram: &Histogram) {
        let mut total = 0;
        for Bucket { bound, count, exemplar } in &histogram.buckets {
            total += count;
            let bound = match self {
                _ if bound.is_infinite() => "+Inf".to_owned(),
                Self::Prometheus => bound.to_string(),
                // A bound is a number with a point there.
                Self::OpenMetrics => format!("{bound:?}"),
            };
            let comma = if labels.is_empty() { "" } else { "," };
            let mut value = total.to_string();
            if let Some(Exemplar { value: seen, at, trace, span }) = exemplar.filter(|_| self == Self::OpenMetrics) {
                let (trace, span) = (u128::from_be_bytes(trace), u64::from_be_bytes(span));
                let at = format!("{}.{:03}", at.0 / 1_000, at.0 % 1_000);
                let _ok = write!(value, " # {{trace_id=\"{trace:032x}\",span_id=\"{span:016x}\"}} {seen} {at}");
            }
            line(out, &format!("{name}_bucket"), &format!("{labels}{comma}le=\"{bound}\""), &value);
        }
        line(out, &format!("{name}_sum"), labels, &histogram.sum.to_string());
        line(out, &format!("{name}_count"), labels, &total.to_string());
    }
}

fn line(out: &mut String, name: &str, labels: &str, value: &str) {
    let _ok =
        if labels.is_empty() { writeln!(out, "{name} {value}") } else { writeln!(out, "{name}{{{labels}}} {value}") };
}
