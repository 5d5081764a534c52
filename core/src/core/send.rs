//! Sending: every guard judges a message as if it were already counted; then it is counted and recorded (G2, G5).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::envelope::{Address, Draft, MessageType};
use lastword_facts::fact::{
    ConversationOpened, Crossing, Fact, GrantOpened, Key, LatchSet, Latched, Place, Refused, Role, RootStarted,
};
use lastword_facts::guards::{GUARDS, Guard};
use lastword_facts::ids::{AgentId, ConvId, GrantId, IncidentId, Seq, TaskId, Time, TurnId};
use lastword_facts::names::{Label, Ref, RequestId};
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::trace::TraceContext;

use super::message::{Content, Destination};
use super::prompts::FirstReach;
use super::{Outcome, Step};
use crate::guards::{Ahead, JUDGES, Placement, Plan, Records, SendContext, View};
use crate::input::{Question, Reply};
use crate::rules::Rule;
use crate::state::{Agent, Few, Known, Principal};

/// A draft with its context, its recipients and their placements.
struct Sending {
    sender: AgentId,
    draft: Box<Draft>,
    context: SendContext,
    unresolved: Option<Refusal>,
    targets: Vec<(Option<AgentId>, Placement)>,
    /// The schedule whose tick it is, and the time of the next tick (D13).
    tick: Option<(Label, Time)>,
}

/// A draft, as the record of its refusal names it.
struct DraftRecord {
    turn: Option<TurnId>,
    kind: MessageType,
    to: Address,
    reference: Option<Ref>,
}

impl Step<'_> {
    pub(super) fn send(&mut self, by: Principal, draft: Box<Draft>) -> Outcome {
        self.authenticate(by)?;
        #[cfg(feature = "rules-off")]
        let draft = self.naive_draft(draft);
        self.check_sender(by, &draft)?;
        let draft = self.with_own_key(by.agent(), draft);
        // A retry gets the first result before anything can refuse it now.
        if let Some(again) = self.repeated(by.agent(), &draft)? {
            return Ok(again);
        }
        self.may_send(by, &draft)?;
        match draft.kind {
            MessageType::Response if by.is_human() => return self.human_response(by, *draft),
            MessageType::Response => {
                // Before the answer ends the turn that this reads.
                let of_draft = self.draft_record(by.agent(), &draft);
                return self
                    .response(by, &draft)
                    .inspect_err(|refusal| self.note_refusal(by.agent(), of_draft, refusal));
            }
            MessageType::Status => {
                if let Some(task) = self.own_task(by.agent(), &draft) {
                    let of_draft = self.draft_record(by.agent(), &draft);
                    let sent = self.status(by, task, &draft);
                    return sent.inspect_err(|refusal| self.note_refusal(by.agent(), of_draft, refusal));
                }
            }
            MessageType::Request | MessageType::Alert | MessageType::Info | MessageType::Broadcast => {}
        }
        let sending = self.sending(by.agent(), draft);
        if self.goes_to_human(&sending) {
            return self.send_question(by, *sending.draft);
        }
        self.admit(sending)
    }

    /// Refuses a FROM that isn't the authenticated sender, before anything else is checked (G5).
    fn check_sender(&mut self, by: Principal, draft: &Draft) -> Result<(), Refusal> {
        let agent = by.agent();
        let Some(claim) = draft.from.as_ref().filter(|_| !by.is_human() && self.has_guard("from_mismatch")) else {
            return Ok(());
        };
        if claim.as_str() == self.state().name_of(agent) {
            return Ok(());
        }
        let refusal = Refusal::new(Code::FromMismatch).about(claim);
        if self.goes_on_record(agent, refusal.code) {
            let of_draft = self.draft_record(agent, draft);
            self.record_refusal(agent, of_draft, refusal.clone());
        }
        Err(refusal)
    }

    /// Checks a human's role, and that an agent is below its limit of refused writes (H7, G2). An answer ends a
    /// turn, so it is judged whatever was refused before.
    fn may_send(&mut self, by: Principal, draft: &Draft) -> Result<(), Refusal> {
        if by.is_human() {
            let role = match draft.kind {
                MessageType::Request => Role::Operator,
                MessageType::Response => Role::Approver,
                MessageType::Status | MessageType::Alert | MessageType::Info | MessageType::Broadcast => Role::Viewer,
            };
            return self.human(by, role);
        }
        if draft.kind == MessageType::Response { Ok(()) } else { self.not_too_often(by.agent()) }
    }

    /// Returns what the record of a refusal says about the draft.
    fn draft_record(&self, agent: AgentId, draft: &Draft) -> DraftRecord {
        let turn = self.turn_of(agent, draft.turn).ok();
        DraftRecord { turn, kind: draft.kind, to: draft.to.clone(), reference: draft.reference.clone() }
    }

    fn record_refusal(&mut self, agent: AgentId, of_draft: DraftRecord, refusal: Refusal) {
        let DraftRecord { turn, kind, to, reference } = of_draft;
        self.record(Fact::Refused(Refused { agent, turn, kind, to, reference, refusal }));
    }

    /// Records a refused answer or STATUS. Like any other message, it counts in the conversation if the sender is a
    /// participant, and against the sender's turn (R1, F5).
    fn note_refusal(&mut self, agent: AgentId, of_draft: DraftRecord, refusal: &Refusal) {
        let state = self.state();
        let turn = of_draft.turn.and_then(|t| state.turns.get(&t));
        let of_task = turn.and_then(|t| state.tasks.get(&t.task)).map(|t| t.conv);
        let named = of_draft.reference.as_ref().and_then(|r| state.conv_of(r.as_str()));
        let part = |conv: &ConvId| state.conversations.get(conv).is_some_and(|c| c.has_part(agent));
        let counts = refusal.retry_after_ms.is_none();
        if let Some(conv) = named.or(of_task).filter(part).filter(|_| counts) {
            self.hear_in(agent, Place::Conversation(conv));
        }
        self.record_refusal(agent, of_draft, refusal.clone());
    }

    /// Gives the key of a header a form of its sender's own if another sender used it first: keys are remembered per
    /// sender (Q1), while a request's id is one for the whole workspace.
    fn with_own_key(&self, sender: AgentId, mut draft: Box<Draft>) -> Box<Draft> {
        let keys = &self.state().keys;
        let others = |id: &RequestId| {
            keys.contains(id.as_str()) && keys.chosen(id.as_str()).is_none_or(|known| known.sender != sender)
        };
        if let Some(id) = draft.request_id.as_ref().filter(|id| draft.key_only && others(id)) {
            let own = RequestId::new(&alloc::format!("{id}@{}", self.state().name_of(sender)));
            // A key that is too long for that stays as it is, and conflicts.
            draft.request_id = Some(own.unwrap_or_else(|_| id.clone()));
        }
        draft
    }

    /// Returns the first result of a send that was accepted under the same key (Q1).
    pub(super) fn repeated(&self, sender: AgentId, draft: &Draft) -> Result<Option<Reply>, Refusal> {
        let keyed = !matches!(draft.kind, MessageType::Response | MessageType::Status) && self.rule(Rule::Idempotency);
        let Some(id) = draft.request_id.as_ref().filter(|_| keyed) else { return Ok(None) };
        let keys = &self.state().keys;
        if !keys.contains(id.as_str()) {
            return Ok(None);
        }
        // The key of another sender, or of other content, is neither a retry nor free to use.
        let same = |known: &&Known| known.sender == sender && known.fingerprint == Some(draft.fingerprint());
        if let Some(known) = keys.chosen(id.as_str()).filter(same) {
            let question = known.escalation.map(Reply::Escalated);
            return Ok(Some(question.unwrap_or_else(|| Reply::Again(known.messages.to_vec()))));
        }
        Err(Refusal::new(Code::IdempotencyConflict).about(id))
    }

    /// Opens an escalation for a REQUEST to a human; its key is remembered like that of any other request (H1, Q1).
    fn send_question(&mut self, by: Principal, draft: Draft) -> Outcome {
        let key = draft.request_id.as_ref().map(|id| Key { id: id.clone(), fingerprint: draft.fingerprint() });
        let Draft { body, turn, reference, .. } = draft;
        let reply = self.escalate(by, turn, Question { body, options: Vec::new(), reference, key: None })?;
        if let (Reply::Escalated(escalation), Some(key)) = (&reply, key) {
            self.record(Fact::EscalationKeyed { escalation: *escalation, agent: by.agent(), key });
        }
        Ok(reply)
    }

    fn goes_to_human(&self, sending: &Sending) -> bool {
        let human = |id: AgentId| self.state().agent(id).is_some_and(Agent::is_human);
        sending.draft.kind == MessageType::Request
            && sending.context != SendContext::Human
            && matches!(sending.targets.as_slice(), [(Some(to), _)] if human(*to))
    }

    fn sending(&self, sender: AgentId, draft: Box<Draft>) -> Sending {
        let found = self.targets(sender, &draft);
        #[cfg(feature = "rules-off")]
        let found = self.naive_targets(found);
        let (unresolved, found) = match found {
            Ok(found) => (None, found),
            Err(refusal) => (Some(refusal), Few::new()),
        };
        let named = self.named(&draft);
        let context = self.context(sender, &named, &found);
        let mut targets = Vec::with_capacity(found.len().max(1));
        let mut fresh = 0;
        for to in found {
            let placement = self.placement(sender, &named, context, Some(to), fresh);
            // Each target without a REF may open a child; the next target has to number on.
            fresh += u32::from(matches!(placement.plan, Plan::Open(_, Some(_))) && draft.reference.is_none());
            targets.push((Some(to), placement));
        }
        if targets.is_empty() {
            // A send without a recipient is still judged, for its refusal or as a BROADCAST.
            targets.push((None, self.placement(sender, &named, context, None, 0)));
        }
        Sending { sender, draft, context, unresolved, targets, tick: None }
    }

    /// Admits a request that the broker writes in the name of a human.
    pub(super) fn send_for(&mut self, human: AgentId, draft: Draft) -> Outcome {
        let sending = self.sending(human, Box::new(draft));
        self.admit(sending)
    }

    /// Admits a tick of a schedule as a request in the name of the human who set it.
    pub(super) fn send_tick(&mut self, by: AgentId, draft: Box<Draft>, name: Label, next: Time) -> Result<(), Refusal> {
        let sending = self.sending(by, draft);
        let (refusal, _) = self.judge(&sending, None, &[]);
        match refusal {
            Some(refusal) => Err(refusal),
            None => {
                self.accept(Sending { tick: Some((name, next)), ..sending });
                Ok(())
            }
        }
    }

    /// Judges a human's draft without sending it, and records what guards in observe mode found. Fails with the refusal
    /// that the draft would get.
    pub(super) fn check_human_draft(&mut self, sender: AgentId, draft: Box<Draft>) -> Result<(), Refusal> {
        let sending = self.sending(sender, draft);
        let (refusal, observed) = self.judge(&sending, None, &[]);
        self.note_observed(sender, observed);
        refusal.map_or(Ok(()), Err)
    }

    /// Judges a message as if it were counted, then counts it, and only then refuses or accepts it (G5, R1).
    fn admit(&mut self, sending: Sending) -> Outcome {
        let places = self.places(&sending);
        let typed = self.prompt_reaches(sending.sender, sending.context, &sending.targets);
        let anew = |place: &Place| typed.iter().flatten().any(|(_, conv)| Place::Conversation(*conv) == *place);
        let count = |place: &Place| (*place, if anew(place) { 1 } else { self.state().agent_messages_in(*place) + 1 });
        // With several places, the guards check the fullest one; each is counted below.
        let heard = places.iter().map(count).max_by_key(|(_, agent_messages)| *agent_messages);
        let (refusal, observed) = self.judge(&sending, heard, &typed);
        if refusal.is_none() {
            self.hear_prompt(&typed);
        }
        let counted = refusal.is_none() || self.rule(Rule::CountedFirst);
        // Every message counts, whatever refuses it, unless it may simply be resent later (R1).
        if counted && refusal.as_ref().is_none_or(|refusal| refusal.retry_after_ms.is_none()) {
            for place in places {
                self.hear_in(sending.sender, place);
            }
        }
        self.note_observed(sending.sender, observed);
        match refusal {
            Some(refusal) => Err(self.refuse(&sending, refusal)),
            None => Ok(Reply::Sent(self.accept(sending))),
        }
    }

    fn note_observed(&mut self, agent: AgentId, observed: Vec<Refusal>) {
        for refusal in observed {
            self.record(Fact::Observed { agent, refusal });
        }
    }

    /// Returns the places where the message counts (R1).
    fn places(&self, sending: &Sending) -> Few<Place, 2> {
        if sending.context == SendContext::Human {
            return Few::new();
        }
        let mut convs: Few<ConvId, 2> = Few::new();
        // A message that will be refused for its REF counts where the task is; otherwise new REFs would hide a loop.
        let own = sending.context.task().and_then(|t| self.state().tasks.get(&t)).map(|t| t.conv);
        for (_, placement) in &sending.targets {
            let conv = match placement.plan {
                Plan::Existing(conv) => Some(conv),
                Plan::Open(..) | Plan::None => own.filter(|_| placement.fault.is_some()),
            };
            if let Some(conv) = conv
                && self.state().conversations[&conv].has_part(sending.sender)
                && !convs.contains(&conv)
            {
                convs.push(conv);
            }
        }
        convs.into_iter().map(Place::Conversation).collect()
    }

    /// Counts one agent message in a place, and records the crossing of a limit (R1, R2).
    pub(super) fn hear_in(&mut self, agent: AgentId, place: Place) -> (Place, u64) {
        let agent_messages = self.state().agent_messages_in(place) + 1;
        self.record(Fact::Heard { agent, place, agent_messages });
        let limits = &self.state().limits;
        let (soft, hard) = (limits.turns_soft_max, limits.turns_hard_max);
        let latches = self.enforces("turns_hard");
        // Exactly equal: the count rises by one, so each crossing is met once (R2).
        if agent_messages == hard {
            self.record(Fact::Warned { place, crossing: Crossing::Hard, agent_messages });
            if latches {
                self.latch(Latched::Place(place), &Refusal::new(Code::TurnsHard).numbers(hard, agent_messages));
            }
        } else if agent_messages == soft {
            self.record(Fact::Warned { place, crossing: Crossing::Soft, agent_messages });
        }
        #[cfg(feature = "rules-off")]
        self.naive_warning(place, agent_messages);
        (place, agent_messages)
    }

    pub(super) fn latch(&mut self, on: Latched, refusal: &Refusal) {
        let incident = IncidentId(self.state().last_incident() + 1);
        let (limit, current) = (refusal.limit.unwrap_or(0), refusal.current.unwrap_or(0));
        self.record(Fact::LatchSet(LatchSet { incident, on, code: refusal.code, limit, current }));
    }

    /// Asks every guard about every recipient. The first refusal wins, and nothing is charged.
    fn judge(
        &self,
        sending: &Sending,
        heard: Option<(Place, u64)>,
        typed: &[FirstReach],
    ) -> (Option<Refusal>, Vec<Refusal>) {
        let human = sending.context == SendContext::Human;
        let targets: Few<AgentId, 4> = sending.targets.iter().filter_map(|(to, _)| *to).collect();
        let mut observed = Vec::new();
        let mut refusal = None;
        let asked = |guard: &Guard| (guard.humans || !human) && self.has_guard(guard.name);
        let views: Few<View<'_>, 1> = (sending.targets.iter().enumerate())
            .map(|(i, (to, placement))| View {
                state: self.state(),
                now: self.now,
                sender: sending.sender,
                draft: &sending.draft,
                context: sending.context,
                unresolved: sending.unresolved.as_ref(),
                to: *to,
                placement,
                heard,
                by_prompt: typed.get(i).is_some_and(Option::is_some),
                ahead: Ahead { targets: &targets[..i.min(targets.len())] },
                records: Records::find(self.state(), sending.sender, sending.context, *to),
            })
            .collect();
        // Guards outside, recipients inside: a list is refused for the first guard in order, whichever recipient it is
        // about (G5).
        for (index, (guard, (_, judge))) in GUARDS.iter().zip(JUDGES).enumerate().filter(|(_, (guard, _))| asked(guard))
        {
            let found = views.iter().filter_map(judge);
            if guard.observable && self.state().limits.observed.contains(index) {
                observed.extend(found);
                continue;
            }
            // Of a list's refusals the one that lacks the most, so that the step it names lets the whole list through
            // (H6).
            refusal = found.reduce(|first, next| if next.current > first.current { next } else { first });
            if refusal.is_some() {
                break;
            }
        }
        drop(views);
        (refusal, observed)
    }

    fn refuse(&mut self, sending: &Sending, refusal: Refusal) -> Refusal {
        let grant = sending.context.task().and_then(|t| self.state().tasks.get(&t)).map(|t| t.grant);
        let totals = matches!(refusal.code, Code::GrantMessages | Code::GrantTurns | Code::GrantExpired | Code::Budget);
        // A refusal that time alone ends comes from an agent's own day, and must not hold the grant's other work (B1).
        if let Some(grant) = grant.filter(|_| totals && refusal.retry_after_ms.is_none()) {
            self.latch(Latched::Grant(grant), &refusal);
        }
        self.note_allowance(sending.sender, &refusal);
        // The counters of a list are those of several conversations, so the refusal names the sender's task (R1).
        let several = sending.targets.len() > 1 && matches!(refusal.code, Code::TurnsSoft | Code::TurnsHard);
        let planned = sending.targets.first().filter(|_| !several).and_then(|(_, placement)| match &placement.plan {
            Plan::Existing(conv) => self.state().ref_of(*conv).cloned(),
            Plan::Open(reference, _) => Some(reference.clone()),
            Plan::None => None,
        });
        self.record(Fact::Refused(Refused {
            agent: sending.sender,
            turn: sending.context.turn(),
            kind: sending.draft.kind,
            to: sending.draft.to.clone(),
            reference: sending.draft.reference.clone().or(planned),
            refusal: refusal.clone(),
        }));
        #[cfg(feature = "rules-off")]
        self.naive_refusal(sending.context.task(), sending.sender, &refusal);
        refusal
    }

    fn accept(&mut self, sending: Sending) -> Vec<Seq> {
        let Sending { sender, mut draft, context, targets, tick, .. } = sending;
        let (several, count) = (targets.len() > 1, targets.len());
        let key = draft.request_id.as_ref().map(|id| Key { id: id.clone(), fingerprint: draft.fingerprint() });
        let mut contents = Content::of(&mut draft, targets.len());
        let mut task = context.task();
        #[cfg(feature = "rules-off")]
        self.naive_correlation(sender, &mut task);
        let mut sent = Vec::with_capacity(targets.len());
        for (i, (to, placement)) in targets.into_iter().enumerate() {
            let conv = self.open(sender, &placement, i > 0);
            let wakes = draft.kind == MessageType::Request;
            // The first message of a list starts a task as its root; the others share it and its grant.
            if let Some(giver) = context.starts_for(sender).filter(|_| task.is_none()) {
                task = Some(self.start_root(sender, giver, conv, draft.trace));
            }
            let grant = match (task, context) {
                (Some(task), _) => self.state().tasks.get(&task).map(|t| t.grant),
                (None, SendContext::Human) if wakes => Some(self.open_grant(sender, conv, draft.trace)),
                (None, _) => None,
            };
            if let (Some((name, next_at)), Some(grant)) = (&tick, grant) {
                let next_at = Some(*next_at);
                self.record(Fact::ScheduleTicked { name: name.clone(), grant, next_at });
            }
            let number = several.then_some(i + 1);
            let content = contents.next().unwrap_or_default();
            let destination = Destination { conv, depth: placement.depth, to, number, sender_task: task, grant };
            let message = self.message(sender, &draft, key.clone(), content, destination);
            let speaks = context == SendContext::Human && tick.is_none() && message.is_said();
            // To record a message consumes the reading of its text (R5), and each message of a list needs it.
            let reading = if i + 1 < count { self.reading.clone() } else { None };
            // Recorded before the message, whose own fact resets its conversation.
            if speaks && self.state().agents[sender.0 as usize].is_heard() {
                self.lift_place(Place::Conversation(conv), sender);
                self.hear_human(sender, conv, Some(conv));
            }
            self.record(Fact::Accepted { message: Box::new(message) });
            self.reading = reading;
            sent.push(self.state().seq);
            self.check_stall();
            self.raise_alert(sender, &draft);
            self.announce(&draft, to);
        }
        self.check_day(sender);
        sent
    }

    /// Records an ALERT as raised. It is pushed to the humans at most `alerts_per_hour_max` times an hour (E4).
    fn raise_alert(&mut self, agent: AgentId, draft: &Draft) {
        let Some(sender) = self.state().agent(agent).filter(|a| draft.kind == MessageType::Alert && !a.is_human())
        else {
            return;
        };
        let pushed = sender.alerts_of_late(self.now) < self.state().limits.alerts_per_hour_max;
        let message = self.state().seq;
        self.record(Fact::AlertRaised { message, agent, pushed });
        if pushed {
            self.out.effects.push(crate::input::Effect::WakeAll);
        }
    }

    /// Notes an incident for the humans if an agent's root allowance runs out on two days in a row (D7).
    fn note_allowance(&mut self, agent: AgentId, refusal: &Refusal) {
        let Some(known) = self.state().agent(agent).filter(|_| refusal.code == Code::RootAllowance) else { return };
        let yesterday = self.now.day().checked_sub(1);
        let noted = known.noted_at(Code::RootAllowance).is_some_and(|at| at.day() == self.now.day());
        if yesterday.is_some() && known.allowance_out() == yesterday && !noted {
            let (limit, current) = (refusal.limit.unwrap_or(0), refusal.current.unwrap_or(0));
            self.note_incident(agent, Code::RootAllowance, limit, current);
        }
    }

    /// Wakes the recipient of a REQUEST, and a human whatever it gets.
    fn announce(&mut self, draft: &Draft, to: Option<AgentId>) {
        let human = to.is_some_and(|t| self.state().agent(t).is_some_and(Agent::is_human));
        if let Some(to) = to.filter(|_| draft.kind == MessageType::Request || human) {
            self.wake(to);
        }
    }

    /// Returns the conversation of a placement, opening it if needed. If `again`, an earlier message of the same send may
    /// have opened it since it was planned. The message that opens it counts in it (R1).
    pub(super) fn open(&mut self, opener: AgentId, placement: &Placement, again: bool) -> ConvId {
        let (reference, parent): (&Ref, _) = match &placement.plan {
            Plan::Existing(conv) => return *conv,
            Plan::Open(reference, parent) => (reference, *parent),
            Plan::None => unreachable!("a placement without a plan has a fault, which is always refused"),
        };
        if again && let Some(conv) = self.state().conv_of(reference.as_str()) {
            return conv;
        }
        let conv = ConvId(self.state().minted_conversations() + 1);
        self.record(Fact::ConversationOpened(ConversationOpened {
            conv,
            reference: reference.clone(),
            parent,
            opener,
        }));
        if !self.state().agent(opener).is_some_and(Agent::is_human) {
            self.record(Fact::Heard { agent: opener, place: Place::Conversation(conv), agent_messages: 1 });
        }
        conv
    }

    pub(super) fn open_grant(&mut self, giver: AgentId, conv: ConvId, trace: Option<TraceContext>) -> GrantId {
        let grant = GrantId(self.state().last_grant() + 1);
        let expires_at = self.now.plus(self.state().limits.grant_age_ms);
        #[cfg(feature = "rules-off")]
        let expires_at = self.naive_expiry(Rule::GrantAge, expires_at);
        self.record(Fact::GrantOpened(GrantOpened { grant, giver, conv, expires_at }));
        if let Some(context) = trace {
            self.record(Fact::GrantTraced { grant, context });
        }
        grant
    }

    fn start_root(&mut self, agent: AgentId, giver: AgentId, conv: ConvId, trace: Option<TraceContext>) -> TaskId {
        let before = self.state().conversations[&conv].root.filter(|r| r.agent == agent && giver == agent);
        let received = before.and_then(|r| r.received);
        let grant = self.open_grant(giver, conv, trace);
        let task = TaskId(self.state().last_task() + 1);
        self.record(Fact::RootStarted(RootStarted { task, agent, conv, grant, received }));
        task
    }

    /// Lifts the latch that the hard limit set in a place that a human spoke in; the counters start again from 0 (R3,
    /// R4).
    pub(super) fn lift_place(&mut self, place: Place, by: AgentId) {
        let latched = match place {
            Place::Conversation(conv) => self.state().conversations.get(&conv).is_some_and(|c| c.latched),
            Place::Room(room) => self.state().rooms.get(&room).is_some_and(|r| r.latched),
        };
        if latched {
            self.record(Fact::LatchLifted { on: Latched::Place(place), by });
            self.out.effects.push(crate::input::Effect::WakeAll);
        }
    }
}
