//! The format of recorded conversations: one JSON object per line (`docs/replay.md`).

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// The byte order mark of UTF-8, which editors of some systems write.
const BOM: char = '\u{feff}';
/// Names of speakers who are human wherever they speak.
const HUMAN_NAMES: [&str; 2] = ["human", "user"];
/// The kind of a message that asks for nothing.
const NOTICE: &str = "notice";
/// The word by which a message ends a conversation and asks nobody for anything.
const END_WORD: &str = "TERMINATE";

/// One recorded conversation, as the file has it.
#[derive(Debug, Deserialize)]
struct Recorded {
    conversation_id: String,
    #[serde(default = "unknown")]
    class: String,
    onset: Option<usize>,
    messages: Vec<RecordedMessage>,
}

/// One recorded message, as the file has it.
#[derive(Debug, Deserialize)]
struct RecordedMessage {
    from: String,
    to: Option<String>,
    text: Option<String>,
    approx_tokens: Option<u64>,
    request: Option<String>,
    kind: Option<String>,
    session: Option<String>,
    /// What an orchestrator noted on its progress, such as `{"loop": "true"}`.
    ledger: Option<Value>,
}

/// One recorded conversation.
#[derive(Debug, Default)]
pub struct Trace {
    /// The conversation's name in the report.
    pub conversation_id: String,
    /// Its known class, such as `useful` or `loop`.
    pub class: String,
    /// The index of the message with which it begins to loop, if the recording says so.
    pub onset: Option<usize>,
    /// The messages, in order. No speaker has two in a row to the same recipient.
    pub messages: Vec<Said>,
    /// The speakers who are human.
    pub humans: BTreeSet<String>,
    /// Whether every message has its text.
    pub has_texts: bool,
}

/// What one speaker said before another one spoke.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The speaker's name, as free text.
    pub from: String,
    /// The recipient; `None` if it went to everyone.
    pub to: Option<String>,
    /// The text; empty if the recording has none.
    pub text: String,
    /// Its approximate length in tokens.
    pub tokens: u64,
    /// The request that it opens or answers, if the recording says so.
    pub request: Option<String>,
    /// The speaker's session, if the recording says so.
    pub session: Option<String>,
    /// Whether it ends the conversation.
    pub ends: bool,
    /// Whether it asks for nothing, as the notice of an idle or ended session.
    pub is_notice: bool,
}

impl From<Recorded> for Trace {
    fn from(recorded: Recorded) -> Self {
        let Recorded { conversation_id, class, onset, messages: all } = recorded;
        let has_texts = !all.is_empty() && all.iter().all(|message| message.text.is_some());
        let is_human = |message: &RecordedMessage| {
            message.kind.as_deref() == Some("human") || HUMAN_NAMES.contains(&message.from.to_lowercase().as_str())
        };
        let humans = all.iter().filter(|message| is_human(message)).map(|message| message.from.clone()).collect();
        let noted = |message: &RecordedMessage| {
            let looped = message.ledger.as_ref().map(|ledger| &ledger["loop"]);
            looped.is_some_and(|looped| looped == true || looped == "true")
        };
        let mut begun = onset.is_none().then(|| all.iter().position(noted)).flatten().or(onset);
        let mut messages: Vec<Said> = Vec::with_capacity(all.len());
        let mut onset = None;
        for (index, message) in all.into_iter().enumerate() {
            let text = message.text.unwrap_or_default();
            let tokens = message.approx_tokens.unwrap_or_else(|| (text.chars().count() as u64 / 4).max(1));
            let said = Said {
                from: message.from,
                to: message.to,
                text,
                tokens,
                request: message.request,
                session: message.session,
                ends: false,
                is_notice: message.kind.as_deref() == Some(NOTICE),
            };
            match messages.last_mut() {
                Some(last) if last.goes_on(&said) => last.add(said),
                Some(_) | None => messages.push(said),
            }
            if begun.is_some_and(|begun| index >= begun) {
                begun = None;
                onset = Some(messages.len() - 1);
            }
        }
        if let Some(last) = messages.last_mut() {
            last.ends = last.text.trim().trim_end_matches(['.', '!', '*', '`', '"']).ends_with(END_WORD);
        }
        Self { conversation_id, class, onset, messages, humans, has_texts }
    }
}

impl Said {
    /// Returns whether `next` goes on with this message: same speaker, no other recipient, request or session.
    fn goes_on(&self, next: &Self) -> bool {
        let same = |one: &Option<String>, other: &Option<String>| one.is_none() || other.is_none() || one == other;
        self.from == next.from
            && self.is_notice == next.is_notice
            && same(&self.to, &next.to)
            && same(&self.request, &next.request)
            && same(&self.session, &next.session)
    }

    fn add(&mut self, next: Self) {
        if !self.text.is_empty() && !next.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&next.text);
        self.tokens += next.tokens;
        self.to = next.to.or_else(|| self.to.take());
        self.request = next.request.or_else(|| self.request.take());
        self.session = next.session.or_else(|| self.session.take());
    }
}

fn unknown() -> String {
    "unknown".into()
}

/// A file that can't be read as recorded conversations.
#[derive(Debug)]
pub struct ReadError {
    text: String,
    /// What to do about it, if that is known.
    pub hint: Option<&'static str>,
}

impl ReadError {
    fn new(text: String, hint: &'static str) -> Self {
        Self { text, hint: Some(hint) }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ReadError {}

/// Reads a file line by line; `each` gets every conversation and the number of bytes read so far.
///
/// # Errors
/// Fails if the file can't be read, or a line isn't a conversation.
pub fn read(path: &Path, mut each: impl FnMut(&Trace, u64)) -> Result<(), ReadError> {
    let file = std::fs::File::open(path).map_err(|error| {
        ReadError::new(format!("{}: {error}", path.display()), "pass files with one JSON object per line")
    })?;
    let mut lines = BufReader::new(file);
    let (mut line, mut number, mut bytes) = (String::new(), 0, 0);
    loop {
        line.clear();
        let length = lines.read_line(&mut line).map_err(|error| {
            let text = format!("{}, line {}: {error}", path.display(), number + 1);
            ReadError { text, hint: (error.kind() == ErrorKind::InvalidData).then_some("save it as UTF-8") }
        })?;
        if length == 0 {
            return Ok(());
        }
        number += 1;
        bytes += length as u64;
        let text = line.trim_start_matches(BOM);
        if text.trim().is_empty() {
            continue;
        }
        let recorded: Recorded = serde_json::from_str(text).map_err(|error| {
            ReadError::new(
                format!("{}, line {number}: {error}", path.display()),
                "each line is {conversation_id, class, messages: [{from, to, text}]}",
            )
        })?;
        each(&recorded.into(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn trace(value: Value) -> Trace {
        serde_json::from_value::<Recorded>(value).unwrap().into()
    }

    #[test]
    fn two_messages_of_one_speaker_in_a_row_are_one() {
        let trace = trace(json!({ "conversation_id": "c", "messages": [
            { "from": "a", "text": "first" },
            { "from": "a", "to": "b", "text": "second" },
            { "from": "b", "to": "a", "text": "to a", "ledger": { "loop": "true" } },
            { "from": "b", "to": "c", "text": "to c" },
        ] }));
        let said: Vec<_> = trace.messages.iter().map(|m| (m.from.as_str(), m.to.as_deref(), m.text.as_str())).collect();
        assert_eq!(said, [("a", Some("b"), "first\nsecond"), ("b", Some("a"), "to a"), ("b", Some("c"), "to c")]);
        assert_eq!((trace.onset, trace.class.as_str(), trace.has_texts), (Some(1), "unknown", true));
    }

    #[test]
    fn a_closing_word_is_an_end_and_the_same_word_before_it_is_not() {
        let trace = trace(json!({ "conversation_id": "c", "messages": [
            { "from": "a", "to": "b", "text": "TERMINATE" },
            { "from": "b", "to": "a", "text": "Done. TERMINATE." },
        ] }));
        assert_eq!(trace.messages.iter().map(|said| said.ends).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_notice_is_no_part_of_what_was_said_before_it() {
        let trace = trace(json!({ "conversation_id": "c", "messages": [
            { "from": "coder", "to": "lead", "text": "It is fixed." },
            { "from": "coder", "to": "lead", "text": "idle", "kind": "notice" },
        ] }));
        assert_eq!(trace.messages.iter().map(|said| said.is_notice).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn humans_are_marked_or_named_so() {
        let trace = trace(json!({ "conversation_id": "c", "messages": [
            { "from": "ann", "kind": "human", "approx_tokens": 9 },
            { "from": "User", "to": "bot" },
            { "from": "bot", "to": "ann" },
        ] }));
        assert_eq!(trace.humans.iter().map(String::as_str).collect::<Vec<_>>(), ["User", "ann"]);
        assert_eq!((trace.messages[0].tokens, trace.messages[1].tokens, trace.has_texts), (9, 1, false));
    }
}
