//! Conversations folded into the one from which they were opened, as the console folds them.

use std::collections::BTreeMap;

use lastword_client::wire::{ConversationSummary, money};

/// What is counted in conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The conversations.
    pub(crate) conversations: u64,
    /// Their messages.
    pub(crate) messages: u64,
    /// Their open requests.
    pub(crate) open_tasks: u64,
    /// Whether work in one of them waits for a human.
    pub(crate) waits_for_human: bool,
    tokens: u64,
    cost_microusd: u64,
}

impl Counted {
    fn add(self, one: &ConversationSummary) -> Self {
        Self {
            conversations: self.conversations + 1,
            messages: self.messages.saturating_add(one.counters.messages),
            open_tasks: self.open_tasks.saturating_add(one.counters.open_tasks),
            waits_for_human: self.waits_for_human || one.waits_for_human,
            tokens: self.tokens.saturating_add(one.tokens),
            cost_microusd: self.cost_microusd.saturating_add(one.cost_microusd),
        }
    }

    /// Formats what they spent: the cost if one was reported, else the tokens.
    pub(crate) fn spent(&self) -> String {
        match (self.cost_microusd, self.tokens) {
            (0, 0) => "-".to_owned(),
            (0, tokens) => format!("{tokens} tok"),
            (cost, _) => money(cost),
        }
    }

    /// Formats how many others are folded into the first; empty for none.
    pub(crate) fn folded(&self) -> String {
        if self.conversations > 1 { format!(" +{}", self.conversations - 1) } else { String::new() }
    }
}

/// The conversations of a list, and those of them from which each was opened.
pub(crate) struct Families<'a> {
    tops: BTreeMap<&'a str, &'a str>,
    counted: BTreeMap<&'a str, Counted>,
}

impl<'a> Families<'a> {
    /// Folds those that were opened from another one in the list; with `unfolded`, each stands by itself.
    pub(crate) fn of(all: &'a [ConversationSummary], unfolded: bool) -> Self {
        let known: BTreeMap<&str, Option<&str>> =
            all.iter().map(|one| (one.reference.as_str(), one.parent_ref.as_deref())).collect();
        let parent = |name: &str| known.get(name).copied().flatten().filter(|above| known.contains_key(above));
        // The list is finite and a parent is older than its child, so each walk ends.
        let top = |name: &'a str| std::iter::successors(Some(name), |name| parent(name)).last().unwrap_or(name);
        let tops: BTreeMap<&str, &str> =
            known.keys().map(|name| (*name, if unfolded { name } else { top(name) })).collect();
        let mut counted: BTreeMap<&str, Counted> = BTreeMap::new();
        for one in all {
            let top = tops.get(one.reference.as_str()).copied().unwrap_or_default();
            let sum = counted.entry(top).or_default();
            *sum = sum.add(one);
        }
        Self { tops, counted }
    }

    /// Returns the conversation into which this one is folded, or itself.
    pub(crate) fn top(&self, name: &'a str) -> &'a str {
        self.tops.get(name).copied().unwrap_or(name)
    }

    /// Returns what a conversation and those folded into it count; `None` if it is folded itself.
    pub(crate) fn counted(&self, name: &str) -> Option<Counted> {
        self.counted.get(name).copied()
    }
}
