//! The conversations above and below a conversation: the one that it was opened from, and those whose REFs are prefixes
//! of its own (§1). A human's stop or pause holds everything below.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use lastword_facts::ids::{ConvId, GrantId};
use lastword_facts::names::Ref;
use lastword_facts::status::Running;

use super::{Conversation, Few, State};

/// Returns the parts of a REF that end before a `/`, the longest first.
fn prefixes(reference: &str) -> impl Iterator<Item = &str> {
    reference.rmatch_indices('/').map(|(at, _)| &reference[..at]).filter(|prefix| !prefix.is_empty())
}

impl State {
    /// Returns the conversations whose REFs are prefixes of `reference`, the nearest first.
    pub fn named_above<'a>(&'a self, reference: &'a str) -> impl Iterator<Item = ConvId> + 'a {
        prefixes(reference).filter_map(|prefix| self.conv_of(prefix))
    }

    /// Whether a REF may begin with `reference` and `/`. A collision of hashes may give a false yes.
    #[must_use]
    pub fn may_have_below(&self, reference: &str) -> bool {
        !self.prefixes.is_empty() && self.prefixes.contains_key(&self.refs.hash_of(reference))
    }

    /// Returns the conversations whose REFs begin with `reference` and `/`. Scans all conversations if there may be
    /// one.
    pub fn named_below<'a>(&'a self, reference: &'a str) -> impl Iterator<Item = ConvId> + 'a {
        let below = move |conv: &Conversation| {
            conv.reference.as_str().strip_prefix(reference).is_some_and(|rest| rest.starts_with('/'))
        };
        let all = self.may_have_below(reference).then(|| self.conversations.iter());
        all.into_iter().flatten().filter(move |(_, conv)| below(conv)).map(|(id, _)| id)
    }

    /// Returns a conversation and everything above it.
    #[must_use]
    pub fn up(&self, conv: ConvId) -> Few<ConvId, 8> {
        let mut found: Few<ConvId, 8> = Few::new();
        let mut next: Few<ConvId, 8> = Few::from_slice(&[conv]);
        // Parents and prefixes form a graph, in which one conversation can be reached twice.
        while let Some(id) = next.pop() {
            if found.contains(&id) {
                continue;
            }
            let Some(known) = self.conversations.get(&id) else { continue };
            found.push(id);
            next.extend(known.parent);
            next.extend(self.named_above(known.reference.as_str()));
        }
        found
    }

    /// Returns a conversation and everything below it: opened from it, directly or not, or named below it.
    #[must_use]
    pub fn lineage_below(&self, root: ConvId) -> Vec<ConvId> {
        let Some(known) = self.conversations.get(&root) else { return Vec::new() };
        // Most conversations have nothing below them and need no scan.
        if known.children == 0 && !self.may_have_below(known.reference.as_str()) {
            return alloc::vec![root];
        }
        let mut found = BTreeSet::from([root]);
        loop {
            let before = found.len();
            for (id, conv) in self.conversations.iter() {
                let below = conv.parent.is_some_and(|parent| found.contains(&parent))
                    || self.named_above(conv.reference.as_str()).any(|above| found.contains(&above));
                if below {
                    found.insert(id);
                }
            }
            // A conversation can be older than the one that it is named below, so repeat until none joins.
            if found.len() == before {
                return found.into_iter().collect();
            }
        }
    }

    /// Whether a conversation runs. A pause or stop above it holds it, too (H4).
    #[must_use]
    pub fn running_in(&self, conv: ConvId) -> Running {
        if self.held_convs == 0 {
            return Running::Active;
        }
        self.up(conv).iter().filter_map(|id| self.conversations.get(id)).map(|c| c.running).max().unwrap_or_default()
    }

    /// Whether a conversation would run if it were opened under this REF, from `parent`.
    #[must_use]
    pub fn running_in_new(&self, reference: &str, parent: Option<ConvId>) -> Running {
        if self.held_convs == 0 {
            return Running::Active;
        }
        let above = self.named_above(reference).chain(parent);
        above.map(|conv| self.running_in(conv)).max().unwrap_or_default()
    }

    /// Returns the REF whose own pause or stop holds a conversation: the one to resume.
    #[must_use]
    pub fn holder_of(&self, conv: ConvId, running: Running) -> Option<&Ref> {
        let up = self.up(conv);
        let mut all = up.iter().filter_map(|id| self.conversations.get(id));
        all.find(|conv| conv.running == running).map(|conv| &conv.reference)
    }

    /// Like [`Self::holder_of`], for a conversation that would be opened under this REF, from `parent`.
    #[must_use]
    pub fn holder_of_new(&self, reference: &str, parent: Option<ConvId>, running: Running) -> Option<&Ref> {
        self.named_above(reference).chain(parent).find_map(|conv| self.holder_of(conv, running))
    }

    /// Whether a latch of the hard limit holds a conversation: its own, or one above in the same grant (R3).
    #[must_use]
    pub fn latched_in(&self, conv: ConvId, grant: Option<GrantId>) -> bool {
        if self.held_convs == 0 {
            return false;
        }
        let holds = |id: &ConvId| {
            let known = self.conversations.get(id).filter(|c| c.latched);
            // Its own latch always holds; one above holds only the grant that it tripped in, so that other work goes
            // on.
            known.is_some_and(|c| *id == conv || (grant.is_some() && c.grant.get() == grant))
        };
        self.up(conv).iter().any(holds)
    }

    /// Applies a change to what holds a conversation, and updates the count of held ones.
    pub(super) fn hold(&mut self, conv: ConvId, change: impl FnOnce(&mut Conversation)) {
        let Some(known) = self.conversations.get_mut(&conv) else { return };
        let held = |conv: &Conversation| conv.latched || conv.running != Running::Active;
        let before = held(known);
        change(known);
        match (before, held(known)) {
            (false, true) => self.held_convs += 1,
            (true, false) => self.held_convs = self.held_convs.saturating_sub(1),
            (false, false) | (true, true) => {}
        }
    }

    /// Adds or removes a REF in the counts of its prefixes.
    pub(super) fn count_prefixes(&mut self, reference: &str, add: bool) {
        for prefix in prefixes(reference) {
            let hash = self.refs.hash_of(prefix);
            let count = self.prefixes.entry(hash).or_default();
            *count = if add { *count + 1 } else { count.saturating_sub(1) };
            // An entry with count 0 would make `may_have_below` scan for nothing.
            if *count == 0 {
                self.prefixes.remove(&hash);
            }
        }
    }
}
