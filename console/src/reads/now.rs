//! What a human wants to know at a glance: what runs, what went wrong, and what today cost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use lastword_broker::Live;
use lastword_core::State;
use lastword_core::state::{Approval, Escalation, Grant, Phase, Task};
use lastword_facts::fact::{EndReason, EscalationCause, Spend};
use lastword_facts::ids::{AgentId, ApprovalId, DAY_MS, EscalationId, GrantId, TaskId};
use lastword_facts::status::{ApprovalState, EscalationState, Running};
use lastword_facts::{AnswerStatus, Seq, Time};
use lastword_server::calls::Caller;
use lastword_server::calls::read_model::ask_fresh;
use lastword_server::calls::subjects::{self, Ending};
use lastword_server::{ApiError, Context, views};
use lastword_store::SpentIn;
use lastword_wire::Distance;
use serde::Deserialize;

use super::decisions::{self, Waiting};
use super::work_state::{WorkState, asking, is_away, is_stuck, works};

/// The most lines in a list.
const LINES_MAX: usize = 12;
/// The most paused conversations that are named.
const PAUSED_MAX: usize = 12;
/// The most lines about what went wrong, in the short list.
const WRONG_MAX: usize = 8;
/// The most lines about what went wrong, in the whole list.
const WRONG_ALL_MAX: usize = 500;

/// The state of the workspace at a glance.
pub(crate) struct Now {
    /// The decisions that wait for a human.
    pub(crate) waiting: Waiting,
    /// The names of the agents that a human paused or stopped.
    pub(crate) paused: Vec<String>,
    /// The REFs of the conversations that a human paused.
    pub(crate) paused_work: Vec<String>,
    /// The number of messages to the caller that it has not taken yet.
    pub(crate) unread: usize,
    /// The open grants, newest first.
    pub(crate) running: Vec<RunningWork>,
    /// The number of open grants that aren't listed.
    pub(crate) running_more: usize,
    /// How many open grants do what.
    pub(crate) states: BTreeMap<WorkState, u64>,
    /// What ended without its result until a human dismisses it or asks again, and agents that rest or are away. What a limit
    /// holds is among the decisions.
    pub(crate) wrong: Vec<Wrong>,
    /// The number of all that went wrong.
    pub(crate) wrong_all: usize,
    /// The messages that rules refused in the last 24 hours.
    pub(crate) refused: u64,
    /// The spending since midnight UTC.
    pub(crate) today: Today,
}

/// The work of one open grant.
pub(crate) struct RunningWork {
    /// The REF of its conversation.
    pub(crate) reference: String,
    /// The first line of its request.
    pub(crate) subject: String,
    /// The human or agent that gave the grant.
    pub(crate) giver: String,
    /// The time at which it was opened.
    pub(crate) since: Time,
    /// The names of the agents with an open turn in it that wait for no human.
    pub(crate) working: Vec<String>,
    /// The names of the agents that wait for a human.
    pub(crate) asking: Vec<String>,
    /// The names of the agents whose requests are queued.
    pub(crate) queued: Vec<String>,
    /// The names of the agents that could go on and aren't connected.
    pub(crate) gone: Vec<String>,
    /// What it does.
    pub(crate) state: WorkState,
    /// The tokens charged to it.
    pub(crate) tokens: u64,
    /// Whether the tokens are estimated, at least in part.
    pub(crate) estimated: bool,
    /// The cost charged to it, in millionths of a dollar.
    pub(crate) cost_microusd: u64,
    /// The limit with the largest share used.
    pub(crate) nearest: Option<Distance>,
}

/// One thing that went wrong.
pub(crate) enum Wrong {
    /// A request of a human that ended without its result.
    Ended {
        /// The agent that was asked.
        agent: String,
        /// The REF of its conversation.
        reference: String,
        /// The first line of the request.
        subject: String,
        /// How it ended.
        status: AnswerStatus,
        /// Why it ended.
        cause: EndReason,
        /// Whether the agent ever took it.
        taken: bool,
        /// The first line of the agent's answer.
        answer: String,
        /// The reason that the agent gave.
        reason: Option<String>,
        /// The time at which it ended.
        at: Time,
        /// The position of the request.
        request: Seq,
        /// The id of the request.
        id: String,
        /// The open question about it, which a human dismisses with it.
        question: Option<EscalationId>,
        /// Its last approved call, and whether its agent made it.
        call: Option<(ApprovalId, bool)>,
        /// The others to which the same agent or others at the same time stopped responding, or which ended with the same
        /// reason, newest first.
        alike: Vec<EndedRequest>,
    },
    /// An agent that neither is connected nor polls and has no open turn, while requests are queued for it.
    Away {
        /// The agent's name.
        agent: String,
        /// The reason why its program can't work, if its runner told one.
        unavailable: Option<Box<str>>,
        /// The number of queued requests that nothing holds.
        queued: u64,
    },
    /// An agent whose day budget is used up.
    Rests {
        /// The agent's name.
        agent: String,
        /// The end of its rest.
        until: Time,
    },
}

/// The spending since midnight UTC.
#[derive(Default)]
pub(crate) struct Today {
    /// What all agents spent.
    pub(crate) sum: SpentIn,
    /// The agents that spent something, the largest spender first.
    pub(crate) agents: Vec<(String, SpentIn)>,
}

/// What is read from the state in one step.
struct Look {
    paused: Vec<String>,
    paused_work: Vec<String>,
    unread: usize,
    running: Vec<(Option<Seq>, RunningWork)>,
    more: usize,
    states: BTreeMap<WorkState, u64>,
    ended: Vec<EndedRequest>,
    people: Vec<Wrong>,
    today: Today,
}

/// A request that ended badly, before its texts are read.
pub(crate) struct EndedRequest {
    /// The agent that was asked.
    pub(crate) agent: String,
    /// The REF of its conversation.
    pub(crate) reference: String,
    /// The first line of the request, once it is read.
    pub(crate) subject: Option<String>,
    status: AnswerStatus,
    cause: EndReason,
    taken: bool,
    /// The time at which it ended; of the request, before its answer is read.
    pub(crate) at: Time,
    /// The id of the request.
    pub(crate) id: String,
    /// The position of the request.
    pub(crate) request: Seq,
    answer: Option<Seq>,
    /// The open question about it.
    pub(crate) question: Option<EscalationId>,
    call: Option<(ApprovalId, bool)>,
    alike: Vec<Self>,
}

impl EndedRequest {
    /// Returns whether nothing came of its agent: it never took it, or fell silent.
    const fn is_silent(&self) -> bool {
        matches!(self.cause, EndReason::NotAcknowledged | EndReason::LeaseLost)
    }
}

/// Puts the requests together to which an agent stopped responding, behind those that ended with an answer or a reason.
fn grouped(ended: Vec<EndedRequest>) -> Vec<EndedRequest> {
    let mut groups: Vec<EndedRequest> = Vec::new();
    for one in ended {
        let is_alike = |group: &&mut EndedRequest| group.agent == one.agent && group.is_silent();
        match groups.iter_mut().find(is_alike).filter(|_| one.is_silent()) {
            Some(group) => group.alike.push(one),
            None => groups.push(one),
        }
    }
    groups.sort_by_key(EndedRequest::is_silent);
    groups
}

/// Puts the requests together that ended with the same words of a reason, in the place of the newest.
fn by_reason(ended: Vec<EndedRequest>, endings: &BTreeMap<Seq, Ending>) -> Vec<EndedRequest> {
    let reason = |one: &EndedRequest| endings.get(&one.answer?)?.reason.clone();
    let mut groups: Vec<EndedRequest> = Vec::new();
    for one in ended {
        let why = reason(&one).filter(|_| !one.is_silent());
        let same = |group: &&mut EndedRequest| group.status == one.status && !group.is_silent() && reason(group) == why;
        match groups.iter_mut().find(same).filter(|_| why.is_some()) {
            Some(group) => group.alike.push(one),
            None => groups.push(one),
        }
    }
    groups
}

/// The time within which agents stop responding at once, as when their machine or the server stops, in ms.
const AT_ONCE_MS: u64 = 5_000;
/// The fewest agents that do so; two may be chance.
const AT_ONCE_AGENTS: usize = 3;

/// Puts the requests together to which several agents stopped responding at once, above the others.
fn at_once(ended: Vec<EndedRequest>, endings: &BTreeMap<Seq, Ending>) -> Vec<EndedRequest> {
    // Each line is of another agent.
    let mut groups: Vec<(EndedRequest, Vec<EndedRequest>)> = Vec::new();
    for one in ended {
        let at = ended_at(endings, &one).0;
        let near = |first: &EndedRequest| {
            first.is_silent() && first.cause == one.cause && ended_at(endings, first).0.abs_diff(at) <= AT_ONCE_MS
        };
        match groups.iter_mut().find(|(first, _)| near(first)).filter(|_| one.is_silent()) {
            Some((_, others)) => others.push(one),
            None => groups.push((one, Vec::new())),
        }
    }
    let (many, few): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, others)| others.len() + 1 >= AT_ONCE_AGENTS);
    let merged = many.into_iter().map(|(mut first, others)| {
        for mut one in others {
            let alike = std::mem::take(&mut one.alike);
            first.alike.extend(std::iter::once(one).chain(alike));
        }
        first
    });
    merged.chain(few.into_iter().flat_map(|(first, others)| std::iter::once(first).chain(others))).collect()
}

/// How much of what went wrong is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Listing {
    /// The first lines.
    #[default]
    Short,
    /// As many as a page has room for.
    All,
}

impl Listing {
    const fn lines_max(self) -> usize {
        match self {
            Self::Short => WRONG_MAX,
            Self::All => WRONG_ALL_MAX,
        }
    }
}

/// Returns the state of the workspace at a glance.
pub(crate) async fn now(ctx: &Context, caller: Caller, listing: Listing) -> Result<Now, ApiError> {
    caller.human()?;
    let waiting = decisions::pending_list(ctx, caller).await?;
    let human = caller.principal.agent();
    let mut look = ctx.handle.query(move |live| look(live, human)).await?;
    let wrong_all = look.people.len() + look.ended.len();
    look.ended.truncate(WRONG_ALL_MAX);
    let mut endings = subjects::endings(ctx, look.ended.iter().filter_map(|one| one.answer).collect()).await?;
    look.ended = at_once(by_reason(grouped(look.ended), &endings), &endings);
    let mut wrong = look.people;
    wrong.truncate(listing.lines_max());
    look.ended.truncate(listing.lines_max() - wrong.len());
    let since = Time(ctx.handle.now().0.saturating_sub(DAY_MS));
    let refused = ask_fresh(ctx, move |index| index.refused(since)).await?;
    let seqs = look.running.iter().filter_map(|(seq, _)| *seq);
    let alike = look.ended.iter().flat_map(|ended| &ended.alike).take(WRONG_ALL_MAX).map(|one| one.request);
    let ended = look.ended.iter().flat_map(|ended| [Some(ended.request), ended.answer]).flatten().chain(alike);
    let texts = subjects::texts(ctx, seqs.chain(ended).collect()).await?;
    let line = |seq: Option<Seq>| seq.and_then(|seq| texts.get(&seq)).map(|text| subjects::first_line(text));
    let subject = |(seq, work)| RunningWork { subject: line(seq).unwrap_or_default(), ..work };
    let running = look.running.into_iter().map(subject).collect();
    wrong.extend(look.ended.into_iter().map(|ended| {
        Wrong::Ended {
            at: ended_at(&endings, &ended),
            alike: ended
                .alike
                .into_iter()
                .map(|one| EndedRequest { at: ended_at(&endings, &one), subject: line(Some(one.request)), ..one })
                .collect(),
            reason: ended.answer.and_then(|seq| endings.remove(&seq)?.reason),
            subject: line(Some(ended.request)).unwrap_or_default(),
            answer: line(ended.answer).unwrap_or_default(),
            agent: ended.agent,
            reference: ended.reference,
            status: ended.status,
            cause: ended.cause,
            taken: ended.taken,
            request: ended.request,
            id: ended.id,
            question: ended.question,
            call: ended.call,
        }
    }));
    // The agents heard of these and went on. What came of it is above.
    let refused = refused.into_iter().map(|code| code.count.since).sum();
    Ok(Now {
        waiting,
        paused: look.paused,
        paused_work: look.paused_work,
        unread: look.unread,
        running,
        running_more: look.more,
        states: look.states,
        wrong,
        wrong_all,
        refused,
        today: look.today,
    })
}

/// Returns when a request ended, once its answer is read.
fn ended_at(endings: &BTreeMap<Seq, Ending>, ended: &EndedRequest) -> Time {
    ended.answer.and_then(|seq| endings.get(&seq)).map_or(ended.at, |ending| ending.at)
}

fn look(live: &Live<'_>, human: AgentId) -> Look {
    let state = live.state;
    let open = || state.grants.iter().filter(|(_, grant)| grant.end.is_none());
    let mut newest: Vec<(Time, GrantId)> = open().map(|(id, grant)| (grant.opened_at, id)).collect();
    newest.sort_by_key(|(at, id)| Reverse((*at, *id)));
    let more = newest.len().saturating_sub(LINES_MAX);
    newest.truncate(LINES_MAX);
    let asking = asking(state);
    let running =
        newest.iter().filter_map(|(_, id)| Some(running(live, *id, state.grants.get(id)?, &asking))).collect();
    let mut states = BTreeMap::new();
    for (id, grant) in open() {
        *states.entry(work_state(live, grant, &tasks(state, id), &asking)).or_default() += 1;
    }
    let unread = decisions::unread(state, human).len();
    let of_agents = state.live_by_name().into_iter().filter_map(|id| state.agent(id)).filter(|agent| !agent.is_human());
    let paused =
        of_agents.filter(|agent| agent.running != Running::Active).map(|agent| agent.name().to_owned()).collect();
    let convs = state.conversations.range(..).filter(|(_, conv)| conv.running == Running::Paused);
    let paused_work = convs.map(|(_, conv)| conv.reference.to_string()).take(PAUSED_MAX).collect();
    Look {
        paused,
        paused_work,
        unread,
        running,
        more,
        states,
        ended: ended(state),
        people: people(live),
        today: today(live),
    }
}

/// Returns the open tasks of a grant.
fn tasks(state: &State, grant: GrantId) -> Vec<(TaskId, &Task)> {
    state.open_tasks_of(grant).filter_map(|task| Some((task, state.tasks.get(&task)?))).collect()
}

fn work_state(live: &Live<'_>, grant: &Grant, tasks: &[(TaskId, &Task)], asking: &BTreeSet<TaskId>) -> WorkState {
    let state = live.state;
    let conv = state.conversations.get(&grant.conv);
    let running = state.running.max(state.running_in(grant.conv));
    if grant.latched.is_some() || conv.is_some_and(|conv| conv.latched) {
        WorkState::Held
    } else if running != Running::Active {
        WorkState::Controlled(running)
    } else {
        WorkState::of(live, tasks, asking, grant.human_waits > 0)
    }
}

fn running(live: &Live<'_>, id: GrantId, grant: &Grant, asking: &BTreeSet<TaskId>) -> (Option<Seq>, RunningWork) {
    let state = live.state;
    let tasks = tasks(state, id);
    let names = |wanted: &dyn Fn(&(TaskId, &Task)) -> bool| {
        let agents = tasks.iter().filter(|task| wanted(task)).map(|(_, task)| state.name_of(task.agent).to_owned());
        let mut agents: Vec<String> = agents.collect();
        agents.sort_unstable();
        agents.dedup();
        agents
    };
    let root = grant.root_task().and_then(|task| state.tasks.get(&task)).and_then(|task| task.request.as_ref());
    let work = RunningWork {
        reference: state.ref_of(grant.conv).map_or_else(String::new, ToString::to_string),
        subject: String::new(),
        giver: state.name_of(grant.giver).to_owned(),
        since: grant.opened_at,
        working: names(&|(id, task)| works(*id, task, asking)),
        asking: names(&|(id, _)| asking.contains(id)),
        queued: names(&|(_, task)| task.phase == Phase::Queued),
        gone: names(&|(_, task)| is_stuck(live, task)),
        state: work_state(live, grant, &tasks, asking),
        tokens: grant.spend.tokens,
        estimated: grant.estimated,
        cost_microusd: grant.spend.cost_microusd,
        nearest: views::grant(state, id).and_then(|view| views::fullest(view.limits.into_iter())),
    };
    (root.map(|request| request.message), work)
}

/// Returns what no human has dismissed, newest first: the requests of humans that ended without their result, and those of
/// agents that timed out.
fn ended(state: &State) -> Vec<EndedRequest> {
    let open = |asked: &Escalation| asked.cause == EscalationCause::TimedOut && asked.state == EscalationState::Open;
    let questions = state.escalations.iter().filter(|(_, asked)| open(asked));
    let questions: BTreeMap<TaskId, EscalationId> =
        questions.filter_map(|(id, asked)| Some((asked.task?, *id))).collect();
    let calls: BTreeMap<TaskId, (ApprovalId, bool)> =
        state.approvals.iter().filter_map(|(id, call)| approved(*id, call)).collect();
    let all: BTreeSet<TaskId> = state.failed.iter().chain(questions.keys()).copied().collect();
    let bad = all.iter().rev().filter_map(|id| {
        let task = state.tasks.get(id)?;
        let (request, Phase::Closed(status, cause)) = (task.request.as_ref()?, task.phase) else { return None };
        Some(EndedRequest {
            agent: state.name_of(task.agent).to_owned(),
            reference: state.ref_of(task.conv).map_or_else(String::new, ToString::to_string),
            status,
            cause,
            taken: !task.turns.is_empty(),
            at: task.created_at,
            id: request.id.to_string(),
            request: request.message,
            answer: request.answer.get(),
            question: questions.get(id).copied(),
            call: calls.get(id).copied(),
            subject: None,
            alike: Vec::new(),
        })
    });
    bad.collect()
}

/// Returns the task of an approved call, and whether its agent made it.
fn approved(id: ApprovalId, call: &Approval) -> Option<(TaskId, (ApprovalId, bool))> {
    let made = call.state == ApprovalState::Used;
    Some((call.task.filter(|_| made || call.state == ApprovalState::Approved)?, (id, made)))
}

/// Returns the agents that rest, and those that are away while requests wait for them.
fn people(live: &Live<'_>) -> Vec<Wrong> {
    let state = live.state;
    let one = |id: AgentId| {
        // Whom a human paused or stopped is missed by nobody.
        let runs = |running: Running| running == Running::Active;
        let agent = state.agent(id).filter(|agent| !agent.is_human() && runs(agent.running) && runs(state.running))?;
        if let Some(until) = agent.rests_until() {
            return Some(Wrong::Rests { agent: agent.name().to_owned(), until });
        }
        // A poll that hands over a request ends, so an agent that works may have no connection.
        let waits = |id: &TaskId| state.tasks.get(id).is_some_and(|task| !state.is_parked(task));
        let queued = agent.queue.iter().filter(|(_, id)| waits(id)).count() as u64;
        let unavailable = live.unavailable(id);
        let away = unavailable.is_some() || is_away(live, id);
        let name = agent.name().to_owned();
        (queued > 0 && agent.turns.is_empty() && away).then_some(Wrong::Away { agent: name, unavailable, queued })
    };
    state.live_by_name().into_iter().filter_map(one).collect()
}

fn today(live: &Live<'_>) -> Today {
    let mut today = Today::default();
    for agent in live.state.agents.iter().filter(|agent| !agent.is_human()) {
        let used = agent.day.on(live.now());
        let Spend { tokens, cost_microusd } = used.spend;
        let spent = SpentIn { tokens, cost_microusd, estimated: used.estimated };
        today.sum.add(spent);
        if tokens > 0 || cost_microusd > 0 {
            today.agents.push((agent.name().to_owned(), spent));
        }
    }
    today.agents.sort_by_key(|(_, spent)| Reverse((spent.cost_microusd, spent.tokens)));
    today
}
