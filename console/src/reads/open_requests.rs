//! The open requests of a conversation: who works on what, and the newest note on its progress.

use std::collections::BTreeMap;

use lastword_broker::Live;
use lastword_core::state::{Phase, Task};
use lastword_facts::fact::Part;
use lastword_facts::ids::{AgentId, ConvId, TaskId};
use lastword_facts::status::Running;
use lastword_facts::{MessageType, Seq, Time};
use lastword_server::calls::{audit, subjects};
use lastword_server::views::{self, Shown};
use lastword_server::{ApiError, Context};
use lastword_store::{Cursor, Filter};

use super::work_state::{WorkState, asking, controlled, is_gone};

/// The most requests in the list.
const REQUESTS_MAX: usize = 50;
/// The most notes of one agent that are searched for those on its open requests.
const NOTES_MAX: usize = 50;

/// A note of an agent on its progress.
#[derive(Clone, Debug)]
pub(crate) struct ProgressNote {
    /// The text.
    pub(crate) text: String,
    /// When it was written.
    pub(crate) at: Time,
    /// The position of its message.
    pub(crate) message: Seq,
}

/// One open request, or a root of an agent.
pub(crate) struct OpenRequest {
    task: TaskId,
    worker: AgentId,
    /// The name of the agent that serves it.
    pub(crate) agent: String,
    /// The name of the requester; `None` for a root.
    pub(crate) from: Option<String>,
    /// The REF of its conversation.
    pub(crate) reference: String,
    /// The position of the request; `None` for a root.
    pub(crate) message: Option<Seq>,
    /// The first line of the request.
    pub(crate) subject: String,
    /// When it was sent.
    pub(crate) since: Time,
    /// What it does.
    pub(crate) state: WorkState,
    /// The newest note on its progress.
    pub(crate) note: Option<ProgressNote>,
}

/// Returns the open requests of these conversations: those that wait for a human first, then the oldest first.
pub(super) async fn of(ctx: &Context, convs: Vec<ConvId>) -> Result<Vec<OpenRequest>, ApiError> {
    let below = convs.clone();
    let mut open = ctx.handle.query(move |live: &Live<'_>| open(live, &below)).await?;
    let texts = subjects::texts(ctx, open.iter().filter_map(|one| one.message).collect()).await?;
    let mut notes = notes(ctx, convs, &open).await?;
    for one in &mut open {
        let text = one.message.and_then(|message| texts.get(&message));
        one.subject = text.map(|text| subjects::first_line(text)).unwrap_or_default();
        one.note = notes.remove(&one.task);
    }
    Ok(open)
}

fn open(live: &Live<'_>, convs: &[ConvId]) -> Vec<OpenRequest> {
    let state = live.state;
    let asking = asking(state);
    let known = convs.iter().filter_map(|conv| state.conversations.get(conv));
    let tasks = known.flat_map(|conv| conv.open_tasks.iter().copied());
    let one = |task: TaskId| {
        let known = state.tasks.get(&task)?;
        Some(OpenRequest {
            task,
            worker: known.agent,
            agent: state.name_of(known.agent).to_owned(),
            from: known.asker.agent().map(|agent| state.name_of(agent).to_owned()),
            reference: state.ref_of(known.conv).map_or_else(String::new, ToString::to_string),
            message: known.request.as_ref().map(|request| request.message),
            subject: String::new(),
            since: known.created_at,
            state: work_state(live, known, asking.contains(&task)),
            note: None,
        })
    };
    let mut open: Vec<OpenRequest> = tasks.filter_map(one).collect();
    open.sort_by_key(|one| (!matches!(one.state, WorkState::WaitsForHuman | WorkState::Held), one.since, one.task));
    open.truncate(REQUESTS_MAX);
    open
}

fn work_state(live: &Live<'_>, task: &Task, asks: bool) -> WorkState {
    let (state, is_leaf) = (live.state, task.children.is_empty());
    // A paused conversation is told by the state of the whole.
    if state.is_parked(task) && state.running_in(task.conv) == Running::Active {
        return WorkState::Held;
    }
    match (task.phase, controlled(state, task)) {
        // Others still work for what has children.
        (_, Some(running)) if is_leaf => WorkState::Controlled(running),
        _ if asks => WorkState::WaitsForHuman,
        (Phase::Open(_), _) => WorkState::Working,
        _ if is_leaf && is_gone(live, task.agent) => WorkState::Gone,
        (Phase::Queued, _) => WorkState::Queued,
        (Phase::Waiting | Phase::Closed(..), _) => WorkState::WaitsForAnswers,
    }
}

/// Returns the newest note on each of these requests.
async fn notes(
    ctx: &Context,
    convs: Vec<ConvId>,
    open: &[OpenRequest],
) -> Result<BTreeMap<TaskId, ProgressNote>, ApiError> {
    let mut agents: Vec<AgentId> = open.iter().map(|one| one.worker).collect();
    agents.sort_unstable();
    agents.dedup();
    let mut notes = BTreeMap::new();
    for agent in agents {
        let cursor = Cursor { limit: NOTES_MAX, ..Cursor::default() };
        let filter = Filter {
            convs: Some(convs.clone()),
            from: Some(agent),
            kind: Some(MessageType::Status),
            cursor,
            ..Filter::default()
        };
        let seqs = audit::search(ctx, filter).await?;
        for shown in views::show(&ctx.handle, seqs).await? {
            if let Some((task, note)) = note(&shown) {
                let newest = notes.entry(task).or_insert_with(|| note.clone());
                if newest.message < note.message {
                    *newest = note;
                }
            }
        }
    }
    Ok(notes)
}

fn note(shown: &Shown) -> Option<(TaskId, ProgressNote)> {
    let message = shown.message()?;
    let Part::Status { task, .. } = message.part else { return None };
    let text = subjects::first_line(&message.body);
    (!text.is_empty()).then(|| (task, ProgressNote { text, at: shown.at(), message: shown.seq }))
}
