//! The core: hear, judge, record, effect. One function decides, one folds, and nothing here does I/O.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use crate::fact::{Entry, Fact};
use crate::ids::{AgentId, Seq, Time};
use crate::input::{Effect, Input, Out, Reply};
use crate::refusal::{Code, Refusal};
use crate::rules::{Rule, Rules};
use crate::state::{Principal, State};

mod approvals;
mod control;
mod finish;
mod people;
mod plan;
mod registry;
mod send;
mod settle;
mod take;
mod tick;

/// The broker as a pure machine. Give it inputs and the time; append what it says, then do what it says.
#[derive(Clone, Debug, Default)]
pub struct Core {
    state: State,
    /// Agents with an open connection; a hint from the shell that makes no fact (Q2).
    attached: BTreeSet<AgentId>,
    rules: Rules,
}

/// A fact of the log that doesn't follow from the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhiMismatch {
    /// Position of the fact.
    pub seq: Seq,
    /// The potential that stands in the log.
    pub recorded: Option<u64>,
    /// The potential that the facts amount to.
    pub folded: Option<u64>,
}

impl core::fmt::Display for PhiMismatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { seq, recorded, folded } = self;
        write!(f, "{seq}: the log says a potential of {recorded:?}, the facts amount to {folded:?}")
    }
}

impl core::error::Error for PhiMismatch {}

impl Core {
    /// A core over a state that was folded elsewhere, from a snapshot.
    #[must_use]
    pub const fn from_state(state: State) -> Self {
        Self { state, attached: BTreeSet::new(), rules: Rules::ALL }
    }

    /// An empty core that lacks one rule, for the tests of what that rule is good for.
    #[cfg(feature = "rules-off")]
    #[must_use]
    pub fn without(off: crate::rules::Off) -> Self {
        Self { rules: Rules::without(off), ..Self::default() }
    }

    /// Everything that the facts so far amount to.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// When the core wants to be given a [`Input::Tick`] next, and why.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Time, &'static str)> {
        self.state.next_deadline()
    }

    /// Folds a fact of the log.
    ///
    /// # Errors
    /// When the potential that stands in the log is not what the facts amount to: the log was altered, or
    /// was written by rules that this program doesn't know. The fact is folded all the same.
    pub fn replay(&mut self, entry: &Entry) -> Result<(), PhiMismatch> {
        let folded = self.state.apply(entry.at, &entry.fact);
        if folded == entry.grant {
            return Ok(());
        }
        let (recorded, folded) = (entry.grant.map(|(_, phi)| phi), folded.map(|(_, phi)| phi));
        Err(PhiMismatch { seq: self.state.seq, recorded, folded })
    }

    /// Handles one input at `now`; adds its facts and effects to `out`. Never fails and never blocks: what
    /// can't be done is a refusal, in the one reply. Time that runs backwards stands still.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Out) {
        let now = now.max(self.state.at);
        let mut step = Step { core: self, now, out };
        let Some(reply) = step.input(input) else { return };
        step.out.effects.push(Effect::Reply(Box::new(reply)));
    }
}

/// One input being handled.
struct Step<'a> {
    core: &'a mut Core,
    now: Time,
    out: &'a mut Out,
}

impl Step<'_> {
    fn input(&mut self, input: Input) -> Option<Reply> {
        let before = self.out.entries.len();
        let reply = match input {
            Input::Tick => {
                self.tick();
                return None;
            }
            Input::Attach(agent, attached) => {
                self.attach(agent, attached);
                Ok(Reply::Done)
            }
            Input::Configure(limits) => self.configure(limits),
            Input::ConfigurePolicy(policy) => self.configure_policy(policy),
            Input::Bootstrap(registration) => self.bootstrap(registration),
            Input::Register(by, registration) => self.register(by, registration),
            Input::Amend(by, agent, profile) => self.amend(by, agent, profile),
            Input::Rekey(by, agent, credential) => self.rekey(by, agent, credential),
            Input::Remove(by, agent) => self.remove(by, agent),
            Input::Send(by, draft) => self.send(by, *draft),
            Input::Take(by, turn) => self.take(by, turn),
            Input::Collect(by, request) => self.collect(by, &request),
            Input::Finish(by, turn, finish) => self.finish(by, turn, *finish),
            Input::Progress(by, turn, progress) => self.progress(by, turn, progress),
            Input::Cancel(by, request) => self.cancel(by, &request),
            Input::Control(by, scope, control) => self.control(by, scope, control),
            Input::Extend(by, conv, only, extension) => self.extend(by, conv, only, extension),
            Input::Escalate(by, turn, question) => self.escalate(by, turn, question),
            Input::Answer(by, escalation, body) => self.answer(by, escalation, body),
            Input::AskApproval(by, turn, call) => self.ask_approval(by, turn, *call),
            Input::Decide(by, approval, verdict) => self.decide(by, approval, *verdict),
            Input::Use(by, approval, digest) => self.use_approval(by, approval, digest),
            Input::Claim(by, turn, resource, mode, ttl_ms) => self.claim(by, turn, resource, mode, ttl_ms),
            Input::Release(by, claim) => self.release(by, claim),
            Input::OpenRoom(by, name, members) => self.open_room(by, name, &members),
            Input::Post(by, room, post) => self.post(by, room, &post),
        };
        Some(reply.unwrap_or_else(|refusal| Reply::Refused { refusal, record: self.refused_since(before) }))
    }

    /// Where the refusal that was recorded behind the first `before` entries stands.
    fn refused_since(&self, before: usize) -> Option<Seq> {
        let entries = self.out.entries.get(before..)?;
        let behind = entries.iter().rev().position(|entry| matches!(entry.fact, Fact::Refused { .. }))?;
        Some(Seq(self.state().seq.0 - behind as u64))
    }

    fn state(&self) -> &State {
        &self.core.state
    }

    /// Whether a rule holds: always, but in the tests that take it out.
    fn rule(&self, rule: Rule) -> bool {
        self.core.rules.has(rule)
    }

    /// Whether a guard is asked: always, but in the tests that take it out.
    fn has_guard(&self, name: &str) -> bool {
        self.core.rules.has_guard(name)
    }

    /// Whether what a guard finds is enforced, and not just put on record (G7).
    fn enforces(&self, name: &str) -> bool {
        self.has_guard(name) && !self.state().limits.observed.observes(name)
    }

    /// Records a fact: the one way in which anything changes.
    fn record(&mut self, fact: Fact) {
        let grant = self.core.state.apply(self.now, &fact);
        self.out.entries.push(Entry { at: self.now, grant, fact });
    }

    fn wake(&mut self, agent: AgentId) {
        self.out.effects.push(Effect::Wake(agent));
    }

    fn attach(&mut self, agent: AgentId, attached: bool) {
        if attached {
            self.core.attached.insert(agent);
        } else {
            self.core.attached.remove(&agent);
        }
    }

    /// Time to acknowledge for a recipient that says nothing else (Q2).
    fn ack_ms(&self, recipient: AgentId) -> u64 {
        let limits = &self.state().limits;
        if self.core.attached.contains(&recipient) { limits.ack_woken_ms } else { limits.ack_polling_ms }
    }

    fn holds(&self, by: Principal) -> Result<(), Refusal> {
        let named = || self.state().agent(by.agent()).is_some_and(|a| a.live);
        if self.state().holds(by) || (!self.rule(Rule::Incarnations) && named()) {
            Ok(())
        } else {
            Err(Code::Unauthenticated.into())
        }
    }

    fn human(&self, by: Principal) -> Result<(), Refusal> {
        self.holds(by)?;
        if by.is_human() { Ok(()) } else { Err(Code::Forbidden.into()) }
    }
}

/// What handling an input comes to.
type Outcome = Result<Reply, Refusal>;
