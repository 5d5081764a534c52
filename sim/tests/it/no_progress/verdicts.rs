//! Compares the guard of R5 with recorded verdicts: conversations and verdicts, one JSON object per line each.
//!
//! A conversation is `{conversation_id, messages: [{from, to, text}]}`, where `to` may be null. A verdict is
//! `{conversation_id, warn, hold, dry, units, context}`: the index of the first message that is warned of, of the first
//! one that is held, and the numbers after the last message.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, Error, ErrorKind};

use lastword_facts::stall::{Due, Reading, Stall};
use serde_json::Value;

/// What the guard says of one conversation, taken as one exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// The index of the first message that is warned of.
    pub(crate) warn: Option<u64>,
    /// The index of the first message that is held.
    pub(crate) hold: Option<u64>,
    /// `dry` after the last message.
    pub(crate) dry: u64,
    /// The new units of all messages.
    pub(crate) units: u64,
    /// The tokens of all messages.
    pub(crate) context: u64,
}

/// A conversation on which the guard and the recorded verdict differ.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The conversation's name.
    pub(crate) conversation: String,
    /// The recorded verdict; `None` if there is none.
    pub(crate) recorded: Option<Judged>,
    /// The guard's verdict.
    pub(crate) judged: Judged,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: recorded {:?}, judged {:?}", self.conversation, self.recorded, self.judged)
    }
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// The conversations that were judged.
    pub(crate) conversations: u64,
    /// The messages in them.
    pub(crate) messages: u64,
    /// The conversations that are warned of or held at another message, or not at all.
    pub(crate) verdicts: Vec<Difference>,
    /// The conversations whose numbers differ and whose verdict doesn't.
    pub(crate) numbers: Vec<Difference>,
}

/// Reads recorded verdicts by the name of their conversation.
pub(crate) fn verdicts(lines: impl BufRead) -> Result<BTreeMap<String, Judged>, Error> {
    let mut found = BTreeMap::new();
    for line in lines.lines() {
        let row: Value = serde_json::from_str(&line?)?;
        let number = |name: &str| row[name].as_u64();
        let [dry, units, context] = ["dry", "units", "context"].map(|name| number(name).unwrap_or_default());
        let judged = Judged { warn: number("warn"), hold: number("hold"), dry, units, context };
        found.insert(text(&row, "conversation_id")?.to_owned(), judged);
    }
    Ok(found)
}

impl Compared {
    /// Judges the conversations of a file and compares them with the recorded verdicts.
    pub(crate) fn add(&mut self, lines: impl BufRead, recorded: &BTreeMap<String, Judged>) -> Result<(), Error> {
        for line in lines.lines() {
            let row: Value = serde_json::from_str(&line?)?;
            let conversation = text(&row, "conversation_id")?.to_owned();
            let judged = self.judge(&row)?;
            let recorded = recorded.get(&conversation).copied();
            let same = recorded.is_some_and(|it| (it.warn, it.hold) == (judged.warn, judged.hold));
            let difference = Difference { conversation, recorded, judged };
            if !same {
                self.verdicts.push(difference);
            } else if recorded != Some(judged) {
                self.numbers.push(difference);
            }
        }
        Ok(())
    }

    fn judge(&mut self, row: &Value) -> Result<Judged, Error> {
        let messages = row["messages"].as_array().ok_or_else(|| malformed("messages"))?;
        let mut speakers: Vec<&str> = Vec::new();
        let mut stall = Stall::default();
        let mut judged = Judged::default();
        for (index, message) in (0..).zip(messages) {
            let from = number(&mut speakers, text(message, "from")?);
            let to = message["to"].as_str().map(|to| number(&mut speakers, to));
            let said = text(message, "text")?;
            match stall.message(from, to, &Reading::of(said, None)) {
                Due::Nothing => {}
                Due::Warning => judged.warn = judged.warn.or(Some(index)),
                Due::Hold(_) => judged.hold = judged.hold.or(Some(index)),
            }
        }
        self.conversations += 1;
        self.messages += messages.len() as u64;
        let curve = stall.curve();
        Ok(Judged { dry: curve.dry, units: curve.units, context: curve.context, ..judged })
    }
}

/// Returns the number of a speaker, in the order in which they are first named.
pub(crate) fn number<'a>(speakers: &mut Vec<&'a str>, name: &'a str) -> u32 {
    let known = speakers.iter().position(|speaker| *speaker == name);
    let place = known.unwrap_or_else(|| {
        speakers.push(name);
        speakers.len() - 1
    });
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn text<'a>(row: &'a Value, name: &str) -> Result<&'a str, Error> {
    row[name].as_str().ok_or_else(|| malformed(name))
}

fn malformed(name: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("a line has no `{name}`"))
}
