//! Counts what becomes of exchanges that are held, or would be (R5): how many a human lifts, and what is said after an
//! exchange would have been held.
//!
//! The counts come from the facts alone. Only while an exchange is held are facts examined closely.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use lastword_core::State;
use lastword_facts::fact::{
    EscalationCause, Kind, Latched, Level, Part, Place, Recipient, Registered, Requeued, Role, Stalled,
};
use lastword_facts::ids::{AgentId, ConvId, EscalationId, TaskId};
use lastword_facts::stall::{SAME_MAX, StallCause};
use lastword_facts::status::EscalationState;
use lastword_facts::{Fact, Message};

use super::{Family, add, mode, of};

/// The characters of a token.
const TOKEN_CHARS: usize = 4;
/// The most holds that are followed; beyond it, the oldest is no longer.
const HELD_MAX: usize = 10_000;

/// The labels of a lifted hold, in the order of its counters.
const LABELS: [(StallCause, bool); 4] =
    [(StallCause::Dry, true), (StallCause::Dry, false), (StallCause::Stuck, true), (StallCause::Stuck, false)];

/// The counters. All only grow, and are zero at a start.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Whether an exchange is held: without one, most facts need no lock.
    some: AtomicBool,
    /// The sender and the recipient of the message before: a fact that holds an exchange follows one of its messages.
    sides: AtomicU64,
    /// The task of the last request.
    request: AtomicU64,
    now: Mutex<Now>,
    lifted: [AtomicU64; LABELS.len()],
    /// The tokens of the messages said after an exchange would have been held, by reason.
    said: [AtomicU64; 2],
    /// The tokens of context read with those messages, by reason.
    read: [AtomicU64; 2],
}

#[derive(Debug, Default)]
struct Now {
    /// Those whose words reset counters.
    humans: BTreeSet<AgentId>,
    held: Vec<HeldExchange>,
}

/// An exchange that is held, or would be.
#[derive(Debug)]
struct HeldExchange {
    task: TaskId,
    /// The delegate; `None` for a hold from before the start.
    delegate: Option<AgentId>,
    asker: AgentId,
    /// The delegate's task that the last request before the hold created, or one after it.
    request: TaskId,
    conv: ConvId,
    stall: StallCause,
    enforced: bool,
    escalation: Option<EscalationId>,
    /// The tokens of all its messages.
    context: u64,
}

impl Holds {
    /// Takes over what the state knows at a start: the humans, and the holds about which a question is open.
    pub(super) fn begin(&self, state: &State) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = state.agents.iter().enumerate().filter(|(_, agent)| agent.is_heard());
        now.humans = ids.filter_map(|(id, _)| u32::try_from(id).ok()).map(AgentId).collect();
        let open = state.escalations.iter().filter(|(_, asked)| asked.state == EscalationState::Open);
        now.held = open
            .filter(|(_, asked)| asked.cause == EscalationCause::NoProgress)
            .filter_map(|(id, asked)| {
                let stuck = asked.lifts.as_ref().is_some_and(|lifts| lifts.met.limit == u64::from(SAME_MAX));
                Some(HeldExchange {
                    task: asked.task?,
                    delegate: None,
                    asker: asked.agent,
                    request: TaskId(0),
                    conv: asked.conv,
                    stall: if stuck { StallCause::Stuck } else { StallCause::Dry },
                    enforced: true,
                    escalation: Some(*id),
                    context: 0,
                })
            })
            .collect();
        self.some.store(!now.held.is_empty(), Ordering::Relaxed);
    }

    /// Counts a fact that is durable.
    pub(super) fn fact(&self, fact: &Fact) {
        if let Fact::Accepted { message } = fact
            && let Recipient::One(to) = message.to
        {
            self.sides.store((u64::from(message.from.0) << 32) | u64::from(to.0), Ordering::Relaxed);
            if let Part::Request(terms) = &message.part {
                self.request.store(terms.task.0, Ordering::Relaxed);
            }
        }
        let always = matches!(
            fact,
            Fact::Stalled(Stalled { level: Level::Held, .. }) | Fact::Registered(_) | Fact::RoleSet { .. }
        );
        if !always && !self.some.load(Ordering::Relaxed) {
            return;
        }
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.follow(fact, self);
        self.some.store(!now.held.is_empty(), Ordering::Relaxed);
    }

    /// Returns the side of the message before that isn't this one.
    fn other_side(&self, side: AgentId) -> AgentId {
        let sides = self.sides.load(Ordering::Relaxed).to_be_bytes();
        let [a, b, c, d, e, f, g, h] = sides;
        let (from, to) = (AgentId(u32::from_be_bytes([a, b, c, d])), AgentId(u32::from_be_bytes([e, f, g, h])));
        if from == side { to } else { from }
    }

    /// Returns the counters.
    pub(super) fn families(&self) -> [Family; 3] {
        let lifted = LABELS.iter().zip(&self.lifted).map(|((stall, enforced), count)| {
            (vec![("reason", stall.to_string()), ("mode", mode(*enforced))], of(count))
        });
        let after = |name, help, counts: &[AtomicU64; 2]| {
            let labelled = |stall: &StallCause| (vec![("reason", stall.to_string())], of(&counts[*stall as usize]));
            Family::of(name, help, StallCause::ALL.iter().map(labelled))
        };
        [
            Family::of(
                "lastword_no_progress_lifted_total",
                "Exchanges that were held, or would have been, and reset by a human's words or lift.",
                lifted,
            ),
            after(
                "lastword_no_progress_said_after_tokens_total",
                "Tokens of the messages said after their exchange would have been held.",
                &self.said,
            ),
            after(
                "lastword_no_progress_read_after_tokens_total",
                "Tokens of context read with the messages said after their exchange would have been held.",
                &self.read,
            ),
        ]
    }
}

impl Now {
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other fact begins, lifts or ends a hold")]
    fn follow(&mut self, fact: &Fact, counts: &Holds) {
        match fact {
            Fact::Registered(Registered { agent, kind: Kind::Human, .. }) => drop(self.humans.insert(*agent)),
            Fact::RoleSet { human, role: Role::Viewer } => drop(self.humans.remove(human)),
            Fact::RoleSet { human, .. } => drop(self.humans.insert(*human)),
            Fact::Stalled(Stalled { task, agent, conv, level: Level::Held, stall, enforced, curve, escalation }) => {
                let same = |held: &HeldExchange| held.task == *task && held.delegate == Some(*agent);
                self.held.retain(|held| !same(held));
                self.held.drain(..(self.held.len() + 1).saturating_sub(HELD_MAX));
                self.held.push(HeldExchange {
                    task: *task,
                    delegate: Some(*agent),
                    asker: counts.other_side(*agent),
                    request: TaskId(counts.request.load(Ordering::Relaxed)),
                    conv: *conv,
                    stall: *stall,
                    enforced: *enforced,
                    escalation: *escalation,
                    context: curve.context,
                });
            }
            Fact::LiftChosen { escalation, .. } => self.lift(counts, |held| held.escalation == Some(*escalation)),
            Fact::Rearmed { conv, .. } | Fact::LatchLifted { on: Latched::Place(Place::Conversation(conv)), .. } => {
                self.lift(counts, |held| held.conv == *conv);
            }
            Fact::RootEnded { task, .. } | Fact::Requeued(Requeued { task, .. }) => {
                self.held.retain(|held| held.task != *task)
            }
            // A new session resets what its agent says and hears, unless that is held.
            Fact::SessionBegan { task } => {
                self.held.retain(|held| held.enforced || (held.task != *task && held.request != *task));
            }
            Fact::Accepted { message } => self.said(message, counts),
            _ => {}
        }
    }

    fn lift(&mut self, counts: &Holds, is_lifted: impl Fn(&HeldExchange) -> bool) {
        self.held.retain(|held| {
            let lifted = is_lifted(held);
            if lifted && let Some(place) = LABELS.iter().position(|labels| *labels == (held.stall, held.enforced)) {
                add(&counts.lifted[place], 1);
            }
            !lifted
        });
    }

    fn said(&mut self, message: &Message, counts: &Holds) {
        if message.is_said() && self.humans.contains(&message.from) {
            self.lift(counts, |held| held.conv == message.conv);
        }
        match &message.part {
            Part::Request(terms) => {
                // A third party that asks for something in the conversation resets the exchange, which no fact says. An
                // enforced hold stays, so that its lift is counted: its question is withdrawn if it was reset.
                let third = |held: &HeldExchange| {
                    message.sender_task.is_some_and(|task| task != held.task) && Some(message.from) != held.delegate
                };
                self.held.retain(|held| held.enforced || held.conv != message.conv || !third(held));
                for held in &mut self.held {
                    let to = matches!(message.to, Recipient::One(to) if Some(to) == held.delegate);
                    if to && message.sender_task == Some(held.task) {
                        held.request = terms.task;
                        held.read(message, counts);
                    }
                }
            }
            Part::Answer(answer) => {
                for held in &mut self.held {
                    let to = message.conv == held.conv && message.to == Recipient::One(held.asker);
                    if to && Some(message.from) == held.delegate {
                        held.read(message, counts);
                    }
                }
                self.held.retain(|held| held.task != answer.task);
            }
            Part::Plain | Part::Reply { .. } | Part::Status { .. } | Part::Echo => {}
        }
    }
}

impl HeldExchange {
    /// Counts a message said after the exchange would have been held.
    fn read(&mut self, message: &Message, counts: &Holds) {
        if self.enforced {
            return;
        }
        let beside = message.payload.as_deref().map_or(0, |payload| payload.chars().count());
        let tokens = ((message.body.chars().count() + beside) / TOKEN_CHARS).max(1) as u64;
        self.context = self.context.saturating_add(tokens);
        add(&counts.said[self.stall as usize], tokens);
        add(&counts.read[self.stall as usize], self.context);
    }
}
