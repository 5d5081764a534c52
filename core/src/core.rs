//! The core: hear, judge, record, effect. One function decides, one folds, and nothing here does I/O.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use lastword_facts::fact::{Entry, Fact, Role};
use lastword_facts::ids::{AgentId, Seq, Time};
use lastword_facts::refusal::RefusedAbout;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::stall::Reading;

use crate::input::{Effect, Input, Out, Reply};
use crate::rules::{Rule, Rules};
use crate::state::{Principal, State};

mod admit;
mod agents;
mod approvals;
mod attendance;
mod claims;
mod clock;
mod control;
mod epochs;
mod escalations;
mod finish;
mod lifts;
mod links;
mod message;
mod plan;
mod prompts;
mod reports;
mod rooms;
mod schedules;
mod send;
mod settle;
mod stall;
mod take;
mod tick;
#[cfg(feature = "rules-off")]
mod without;

/// The broker as a pure state machine. The caller gives it inputs and the time, appends the facts that it returns, and
/// then carries out its effects.
#[derive(Clone, Debug, Default)]
pub struct Core {
    state: State,
    /// Agents with an open connection; a hint from the shell that makes no fact (Q2).
    attached: BTreeSet<AgentId>,
    /// Refusals that will be recorded as a sum, by agent and code (G2).
    unrecorded: BTreeMap<(AgentId, Code), Unrecorded>,
    rules: Rules,
}

/// Refusals of one kind that are not recorded yet.
#[derive(Clone, Copy, Debug)]
struct Unrecorded {
    since: Time,
    count: u64,
}

/// A fact of the log that doesn't follow from the facts before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhiMismatch {
    /// The position of the fact.
    pub seq: Seq,
    /// The potential that the log records.
    pub recorded: Option<u64>,
    /// The potential that the fold computes.
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
    /// Returns a core over a state that was folded elsewhere, such as from a snapshot.
    #[must_use]
    pub const fn from_state(state: State) -> Self {
        Self { state, attached: BTreeSet::new(), unrecorded: BTreeMap::new(), rules: Rules::ALL }
    }

    /// Returns an empty core that lacks one rule, for the tests that prove that the rule is needed.
    #[cfg(feature = "rules-off")]
    #[must_use]
    pub fn without(off: crate::rules::Off) -> Self {
        Self { rules: Rules::without(off), ..Self::default() }
    }

    /// Returns the result of folding all facts so far.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the time at which the core has to get an [`Input::Tick`], and the reason.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Time, &'static str)> {
        let sums = self.unrecorded.values().map(|sum| sum.since.plus(self.state.limits.window_ms)).min();
        let sums = sums.map(|at| (at, "refusals are recorded as a sum"));
        self.state.next_deadline().into_iter().chain(sums).min_by_key(|(at, _)| *at)
    }

    /// Folds a fact of the log.
    ///
    /// # Errors
    /// Returns an error if the recorded potential differs from the folded one: the log was altered, or was written by
    /// rules that this program doesn't know. The fact is folded all the same.
    pub fn replay(&mut self, entry: &Entry) -> Result<(), PhiMismatch> {
        let folded = self.state.apply(entry.at, &entry.fact);
        if folded == entry.grant {
            return Ok(());
        }
        let (recorded, folded) = (entry.grant.map(|(_, phi)| phi), folded.map(|(_, phi)| phi));
        Err(PhiMismatch { seq: self.state.seq, recorded, folded })
    }

    /// Handles one input at `now` and adds its facts and effects to `out`. Never fails and never blocks: an input that
    /// can't be carried out gets a refusal as its one reply. If `now` is before the last fact, the last fact's time is
    /// used.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Out) {
        let now = now.max(self.state.at);
        let mut step = Step { core: self, now, out, reading: None };
        // A period in which the broker didn't run is counted from the last fact, so nothing may be recorded before it.
        // The fact that begins an epoch is the first of its append.
        if !matches!(input, Input::Attach(..) | Input::Idled(..) | Input::BeginEpoch(_)) {
            step.forget();
            step.record_sums();
        }
        let Some(reply) = step.input(input) else { return };
        step.out.effects.push(Effect::Reply(Box::new(reply)));
    }
}

/// The handling of one input.
struct Step<'a> {
    core: &'a mut Core,
    now: Time,
    out: &'a mut Out,
    /// What the text of the input amounts to, if the shell computed it before (R5).
    reading: Option<Box<Reading>>,
}

impl Step<'_> {
    #[expect(clippy::too_many_lines, reason = "one match over all inputs, with an arm for each")]
    fn input(&mut self, input: Input) -> Option<Reply> {
        let before = self.out.entries.len();
        if let Err(refusal) = self.check_epoch(&input) {
            return Some(Reply::Refused { refusal, record: None, about: None });
        }
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
            Input::ChangePolicy(by, policy) => self.change_policy(by, policy),
            Input::ChangeLimits(by, limits) => self.change_limits(by, limits),
            Input::Bootstrap(registration) => self.bootstrap(registration),
            Input::Register(by, registration) => self.register(by, registration),
            Input::Amend(by, agent, profile) => self.amend(by, agent, profile),
            Input::Rekey(by, agent, token) => self.rekey(by, agent, token),
            Input::Remove(by, agent) => self.remove(by, agent),
            Input::Send(by, mut draft) => {
                // Prefetches what follows: the reads overlap instead of waiting for one another.
                self.state().touch(by.agent(), &draft);
                self.reading = draft.reading.take();
                self.send(by, draft)
            }
            Input::Take(by, turn) => self.take(by, turn),
            Input::Receive(by, consumer) => self.receive(by, consumer),
            Input::Resume(by, turns) => self.resume(by, &turns),
            Input::Collect(by, request) => self.collect(by, &request),
            Input::Finish(by, turn, mut finish) => {
                self.reading = finish.reading.take();
                self.finish(by, turn, *finish)
            }
            Input::Progress(by, turn, progress) => self.progress(by, turn, progress),
            Input::Cancel(by, request) => self.cancel(by, &request),
            Input::Dismiss(by, request) => self.dismiss(by, &request),
            Input::SetLink(by, conv, valid_ms) => self.set_link(by, conv, valid_ms),
            Input::Control(by, scope, control) => self.control(by, scope, control),
            Input::Extend(by, conv, only, extension) => self.extend(by, conv, only, extension),
            Input::ExtendRounds(by, conv, rounds) => self.extend_rounds(by, conv, rounds),
            Input::ChooseLift(by, escalation, lift, words) => self.choose_lift(by, escalation, lift, words),
            Input::LimitAgent(by, agent, limits) => self.limit_agent(by, agent, limits),
            Input::SetDisplayName(by, agent, name) => self.set_display_name(by, agent, name),
            Input::GrantAgent(by, agent, spend) => self.grant_agent(by, agent, spend),
            Input::SetRole(by, human, role) => self.set_role(by, human, role),
            Input::Act(by) => self.act(by),
            Input::Prompt(by, agent, prompted) => self.prompt(by, agent, prompted),
            Input::Upgrade(edition) => self.upgrade(edition),
            Input::BeginEpoch(first) => self.begin_epoch(first),
            Input::SetSchedule(by, schedule, next_at) => self.set_schedule(by, schedule, next_at),
            Input::RemoveSchedule(by, name) => self.remove_schedule(by, &name),
            Input::RunSchedule(by, name, reference) => self.run_schedule(by, &name, reference),
            Input::TickSchedule(tick) => self.tick_schedule(*tick),
            Input::Escalate(by, turn, question) => self.escalate(by, turn, question),
            Input::Answer(by, escalation, body, key) => self.answer(by, escalation, body, key),
            Input::AskApproval(by, turn, call) => self.ask_approval(by, turn, *call),
            Input::Decide(by, approval, verdict) => self.decide(by, approval, *verdict),
            Input::Use(by, approval, digest, key) => self.use_approval(by, approval, digest, key.as_ref()),
            Input::Claim(by, turn, claim) => self.claim(by, turn, *claim),
            Input::Release(by, claim) => self.release(by, claim),
            Input::OpenRoom(by, name, members, key) => self.open_room(by, name, &members, key.as_ref()),
            Input::Post(by, room, post) => self.post(by, room, &post),
            Input::Idled(by, ms) => self.idled(by, ms),
        };
        Some(reply.unwrap_or_else(|refusal| {
            let record = self.refused_since(before);
            let fact = record.and_then(|seq| self.entry_at(seq)).map(|entry| &entry.fact);
            let about = self.state().refused_about(&refusal, fact);
            let about = (about != RefusedAbout::default()).then(|| Box::new(about));
            Reply::Refused { refusal, record, about }
        }))
    }

    /// Returns the position of the refusal that was recorded after the first `before` entries.
    fn refused_since(&self, before: usize) -> Option<Seq> {
        let entries = self.out.entries.get(before..)?;
        let refused = |entry: &Entry| matches!(entry.fact, Fact::Refused(_) | Fact::WriteRefused(_));
        let behind = entries.iter().rev().position(refused)?;
        // The fold has counted all entries, so the last one is at the state's position.
        Some(Seq(self.state().seq.0 - behind as u64))
    }

    /// Returns the entry of this step at a position.
    fn entry_at(&self, seq: Seq) -> Option<&Entry> {
        let behind = usize::try_from(self.state().seq.0.checked_sub(seq.0)?).ok()?;
        self.out.entries.iter().rev().nth(behind)
    }

    fn state(&self) -> &State {
        &self.core.state
    }

    /// Whether a rule holds: always, except in the tests that switch it off.
    fn rule(&self, rule: Rule) -> bool {
        self.core.rules.has(rule)
    }

    /// Whether a guard is asked: always, except in the tests that switch it off.
    fn has_guard(&self, name: &str) -> bool {
        self.core.rules.has_guard(name)
    }

    /// Whether a guard's refusal is enforced and not only recorded (G7).
    fn enforces(&self, name: &str) -> bool {
        self.has_guard(name) && !self.state().limits.observed.observes(name)
    }

    /// Records a fact. Nothing changes in any other way.
    fn record(&mut self, fact: Fact) {
        if self.reading.is_some() && matches!(&fact, Fact::Accepted { message } if message.is_in_exchange()) {
            self.core.state.reading = self.reading.take();
        }
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

    /// Returns the time to acknowledge of a recipient: its own limit, otherwise by how it is connected (Q2).
    fn ack_ms(&self, recipient: AgentId) -> u64 {
        let limits = &self.state().limits;
        let own = self.state().agent(recipient).map_or(0, |agent| agent.own_limits().ack_ms);
        if own > 0 {
            own
        } else if self.core.attached.contains(&recipient) {
            limits.ack_woken_ms
        } else {
            limits.ack_polling_ms
        }
    }

    fn authenticate(&self, by: Principal) -> Result<(), Refusal> {
        #[cfg(feature = "rules-off")]
        if self.naive_proof(by) {
            return Ok(());
        }
        if self.state().recognizes(by) { Ok(()) } else { Err(Code::Unauthenticated.into()) }
    }

    /// Authenticates the principal, and refuses a human with less than this role (H7). An agent has none.
    fn may(&self, by: Principal, role: Role) -> Result<(), Refusal> {
        if by.is_human() { self.human(by, role) } else { self.authenticate(by) }
    }

    /// Refuses a principal that isn't a human with at least this role (H7).
    fn human(&self, by: Principal, role: Role) -> Result<(), Refusal> {
        self.authenticate(by)?;
        let known = self.state().agent(by.agent()).filter(|_| by.is_human());
        match known {
            // Roles are ordered from owner to viewer, so a smaller one may do more.
            Some(human) if human.role <= role => Ok(()),
            Some(human) => {
                Err(Refusal::new(Code::Forbidden).about(format_args!("a human with the role {}", human.role)))
            }
            None => Err(Code::Forbidden.into()),
        }
    }

    /// Forgets records that were closed long ago, before the input is handled (L7).
    fn forget(&mut self) {
        let items = self.state().due_to_forget(self.now);
        if items > 0 {
            self.record(Fact::Forgot { items });
        }
    }
}

/// The result of handling an input.
type Outcome = Result<Reply, Refusal>;
