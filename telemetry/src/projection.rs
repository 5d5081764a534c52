//! The projection of the log into spans: a pure fold, whose state is what has begun and not ended.
//!
//! A message is a span `send`, a turn a span `process` below it. What happens in a turn is below the turn: a held call, a
//! question, a claim, a dialog of the program. A refusal is an event of its turn. Ids are computed, so that a fold of the
//! same facts gives the same spans. The state is a message of Protobuf, so that it can be saved.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lastword_broker::identity::TurnSigner;
use lastword_facts::fact::{
    Answer, ApprovalAsked, ApprovalDecided, Claimed, EscalationCause, EscalationOpened, GrantOpened, LatchSet, Part,
    Recipient, Refused, Requeued, RootStarted, SYSTEM, Spend, Terms, TurnCharged, TurnClosed, TurnFinished, TurnOpened,
    WriteRefused,
};
use lastword_facts::ids::{AgentId, ConvId, EscalationId, GrantId, TaskId, TurnId};
use lastword_facts::{AnswerStatus, Entry, Fact, Message, Refusal, Seq, Time, TraceContext};
use lastword_server::trace::{SpanKind, Traces, span_of};
use lastword_wire::TRACEPARENT;
use serde_json::Value;

use crate::otlp::{CONSUMER, INTERNAL, PRODUCER, Span, attribute};

/// What the projection needs beside the facts.
pub(crate) struct Lookup<'a> {
    pub(crate) signer: &'a TurnSigner,
    pub(crate) traces: &'a Traces,
    pub(crate) include_text: bool,
    pub(crate) names: &'a Names,
}

/// The names of agents and conversations, which facts name by number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) agents: BTreeMap<AgentId, String>,
    pub(crate) references: BTreeMap<ConvId, String>,
}

impl Names {
    fn agent(&self, agent: AgentId) -> Cow<'_, str> {
        self.agents.get(&agent).map_or_else(|| agent.to_string().into(), Into::into)
    }

    fn reference(&self, conv: ConvId) -> Cow<'_, str> {
        self.references.get(&conv).map_or_else(|| conv.to_string().into(), Into::into)
    }
}

/// What a span shows, by the first word of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Send,
    Process,
    Approval,
    Question,
    Dialog,
    Claim,
    Hold,
}

impl Operation {
    pub(crate) const ALL: [Self; 7] =
        [Self::Send, Self::Process, Self::Approval, Self::Question, Self::Dialog, Self::Claim, Self::Hold];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Process => "process",
            Self::Approval => "approval",
            Self::Question => "question",
            Self::Dialog => "dialog",
            Self::Claim => "claim",
            Self::Hold => "hold",
        }
    }

    fn ended(self, span: Span, at: Time) -> EndedSpan {
        EndedSpan { operation: self, at, span: span.ended(at) }
    }
}

/// A span that has ended.
pub(crate) struct EndedSpan {
    pub(crate) operation: Operation,
    pub(crate) at: Time,
    pub(crate) span: Span,
}

/// The trace of a grant.
#[derive(Clone, PartialEq, prost::Message)]
struct GrantSpans {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bool, tag = "2")]
    sampled: bool,
    /// The span from elsewhere that its first message or turn is below; empty if there is none.
    #[prost(bytes = "vec", tag = "3")]
    parent: Vec<u8>,
    /// Whether it is closed: it stays until its tasks have ended.
    #[prost(bool, tag = "4")]
    over: bool,
    #[prost(uint64, tag = "5")]
    tasks: u64,
}

/// A task in a trace that is recorded.
#[derive(Clone, PartialEq, prost::Message)]
struct TaskSpans {
    #[prost(uint64, tag = "1")]
    grant: u64,
    #[prost(string, tag = "2")]
    agent: String,
    #[prost(bytes = "vec", tag = "3")]
    trace: Vec<u8>,
    /// The span that its turns are below; empty if there is none.
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    reference: String,
    /// Its request; `None` for a root, and once it is answered.
    #[prost(message, optional, tag = "6")]
    request: Option<Span>,
    /// Whether it has ended: it stays until its turns have.
    #[prost(bool, tag = "7")]
    over: bool,
    /// The open turns.
    #[prost(uint64, repeated, tag = "8")]
    turns: Vec<u64>,
    /// The newest turn, which may have ended: what an agent answers is recorded after it.
    #[prost(uint64, optional, tag = "9")]
    newest: Option<u64>,
}

/// What happens within a task, such as an open turn.
#[derive(Clone, PartialEq, prost::Message)]
struct Begun {
    #[prost(uint64, tag = "1")]
    task: u64,
    #[prost(message, required, tag = "2")]
    span: Span,
    /// The models of a turn, which each report replaces.
    #[prost(string, tag = "3")]
    models: String,
}

/// What has begun and not ended.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Projection {
    #[prost(btree_map = "uint64, message", tag = "1")]
    grants: BTreeMap<u64, GrantSpans>,
    #[prost(btree_map = "uint64, message", tag = "2")]
    tasks: BTreeMap<u64, TaskSpans>,
    #[prost(btree_map = "uint64, message", tag = "3")]
    turns: BTreeMap<u64, Begun>,
    /// The open dialogs of programs, by turn.
    #[prost(btree_map = "uint64, message", tag = "4")]
    dialogs: BTreeMap<u64, Begun>,
    #[prost(btree_map = "uint64, message", tag = "5")]
    approvals: BTreeMap<u64, Begun>,
    #[prost(btree_map = "uint64, message", tag = "6")]
    questions: BTreeMap<u64, Begun>,
    #[prost(btree_map = "uint64, message", tag = "7")]
    claims: BTreeMap<u64, Begun>,
    /// By what they hold.
    #[prost(btree_map = "string, message", tag = "8")]
    holds: BTreeMap<String, Span>,
}

/// The place of an entry in the log.
#[derive(Clone, Copy)]
struct LogPosition {
    seq: Seq,
    at: Time,
}

impl Projection {
    /// Folds an entry, and adds the spans that end with it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other facts are about no work")]
    #[expect(clippy::too_many_lines, reason = "a few lines a fact")]
    pub(crate) fn fold(&mut self, with: &Lookup<'_>, seq: Seq, entry: &Entry, ended: &mut Vec<EndedSpan>) {
        let (here, at) = (LogPosition { seq, at: entry.at }, entry.at);
        match &entry.fact {
            Fact::GrantOpened(GrantOpened { grant, .. }) => {
                let (trace, sampled) = with.traces.of_grant(with.signer, *grant, None);
                let spans = GrantSpans { trace: trace.to_vec(), sampled, ..GrantSpans::default() };
                self.grants.insert(grant.0, spans);
            }
            Fact::GrantTraced { grant, context } => {
                let Some(spans) = self.grants.get_mut(&grant.0) else { return };
                (spans.trace, spans.parent) = (context.trace.to_vec(), context.parent.to_vec());
                spans.sampled = context.sampled;
            }
            Fact::GrantClosed { grant, .. } => {
                let Some(spans) = self.grants.get_mut(&grant.0) else { return };
                spans.over = true;
                self.drop_grant(grant.0);
            }
            Fact::RootStarted(RootStarted { task, agent, conv, grant, .. }) => {
                self.begin_task(with, *task, *grant, *agent, *conv, None);
            }
            Fact::RootEnded { task, .. } => self.end_task(*task, at, ended),
            Fact::Accepted { message } => self.accepted(with, here, message, ended),
            Fact::Requeued(Requeued { task, agent, why, .. }) => {
                let Some(known) = self.tasks.get_mut(&task.0) else { return };
                known.agent = with.names.agent(*agent).into_owned();
                if let Some(request) = &mut known.request {
                    request.happen(at, "requeued", vec![attribute("lastword.why", why.word())]);
                }
            }

            Fact::TurnOpened(TurnOpened { turn, task, attempt, message, .. }) => {
                let Some(known) = self.tasks.get_mut(&task.0) else { return };
                known.turns.push(turn.0);
                known.newest = Some(turn.0);
                let id = span_of(with.signer, SpanKind::Process, turn.0);
                let mut span = Span::begin(&known.trace, id, &known.parent, CONSUMER, at);
                span.name(&format!("process {}", known.agent));
                span.link(&known.trace, span_of(with.signer, SpanKind::Send, message.0));
                span.set("messaging.system", "lastword");
                span.set("messaging.operation.name", "process");
                span.set("messaging.operation.type", "process");
                span.set("messaging.destination.name", known.agent.as_str());
                span.set("messaging.message.id", &message.to_string());
                span.set("gen_ai.operation.name", "invoke_agent");
                span.set("gen_ai.agent.name", known.agent.as_str());
                span.set("gen_ai.conversation.id", known.reference.as_str());
                span.set("lastword.turn", &turn.to_string());
                span.set("lastword.attempt", u64::from(*attempt));
                self.turns.insert(turn.0, Begun { task: task.0, span, models: String::new() });
            }
            Fact::Joined { turn, message, .. } => {
                let Some(known) = self.turns.get_mut(&turn.0) else { return };
                let Some(task) = self.tasks.get(&known.task) else { return };
                known.span.link(&task.trace, span_of(with.signer, SpanKind::Send, message.0));
            }
            Fact::SpentOn { turn, models, .. } => {
                let Some(known) = self.turns.get_mut(&turn.0) else { return };
                let models: Vec<&str> = models.iter().map(|part| part.model.as_str()).collect();
                known.models = models.join(",");
            }
            Fact::TurnFinished(TurnFinished { turn, status, spend, .. })
            | Fact::TurnCharged(TurnCharged { turn, status, spend, .. }) => {
                self.end_turn(*turn, at, *spend, Ok(status.word()), ended);
            }
            Fact::TurnClosed(TurnClosed { turn, end, status, spend }) => {
                self.end_turn(*turn, at, *spend, status.map(|status| status.word()).ok_or(end.word()), ended);
            }
            Fact::WaitsForUser { turn, waits } => {
                ended.extend(self.dialogs.remove(&turn.0).map(|dialog| Operation::Dialog.ended(dialog.span, at)));
                let Some(task) = self.turns.get(&turn.0).filter(|_| *waits).map(|turn| turn.task) else { return };
                if let Some(dialog) = self.within(with, TaskId(task), Operation::Dialog.word(), here) {
                    self.dialogs.insert(turn.0, dialog);
                }
            }
            Fact::Refused(Refused { turn: Some(turn), refusal, to, .. }) => {
                self.refused(*turn, at, refusal, "lastword.to", to.to_string());
            }
            Fact::WriteRefused(WriteRefused { turn: Some(turn), refusal, write, .. }) => {
                self.refused(*turn, at, refusal, "lastword.write", write.word().to_owned());
            }

            Fact::ApprovalAsked(ApprovalAsked { approval, task: Some(task), tool, arguments, .. }) => {
                let Some(mut held) = self.within(with, *task, &format!("approval {tool}"), here) else { return };
                held.span.set("gen_ai.tool.name", &**tool);
                held.span.set("lastword.approval", &approval.to_string());
                if with.include_text {
                    held.span.set("gen_ai.tool.call.arguments", &**arguments);
                }
                self.approvals.insert(approval.0, held);
            }
            Fact::ApprovalDecided(ApprovalDecided { approval, by, decision, .. }) => {
                let Some(Begun { mut span, .. }) = self.approvals.remove(&approval.0) else { return };
                span.set("lastword.decision", decision.word());
                if let Some(by) = *by {
                    span.set("lastword.by", &*if by == SYSTEM { "policy".into() } else { with.names.agent(by) });
                }
                ended.push(Operation::Approval.ended(span, at));
            }
            Fact::EscalationOpened(EscalationOpened { escalation, task: Some(task), cause, body, .. }) => {
                let Some(mut asked) = self.within(with, *task, Operation::Question.word(), here) else { return };
                asked.span.set("lastword.escalation", &escalation.to_string());
                asked.span.set("lastword.cause", if *cause == EscalationCause::Asked { "asked" } else { "limit" });
                if with.include_text {
                    asked.span.set("lastword.question", &**body);
                }
                self.questions.insert(escalation.0, asked);
            }
            Fact::EscalationNoted { escalation, by, .. } | Fact::EscalationAnswered { escalation, by, .. } => {
                self.answered(*escalation, at, "answered", Some(&with.names.agent(*by)), ended);
            }
            Fact::EscalationExpired { escalation } => self.answered(*escalation, at, "expired", None, ended),
            Fact::Claimed(Claimed { claim, task: Some(task), resource, .. }) => {
                // A renewal is of the same claim.
                if self.claims.contains_key(&claim.0) {
                    return;
                }
                let Some(mut held) = self.within(with, *task, Operation::Claim.word(), here) else { return };
                held.span.set("lastword.claim", &claim.to_string());
                // It is often a path from a call's arguments, which are text.
                if with.include_text {
                    held.span.set("lastword.resource", resource.as_str());
                }
                self.claims.insert(claim.0, held);
            }
            Fact::Released { claim } | Fact::ClaimBroken { claim, .. } => {
                ended.extend(self.claims.remove(&claim.0).map(|claim| Operation::Claim.ended(claim.span, at)));
            }
            Fact::LatchSet(LatchSet { on, code, incident, .. }) => {
                // Below the oldest of the work that it holds.
                let Some((grant, _)) = entry.grant else { return };
                let Some(spans) = self.grants.get(&grant.0).filter(|spans| spans.sampled) else { return };
                let oldest = self.tasks.iter().filter(|(_, task)| task.grant == grant.0).min_by_key(|(id, _)| **id);
                let parent = oldest.map_or(&spans.parent, |(_, task)| &task.parent);
                let id = span_of(with.signer, SpanKind::Within, seq.0);
                let mut span = Span::begin(&spans.trace, id, parent, INTERNAL, at);
                span.name(Operation::Hold.word());
                span.set("lastword.code", code.word());
                span.set("lastword.rule", code.rule());
                span.set("lastword.incident", &incident.to_string());
                self.holds.insert(format!("{on:?}"), span);
            }
            Fact::LatchLifted { on, by } => {
                let Some(mut span) = self.holds.remove(&format!("{on:?}")) else { return };
                span.set("lastword.by", &*with.names.agent(*by));
                ended.push(Operation::Hold.ended(span, at));
            }
            // What was open before a restore is not part of this epoch.
            Fact::EpochBegan { .. } => *self = Self::default(),
            _ => {}
        }
    }

    fn accepted(&mut self, with: &Lookup<'_>, here: LogPosition, message: &Message, ended: &mut Vec<EndedSpan>) {
        let Some(grant) = message.grant else { return };
        let Some(spans) = self.grants.get(&grant.0).filter(|spans| spans.sampled) else { return };
        let sender = message.sender_task.and_then(|task| self.tasks.get(&task.0));
        let turn = sender.and_then(|task| task.newest).filter(|_| message.from != SYSTEM);
        let turn = turn.map(|turn| span_of(with.signer, SpanKind::Process, turn));
        // A program in the trace names the span of its own that sent the message.
        let named = named_context(message);
        let inner = named.filter(|named| named.trace[..] == spans.trace[..]).map(|named| named.parent).or(turn);
        let above = sender.map_or(&spans.parent, |task| &task.parent);
        let parent = inner.as_ref().map_or(&above[..], |inner| inner);
        let id = span_of(with.signer, SpanKind::Send, here.seq.0);
        let mut span = Span::begin(&spans.trace, id, parent, PRODUCER, here.at);
        if let Some(elsewhere) = named.filter(|named| named.trace[..] != spans.trace[..]) {
            span.link(&elsewhere.trace, elsewhere.parent);
        }
        describe(with, &mut span, here.seq, message);
        match &message.part {
            Part::Request(Terms { task, request, .. }) => {
                span.set("messaging.message.conversation_id", request.as_str());
                if let Recipient::One(agent) = message.to {
                    self.begin_task(with, *task, grant, agent, message.conv, Some((span, id)));
                }
            }
            Part::Answer(answer) => {
                ended.push(Operation::Send.ended(span, here.at));
                self.settle(answer, here.at, ended);
            }
            Part::Reply { escalation, .. } => {
                ended.push(Operation::Send.ended(span, here.at));
                if let Some(escalation) = escalation {
                    self.answered(*escalation, here.at, "answered", Some(&with.names.agent(message.from)), ended);
                }
            }
            Part::Plain | Part::Status { .. } | Part::Echo => {
                ended.push(Operation::Send.ended(span, here.at));
            }
        }
    }

    /// Begins a task: of a request, or a root.
    fn begin_task(
        &mut self,
        with: &Lookup<'_>,
        task: TaskId,
        grant: GrantId,
        agent: AgentId,
        conv: ConvId,
        request: Option<(Span, [u8; 8])>,
    ) {
        let Some(spans) = self.grants.get_mut(&grant.0).filter(|spans| spans.sampled) else { return };
        spans.tasks += 1;
        let begun = TaskSpans {
            grant: grant.0,
            agent: with.names.agent(agent).into_owned(),
            trace: spans.trace.clone(),
            parent: request.as_ref().map_or_else(|| spans.parent.clone(), |(_, id)| id.to_vec()),
            reference: with.names.reference(conv).into_owned(),
            request: request.map(|(span, _)| span),
            over: false,
            turns: Vec::new(),
            newest: None,
        };
        self.tasks.insert(task.0, begun);
    }

    /// Ends the span of a request with its answer.
    fn settle(&mut self, answer: &Answer, at: Time, ended: &mut Vec<EndedSpan>) {
        let Some(task) = self.tasks.get_mut(&answer.task.0) else { return };
        if let Some(mut span) = task.request.take() {
            span.set("lastword.status", answer.status.word());
            if !matches!(answer.status, AnswerStatus::Completed | AnswerStatus::Partial) {
                span.fail(answer.cause.word(), answer.status.word());
            }
            ended.push(Operation::Send.ended(span, at));
        }
        self.end_task(answer.task, at, ended);
    }

    fn end_task(&mut self, id: TaskId, at: Time, ended: &mut Vec<EndedSpan>) {
        let Some(task) = self.tasks.get_mut(&id.0) else { return };
        task.over = true;
        self.drop_task(id.0);
        // What waited for a human is withdrawn with it.
        let held = self.approvals.extract_if(.., |_, held| held.task == id.0);
        let asked = self.questions.extract_if(.., |_, asked| asked.task == id.0);
        let held = held.map(|(_, held)| (Operation::Approval, held.span));
        for (operation, mut span) in held.chain(asked.map(|(_, asked)| (Operation::Question, asked.span))) {
            span.set("lastword.decision", "withdrawn");
            ended.push(operation.ended(span, at));
        }
    }

    /// Ends a turn with the status of its finish, or with how it ended without one.
    fn end_turn(&mut self, id: TurnId, at: Time, spend: Spend, status: Result<&str, &str>, ended: &mut Vec<EndedSpan>) {
        ended.extend(self.dialogs.remove(&id.0).map(|dialog| Operation::Dialog.ended(dialog.span, at)));
        let Some(Begun { task, mut span, models }) = self.turns.remove(&id.0) else { return };
        if !models.is_empty() {
            span.set("gen_ai.response.model", &models);
        }
        match status {
            Ok(status) => span.set("lastword.status", status),
            Err(end) => span.fail(end, "the agent didn't finish the turn"),
        }
        if spend.tokens > 0 {
            span.set("lastword.usage.tokens", spend.tokens);
        }
        if spend.cost_microusd > 0 {
            span.set("lastword.usage.cost_microusd", spend.cost_microusd);
        }
        ended.push(Operation::Process.ended(span, at));
        if let Some(known) = self.tasks.get_mut(&task) {
            known.turns.retain(|turn| *turn != id.0);
        }
        self.drop_task(task);
    }

    /// Drops a task that has ended, with the last of its turns.
    fn drop_task(&mut self, id: u64) {
        let Some(task) = self.tasks.get(&id).filter(|task| task.over && task.turns.is_empty()) else { return };
        let grant = task.grant;
        self.tasks.remove(&id);
        if let Some(spans) = self.grants.get_mut(&grant) {
            spans.tasks = spans.tasks.saturating_sub(1);
        }
        self.drop_grant(grant);
    }

    /// Drops a grant that is closed, with the last of its tasks.
    fn drop_grant(&mut self, id: u64) {
        if self.grants.get(&id).is_some_and(|grant| grant.over && grant.tasks == 0) {
            self.grants.remove(&id);
        }
    }

    fn refused(&mut self, turn: TurnId, at: Time, refusal: &Refusal, key: &str, value: String) {
        let Some(known) = self.turns.get_mut(&turn.0) else { return };
        let told = vec![
            attribute("lastword.code", refusal.code.word()),
            attribute("lastword.rule", refusal.code.rule()),
            attribute(key, value),
        ];
        known.span.happen(at, "refused", told);
    }

    fn answered(
        &mut self,
        escalation: EscalationId,
        at: Time,
        how: &str,
        by: Option<&str>,
        ended: &mut Vec<EndedSpan>,
    ) {
        let Some(Begun { mut span, .. }) = self.questions.remove(&escalation.0) else { return };
        span.set("lastword.decision", how);
        if let Some(by) = by {
            span.set("lastword.by", by);
        }
        ended.push(Operation::Question.ended(span, at));
    }

    /// Begins what happens in the newest turn of a task, or below its request if it has none.
    fn within(&self, with: &Lookup<'_>, task: TaskId, name: &str, here: LogPosition) -> Option<Begun> {
        let known = self.tasks.get(&task.0)?;
        let turn = known.turns.last().map(|turn| span_of(with.signer, SpanKind::Process, *turn));
        let parent = turn.as_ref().map_or(&known.parent[..], |turn| turn);
        let id = span_of(with.signer, SpanKind::Within, here.seq.0);
        let mut span = Span::begin(&known.trace, id, parent, INTERNAL, here.at);
        span.name(name);
        Some(Begun { task: task.0, span, models: String::new() })
    }
}

fn describe(with: &Lookup<'_>, span: &mut Span, seq: Seq, message: &Message) {
    let to = match message.to {
        Recipient::One(agent) => with.names.agent(agent),
        Recipient::All => "all".into(),
    };
    span.name(&format!("send {to}"));
    span.set("messaging.system", "lastword");
    span.set("messaging.operation.name", "send");
    span.set("messaging.operation.type", "send");
    span.set("messaging.destination.name", &*to);
    span.set("messaging.message.id", &seq.to_string());
    span.set("messaging.message.body.size", message.body.len() as u64);
    span.set("gen_ai.conversation.id", &*with.names.reference(message.conv));
    span.set("lastword.from", &*with.names.agent(message.from));
    span.set("lastword.type", message.kind.word());
    span.set("lastword.depth", u64::from(message.depth));
    span.set("lastword.hops", u64::from(message.hops));
    if let Some(grant) = message.grant {
        span.set("lastword.grant", &grant.to_string());
    }
    if let Some(action) = &message.action {
        span.set("lastword.action", action.as_str());
    }
    if with.include_text {
        span.set("lastword.body", &*message.body);
    }
}

/// Returns the place in a trace that a message names.
fn named_context(message: &Message) -> Option<TraceContext> {
    let text = message.metadata.as_deref().filter(|text| text.contains(TRACEPARENT))?;
    TraceContext::parse(serde_json::from_str::<Value>(text).ok()?.get(TRACEPARENT)?.as_str()?)
}
