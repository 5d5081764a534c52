//! Held calls as facts that a human can check: which are alike, and what sets one apart from those that were approved.

use std::collections::{BTreeMap, BTreeSet};

use lastword_broker::identity::hex;
use lastword_core::State;
use lastword_core::state::Approval;
use lastword_facts::fact::SYSTEM;
use lastword_facts::ids::ApprovalId;
use lastword_facts::names::Label;
use lastword_facts::status::ApprovalState;
use lastword_server::calls::risk::effects;
use lastword_wire::Arguments;
use lastword_wire::call::{Argument, arguments};

use super::decisions::{DecisionId, DecisionRow};

/// The most approved calls that a pending one is compared with.
const APPROVED_MAX: usize = 200;
/// The most bytes of approved calls whose hosts are known, and of one whose words are compared: they are copied on the
/// thread of the state.
const REACHING_BYTES_MAX: usize = 256 << 10;
const COMPARED_BYTES_MAX: usize = 4 << 10;

/// A pending decision that is like another one, which is shown in its place.
#[derive(Clone, Debug)]
pub(crate) struct Alike {
    /// Its id.
    pub(crate) id: DecisionId,
    /// The digest of its call, in hexadecimal; empty for a request that timed out.
    pub(crate) digest: String,
    /// The name of the agent that asks.
    pub(crate) agent: String,
}

/// What sets a held call apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Risk {
    /// What it destroys, publishes or changes for others, in words.
    pub(crate) destroys: Option<&'static str>,
    /// The rows that it changes in production, or in a table that no approved call changed, in words.
    pub(crate) changes: Vec<String>,
    /// The hosts that no approved call named.
    pub(crate) new_hosts: Vec<String>,
    /// Whether no call of this tool by this agent was approved before, as far as approvals are remembered.
    pub(crate) is_first: bool,
    /// The last approved call of this tool by this agent, if this one differs.
    pub(crate) differs: Option<Differs>,
}

/// How a call differs from an approved one: what it has no more, and what is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Differs {
    pub(crate) from: ApprovalId,
    pub(crate) without: String,
    pub(crate) with: String,
}

impl Risk {
    /// Returns the place in the order of the list: what destroys is first, then what reaches further than before, then what a
    /// limit holds, since all of its work waits.
    pub(crate) const fn order(&self) -> u8 {
        if self.destroys.is_some() {
            0
        } else if self.new_hosts.is_empty() && self.changes.is_empty() {
            3
        } else {
            1
        }
    }
}

/// Returns the place of what isn't judged: a call that is too long for it may reach further.
pub(super) const fn unjudged(id: DecisionId) -> u8 {
    match id {
        DecisionId::Call(_) => 1,
        DecisionId::Latch(_) => 2,
        DecisionId::Question(_) => 3,
    }
}

/// What is read of the state about a held call, to be judged outside of it.
pub(super) struct Look {
    tool: Box<str>,
    arguments: Box<str>,
    is_first: bool,
    /// The last approved call of its tool and agent, unless that is long.
    compared: Option<(ApprovalId, Box<str>)>,
}

/// The approved calls, newest first.
pub(super) struct Approved<'a>(Vec<(ApprovalId, &'a Approval)>);

impl<'a> Approved<'a> {
    pub(super) fn of(state: &'a State) -> Self {
        let by_human = |known: &Approval| {
            matches!(known.state, ApprovalState::Approved | ApprovalState::Used) && known.by != Some(SYSTEM)
        };
        let newest = state.approvals.iter().rev().filter(|(_, known)| by_human(known)).take(APPROVED_MAX);
        Self(newest.map(|(id, known)| (*id, known)).collect())
    }

    /// Returns the arguments that may name a host, or change rows.
    pub(super) fn reaching(&self) -> Vec<Box<str>> {
        let texts: BTreeSet<&str> = self.0.iter().map(|(_, known)| &*known.arguments).collect();
        let mut bytes = 0;
        let fits = |text: &&str| {
            bytes += text.len();
            bytes <= REACHING_BYTES_MAX
        };
        texts
            .into_iter()
            .filter(|text| text.contains("://") || is_statement(text))
            .take_while(fits)
            .map(Into::into)
            .collect()
    }

    pub(super) fn look(&self, known: &Approval) -> Look {
        let same = |(_, before): &&(ApprovalId, &Approval)| before.agent == known.agent && before.tool == known.tool;
        let last = self.0.iter().find(same);
        let short = |(_, before): &&(ApprovalId, &Approval)| before.arguments.len() <= COMPARED_BYTES_MAX;
        let compared = last.filter(short).map(|(id, before)| (*id, (&*before.arguments).into()));
        Look { tool: known.tool.clone(), arguments: (&*known.arguments).into(), is_first: last.is_none(), compared }
    }
}

/// Returns whether arguments may have a statement that changes rows.
fn is_statement(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    upper.contains("WHERE") && (upper.contains("DELETE") || upper.contains("UPDATE"))
}

/// What approved calls reached: hosts, and tables whose rows they changed.
pub(super) struct Reached {
    hosts: BTreeSet<String>,
    tables: BTreeSet<String>,
}

impl Reached {
    pub(super) fn of(texts: &[Box<str>]) -> Self {
        let mut reached = Self { hosts: BTreeSet::new(), tables: BTreeSet::new() };
        for effects in texts.iter().map(|text| effects("", &Arguments::stored(text))) {
            reached.hosts.extend(effects.hosts);
            reached.tables.extend(effects.changes.into_iter().map(|change| change.table));
        }
        reached
    }
}

impl Look {
    /// Returns the length of its arguments.
    pub(super) fn bytes(&self) -> usize {
        self.arguments.len()
    }

    /// Judges the call beside what approved ones reached.
    pub(super) fn risk(&self, reached: &Reached) -> Risk {
        let all = Arguments::stored(&self.arguments);
        let effects = effects(&self.tool, &all);
        let differs = self.compared.as_ref().and_then(|(from, before)| {
            let (without, with) = difference(&subject(&Arguments::stored(before)), &subject(&all))?;
            Some(Differs { from: *from, without, with })
        });
        let is_production = effects.is_production;
        let marked =
            effects.changes.into_iter().filter(|change| is_production || !reached.tables.contains(&change.table));
        let place = if is_production { " in production" } else { "" };
        Risk {
            destroys: effects.destroys,
            changes: marked.map(|change| format!("{}{}{place}", change.does, change.table)).collect(),
            new_hosts: effects.hosts.into_iter().filter(|host| !reached.hosts.contains(host)).collect(),
            is_first: self.is_first,
            differs,
        }
    }
}

/// Returns what a call acts on, or all its arguments on one line.
pub(crate) fn subject(all: &Arguments) -> String {
    let first = arguments(all).into_iter().next().filter(Argument::is_subject);
    first.map_or_else(|| on_a_line(all), |part| part.text)
}

/// Returns the members of an object as `name: value`, which break between words; anything else as JSON.
pub(crate) fn on_a_line(value: &Arguments) -> String {
    let text = |value: &Arguments| value.text().unwrap_or_else(|| value.to_string().replace("\",\"", "\", \""));
    let Some(members) = value.members().filter(|members| !members.is_empty()) else { return text(value) };
    members.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect::<Vec<_>>().join(", ")
}

/// Short calls are compared even if half of their words differ: twice the words that may.
const DIFFERING_MIN: usize = 8;

/// Returns the words between what two texts begin and end with alike; `None` if they are the same words, or have so little in
/// common that the difference is the call.
fn difference(before: &str, now: &str) -> Option<(String, String)> {
    let (before, now): (Vec<_>, Vec<_>) = (before.split_whitespace().collect(), now.split_whitespace().collect());
    let longest = before.len().max(now.len());
    let begin = before.iter().zip(&now).take_while(|(a, b)| a == b).count();
    let (before, now) = (&before[begin..], &now[begin..]);
    let end = before.iter().rev().zip(now.iter().rev()).take_while(|(a, b)| a == b).count();
    let (before, now) = (&before[..before.len() - end], &now[..now.len() - end]);
    let differs = before.len().max(now.len());
    (differs > 0 && differs * 2 <= longest.max(DIFFERING_MIN)).then(|| (before.join(" "), now.join(" ")))
}

/// What makes two decisions alike.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    /// Calls of one tool with the same arguments, under the same tier of the policy.
    Call(&'a str, &'a str, Option<&'a str>),
    /// Nothing is like it.
    Alone(DecisionId),
}

fn key<'a>(state: &'a State, row: &DecisionRow) -> Key<'a> {
    let alike = match row.id {
        DecisionId::Call(id) => state.approvals.get(&id).map(|known| {
            let tier = known.rule.as_ref().and_then(|rule| rule.tier.as_ref());
            Key::Call(&known.tool, &known.arguments, tier.map(Label::as_str))
        }),
        DecisionId::Question(_) | DecisionId::Latch(_) => None,
    };
    alike.unwrap_or(Key::Alone(row.id))
}

/// Folds rows that are alike into the first of them.
pub(super) fn folded(state: &State, rows: Vec<DecisionRow>) -> Vec<DecisionRow> {
    let mut places = BTreeMap::new();
    let mut folded: Vec<DecisionRow> = Vec::new();
    for row in rows {
        let place = *places.entry(key(state, &row)).or_insert(folded.len());
        match folded.get_mut(place) {
            Some(first) => first.alike.extend(alike(state, row.id)),
            None => folded.push(row),
        }
    }
    folded
}

fn alike(state: &State, id: DecisionId) -> Option<Alike> {
    let DecisionId::Call(call) = id else { return None };
    let known = state.approvals.get(&call)?;
    Some(Alike { id, digest: hex(&known.digest), agent: state.name_of(known.agent).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_differs_by_the_words_between_what_both_have() {
        let two = |without: &str, with: &str| Some((without.to_owned(), with.to_owned()));
        assert_eq!(difference("npm test", "npm test && rm -rf /"), two("", "&& rm -rf /"));
        assert_eq!(difference("deploy --to stage web", "deploy --to prod web"), two("stage", "prod"));
        assert_eq!(difference("a b a", "a"), two("b a", ""));
        assert_eq!(difference("same  words", "same words"), None);
        let (deploy, clean) =
            ("kubectl apply -f checkout.yaml --context prod", "set -e; cd /srv; ls; rm -rf old; du -sh .");
        assert_eq!(difference(deploy, clean), None, "another command is no difference");
    }
}
