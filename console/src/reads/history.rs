//! The history of one conversation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lastword_broker::Live;
use lastword_core::State;
use lastword_core::state::Agent;
use lastword_facts::fact::{Part, Refused, RootStarted, TurnOpened, WriteRefused};
use lastword_facts::ids::{AgentId, ConvId, TaskId};
use lastword_facts::{Entry, Fact, Seq};
use lastword_server::calls::read_model::{ask, ask_fresh};
use lastword_server::calls::{Caller, conversations, subjects};
use lastword_server::{ApiError, Context, views};
use lastword_store::{Cursor, IndexReader, PageCut, ReadError, SpentIn};
use lastword_wire::{ConversationView, Event, LiftStep, Problem};

use super::decisions::{self, RequestLink, Waiting};
use super::open_requests::{self, OpenRequest};
use super::work_state::{ConversationState, asking};

/// The most entries behind a page that are read for how its requests went on.
const AHEAD_MAX: usize = 1_000;
/// Entries per query behind a page.
const AHEAD_STEP: usize = 250;

/// Adds up what several conversations spent.
pub(crate) fn add_up(all: impl Iterator<Item = SpentIn>) -> SpentIn {
    all.fold(SpentIn::default(), |mut sum, one| {
        sum.add(one);
        sum
    })
}

/// One event in a conversation's history.
pub(crate) struct HistoryEntry {
    /// The event as the stream sends it.
    pub(crate) event: Event,
    /// The refusal, if the event is a refused message or write.
    pub(crate) refusal: Option<Problem>,
    /// The requests that led to a turn, or to a message or write refused in one, from the root on; empty for other events.
    pub(crate) chain: Vec<RequestLink>,
    /// What opened a turn; `None` for other events.
    pub(crate) waker: Option<Waker>,
    /// The step by which a human lifts what refused the message or write.
    pub(crate) lift: Option<LiftStep>,
    /// The fact that the event is derived from.
    pub(crate) entry: Arc<Entry>,
}

/// The message that opened a turn.
pub(crate) struct Waker {
    /// The name of its sender.
    pub(crate) from: String,
    /// What it was.
    pub(crate) what: Wake,
    /// The attempt at the task, from 1.
    pub(crate) attempt: u32,
}

/// The kinds of messages that open turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A request.
    Request,
    /// The answer to a request.
    Answer,
    /// A human's reply to a question or a held call.
    Reply,
    /// Any other message.
    Message,
}

/// The page of a history that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageAsked {
    /// How it is cut.
    pub(crate) cut: PageCut,
    /// Whether to read on behind it until its requests have ended.
    pub(crate) ahead: bool,
}

/// A conversation, its descendants, and a page of their events.
pub(crate) struct History {
    /// The first line of its first message.
    pub(crate) subject: String,
    /// What its turns and those of its descendants spent.
    pub(crate) spent: SpentIn,
    /// The messages and writes that were refused in them.
    pub(crate) refused: u64,
    /// The messages in it and its descendants.
    pub(crate) messages: u64,
    /// The number of open requests in it and its descendants.
    pub(crate) open_tasks: u64,
    /// Its open requests and those of its descendants: those that wait for a human first, then the oldest first.
    pub(crate) open: Vec<OpenRequest>,
    /// The names of all that take part in it or its descendants.
    pub(crate) participants: Vec<String>,
    /// The pending decisions that hold up its work, those that expire first at the top.
    pub(crate) waiting: Waiting,
    /// The conversation's number.
    pub(crate) conv: ConvId,
    /// Its limits and status.
    pub(crate) view: ConversationView,
    /// What it does, with the work in its descendants.
    pub(crate) state: ConversationState,
    /// The events of the page, oldest first, and those behind it that tell how its requests went on.
    pub(crate) lines: Vec<HistoryEntry>,
    /// The number of events of the page.
    pub(crate) shown: usize,
    /// Whether a request that has no answer among the events may have one behind them.
    pub(crate) is_cut: bool,
    /// The place of the page in the history.
    pub(crate) page: PageSpan,
    /// The first lines of the messages on other pages that caused messages of this one.
    pub(crate) above: BTreeMap<Seq, String>,
}

/// The place of a page in its history, in what it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageSpan {
    /// The units before it.
    pub(crate) before: usize,
    /// The units in it.
    pub(crate) within: usize,
    /// The units of the whole history.
    pub(crate) total: usize,
    /// The first position of the page, if there is an earlier page.
    pub(crate) earlier: Option<Seq>,
    /// The last position of the page, if there is a later page.
    pub(crate) later: Option<Seq>,
}

impl History {
    /// Returns the events of the page.
    pub(crate) fn page_lines(&self) -> &[HistoryEntry] {
        self.lines.get(..self.shown).unwrap_or(&self.lines)
    }
}

/// Returns a conversation with a page of its history.
pub(crate) async fn of(ctx: &Context, caller: Caller, reference: &str, asked: PageAsked) -> Result<History, ApiError> {
    caller.human()?;
    let conv = conversations::find(ctx, caller, reference).await?;
    let here = ctx.clone();
    let look = move |live: &Live<'_>| {
        let known = live.state.conversations.get(&conv)?;
        let convs = live.state.lineage_below(conv);
        let all = || convs.iter().filter_map(|conv| live.state.conversations.get(conv));
        let counts = (all().map(|conv| conv.messages).sum(), all().map(|conv| conv.open_tasks.len() as u64).sum());
        let names = all().flat_map(|conv| conv.participants.iter()).map(|agent| live.state.name_of(*agent).to_owned());
        let names: BTreeSet<String> = names.collect();
        // Who begins work in it: a human, or the agent that opened it.
        let humans = live.state.live_by_name().into_iter();
        let humans = humans.filter(|id| live.state.agent(*id).is_some_and(Agent::is_human));
        let starters: Vec<AgentId> = humans.chain([known.opener]).collect();
        let state = ConversationState::of(live, known, &convs, &asking(live.state));
        Some((
            (views::conversation(&here.traces, here.handle.signer(), live.state, conv, known), state),
            convs,
            counts,
            names,
            starters,
        ))
    };
    let found = ctx.handle.query(look).await?;
    let ((view, state), convs, (messages, open_tasks), names, starters) =
        found.ok_or_else(|| ApiError::unknown(reference))?;
    let waiting = decisions::in_conversations(ctx, caller, convs.clone()).await?;
    let subject = subjects::of(ctx, vec![conv]).await?.remove(&conv).unwrap_or_default();
    let below = convs.clone();
    let both =
        move |index: &IndexReader| -> Result<_, ReadError> { Ok((index.spent_in(&below)?, index.refused_in(&below)?)) };
    let (spent, refused) = ask_fresh(ctx, both).await?;
    let spent = add_up(spent.into_iter().map(|(_, spent)| spent));
    let refused = refused.into_iter().map(|(_, refused)| refused).sum();
    let open = open_requests::of(ctx, convs.clone()).await?;
    let below = convs.clone();
    let page = ask(ctx, move |index| index.history_page(conv, &starters, &below, asked.cut)).await?;
    let span = PageSpan {
        before: page.before,
        within: page.within,
        total: page.total,
        earlier: page.seqs.first().copied().filter(|_| page.earlier),
        later: page.seqs.last().copied().filter(|_| page.later),
    };
    let last = page.seqs.last().map_or(0, |seq| seq.0);
    let mut entries = ctx.handle.entries(page.seqs).await?;
    let above = if asked.ahead && page.earlier { above(ctx, &convs, &entries).await? } else { BTreeMap::new() };
    let is_cut = asked.ahead && span.later.is_some() && !read_ahead(ctx, &convs, &mut entries).await?;
    let lines = told(ctx, caller, entries).await?;
    let shown = lines.partition_point(|line| line.event.seq <= last);
    let participants = names.into_iter().collect();
    Ok(History {
        subject,
        spent,
        refused,
        messages,
        open_tasks,
        open,
        participants,
        waiting,
        conv,
        view,
        state,
        lines,
        shown,
        is_cut,
        page: span,
        above,
    })
}

/// Returns the first lines of the messages on earlier pages that caused messages of this one.
async fn above(ctx: &Context, convs: &[ConvId], page: &[(Seq, Arc<Entry>)]) -> Result<BTreeMap<Seq, String>, ApiError> {
    let cause = |entry: &Entry| {
        let Fact::Accepted { message } = &entry.fact else { return None };
        message.cause.or(message.in_reply_to)
    };
    let first = page.first().map_or(Seq(0), |(seq, _)| *seq);
    let causes: BTreeSet<Seq> = page.iter().filter_map(|(_, entry)| cause(entry)).filter(|seq| *seq < first).collect();
    let line = |(seq, entry): (Seq, Arc<Entry>)| {
        let Fact::Accepted { message } = &entry.fact else { return None };
        convs.contains(&message.conv).then(|| (seq, subjects::first_line(&message.body)))
    };
    let entries = ctx.handle.entries(causes.into_iter().collect()).await?;
    Ok(entries.into_iter().filter_map(line).collect())
}

/// Reads on behind a page until each of its requests has ended. Returns whether no more of them can end behind that.
async fn read_ahead(ctx: &Context, convs: &[ConvId], entries: &mut Vec<(Seq, Arc<Entry>)>) -> Result<bool, ApiError> {
    let mut open: BTreeSet<TaskId> = entries.iter().filter_map(|(_, entry)| begun(&entry.fact)).collect();
    for task in entries.iter().filter_map(|(_, entry)| ended(&entry.fact)) {
        open.remove(&task);
    }
    let most = entries.len() + AHEAD_MAX;
    while !open.is_empty() && entries.len() < most {
        let after = entries.last().map(|(seq, _)| *seq);
        let cursor = Cursor { after, ascending: true, limit: AHEAD_STEP, ..Cursor::default() };
        let convs = convs.to_vec();
        let seqs = ask(ctx, move |index| index.history(&convs, cursor)).await?;
        if seqs.is_empty() {
            return Ok(true);
        }
        let more = ctx.handle.entries(seqs).await?;
        for task in more.iter().filter_map(|(_, entry)| ended(&entry.fact)) {
            open.remove(&task);
        }
        entries.extend(more);
    }
    Ok(open.is_empty())
}

fn begun(fact: &Fact) -> Option<TaskId> {
    if let Fact::Accepted { message } = fact
        && let Part::Request(terms) = &message.part
    {
        return Some(terms.task);
    }
    if let Fact::RootStarted(RootStarted { task, .. }) = fact { Some(*task) } else { None }
}

fn ended(fact: &Fact) -> Option<TaskId> {
    if let Fact::Accepted { message } = fact
        && let Part::Answer(answer) = &message.part
    {
        return Some(answer.task);
    }
    if let Fact::RootEnded { task, .. } = fact { Some(*task) } else { None }
}

/// Returns one event by its position, for example a message or a refusal.
pub(crate) async fn line(ctx: &Context, caller: Caller, id: &str) -> Result<HistoryEntry, ApiError> {
    caller.human()?;
    let seq = Seq::parse(id).ok_or_else(|| ApiError::unknown(id))?;
    let entries = ctx.handle.entries(vec![seq]).await?;
    told(ctx, caller, entries).await?.into_iter().next().ok_or_else(|| ApiError::unknown(id))
}

async fn told(ctx: &Context, caller: Caller, entries: Vec<(Seq, Arc<Entry>)>) -> Result<Vec<HistoryEntry>, ApiError> {
    let who = caller.principal;
    let woke = |(_, entry): &(Seq, Arc<Entry>)| {
        if let Fact::TurnOpened(TurnOpened { message, .. }) = &entry.fact { Some(*message) } else { None }
    };
    let wakes: BTreeSet<Seq> = entries.iter().filter_map(woke).collect();
    let wakes = ctx.handle.entries(wakes.into_iter().collect()).await?;
    let wakes: BTreeMap<Seq, (AgentId, Wake)> =
        wakes.into_iter().filter_map(|(seq, entry)| Some((seq, wake(&entry.fact)?))).collect();
    let look = move |live: &Live<'_>| -> Vec<_> {
        let draft = |(seq, entry): (Seq, Arc<Entry>)| {
            let lift = views::lift_of(live.state, &entry.fact);
            let waker = waker(live.state, &wakes, &entry.fact);
            Some((views::event(live.state, who, seq, &entry)?, led_to(live.state, &entry.fact), waker, lift, entry))
        };
        entries.into_iter().filter_map(draft).collect()
    };
    let drafts = ctx.handle.query(look).await?;
    type Draft = (views::EventDraft, Vec<RequestLink>, Option<Waker>, Option<LiftStep>, Arc<Entry>);
    let line = |(draft, chain, waker, lift, entry): Draft| {
        let refusal = if let Fact::Refused(Refused { refusal, .. }) | Fact::WriteRefused(WriteRefused { refusal, .. }) =
            &entry.fact
        {
            Some(Problem::new(refusal))
        } else {
            None
        };
        HistoryEntry { event: draft.finish(), refusal, chain, waker, lift, entry }
    };
    Ok(drafts.into_iter().map(line).collect())
}

/// Returns who sent a message, and what it was.
fn wake(fact: &Fact) -> Option<(AgentId, Wake)> {
    let Fact::Accepted { message } = fact else { return None };
    let what = match &message.part {
        Part::Request(_) => Wake::Request,
        Part::Answer(_) => Wake::Answer,
        Part::Reply { .. } => Wake::Reply,
        Part::Plain | Part::Status { .. } | Part::Echo => Wake::Message,
    };
    Some((message.from, what))
}

fn waker(state: &State, wakes: &BTreeMap<Seq, (AgentId, Wake)>, fact: &Fact) -> Option<Waker> {
    let Fact::TurnOpened(TurnOpened { message, attempt, .. }) = fact else { return None };
    let (from, what) = wakes.get(message)?;
    Some(Waker { from: state.name_of(*from).to_owned(), what: *what, attempt: *attempt })
}

/// Returns the requests that led to a turn, or to a refused message or write.
fn led_to(state: &State, fact: &Fact) -> Vec<RequestLink> {
    if let Fact::TurnOpened(TurnOpened { task, .. }) = fact {
        return decisions::chain(state, Some(*task));
    }
    let (Fact::Refused(Refused { turn: Some(turn), .. }) | Fact::WriteRefused(WriteRefused { turn: Some(turn), .. })) =
        fact
    else {
        return Vec::new();
    };
    decisions::chain(state, state.turns.get(turn).map(|turn| turn.task))
}
