//! G1: sliding windows. Any window, wherever it starts, holds at most the allowed number of messages.

use lastword_facts::fact::SYSTEM;
use lastword_facts::ids::{AgentId, Time};
use lastword_facts::limits::Limits;
use lastword_facts::refusal::{Code, Refusal};

use super::View;
use crate::state::{Agent, CLAIMS, Few};

/// Refuses a message beyond the rate from one sender to one recipient.
pub(super) fn pair_rate(view: &View<'_>) -> Option<Refusal> {
    let to = view.to.unwrap_or(SYSTEM);
    let ahead = view.ahead.targets.iter().filter(|t| **t == to).count() as u64;
    let max = view.sender()?.pair_messages_max(&view.state.limits);
    rate(view, max, ahead, Code::PairRate, |target| target == to)
}

/// Refuses a message beyond the rate from one sender.
pub(super) fn sender_rate(view: &View<'_>) -> Option<Refusal> {
    let max = view.sender()?.sender_messages_max(&view.state.limits);
    rate(view, max, view.ahead.count(), Code::SenderRate, |to| to != CLAIMS)
}

/// Refuses a write of an agent beyond its rate that isn't a message: a post, question or held call.
pub(crate) fn write_rate(agent: &Agent, limits: &Limits, now: Time) -> Option<Refusal> {
    let max = agent.sender_messages_max(limits);
    let quota = Quota { max, ahead: 0, code: Code::SenderRate };
    beyond(agent, now, limits.window_ms, quota, |to| to != CLAIMS)
}

/// Refuses a claim beyond the rate: twice as many in a window as an agent may hold. Claims have a window of their own, so that an
/// agent that edits many files may still write.
pub(crate) fn claim_rate(agent: &Agent, limits: &Limits, now: Time) -> Option<Refusal> {
    let quota = Quota { max: limits.claims_max.saturating_mul(2), ahead: 0, code: Code::SenderRate };
    beyond(agent, now, limits.window_ms, quota, |to| to == CLAIMS)
}

fn rate(view: &View<'_>, max: u64, ahead: u64, code: Code, counts: impl Fn(AgentId) -> bool) -> Option<Refusal> {
    beyond(view.sender()?, view.now, view.state.limits.window_ms, Quota { max, ahead, code }, counts)
}

/// The writes that a window may hold.
#[derive(Clone, Copy)]
struct Quota {
    max: u64,
    /// Those before this one in the same send.
    ahead: u64,
    /// The refusal beyond it.
    code: Code,
}

/// Refuses one more write where the window would hold more than its quota.
fn beyond(agent: &Agent, now: Time, window: u64, quota: Quota, counts: impl Fn(AgentId) -> bool) -> Option<Refusal> {
    let Quota { max, ahead, code } = quota;
    let inside = || agent.recent.iter().filter(|(at, to)| now.since(*at) < window && counts(*to));
    let would_be = inside().count() as u64 + ahead + 1;
    if would_be <= max {
        return None;
    }
    let refusal = Refusal::new(code).numbers(max, would_be);
    // The message fits once that many of the oldest ones have left the window; if there are fewer, it never does.
    let leave = usize::try_from(would_be - max - 1).unwrap_or(usize::MAX);
    Some(match inside().nth(leave) {
        Some((at, _)) => refusal.retry_after(at.plus(window).since(now).max(1)),
        None => refusal,
    })
}

/// Refuses a message to one more distinct recipient than the window allows; one that is in the window already is free.
pub(super) fn fan_out(view: &View<'_>) -> Option<Refusal> {
    let limits = &view.state.limits;
    let to = view.to?;
    let window = limits.fan_out_window_ms;
    let mut targets: Few<(AgentId, Time), 8> = Few::new();
    for (at, target) in view.sender()?.recent.iter().filter(|(at, _)| view.now.since(*at) < window) {
        match targets.iter_mut().find(|(known, _)| known == target) {
            // The list is in order of time, so the last entry of a recipient is the one that leaves last.
            Some((_, last)) => *last = *at,
            None => targets.push((*target, *at)),
        }
    }
    for target in view.ahead.targets {
        if !targets.iter().any(|(known, _)| known == target) {
            targets.push((*target, view.now));
        }
    }
    // A post, question, call or claim has no recipient.
    targets.retain(|(target, _)| ![SYSTEM, CLAIMS, view.sender].contains(target));
    if (targets.len() as u64) < limits.fan_out_targets_max || targets.iter().any(|(known, _)| *known == to) {
        return None;
    }
    let would_be = targets.len() as u64 + 1;
    let refusal = Refusal::new(Code::FanOut).numbers(limits.fan_out_targets_max, would_be);
    // Waiting can't help: the send alone has more recipients than the limit.
    if view.ahead.count() >= limits.fan_out_targets_max {
        return Some(refusal.about("one send to so many"));
    }
    let first = targets.iter().map(|(_, last)| *last).min().unwrap_or(view.now);
    Some(refusal.retry_after(first.plus(window).since(view.now).max(1)))
}
