//! The list of conversations with its filters.

use std::collections::{BTreeMap, BTreeSet};

use lastword_broker::Live;
use lastword_core::State;
use lastword_core::state::Conversation;
use lastword_facts::Seq;
use lastword_facts::ids::{ConvId, TaskId};
use lastword_facts::status::Running;
use lastword_server::calls::audit::{self, AuditParams};
use lastword_server::calls::read_model::ask_fresh;
use lastword_server::calls::{Caller, subjects};
use lastword_server::{ApiError, Context, views};
use lastword_store::{Cursor, Filter, IndexReader, ReadError, SpentIn};
use lastword_wire::{ConversationStatus, ConversationView, FieldError, Outcome};
use serde::Deserialize;

use super::history;
use super::work_state::{ConversationState, WorkState, asking};

/// Conversations per page of the list.
const PAGE: usize = audit::PAGE_DEFAULT;
/// The most conversations that are listed below another.
const BELOW_MAX: usize = 20;

/// The filters of the list. A conversation must pass all of them; empty ones are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// A part of its REF, in any case.
    #[serde(rename = "ref", default)]
    pub(crate) reference: String,
    /// The name of a sender of one of its messages.
    #[serde(default)]
    pub(crate) from: String,
    /// The name of a recipient of one of its messages.
    #[serde(default)]
    pub(crate) to: String,
    /// The type of one of its messages.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// Its status: `active`, `idle`, `paused`, `stopped` or `held`; what its open work does, such as `waiting`; or its
    /// outcome, such as `timed_out`.
    #[serde(default)]
    pub(crate) state: String,
    /// Words in one of its messages.
    #[serde(default)]
    pub(crate) q: String,
    /// The cursor that the previous page returned.
    #[serde(default)]
    pub(crate) cursor: String,
    /// The REF of the conversation that the page shows beside the list.
    #[serde(default)]
    pub(crate) open: String,
}

impl ListParams {
    /// Returns whether they concern messages, and not conversations alone.
    pub(crate) fn asks_for_messages(&self) -> bool {
        [&self.from, &self.to, &self.kind, &self.q].iter().any(|filter| !filter.trim().is_empty())
    }
}

/// A conversation of the list.
pub(crate) struct ListedConversation {
    /// Its participants, limits and status, without its tree.
    pub(crate) view: ConversationView,
    /// The first line of its first message.
    pub(crate) subject: String,
    /// The messages in it and the conversations below it.
    pub(crate) messages: u64,
    /// The open requests in it and the conversations below it.
    pub(crate) open_tasks: u64,
    /// What it does, with the work in those below it.
    pub(crate) state: ConversationState,
    /// The messages and writes that were refused in them.
    pub(crate) refused: u64,
    /// What the turns of all of them spent.
    pub(crate) spent: SpentIn,
    /// The conversations below it, the newest first; empty where the list isn't folded.
    pub(crate) below: Vec<Self>,
    /// How many more are below it.
    pub(crate) below_more: usize,
}

/// One page of the list.
pub(crate) struct Listed {
    /// The conversations: first those that wait for a human or are held, then those with open work, then the rest, each the
    /// most recently active first. Without a filter, those below another are folded into it.
    pub(crate) items: Vec<ListedConversation>,
    /// The cursor of the next page; `None` on the last.
    pub(crate) next: Option<String>,
}

/// Lists the conversations that pass the filters. With a filter on messages, by the last message that passes it.
pub(crate) async fn list(ctx: &Context, caller: Caller, params: ListParams) -> Result<Listed, ApiError> {
    caller.human()?;
    let before = cursor(&params.cursor)?;
    let wanted = Wanted::of(&params)?;
    if !params.asks_for_messages() {
        let folded = !wanted.limits();
        let look = move |live: &Live<'_>| {
            let (found, next) = if folded { families(live.state, before) } else { by_attention(live, &wanted, before) };
            (counted(live, found), next)
        };
        let (found, next) = ctx.handle.query(look).await?;
        return Ok(Listed { items: filled(ctx, found).await?, next });
    }
    let Some(filter) = audit::filter(ctx, &asked(&params)?, PAGE + 1).await? else {
        return Ok(Listed { items: Vec::new(), next: None });
    };
    let limited = wanted.limits();
    let candidates = move |live: &Live<'_>| -> Option<Vec<ConvId>> {
        let all = live.state.conversations.range(..);
        limited.then(|| {
            let look = wanted.look(live);
            all.filter(|(id, conv)| wanted.admits(live, *id, conv, &look)).map(|(id, _)| id).collect()
        })
    };
    let convs = ctx.handle.query(candidates).await?;
    let before = before.map(|place| Seq(place.at));
    let filter = Filter { convs, cursor: Cursor { before, limit: PAGE + 1, ..Cursor::default() }, ..filter };
    let mut found = ask_fresh(ctx, move |index| index.conversations(&filter)).await?;
    let more = found.len() > PAGE;
    found.truncate(PAGE);
    let next = found
        .last()
        .filter(|_| more)
        .map(|(conv, seq)| ListPlace { attention: Attention::None, at: seq.0, conv: *conv }.cursor());
    let look = move |live: &Live<'_>| -> Vec<Family> {
        let known = found.iter().filter_map(|(id, _)| Some((*id, live.state.conversations.get(id)?)));
        counted(live, known.map(|(id, conv)| Family::alone(live.state, id, conv)).collect())
    };
    let found = ctx.handle.query(look).await?;
    Ok(Listed { items: filled(ctx, found).await?, next })
}

/// A conversation and those below it, before their texts are read.
struct Family {
    id: ConvId,
    view: ConversationView,
    messages: u64,
    open_tasks: u64,
    state: ConversationState,
    /// The conversation itself, and all below it.
    all: Vec<ConvId>,
    /// The newest of those that are folded into it.
    below: Vec<Self>,
    /// How many more are folded into it.
    below_more: usize,
}

impl Family {
    fn alone(state: &State, id: ConvId, conv: &Conversation) -> Self {
        let view = views::listed(state, conv);
        let (all, below) = (Vec::new(), Vec::new());
        Self { id, view, messages: 0, open_tasks: 0, state: ConversationState::Ended(None), all, below, below_more: 0 }
    }

    fn count(&mut self, live: &Live<'_>, asking: &BTreeSet<TaskId>, lineages: &mut BTreeMap<ConvId, Vec<ConvId>>) {
        let state = live.state;
        self.all = lineages.remove(&self.id).unwrap_or_default();
        if let Some(conv) = state.conversations.get(&self.id) {
            self.state = ConversationState::of(live, conv, &self.all, asking);
        }
        for conv in self.all.iter().filter_map(|conv| state.conversations.get(conv)) {
            self.messages += conv.messages;
            self.open_tasks += conv.open_tasks.len() as u64;
        }
        for below in &mut self.below {
            below.count(live, asking, lineages);
        }
    }
}

/// Counts what is in each conversation and in those below it, as the conversation's own page does.
fn counted(live: &Live<'_>, mut found: Vec<Family>) -> Vec<Family> {
    let shown = found.iter().flat_map(|one| std::iter::once(one.id).chain(one.below.iter().map(|below| below.id)));
    let (mut lineages, asking) = (lineages(live.state, &shown.collect()), asking(live.state));
    for family in &mut found {
        family.count(live, &asking, &mut lineages);
    }
    found
}

/// Returns for each of these conversations itself and all below it, from one pass over all.
fn lineages(state: &State, wanted: &BTreeSet<ConvId>) -> BTreeMap<ConvId, Vec<ConvId>> {
    let mut lineages: BTreeMap<ConvId, Vec<ConvId>> = BTreeMap::new();
    for (id, _) in state.conversations.range(..) {
        let (mut known, mut next) = (BTreeSet::from([id]), vec![id]);
        while let Some(conv) = next.pop().and_then(|at| state.conversations.get(&at)) {
            let above = conv.parent.into_iter().chain(state.named_above(conv.reference.as_str()));
            next.extend(above.filter(|above| known.insert(*above)));
        }
        for above in known.intersection(wanted) {
            lineages.entry(*above).or_default().push(id);
        }
    }
    lineages
}

/// Adds the subjects and what was spent.
async fn filled(ctx: &Context, found: Vec<Family>) -> Result<Vec<ListedConversation>, ApiError> {
    let shown = found.iter().flat_map(|family| std::iter::once(family.id).chain(family.below.iter().map(|one| one.id)));
    let mut subjects = subjects::of(ctx, shown.collect()).await?;
    let members = |one: &Family| one.all.iter().chain(one.below.iter().flat_map(|below| &below.all)).copied().collect();
    let convs: BTreeSet<ConvId> = found.iter().flat_map::<Vec<ConvId>, _>(members).collect();
    let convs: Vec<ConvId> = convs.into_iter().collect();
    let both =
        move |index: &IndexReader| -> Result<_, ReadError> { Ok((index.spent_in(&convs)?, index.refused_in(&convs)?)) };
    let (spent, refused) = ask_fresh(ctx, both).await?;
    let sums = Sums { spent: spent.into_iter().collect(), refused: refused.into_iter().collect() };
    Ok(found.into_iter().map(|family| listed(family, &mut subjects, &sums)).collect())
}

/// What the read model has of each conversation.
struct Sums {
    spent: BTreeMap<ConvId, SpentIn>,
    refused: BTreeMap<ConvId, u64>,
}

fn listed(family: Family, subjects: &mut BTreeMap<ConvId, String>, sums: &Sums) -> ListedConversation {
    let all = || family.all.iter().copied();
    ListedConversation {
        subject: subjects.remove(&family.id).unwrap_or_default(),
        spent: history::add_up(all().filter_map(|conv| sums.spent.get(&conv).copied())),
        refused: all().filter_map(|conv| sums.refused.get(&conv)).sum(),
        below_more: family.below_more,
        below: family.below.into_iter().map(|one| listed(one, subjects, sums)).collect(),
        view: family.view,
        state: family.state,
        messages: family.messages,
        open_tasks: family.open_tasks,
    }
}

/// Returns one page of conversations with those below them folded into them, by what in any of them a human should see first.
fn families(state: &State, before: Option<ListPlace>) -> (Vec<Family>, Option<String>) {
    let mut newest: BTreeMap<ConvId, (ListPlace, Vec<ConvId>)> = BTreeMap::new();
    for (id, conv) in state.conversations.range(..) {
        let (top, own) = (top_of(state, id), ListPlace::of(state, id, conv));
        let (place, all) = newest.entry(top).or_insert_with(|| (ListPlace { conv: top, ..own }, Vec::new()));
        (place.attention, place.at) = (place.attention.max(own.attention), place.at.max(own.at));
        if top != id {
            all.push(id);
        }
    }
    let mut order: Vec<ListPlace> = newest.values().map(|(place, _)| *place).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.retain(|place| before.is_none_or(|before| *place < before));
    let more = order.len() > PAGE;
    order.truncate(PAGE);
    let next = order.last().filter(|_| more).map(|place| place.cursor());
    let family = |place: &ListPlace| {
        let id = place.conv;
        let mut family = Family::alone(state, id, state.conversations.get(&id)?);
        let all = newest.get(&id).map(|(_, all)| all.as_slice()).unwrap_or_default();
        let below = all.iter().rev().take(BELOW_MAX);
        let below = below.filter_map(|id| Some(Family::alone(state, *id, state.conversations.get(id)?)));
        family.below = below.collect();
        family.below_more = all.len() - family.below.len();
        Some(family)
    };
    (order.iter().filter_map(family).collect(), next)
}

/// Returns the conversation at the top of those from which one was opened, as far as they are remembered.
fn top_of(state: &State, id: ConvId) -> ConvId {
    let above = |id: &ConvId| {
        let parent = state.conversations.get(id)?.parent?;
        state.conversations.contains_key(&parent).then_some(parent)
    };
    std::iter::successors(Some(id), above).last().unwrap_or(id)
}

/// How much a human should see a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Attention {
    /// Nothing in it is open.
    None,
    /// Work in it is open.
    Open,
    /// Work in it waits for a human, or a limit holds it.
    Waits,
}

impl Attention {
    const ALL: [Self; 3] = [Self::None, Self::Open, Self::Waits];

    fn of(state: &State, conv: &Conversation) -> Self {
        if conv.open_tasks.is_empty() && !conv.latched {
            Self::None
        } else if views::waits_for_human(state, conv) || views::standing(state, conv) == ConversationStatus::Latched {
            Self::Waits
        } else {
            Self::Open
        }
    }
}

/// Where a conversation stands in the list, which begins with the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListPlace {
    attention: Attention,
    /// Its last activity, or the position of its last message that passes the filters.
    at: u64,
    conv: ConvId,
}

impl ListPlace {
    fn of(state: &State, id: ConvId, conv: &Conversation) -> Self {
        Self { attention: Attention::of(state, conv), at: conv.last_at.0, conv: id }
    }

    fn cursor(self) -> String {
        format!("{}-{}-{}", self.attention as u8, self.at, self.conv.0)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let attention = *Attention::ALL.get(parts.next()?.parse::<usize>().ok()?)?;
        let (at, conv) = (parts.next()?.parse().ok()?, ConvId(parts.next()?.parse().ok()?));
        parts.next().is_none().then_some(Self { attention, at, conv })
    }
}

fn cursor(text: &str) -> Result<Option<ListPlace>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    ListPlace::parse(text).map(Some).ok_or_else(|| FieldError::new("cursor", "is not one of ours"))
}

/// Returns the part of the filters that concerns messages.
fn asked(params: &ListParams) -> Result<AuditParams, FieldError> {
    let filled = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    Ok(AuditParams {
        from: filled(&params.from),
        to: filled(&params.to),
        kind: filled(&params.kind),
        q: filled(&params.q),
        ..AuditParams::default()
    })
}

/// The part of the filters that concerns the conversations themselves.
struct Wanted {
    reference: String,
    state: Option<WantedState>,
}

/// What a filter by what work does compares with.
#[derive(Default)]
struct WorkLook {
    /// Each conversation with open work and all below it.
    lineages: BTreeMap<ConvId, Vec<ConvId>>,
    /// The tasks that wait for a human.
    asking: BTreeSet<TaskId>,
}

/// A status, what open work does, or the outcome of a conversation that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedState {
    Status(ConversationStatus),
    Work(WorkState),
    Ended(Outcome),
}

/// What open work does, as the filter names it.
pub(crate) const WORK_FILTERS: [(&str, WorkState); 5] = [
    ("waiting", WorkState::WaitsForHuman),
    ("working", WorkState::Working),
    ("not_connected", WorkState::Gone),
    ("queued", WorkState::Queued),
    ("waiting_for_answers", WorkState::WaitsForAnswers),
];

impl WantedState {
    fn parse(word: &str) -> Result<Self, FieldError> {
        // A human reads `held`, and programs `latched`.
        let is_named = |status: &ConversationStatus| [status.word(), status.label()].contains(&word);
        let status = ConversationStatus::ALL.into_iter().find(is_named).map(Self::Status);
        let work = || WORK_FILTERS.into_iter().find(|(name, _)| *name == word).map(|(_, state)| Self::Work(state));
        status.or_else(work).or_else(|| Outcome::from_word(word).map(Self::Ended)).ok_or_else(|| {
            let words = ConversationStatus::ALL.map(ConversationStatus::label);
            let work = WORK_FILTERS.map(|(name, _)| name);
            let outcomes = Outcome::ALL.iter().map(|outcome| outcome.word()).filter(|word| !words.contains(word));
            let words = words.into_iter().chain(work).chain(outcomes).collect::<Vec<_>>().join(", ");
            FieldError::new("state", format!("{word:?} is none of {words}"))
        })
    }

    fn admits(self, live: &Live<'_>, id: ConvId, conv: &Conversation, look: &WorkLook) -> bool {
        let state = live.state;
        let status = views::standing(state, conv);
        let below = || look.lineages.get(&id).map(Vec::as_slice).unwrap_or_default();
        let does = |work| ConversationState::of(live, conv, below(), &look.asking) == ConversationState::Open(work);
        let ended = || views::outcome(state, conv).filter(|_| status == ConversationStatus::Idle);
        match self {
            // The work in it was stopped, or the conversation itself.
            Self::Status(ConversationStatus::Stopped) if ended() == Some(Outcome::Stopped) => true,
            // Its agent alone may be paused.
            Self::Status(ConversationStatus::Paused) => does(WorkState::Controlled(Running::Paused)),
            Self::Status(wanted) => status == wanted,
            Self::Work(wanted) => does(wanted),
            Self::Ended(wanted) => ended() == Some(wanted),
        }
    }
}

impl Wanted {
    fn of(params: &ListParams) -> Result<Self, FieldError> {
        let state = Some(params.state.as_str()).filter(|word| !word.is_empty()).map(WantedState::parse).transpose()?;
        Ok(Self { reference: params.reference.trim().to_ascii_lowercase(), state })
    }

    const fn limits(&self) -> bool {
        !self.reference.is_empty() || self.state.is_some()
    }

    /// Returns what a filter by what work does compares with, as the list shows it; nothing for the others.
    fn look(&self, live: &Live<'_>) -> WorkLook {
        let paused = WantedState::Status(ConversationStatus::Paused);
        if !self.state.is_some_and(|state| state == paused || matches!(state, WantedState::Work(_))) {
            return WorkLook::default();
        }
        let open = live.state.conversations.range(..).filter(|(_, conv)| !conv.open_tasks.is_empty());
        WorkLook { lineages: lineages(live.state, &open.map(|(id, _)| id).collect()), asking: asking(live.state) }
    }

    fn admits(&self, live: &Live<'_>, id: ConvId, conv: &Conversation, look: &WorkLook) -> bool {
        let named = self.reference.is_empty() || conv.reference.as_str().to_ascii_lowercase().contains(&self.reference);
        named && self.state.is_none_or(|wanted| wanted.admits(live, id, conv, look))
    }
}

/// Returns one page of single conversations. Keeps no more than a page while scanning, to hold up the broker as little as
/// possible.
fn by_attention(live: &Live<'_>, wanted: &Wanted, before: Option<ListPlace>) -> (Vec<Family>, Option<String>) {
    let (state, look) = (live.state, wanted.look(live));
    let mut page = std::collections::BinaryHeap::with_capacity(PAGE + 2);
    for (id, conv) in state.conversations.range(..) {
        let place = ListPlace::of(state, id, conv);
        let worse = page.len() > PAGE && page.peek().is_some_and(|std::cmp::Reverse(least)| place < *least);
        if worse || before.is_some_and(|before| place >= before) || !wanted.admits(live, id, conv, &look) {
            continue;
        }
        page.push(std::cmp::Reverse(place));
        if page.len() > PAGE + 1 {
            page.pop();
        }
    }
    let mut page: Vec<ListPlace> = page.into_sorted_vec().into_iter().map(|std::cmp::Reverse(place)| place).collect();
    let more = page.len() > PAGE;
    page.truncate(PAGE);
    let next = page.last().filter(|_| more).map(|place| place.cursor());
    let known = page.iter().filter_map(|place| Some((place.conv, state.conversations.get(&place.conv)?)));
    (known.map(|(id, conv)| Family::alone(state, id, conv)).collect(), next)
}
