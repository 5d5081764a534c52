//! Reports what the guards would have done to recorded conversations, by class.

use std::collections::BTreeMap;

use serde::Serialize;

use super::play::Played;
use super::trace::Trace;
use crate::out::{Out, table};

/// The report of a replay.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The results by class of conversation.
    pub(crate) classes: BTreeMap<String, Class>,
    /// Every conversation that was cut.
    pub(crate) cuts: Vec<Cut>,
}

/// The results of one class.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Class {
    conversations: u64,
    cut: u64,
    by_rule: BTreeMap<String, u64>,
    messages: u64,
    messages_saved: u64,
    context_tokens: u64,
    context_tokens_saved: u64,
    delayed: u64,
}

/// One conversation that was cut.
#[derive(Debug, Serialize)]
pub(crate) struct Cut {
    conversation: String,
    class: String,
    at_message: usize,
    of_messages: usize,
    code: String,
    rule: String,
}

impl Cut {
    /// Formats the cut as one line.
    pub(crate) fn line(&self) -> String {
        let Self { conversation, class, at_message, of_messages, code, rule } = self;
        crate::out::escape_line(&format!("{conversation} ({class}): {code} ({rule}) at {at_message} of {of_messages}"))
    }
}

impl Report {
    /// Adds a conversation. Each speaker first reads the whole conversation, which is its context.
    pub(crate) fn add(&mut self, trace: &Trace, played: &Played) {
        let class = self.classes.entry(trace.class.clone()).or_default();
        let cut = played.cut.as_ref().map_or(trace.messages.len(), |(at, _)| *at);
        let (mut context, mut read) = (0, 0);
        for (i, said) in trace.messages.iter().enumerate() {
            context += said.approx_tokens;
            read += context;
            class.context_tokens_saved += if i >= cut { context } else { 0 };
        }
        class.conversations += 1;
        class.context_tokens += read;
        class.messages += trace.messages.len() as u64;
        class.messages_saved += (trace.messages.len() - cut) as u64;
        class.delayed += played.delayed;
        if let Some((at, refusal)) = &played.cut {
            class.cut += 1;
            *class.by_rule.entry(refusal.code.to_string()).or_default() += 1;
            self.cuts.push(Cut {
                conversation: trace.conversation_id.clone(),
                class: trace.class.clone(),
                at_message: *at,
                of_messages: trace.messages.len(),
                code: refusal.code.to_string(),
                rule: refusal.code.rule().to_owned(),
            });
        }
    }

    /// Formats the report as a table.
    pub(crate) fn text(&self, out: &Out) -> String {
        let head = ["class", "conversations", "cut", "by", "messages", "saved", "context tokens", "saved", "delayed"];
        let rows: Vec<Vec<String>> = self.classes.iter().map(|(name, class)| class.row(name)).collect();
        table(&head, &rows, out)
    }
}

impl Class {
    fn row(&self, name: &str) -> Vec<String> {
        let by: Vec<String> = self.by_rule.iter().map(|(code, n)| format!("{code} {n}")).collect();
        vec![
            name.to_owned(),
            self.conversations.to_string(),
            share(self.cut, self.conversations),
            if by.is_empty() { "-".into() } else { by.join(", ") },
            self.messages.to_string(),
            share(self.messages_saved, self.messages),
            self.context_tokens.to_string(),
            share(self.context_tokens_saved, self.context_tokens),
            self.delayed.to_string(),
        ]
    }
}

fn share(part: u64, whole: u64) -> String {
    let permille = (part * 1_000).checked_div(whole).unwrap_or(0);
    format!("{part} ({}.{} %)", permille / 10, permille % 10)
}
