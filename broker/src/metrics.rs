//! The server's counters.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use lastword_core::{Reply, State};
use lastword_facts::fact::{Level, Stalled};
use lastword_facts::stall::StallCause;
use lastword_facts::{Code, Fact};
use lastword_wire::DiskSpace;

mod family;
mod holds;

pub use self::family::{Bucket, Exemplar, Family, Histogram, Measured, Sample, TextFormat};
use self::holds::Holds;

const BUCKETS_US: [u64; 10] = [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000];

/// The labels of an exchange that makes no progress, in the order of its counters.
const STALLED: [(Level, StallCause, bool); 6] = [
    (Level::Warned, StallCause::Dry, true),
    (Level::Warned, StallCause::Dry, false),
    (Level::Held, StallCause::Dry, true),
    (Level::Held, StallCause::Dry, false),
    (Level::Held, StallCause::Stuck, true),
    (Level::Held, StallCause::Stuck, false),
];

/// The server's counters. All only grow, and are zero at a start.
#[derive(Debug)]
pub struct Metrics {
    accepted: AtomicU64,
    refused: Vec<AtomicU64>,
    /// Exchanges that made no progress: warned or held, dry or stuck, in force or observed (R5).
    stalled: [AtomicU64; STALLED.len()],
    holds: Holds,
    wakes: AtomicU64,
    turns: AtomicU64,
    facts: AtomicU64,
    appends: [AtomicU64; BUCKETS_US.len() + 1],
    append_us: AtomicU64,
    channels: RwLock<Vec<Notified>>,
    others: Others,
}

/// Metrics that are counted outside of the broker.
#[derive(Default)]
struct Others(OnceLock<Box<dyn Fn() -> Vec<Family> + Send + Sync>>);

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

/// The counts of one notification channel.
#[derive(Debug, Default)]
struct Notified {
    channel: String,
    sent: AtomicU64,
    failed: AtomicU64,
    folded: AtomicU64,
}

/// The outcome of a notification, or of an attempt to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationOutcome {
    /// The channel's target accepted the notification.
    Sent,
    /// One attempt failed; it may be retried.
    Failed,
    /// This many of its items were delayed because the hour's notifications were used up.
    Folded(usize),
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            accepted: AtomicU64::new(0),
            refused: Code::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            stalled: std::array::from_fn(|_| AtomicU64::new(0)),
            holds: Holds::default(),
            wakes: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            facts: AtomicU64::new(0),
            appends: std::array::from_fn(|_| AtomicU64::new(0)),
            append_us: AtomicU64::new(0),
            channels: RwLock::default(),
            others: Others::default(),
        }
    }
}

/// What is counted elsewhere, as of now.
#[derive(Clone, Copy, Debug)]
pub struct Gauges {
    /// The commands that wait for the broker.
    pub queue_depth: usize,
    /// The agents and humans that can prove who they are.
    pub agents: usize,
    /// Whether there is room on the disk of the data directory.
    pub disk_space: DiskSpace,
    /// The free bytes of that disk.
    pub disk_free: Option<u64>,
    /// The wall clock's time minus the broker's, in ms.
    pub clock_ms: i64,
}

impl Metrics {
    /// Starts at zero, with what the state knows of humans and of exchanges that are held.
    pub(crate) fn of(state: &State) -> Self {
        let metrics = Self::default();
        metrics.holds.begin(state);
        metrics
    }

    pub(crate) fn reply(&self, reply: &Reply) {
        // Refusals before the core are counted by the edges, through `refuse`.
        if let Reply::Refused { refusal, .. } = reply {
            self.refuse(refusal.code);
        }
    }

    /// Counts a refusal that an edge made before it asked the core.
    pub fn refuse(&self, code: Code) {
        add(&self.refused[code as usize], 1);
    }

    pub(crate) fn fact(&self, fact: &Fact) {
        add(&self.facts, 1);
        self.holds.fact(fact);
        if matches!(fact, Fact::Accepted { .. }) {
            add(&self.accepted, 1);
        } else if matches!(fact, Fact::TurnOpened(_)) {
            add(&self.turns, 1);
        } else if let Fact::Stalled(Stalled { level, stall, enforced, .. }) = fact
            && let Some(place) = STALLED.iter().position(|labels| *labels == (*level, *stall, *enforced))
        {
            add(&self.stalled[place], 1);
        }
    }

    pub(crate) fn wake(&self) {
        add(&self.wakes, 1);
    }

    pub(crate) fn append(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US.iter().position(|&b| us <= b).unwrap_or(BUCKETS_US.len());
        add(&self.appends[bucket], 1);
        add(&self.append_us, us);
    }

    /// Names the notification channels, in their order. Those known before keep their counts.
    pub fn tell_of(&self, channels: Vec<String>) {
        let mut known = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        let mut counted = std::mem::take(&mut *known);
        *known = channels
            .into_iter()
            .map(|channel| match counted.iter().position(|known| known.channel == channel) {
                Some(place) => counted.swap_remove(place),
                None => Notified { channel, ..Notified::default() },
            })
            .collect();
    }

    /// Counts the outcome of a notification of a channel.
    pub fn told(&self, channel: &str, told: NotificationOutcome) {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        let Some(notified) = channels.iter().find(|known| known.channel == channel) else { return };
        match told {
            NotificationOutcome::Sent => add(&notified.sent, 1),
            NotificationOutcome::Failed => add(&notified.failed, 1),
            NotificationOutcome::Folded(n) => add(&notified.folded, n as u64),
        }
    }

    /// Adds the metrics of a part outside of the broker. Only the first call has an effect.
    pub fn extend(&self, others: impl Fn() -> Vec<Family> + Send + Sync + 'static) {
        let _first = self.others.0.set(Box::new(others));
    }

    /// Returns all metrics, as of now.
    #[must_use]
    pub fn families(&self, gauges: Gauges) -> Vec<Family> {
        let Gauges { queue_depth, agents, disk_space, disk_free, clock_ms } = gauges;
        let (counter, gauge) = (Family::counter, Family::gauge);
        let shortage = "Room on the disk: 0 enough, 1 low (no new work is taken), 2 full (only controls are taken).";
        let free = disk_free
            .map(|free| gauge("lastword_disk_free_bytes", "Free room on the disk of the data directory.", float(free)));
        let sign = if clock_ms < 0 { -1.0 } else { 1.0 };
        let clock = sign * seconds(clock_ms.unsigned_abs().saturating_mul(1_000));
        let mut all = vec![
            counter("lastword_messages_accepted_total", "Messages admitted.", load(&self.accepted)),
            counter("lastword_wakes_total", "Wakes of agents.", load(&self.wakes)),
            counter("lastword_turns_total", "Turns opened.", load(&self.turns)),
            counter("lastword_facts_total", "Facts made durable.", load(&self.facts)),
            gauge("lastword_queue_depth", "Commands that wait for the broker.", float(queue_depth as u64)),
            gauge("lastword_agents", "Agents and humans that can prove who they are.", float(agents as u64)),
            gauge("lastword_disk_shortage", shortage, float(disk_space as u64)),
        ];
        all.extend(free);
        all.push(gauge("lastword_clock_difference_seconds", "The wall clock's time less the broker's.", clock));
        let refused =
            Code::ALL.iter().zip(&self.refused).map(|(code, count)| (vec![("code", code.to_string())], of(count)));
        all.push(Family::of("lastword_refused_total", "Refusals by code.", refused));
        all.push(self.stalls());
        all.extend(self.holds.families());
        all.extend(self.notifications());
        all.push(self.appends());
        all.extend(self.others.0.get().into_iter().flat_map(|others| others()));
        all
    }

    fn stalls(&self) -> Family {
        let stalled = STALLED.iter().zip(&self.stalled).map(|((level, stall, enforced), count)| {
            (vec![("level", level.to_string()), ("reason", stall.to_string()), ("mode", mode(*enforced))], of(count))
        });
        let help = "Exchanges that make no progress, by what follows, reason and mode.";
        Family::of("lastword_no_progress_total", help, stalled)
    }

    fn notifications(&self) -> Vec<Family> {
        let channels = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        let counted = |name, help, count: fn(&Notified) -> &AtomicU64| {
            let samples = channels.iter().map(|known| (vec![("channel", known.channel.clone())], of(count(known))));
            Family::of(name, help, samples)
        };
        let folded = "Items delayed because the hour's notifications were used up.";
        vec![
            counted("lastword_notifications_sent_total", "Notifications that arrived.", |known| &known.sent),
            counted("lastword_notifications_failed_total", "Attempts to notify that failed.", |known| &known.failed),
            counted("lastword_notifications_folded_total", folded, |known| &known.folded),
        ]
    }

    fn appends(&self) -> Family {
        let bounds = BUCKETS_US.iter().map(|us| seconds(*us)).chain([f64::INFINITY]);
        let buckets =
            bounds.zip(&self.appends).map(|(bound, count)| Bucket { bound, count: load(count), exemplar: None });
        let histogram = Histogram { buckets: buckets.collect(), sum: seconds(load(&self.append_us)) };
        let samples = [(Vec::new(), Measured::Histogram(histogram))];
        Family::of("lastword_append_seconds", "Time to make a batch durable.", samples)
    }
}

fn mode(enforced: bool) -> String {
    if enforced { "enforce" } else { "observe" }.to_owned()
}

fn of(count: &AtomicU64) -> Measured {
    Measured::Counter(load(count))
}

#[allow(clippy::cast_precision_loss, reason = "a metric may be off by a part in 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

fn seconds(us: u64) -> f64 {
    float(us) / 1_000_000.0
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use lastword_facts::Time;

    use super::*;

    const GAUGES: Gauges =
        Gauges { queue_depth: 0, agents: 0, disk_space: DiskSpace::Low, disk_free: Some(9), clock_ms: 0 };

    #[test]
    fn a_histogram_counts_up_to_its_total() {
        let metrics = Metrics::default();
        metrics.append(Duration::from_micros(300));
        metrics.append(Duration::from_secs(3));
        metrics.refuse(Code::HopCap);
        let text = TextFormat::Prometheus.text(&metrics.families(Gauges { clock_ms: -61_000, ..GAUGES }));
        assert!(text.contains("lastword_disk_shortage 1\n"), "{text}");
        assert!(text.contains("lastword_disk_free_bytes 9\n"), "{text}");
        assert!(text.contains("lastword_clock_difference_seconds -61\n"), "{text}");
        assert!(text.contains("lastword_append_seconds_bucket{le=\"0.0005\"} 1\n"), "{text}");
        assert!(text.contains("lastword_append_seconds_count 2\n"), "{text}");
        assert!(text.contains("lastword_refused_total{code=\"hop_cap\"} 1\n"), "{text}");
    }

    #[test]
    fn openmetrics_has_exemplars_and_prometheus_has_none() {
        let seen = Exemplar { value: 0.25, at: Time(1_500), trace: [1; 16], span: [2; 8] };
        let bucket = |bound, count, exemplar| Bucket { bound, count, exemplar };
        let buckets = vec![bucket(1.0, 2, Some(seen)), bucket(f64::INFINITY, 1, None)];
        let histogram = Measured::Histogram(Histogram { buckets, sum: 9.5 });
        let families = [
            Family::counter("a_total", "Counted.", 3),
            Family::of("none", "Has no samples.", []),
            Family::of("b_seconds", "Taken.", [(vec![("kind", "x".to_owned())], histogram)]),
        ];
        let prometheus = "# HELP a_total Counted.\n# TYPE a_total counter\na_total 3\n\
            # HELP b_seconds Taken.\n# TYPE b_seconds histogram\n\
            b_seconds_bucket{kind=\"x\",le=\"1\"} 2\nb_seconds_bucket{kind=\"x\",le=\"+Inf\"} 3\n\
            b_seconds_sum{kind=\"x\"} 9.5\nb_seconds_count{kind=\"x\"} 3\n";
        assert_eq!(TextFormat::Prometheus.text(&families), prometheus);
        let exemplar = "# {trace_id=\"01010101010101010101010101010101\",span_id=\"0202020202020202\"} 0.25 1.500";
        let openmetrics = prometheus
            .replace(" a_total Counted", " a Counted")
            .replace(" a_total counter", " a counter")
            .replace("le=\"1\"} 2", &format!("le=\"1.0\"}} 2 {exemplar}"));
        assert_eq!(TextFormat::OpenMetrics.text(&families), format!("{openmetrics}# EOF\n"));
    }

    /// Lists a text of metrics: name, labels, type and help of each.
    fn rows(text: &str) -> String {
        let mut rows = String::new();
        for family in text.split("# HELP ").skip(1) {
            let (help, rest) = family.split_once('\n').unwrap();
            let (name, help) = help.split_once(' ').unwrap();
            let kind = rest.lines().next().unwrap().rsplit(' ').next().unwrap();
            let sample = rest.lines().nth(1).unwrap();
            let labels =
                sample.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(labels, _)| labels);
            let labels: Vec<_> = labels
                .split(',')
                .filter_map(|label| label.split_once('='))
                .map(|(key, _)| format!("`{key}`"))
                .collect();
            let _ok = writeln!(rows, "| `{name}` | {} | {kind} | {help} |", labels.join(", "));
        }
        rows
    }

    #[test]
    fn the_metrics_document_lists_every_metric_of_a_broker() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        let metrics = Metrics::default();
        metrics.tell_of(vec!["ops".to_owned()]);
        let text = TextFormat::Prometheus.text(&metrics.families(GAUGES));
        let document = std::fs::read_to_string(path).unwrap();
        let (before, rest) = document.split_once("|---|---|---|---|\n").unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        let now = format!("{before}|---|---|---|---|\n{}\n{after}", rows(&text));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &now).unwrap();
        }
        assert!(std::env::var_os("UPDATE").is_some() || now == document, "run this test with UPDATE=1");
    }
}
