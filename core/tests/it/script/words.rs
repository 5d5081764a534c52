//! What the words of a transcript's line mean: drafts, reports, calls and rules.

use lastword_core::input::{Finish, HeldCall, Verdict};
use lastword_facts::envelope::{Address, Draft, FinishStatus, MessageType, Priority, fnv_of};
use lastword_facts::fact::{Decision, Key, ModelSpend, Spend};
use lastword_facts::ids::{Seq, TurnId};
use lastword_facts::limits::Approvers;
use lastword_facts::names::{AgentName, Label, ModelName, Ref, RequestId};
use lastword_facts::policy::{ApprovalRule, CallPattern, Ruling, Subjects};

use super::credential;

/// `option=…`, in which `_` is a space.
pub(super) fn options(words: &[&str]) -> Vec<Box<str>> {
    words.iter().filter_map(|w| w.strip_prefix("option=")).map(|o| o.replace('_', " ").into()).collect()
}

pub(super) fn key(words: &[&str]) -> Option<RequestId> {
    option(words, "key=").map(|k| RequestId::new(k).unwrap())
}

/// The key of an answer or a decision, which its content belongs to.
pub(super) fn once(words: &[&str], content: &str) -> Option<Key> {
    key(words).map(|id| Key { id, fingerprint: fnv_of(format_args!("{content}")) })
}

pub(super) fn option<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|w| w.strip_prefix(key))
}

/// The words that aren't `key=value`.
pub(super) fn text(words: &[&str]) -> String {
    words.iter().copied().filter(|w| !w.contains('=')).collect::<Vec<_>>().join(" ")
}

/// `TO REF|- [TYPE] [key=value…] words`; a TO of `[]` is an empty list.
pub(super) fn draft(words: &[&str], turn: Option<TurnId>) -> Draft {
    let kind = words.iter().find_map(|w| MessageType::from_keyword(w)).unwrap_or(MessageType::Request);
    let names = words[0].split(',').filter(|name| *name != "[]");
    let to: Vec<Address> = names.map(|t| Address::parse(t).unwrap()).collect();
    let to = if let [one] = to.as_slice() { one.clone() } else { Address::List(to) };
    let rest: Vec<&str> = words[2..].iter().copied().filter(|w| MessageType::from_keyword(w).is_none()).collect();
    let number = |key| option(&rest, key).map(|n| n.parse().unwrap());
    Draft {
        reference: (words[1] != "-").then(|| Ref::new(words[1]).unwrap()),
        from: option(&rest, "from=").map(|n| AgentName::new(n).unwrap()),
        depth: option(&rest, "depth=").map(|n| n.parse().unwrap()),
        request_id: option(&rest, "id=").map(|n| RequestId::new(n).unwrap()),
        action: option(&rest, "action=").map(|n| Label::new(n).unwrap()),
        timeout_ms: number("timeout="),
        deadline_ms: number("deadline="),
        wait_ms: number("wait="),
        eta_ms: number("eta="),
        acknowledged: rest.contains(&"acknowledged"),
        status: option(&rest, "status=").and_then(FinishStatus::from_word),
        in_reply_to: option(&rest, "in_reply_to=").and_then(Seq::parse),
        payload: option(&rest, "payload=").map(Into::into),
        caused_by: option(&rest, "caused_by=").and_then(Seq::parse),
        priority: option(&rest, "priority=").and_then(Priority::from_word).unwrap_or(Priority::Normal),
        turn,
        ..Draft::new(kind, to, &text(&rest))
    }
}

pub(super) fn spend(words: &[&str]) -> Spend {
    let number = |key| option(words, key).map_or(0, |n: &str| n.parse().unwrap());
    Spend { tokens: number("tokens="), cost_microusd: number("cost=") }
}

/// The usage that a report states, if it states one.
pub(super) fn reported(words: &[&str]) -> Option<Spend> {
    words.iter().any(|w| w.starts_with("tokens=") || w.starts_with("cost=")).then(|| spend(words))
}

/// The parts of the usage, as `models=opus:600:5,haiku:400:1`: the model, its tokens and its cost.
pub(super) fn models(words: &[&str]) -> Vec<ModelSpend> {
    let part = |part: &str| {
        let mut words = part.split(':');
        let mut next = || words.next().unwrap();
        let (model, tokens, cost) = (ModelName::new(next()).unwrap(), next(), next());
        ModelSpend { model, spend: Spend { tokens: tokens.parse().unwrap(), cost_microusd: cost.parse().unwrap() } }
    };
    option(words, "models=").map(|list| list.split(',').map(part).collect()).unwrap_or_default()
}

pub(super) fn finish(words: &[&str]) -> Finish {
    let status = words.first().and_then(|w| FinishStatus::from_word(w));
    let rest = if status.is_some() { &words[1..] } else { words };
    let parts = |key| option(rest, key).map(|p| p.split(',').map(Into::into).collect()).unwrap_or_default();
    Finish {
        status,
        body: text(rest).into(),
        completed: parts("done="),
        failed: parts("failed="),
        spend: reported(rest),
        models: models(rest),
        reason: option(rest, "reason=").map(Into::into),
        estimated: rest.contains(&"estimated"),
        ..Finish::default()
    }
}

/// Uses the tool and its arguments themselves as the digest, cut to length: enough to tell calls apart.
pub(super) fn call(tool: &str, words: &[&str]) -> HeldCall {
    let arguments = option(words, "args=").unwrap_or("{}");
    HeldCall {
        tool: tool.into(),
        arguments: arguments.into(),
        reason: None,
        digest: credential(&format!("{tool}({arguments})")),
        subjects: subjects(&arguments.replace('_', " ")),
        key: key(words),
    }
}

/// Reads a call as if its arguments were a command, more roughly than the shell does.
pub(super) fn subjects(command: &str) -> Subjects {
    let spelled = command.split([';', '&', '|']).map(|part| part.trim().into()).collect();
    Subjects { arguments: credential(command), written: vec![command.into()], spelled, ..Subjects::default() }
}

/// `PATTERN [agents=…] [who=…] [timeout=MS] [tier=…]`, in which `_` in the pattern is a space.
pub(super) fn rule(ruling: &str, words: &[&str]) -> ApprovalRule {
    let names = |list: &str| list.split(',').map(|n| AgentName::new(n).unwrap()).collect::<Vec<_>>();
    let who = option(words, "who=").map(|list| {
        let others: Vec<&str> = list.split(',').filter(|who| !matches!(*who, "human" | "asker")).collect();
        let agents = if others.is_empty() { Vec::new() } else { names(&others.join(",")) };
        Approvers { asker: list.split(',').any(|who| who == "asker"), agents }
    });
    ApprovalRule {
        call: CallPattern::parse(&words[0].replace('_', " ")).unwrap(),
        agents: option(words, "agents=").map(names).unwrap_or_default(),
        ruling: Ruling::from_word(ruling).unwrap(),
        tier: option(words, "tier=").map(|t| Label::new(t).unwrap()),
        who,
        timeout_ms: option(words, "timeout=").map(|n| n.parse().unwrap()),
    }
}

pub(super) fn verdict(decision: &str, words: &[&str]) -> Box<Verdict> {
    let digest = option(words, "call=").map(credential);
    let edited = option(words, "edit=").map(|call| (call.into(), credential(call)));
    let key = once(words, &words[1..].join(" "));
    let words = text(&words[2..]);
    let comment = (!words.is_empty()).then(|| words.into());
    Box::new(Verdict { decision: Decision::from_word(decision).unwrap(), comment, digest, edited, key })
}
