//! What the exporter counts: its posts, and the time that spans took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use lastword_broker::metrics::{Bucket, Exemplar, Family, Histogram, Measured};
use lastword_facts::Seq;
use tokio::sync::watch;

use crate::Signal;
use crate::otlp::nanoseconds;
use crate::projection::{EndedSpan, Operation};

/// The upper bounds of a span's time, in seconds.
const BOUNDS: [f64; 11] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0];

pub(crate) struct Counts {
    exported: [AtomicU64; Signal::ALL.len()],
    failed: [AtomicU64; Signal::ALL.len()],
    lost: [AtomicU64; Signal::ALL.len()],
    folded: AtomicU64,
    /// The end of the log, if spans are exported.
    committed: Option<watch::Receiver<Seq>>,
    took: Mutex<[Histogram; Operation::ALL.len()]>,
}

impl Counts {
    pub(crate) fn new(committed: Option<watch::Receiver<Seq>>) -> Self {
        let bucket = |bound| Bucket { bound, count: 0, exemplar: None };
        let histogram =
            || Histogram { buckets: BOUNDS.into_iter().chain([f64::INFINITY]).map(bucket).collect(), sum: 0.0 };
        Self {
            exported: Default::default(),
            failed: Default::default(),
            lost: Default::default(),
            folded: AtomicU64::new(0),
            committed,
            took: Mutex::new(std::array::from_fn(|_| histogram())),
        }
    }

    pub(crate) fn exported(&self, signal: Signal, records: u64) {
        self.exported[signal as usize].fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, signal: Signal) {
        self.failed[signal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self, signal: Signal, records: u64) {
        self.lost[signal as usize].fetch_add(records, Ordering::Relaxed);
    }

    /// Notes how far the log is folded.
    pub(crate) fn folded(&self, seq: Seq) {
        self.folded.store(seq.0, Ordering::Relaxed);
    }

    /// Counts spans that have ended.
    pub(crate) fn took(&self, ended: &[EndedSpan]) {
        let mut took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        for EndedSpan { operation, at, span } in ended {
            let Some((trace, id, start)) = span.head() else { continue };
            let ns = nanoseconds(*at).saturating_sub(start);
            // A message that is no request takes no time.
            if *operation == Operation::Send && ns == 0 {
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "a metric may be off by a part in 2^53")]
            let value = ns as f64 / 1e9;
            let Histogram { buckets, sum } = &mut took[*operation as usize];
            let Some(bucket) = buckets.iter_mut().find(|bucket| value <= bucket.bound) else { continue };
            bucket.count += 1;
            *sum += value;
            bucket.exemplar = Some(Exemplar { value, at: *at, trace, span: id });
        }
    }

    /// Returns the metrics.
    pub(crate) fn families(&self) -> Vec<Family> {
        let signals = |name, help, counts: &[AtomicU64]| {
            let samples = Signal::ALL.iter().zip(counts).map(|(signal, count)| {
                (vec![("signal", signal.to_string())], Measured::Counter(count.load(Ordering::Relaxed)))
            });
            Family::of(name, help, samples)
        };
        let folded = self.folded.load(Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a metric may be off by a part in 2^53")]
        let behind = self.committed.iter().map(|committed| committed.borrow().0.saturating_sub(folded) as f64);
        let behind = behind.map(|facts| (Vec::new(), Measured::Gauge(facts)));
        let took = self.took.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let took = Operation::ALL
            .iter()
            .zip(took)
            .map(|(kind, histogram)| (vec![("span", kind.word().to_owned())], Measured::Histogram(histogram)));
        vec![
            signals(
                "lastword_telemetry_exported_total",
                "Spans, metrics and log records that the receiver took.",
                &self.exported,
            ),
            signals("lastword_telemetry_failed_total", "Attempts to export that failed.", &self.failed),
            signals("lastword_telemetry_lost_total", "Spans and log records that are lost.", &self.lost),
            Family::of("lastword_telemetry_behind_facts", "Facts whose spans aren't made yet.", behind),
            Family::of(
                "lastword_span_seconds",
                "Time that spans took, by the first word of their name, in grants that are recorded.",
                took,
            ),
        ]
    }
}
