//! The load of the kill campaigns, and what must hold of a log behind it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use lastword_core::{Core, State};
use lastword_facts::envelope::AnswerStatus;
use lastword_facts::fact::{Fact, Part, SYSTEM};
use lastword_store::{DataDir, LogReader};
use lastword_wire::Envelope;
use serde_json::{Value, json};

/// The agents among whom the requests are divided.
pub(crate) const AGENTS: usize = 4;

/// What clients know for certain across all crashes.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) next: u64,
    /// Keys with an unknown outcome, sent again after the restart.
    pub(crate) unknown: Vec<String>,
    /// Why the only send with a key was refused, by key.
    pub(crate) refused: BTreeMap<String, String>,
    /// Message ids by the key under which they were acknowledged.
    pub(crate) sent: BTreeMap<String, String>,
    /// The acknowledged answers.
    pub(crate) answers: Vec<String>,
}

pub(crate) type SharedKnown = Arc<Mutex<Known>>;

/// Builds a key's request, with the same content for every sender.
pub(crate) fn request(key: &str) -> Envelope {
    let number: usize = key.trim_start_matches("key-").parse().unwrap();
    let envelope: Value = json!({
        "type": "request", "to": format!("agent-{}", number % AGENTS), "ref": format!("WORK-{number}"),
        "request_id": key, "body": format!("{key} {}", "x".repeat(400)),
    });
    serde_json::from_value(envelope).unwrap()
}

/// Returns the answer to the request with this body, which begins with the request's own word.
pub(crate) fn answer(request: &str) -> String {
    format!("answer to {}", request.split(' ').next().unwrap_or_default())
}

/// Recounts the log: each key once, each request's answer once and its own, and the same state from a snapshot as from
/// the start. Returns how many requests have no answer.
pub(crate) fn check_log(data: &Path, known: &Known) -> usize {
    let reader = DataDir::at(data).open_reader().unwrap();
    let (folded, unanswered) = check_entries(reader.as_ref(), known);
    drop(reader);
    let log = DataDir::at(data).open().unwrap();
    let (at, bytes) = log.snapshots().load().unwrap().expect("a snapshot is saved at the end");
    let snapshot: State = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(at, snapshot.seq);
    assert!(&snapshot == folded.state(), "counters after a restart are those recomputed from the log");
    unanswered
}

/// Does the same without the snapshot; returns the fold of the log as well.
pub(crate) fn check_entries(reader: &dyn LogReader, known: &Known) -> (Core, usize) {
    let (mut keys, mut answers) = (BTreeMap::<String, u64>::new(), BTreeMap::new());
    let mut requests = BTreeMap::new();
    let mut folded = Core::default();
    let mut from = lastword_facts::Seq(1);
    loop {
        let entries = reader.read(from, 1_000).unwrap();
        let Some((last, _)) = entries.last() else { break };
        from = lastword_facts::Seq(last.0 + 1);
        for (seq, entry) in &entries {
            folded.replay(entry).unwrap_or_else(|e| panic!("{seq}: {e}"));
            if let Fact::Accepted { message } = &entry.fact {
                if let Some(key) = &message.key {
                    *keys.entry(key.id.to_string()).or_default() += 1;
                }
                if let Part::Request(terms) = &message.part {
                    requests.insert(terms.task, message.body.clone());
                }
                if let Part::Answer(terms) = &message.part {
                    *answers.entry(terms.task).or_insert(0) += 1;
                    let own = message.from == SYSTEM || *message.body == answer(&requests[&terms.task]);
                    assert!(own || terms.status != AnswerStatus::Completed, "{seq}: another request's answer");
                }
            }
        }
    }
    assert!(keys.values().all(|n| *n == 1), "a key was applied twice");
    assert!(answers.values().all(|n| *n == 1), "a request was answered twice");
    assert!(known.sent.keys().all(|key| keys.contains_key(key)), "what was acknowledged is in the log");
    let recorded: Vec<_> = known.refused.iter().filter(|(key, _)| keys.contains_key(*key)).collect();
    assert!(recorded.is_empty(), "refused, and in the log: {recorded:?}");
    let unanswered = requests.keys().filter(|task| !answers.contains_key(*task)).count();
    (folded, unanswered)
}
