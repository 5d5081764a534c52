//! The record of sent notifications: `notify.json` in the data directory.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;

use lastword_broker::files::Files;
use lastword_facts::ids::{ApprovalId, EscalationId, IncidentId};
use lastword_facts::{Seq, Time};
use serde::{Deserialize, Serialize};

use crate::backup::FILE_NOTIFY;

const VERSION: u32 = 1;

/// One thing that humans are notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) enum Topic {
    /// A question to a human.
    Question(EscalationId),
    /// A held call.
    Call(ApprovalId),
    /// A limit that tripped and holds work.
    Incident(IncidentId),
    /// A stop of the workspace.
    Stop,
    /// Information, by its position in the log: an ALERT, a grant whose time runs out, or the absence of all humans.
    Note(Seq),
}

const NOTE: &str = "note-";
const STOP: &str = "stop";

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Question(id) => id.fmt(f),
            Self::Call(id) => id.fmt(f),
            Self::Incident(id) => id.fmt(f),
            Self::Stop => f.write_str(STOP),
            Self::Note(seq) => write!(f, "{NOTE}{}", seq.0),
        }
    }
}

impl From<Topic> for String {
    fn from(topic: Topic) -> Self {
        topic.to_string()
    }
}

impl TryFrom<String> for Topic {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let question = EscalationId::parse(&text).map(Self::Question);
        let call = || ApprovalId::parse(&text).map(Self::Call);
        let incident = || IncidentId::parse(&text).map(Self::Incident);
        let stop = || (text == STOP).then_some(Self::Stop);
        let note = || Some(Self::Note(Seq(text.strip_prefix(NOTE)?.parse().ok()?)));
        question
            .or_else(call)
            .or_else(incident)
            .or_else(stop)
            .or_else(note)
            .ok_or_else(|| format!("{text:?} is nothing to tell of"))
    }
}

/// How often a channel was notified of a topic, and when last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Repeats {
    pub(super) times: u32,
    pub(super) last: Time,
}

/// A notification that is being sent. It is saved before the first attempt, so that a crash doesn't lose it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parcel {
    /// The notification's id; the same for all attempts.
    pub(super) id: String,
    /// Its topics; `true` marks one that the channel was notified of before.
    pub(super) topics: Vec<(Topic, bool)>,
    /// How many of them were delayed because the hour's notifications were used up.
    pub(super) folded: usize,
    /// The number of failed attempts.
    pub(super) failures: u32,
    /// The time of the next attempt.
    pub(super) next: Time,
}

/// A notification that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GivenUp {
    /// The notification's id.
    pub(super) id: String,
    pub(super) topics: Vec<Topic>,
    /// The time of the last attempt.
    pub(super) at: Time,
    /// Why that attempt failed.
    pub(super) reason: String,
}

/// The record of one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChannelLedger {
    /// The topics that are still pending and that the channel was notified of.
    pub(super) told: BTreeMap<Topic, Repeats>,
    /// The times of the notifications of the last hour.
    pub(super) sent: Vec<Time>,
    /// The notification that is being sent, if any.
    pub(super) parcel: Option<Parcel>,
    /// The newest notifications that were given up, oldest first.
    #[serde(default)]
    pub(super) given_up: Vec<GivenUp>,
}

/// The records of all channels, by name.
pub(super) type NotificationLedger = BTreeMap<String, ChannelLedger>;

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    channels: NotificationLedger,
}

/// Loads the record. If the file is missing or unreadable, the record is empty: everything pending is sent once more.
pub(super) fn load(files: &Files) -> NotificationLedger {
    let read = fs::read(files.path(FILE_NOTIFY))
        .and_then(|bytes| serde_json::from_slice::<File>(&bytes).map_err(io::Error::other));
    match read {
        Ok(file) if file.version == VERSION => file.channels,
        Ok(file) => {
            tracing::warn!(
                version = file.version,
                "notify.json is from another version: pending items are sent once more"
            );
            NotificationLedger::new()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => NotificationLedger::new(),
        Err(error) => {
            tracing::warn!(%error, "notify.json can't be read: pending items are sent once more");
            NotificationLedger::new()
        }
    }
}

/// Saves the record, completely or not at all.
pub(super) fn save(files: &Files, book: NotificationLedger) -> io::Result<()> {
    let bytes = serde_json::to_vec(&File { version: VERSION, channels: book })?;
    files.write(FILE_NOTIFY, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_that_was_saved_is_read_as_it_was_and_a_damaged_one_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::local(dir.path());
        let path = files.path(FILE_NOTIFY);
        assert_eq!(load(&files), NotificationLedger::new());
        let told = |topic| (topic, Repeats { times: 2, last: Time(7) });
        let topics = [
            Topic::Question(EscalationId(1)),
            Topic::Call(ApprovalId(2)),
            Topic::Incident(IncidentId(3)),
            Topic::Stop,
            Topic::Note(Seq(4)),
        ];
        let parcel =
            Parcel { id: "ntf-1".into(), topics: vec![(Topic::Stop, false)], folded: 1, failures: 2, next: Time(9) };
        let given_up =
            vec![GivenUp { id: "ntf-0".into(), topics: topics.to_vec(), at: Time(8), reason: "it was down".into() }];
        let told = topics.into_iter().map(told).collect();
        let ledger = ChannelLedger { told, sent: vec![Time(7)], parcel: Some(parcel), given_up };
        let book = NotificationLedger::from([("desk".to_owned(), ledger)]);
        save(&files, book.clone()).unwrap();
        assert_eq!(load(&files), book);
        fs::write(&path, r#"{"version":1,"channels":{"desk":{"told":{},"sent":[],"parcel":null}}}"#).unwrap();
        assert!(load(&files)["desk"].given_up.is_empty(), "of a version before lists of what was given up");
        fs::write(&path, "{").unwrap();
        assert_eq!(load(&files), NotificationLedger::new());
        fs::write(&path, r#"{"version":9,"channels":{}}"#).unwrap();
        assert_eq!(load(&files), NotificationLedger::new());
    }
}
