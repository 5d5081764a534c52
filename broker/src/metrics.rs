//! The server's counters, in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lastword_core::{Reply, State};
use lastword_facts::fact::Level;
use lastword_facts::stall::StallCause;
use lastword_facts::{Code, Fact};
use lastword_wire::DiskSpace;

mod holds;

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
    channels: OnceLock<Vec<Notified>>,
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
            channels: OnceLock::new(),
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
        } else if matches!(fact, Fact::TurnOpened { .. }) {
            add(&self.turns, 1);
        } else if let Fact::Stalled { level, stall, enforced, .. } = fact
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

    /// Names the notification channels, in their order. Only the first call has an effect.
    pub fn tell_of(&self, channels: Vec<String>) {
        let counted = |channel| Notified { channel, ..Notified::default() };
        // There is one follower, and it names the channels when it starts.
        let _first = self.channels.set(channels.into_iter().map(counted).collect());
    }

    /// Counts the outcome of a notification of the channel at `place`.
    pub fn told(&self, place: usize, told: NotificationOutcome) {
        let Some(notified) = self.channels.get().and_then(|channels| channels.get(place)) else { return };
        match told {
            NotificationOutcome::Sent => add(&notified.sent, 1),
            NotificationOutcome::Failed => add(&notified.failed, 1),
            NotificationOutcome::Folded(n) => add(&notified.folded, n as u64),
        }
    }

    /// Formats all counters and gauges.
    #[must_use]
    pub fn text(&self, gauges: Gauges) -> String {
        let Gauges { queue_depth, agents, disk_space, disk_free, clock_ms } = gauges;
        let mut out = String::new();
        let mut simple = |name: &str, kind: &str, help: &str, value: u64| {
            // Writing to a string can't fail.
            let _ok = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        };
        simple("lastword_messages_accepted_total", "counter", "Messages admitted.", load(&self.accepted));
        simple("lastword_wakes_total", "counter", "Wakes of agents.", load(&self.wakes));
        simple("lastword_turns_total", "counter", "Turns opened.", load(&self.turns));
        simple("lastword_facts_total", "counter", "Facts made durable.", load(&self.facts));
        simple("lastword_queue_depth", "gauge", "Commands that wait for the broker.", queue_depth as u64);
        simple("lastword_agents", "gauge", "Agents and humans that can prove who they are.", agents as u64);
        let shortage = "Room on the disk: 0 enough, 1 low (no new work is taken), 2 full (only controls are taken).";
        simple("lastword_disk_shortage", "gauge", shortage, disk_space as u64);
        if let Some(free) = disk_free {
            simple("lastword_disk_free_bytes", "gauge", "Free room on the disk of the data directory.", free);
        }
        clock(clock_ms, &mut out);
        self.refusals(&mut out);
        self.stalls(&mut out);
        self.notifications(&mut out);
        self.histogram(&mut out);
        out
    }

    fn stalls(&self, out: &mut String) {
        out.push_str(
            "# HELP lastword_no_progress_total Exchanges that make no progress, by what follows, reason and mode.\n",
        );
        out.push_str("# TYPE lastword_no_progress_total counter\n");
        for ((level, stall, enforced), count) in STALLED.iter().zip(&self.stalled) {
            let mode = if *enforced { "enforce" } else { "observe" };
            let labels = format!("level=\"{level}\",reason=\"{stall}\",mode=\"{mode}\"");
            let _ok = writeln!(out, "lastword_no_progress_total{{{labels}}} {}", load(count));
        }
        self.holds.text(out);
    }

    fn refusals(&self, out: &mut String) {
        out.push_str("# HELP lastword_refused_total Refusals by code.\n# TYPE lastword_refused_total counter\n");
        for (code, count) in Code::ALL.iter().zip(&self.refused) {
            let _ok = writeln!(out, "lastword_refused_total{{code=\"{code}\"}} {}", load(count));
        }
    }

    fn notifications(&self, out: &mut String) {
        let Some(channels) = self.channels.get() else { return };
        let counters = [
            ("sent", "Notifications that arrived."),
            ("failed", "Attempts to notify that failed."),
            ("folded", "Items delayed because the hour's notifications were used up."),
        ];
        for (at, (word, help)) in counters.into_iter().enumerate() {
            let name = format!("lastword_notifications_{word}_total");
            let _ok = write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n");
            for notified in channels {
                let count = load([&notified.sent, &notified.failed, &notified.folded][at]);
                let _ok = writeln!(out, "{name}{{channel=\"{}\"}} {count}", notified.channel);
            }
        }
    }

    fn histogram(&self, out: &mut String) {
        const NAME: &str = "lastword_append_seconds";
        let _ok = write!(out, "# HELP {NAME} Time to make a batch durable.\n# TYPE {NAME} histogram\n");
        let mut total = 0;
        for (bucket, count) in BUCKETS_US.iter().zip(&self.appends) {
            total += load(count);
            let _ok = writeln!(out, "{NAME}_bucket{{le=\"{}\"}} {total}", seconds(*bucket));
        }
        total += load(&self.appends[BUCKETS_US.len()]);
        let sum = seconds(load(&self.append_us));
        let _ok = write!(out, "{NAME}_bucket{{le=\"+Inf\"}} {total}\n{NAME}_sum {sum}\n{NAME}_count {total}\n");
    }
}

fn clock(ms: i64, out: &mut String) {
    const NAME: &str = "lastword_clock_difference_seconds";
    let sign = if ms < 0 { "-" } else { "" };
    let seconds = seconds(ms.unsigned_abs().saturating_mul(1_000));
    let _ok = write!(
        out,
        "# HELP {NAME} The wall clock's time less the broker's.\n# TYPE {NAME} gauge\n{NAME} {sign}{seconds}\n"
    );
}

#[allow(clippy::cast_precision_loss, reason = "a metric may be off by a part in 2^53")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_up_to_its_total() {
        let metrics = Metrics::default();
        metrics.append(Duration::from_micros(300));
        metrics.append(Duration::from_secs(3));
        metrics.refuse(Code::HopCap);
        let text = metrics.text(Gauges {
            queue_depth: 0,
            agents: 0,
            disk_space: DiskSpace::Low,
            disk_free: Some(9),
            clock_ms: -61_000,
        });
        assert!(text.contains("lastword_disk_shortage 1\n"), "{text}");
        assert!(text.contains("lastword_disk_free_bytes 9\n"), "{text}");
        assert!(text.contains("lastword_clock_difference_seconds -61\n"), "{text}");
        assert!(text.contains("lastword_append_seconds_bucket{le=\"0.0005\"} 1\n"), "{text}");
        assert!(text.contains("lastword_append_seconds_count 2\n"), "{text}");
        assert!(text.contains("lastword_refused_total{code=\"hop_cap\"} 1\n"), "{text}");
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
        let text = metrics.text(Gauges {
            queue_depth: 0,
            agents: 0,
            disk_space: DiskSpace::Low,
            disk_free: Some(9),
            clock_ms: 0,
        });
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
