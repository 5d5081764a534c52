//! Reports what would have been done to recorded conversations, by class.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::play::Played;
use crate::trace::Trace;

/// The titles of the columns of [`Report::rows`].
pub const COLUMNS: [&str; 11] =
    ["class", "of", "cut", "by", "before onset", "after", "R5 warns", "R5 holds", "context saved", "lifts", "waits"];

/// The report of a replay under one set of rules.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The results by class of conversation.
    classes: BTreeMap<String, Class>,
    /// Every conversation that was cut.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<Cut>,
}

/// The results of one class.
#[derive(Debug, Default, Serialize)]
struct Class {
    conversations: u64,
    cut: u64,
    by_code: BTreeMap<String, u64>,
    /// Cut, in a conversation whose onset is known, before the loop begins.
    cut_before_onset: u64,
    /// Cut, in a conversation whose onset is known, once the loop has begun.
    cut_after_onset: u64,
    /// Cut, and no human's step lets it go on.
    cut_for_good: u64,
    warned: u64,
    held: u64,
    messages: u64,
    messages_saved: u64,
    context_tokens: u64,
    context_tokens_saved: u64,
    /// How often a human has to say yes for all of them to go on as recorded.
    lifts: u64,
    delayed: u64,
}

/// One conversation that was cut.
#[derive(Debug, Serialize)]
pub struct Cut {
    conversation: String,
    class: String,
    at_message: usize,
    of_messages: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    onset: Option<usize>,
    code: String,
    lifts: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { conversation, class, at_message, of_messages, onset, code, lifts } = self;
        write!(f, "{conversation} ({class}): {code} at {at_message} of {of_messages}")?;
        if let Some(onset) = onset {
            write!(f, ", onset {onset}")?;
        }
        if *lifts > 0 {
            write!(f, ", {lifts} lifts to the end")?;
        }
        Ok(())
    }
}

impl Report {
    /// Adds a conversation. Each speaker first reads the whole conversation, which is its context.
    pub fn add(&mut self, trace: &Trace, played: &Played) {
        let class = self.classes.entry(trace.class.clone()).or_default();
        let end = played.cut.as_ref().map_or(trace.messages.len(), |(at, _)| *at);
        let (mut context, mut read) = (0, 0);
        for (i, said) in trace.messages.iter().enumerate() {
            context += said.tokens;
            read += context;
            class.context_tokens_saved += if i >= end { context } else { 0 };
        }
        class.conversations += 1;
        class.context_tokens += read;
        class.messages += trace.messages.len() as u64;
        class.messages_saved += (trace.messages.len() - end) as u64;
        class.delayed += played.delayed;
        class.lifts += played.lifts;
        class.warned += u64::from(played.warned.is_some());
        class.held += u64::from(played.held.is_some());
        if let Some((at, code)) = &played.cut {
            class.cut += 1;
            class.cut_for_good += u64::from(played.is_final);
            class.cut_before_onset += u64::from(trace.onset.is_some_and(|onset| *at < onset));
            class.cut_after_onset += u64::from(trace.onset.is_some_and(|onset| *at >= onset));
            *class.by_code.entry(code.clone()).or_default() += 1;
            self.cuts.push(Cut {
                conversation: trace.conversation_id.clone(),
                class: trace.class.clone(),
                at_message: *at,
                of_messages: trace.messages.len(),
                onset: trace.onset,
                code: code.clone(),
                lifts: played.lifts,
            });
        }
    }

    /// Returns a row for each class.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<String>> {
        self.classes.iter().map(|(name, class)| class.row(name)).collect()
    }
}

impl Class {
    fn row(&self, name: &str) -> Vec<String> {
        let by: Vec<String> = self.by_code.iter().map(|(code, n)| format!("{code} {n}")).collect();
        vec![
            name.to_owned(),
            self.conversations.to_string(),
            share(self.cut, self.conversations),
            if by.is_empty() { "-".into() } else { by.join(", ") },
            self.cut_before_onset.to_string(),
            self.cut_after_onset.to_string(),
            self.warned.to_string(),
            self.held.to_string(),
            share(self.context_tokens_saved, self.context_tokens),
            self.lifts.to_string(),
            self.delayed.to_string(),
        ]
    }
}

fn share(part: u64, whole: u64) -> String {
    let permille = (part * 1_000).checked_div(whole).unwrap_or(0);
    format!("{part} ({}.{} %)", permille / 10, permille % 10)
}
