//! Who asks whom: agents and humans with the requests between them, and where a rule refused.

use std::collections::BTreeMap;

use lastword_broker::Live;
use lastword_core::state::{Phase, Task};
use lastword_facts::fact::{Fact, Refused};
use lastword_facts::ids::{AgentId, ConvId, HOUR_MS, TurnId};
use lastword_facts::{AnswerStatus, Code, Seq, Time};
use lastword_server::calls::read_model::{ask, ask_fresh};
use lastword_server::calls::{Caller, conversations};
use lastword_server::views::{self, Activity};
use lastword_server::{ApiError, Context};
use lastword_store::{Cursor, RefusalFilter, TurnTokens};

/// The most recent tasks that are looked at.
const TASKS_MAX: usize = 5_000;
/// The most refusals that are looked at.
const REFUSALS_MAX: usize = 500;

/// An agent or human.
pub(crate) struct Node {
    /// The name.
    pub(crate) name: String,
    /// What it does; `None` for a human.
    pub(crate) activity: Option<Activity>,
    /// The end of its rest, if its day budget is used up.
    pub(crate) rests_until: Option<Time>,
    /// The tokens that it spent on these requests.
    pub(crate) tokens: u64,
}

/// The requests from one to another.
#[derive(Default)]
pub(crate) struct Edge {
    /// The number of open requests.
    pub(crate) open: u64,
    /// The number of answered requests.
    pub(crate) answered: u64,
    /// The number of requests that ended without a result.
    pub(crate) ended: u64,
    /// The numbers of refused messages, by code.
    pub(crate) refused: BTreeMap<Code, u64>,
    /// The code of the last refusal, and its position.
    pub(crate) cut: Option<(Code, Seq)>,
    /// The position of the last request.
    pub(crate) last: Option<Seq>,
}

/// The graph.
pub(crate) struct Graph {
    /// The nodes, by name.
    pub(crate) nodes: Vec<Node>,
    /// The edges, by the names of their ends.
    pub(crate) edges: BTreeMap<(String, String), Edge>,
    /// The refusals without one recipient, such as of posts in rooms.
    pub(crate) unplaced: u64,
}

/// An agent's name, what it does, and the end of its rest; a human's name alone.
type NamedAgent = (String, Option<(Activity, Option<Time>)>);

/// What is read from the state in one step.
#[derive(Default)]
struct Look {
    names: BTreeMap<AgentId, NamedAgent>,
    edges: BTreeMap<(String, String), Edge>,
    turns: Vec<(TurnId, AgentId)>,
    convs: Option<Vec<ConvId>>,
}

/// Returns the graph of the last hour and of all open requests; with a REF, of that conversation and those below it.
pub(crate) async fn graph(ctx: &Context, caller: Caller, reference: Option<&str>) -> Result<Graph, ApiError> {
    caller.human()?;
    let since = Time(ctx.handle.now().0.saturating_sub(HOUR_MS));
    let conv = match reference {
        Some(reference) => Some(conversations::find(ctx, caller, reference).await?),
        None => None,
    };
    let mut look = ctx.handle.query(move |live| look(live, conv, since)).await?;
    let turns: Vec<TurnId> = look.turns.iter().map(|(turn, _)| *turn).collect();
    let spent: BTreeMap<TurnId, TurnTokens> = ask(ctx, move |index| index.spends(&turns)).await?.into_iter().collect();
    let unplaced = cuts(ctx, &mut look, since).await?;
    let mut tokens: BTreeMap<AgentId, u64> = BTreeMap::new();
    for (turn, agent) in &look.turns {
        let sum = tokens.entry(*agent).or_default();
        *sum = sum.saturating_add(spent.get(turn).map_or(0, |spent| spent.tokens));
    }
    let node = |(id, (name, does)): (AgentId, NamedAgent)| Node {
        name,
        activity: does.map(|(activity, _)| activity),
        rests_until: does.and_then(|(_, until)| until),
        tokens: tokens.get(&id).copied().unwrap_or_default(),
    };
    let mut nodes: Vec<Node> = look.names.into_iter().map(node).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Graph { nodes, edges: look.edges, unplaced })
}

fn look(live: &Live<'_>, conv: Option<ConvId>, since: Time) -> Look {
    let state = live.state;
    let convs = conv.map(|conv| state.lineage_below(conv));
    let mut look = Look::default();
    let within = |task: &Task| match &convs {
        Some(convs) => convs.contains(&task.conv),
        None => task.created_at >= since || !task.is_closed(),
    };
    let recent = state.tasks.values().rev().take(TASKS_MAX);
    let mut tasks: Vec<&Task> = recent.filter(|task| within(task)).collect();
    // Oldest first, so that the last request of an edge is the newest.
    tasks.reverse();
    for task in tasks {
        look.add(live, task);
    }
    look.convs = convs;
    look
}

impl Look {
    fn add(&mut self, live: &Live<'_>, task: &Task) {
        self.turns.extend(task.turns.iter().map(|turn| (*turn, task.agent)));
        let to = self.node(live, task.agent);
        let Some(asker) = task.asker.agent() else { return };
        let from = self.node(live, asker);
        let edge = self.edges.entry((from, to)).or_default();
        *match task.phase {
            Phase::Closed(AnswerStatus::Completed | AnswerStatus::Partial, _) => &mut edge.answered,
            Phase::Closed(..) => &mut edge.ended,
            Phase::Queued | Phase::Open(_) | Phase::Waiting => &mut edge.open,
        } += 1;
        edge.last = task.request.as_ref().map(|request| request.message).or(edge.last);
    }

    fn node(&mut self, live: &Live<'_>, id: AgentId) -> String {
        let known = self.names.entry(id).or_insert_with(|| {
            let human = live.state.agent(id).is_none_or(lastword_core::state::Agent::is_human);
            let member = if human { None } else { views::member(live, id) };
            (live.state.name_of(id).to_owned(), member.map(|member| (member.activity(), member.rests_until)))
        });
        known.0.clone()
    }
}

/// Adds the refused messages to their edges. Returns the number of other refusals.
async fn cuts(ctx: &Context, look: &mut Look, since: Time) -> Result<u64, ApiError> {
    let cursor = Cursor { limit: REFUSALS_MAX, ..Cursor::default() };
    let since = if look.convs.is_some() { None } else { Some(since) };
    let filter = RefusalFilter { convs: look.convs.clone(), since, cursor, ..RefusalFilter::default() };
    let mut seqs = ask_fresh(ctx, move |index| index.refusals(&filter)).await?;
    seqs.reverse();
    let entries = ctx.handle.entries(seqs).await?;
    let known: BTreeMap<AgentId, NamedAgent> = std::mem::take(&mut look.names);
    let mut edges = std::mem::take(&mut look.edges);
    let add = move |live: &Live<'_>| {
        let mut look = Look { names: known, ..Look::default() };
        let mut unplaced = 0;
        for (seq, entry) in entries {
            // A refused message to a group or an action has no one recipient, and another write has none.
            let Fact::Refused(Refused { agent, to, refusal, .. }) = &entry.fact else {
                unplaced += 1;
                continue;
            };
            let Some(recipient) = live.state.live(&to.to_string()) else {
                unplaced += 1;
                continue;
            };
            let (from, to) = (look.node(live, *agent), look.node(live, recipient));
            let edge = edges.entry((from, to)).or_default();
            *edge.refused.entry(refusal.code).or_default() += 1;
            edge.cut = Some((refusal.code, seq));
        }
        (look.names, edges, unplaced)
    };
    let unplaced;
    (look.names, look.edges, unplaced) = ctx.handle.query(add).await?;
    Ok(unplaced)
}
