//! The exchange of a task with one delegate, message by message, as R5 counts it.
//!
//! The state keeps no texts, so this reads them from the log and folds them again, each time that somebody asks. The
//! facts `Stalled` tell where the exchange began: they record how many messages it had.

use std::sync::Arc;

use lastword_broker::{Live, off_thread};
use lastword_core::Principal;
use lastword_facts::fact::{Level, Part, Recipient, Refused, Stalled};
use lastword_facts::ids::{AgentId, EscalationId, TaskId};
use lastword_facts::stall::{Curve, HOLD_DRY, Reading, Stall, StallCause, WARN_DRY};
use lastword_facts::{Code, Entry, Fact, Message, MessageType, Refusal, Seq};
use lastword_store::{Cursor, Filter};
use lastword_wire::{ExchangeLine, ExchangeVerdict, ExchangeView, Repetition};

use super::{Caller, Context, audit};
use crate::error::ApiError;
use crate::views;

/// The most messages of an exchange that are read, the newest ones.
const READ_MAX: usize = 1_000;
/// The most messages that are listed, the newest ones.
const LINES_MAX: usize = 200;
/// The most messages between two agents, in any task, that are searched for those of one exchange, in each direction.
const SEARCH_MAX: usize = 5_000;
/// Messages per query of the read model.
const PAGE: usize = 500;
/// The message that an observed refusal let through is within this many positions after it.
const OBSERVED_MAX: u64 = 16;
/// How far behind its message the log records what R5 says of it.
const STALLED_AFTER: u64 = 1;
/// The same where R5 also asks a human: the question and its lifts come between.
const STALLED_AFTER_QUESTION: u64 = 3;
/// The characters of a text that are shown.
const EXCERPT_CHARS: usize = 120;
/// A message repeats another one if at most one in this many of its units is new.
const NEW_SHARE: u64 = 3;

type FoundEntry = (Seq, Arc<Entry>);

/// The two sides of an exchange.
#[derive(Clone, Copy)]
struct Sides {
    task: TaskId,
    asker: AgentId,
    delegate: AgentId,
}

/// What the log records of the guard after a message.
#[derive(Clone, Copy)]
struct Mark {
    /// The message.
    at: Seq,
    level: Level,
    stall: StallCause,
    enforced: bool,
    curve: Curve,
    escalation: Option<EscalationId>,
}

/// The messages of an exchange that are shown.
struct Window {
    messages: Vec<FoundEntry>,
    /// How many messages before them can't be read.
    unread: u32,
    /// The numbers that the log records at the mark, for an exchange that can't be read from its beginning.
    recorded: Curve,
}

/// Explains the exchange that the broker's question `id` is about; `None` if the question has another cause or the
/// messages are gone.
pub(super) async fn of_escalation(
    ctx: &Context,
    caller: Caller,
    id: EscalationId,
) -> Result<Option<ExchangeView>, ApiError> {
    let asked = move |live: &Live<'_>| live.state.escalations.get(&id).map(|known| known.asked);
    let Some(asked) = ctx.handle.query(asked).await? else { return Ok(None) };
    // The question follows its message.
    let said = Seq(asked.0.saturating_sub(1));
    let facts = ctx.handle.entries(vec![said, Seq(said.0 + STALLED_AFTER_QUESTION)]).await?;
    let [(seq, said), (_, stalled)] = facts.as_slice() else { return Ok(None) };
    let (Fact::Accepted { message }, Fact::Stalled(Stalled { task, agent, .. })) = (&said.fact, &stalled.fact) else {
        return Ok(None);
    };
    let sides = Sides { task: *task, asker: other_side(message, *agent), delegate: *agent };
    let (found, marks) = load(ctx, sides, *seq).await?;
    let Some(mark) = marks.iter().rfind(|mark| mark.escalation == Some(id)) else { return Ok(None) };
    let window = Window::upto(found, mark, *seq);
    explain(ctx, caller, sides, window, marks).await.map(Some)
}

/// Explains the exchange in which a request was refused, or would have been, at `seq`; `None` for any other refusal.
pub(super) async fn of_refusal(
    ctx: &Context,
    caller: Caller,
    seq: Seq,
    entry: &Entry,
) -> Result<Option<ExchangeView>, ApiError> {
    let Some(sides) = sides_of_refusal(ctx, seq, entry).await? else { return Ok(None) };
    let (found, marks) = load(ctx, sides, Seq(seq.0.saturating_sub(1))).await?;
    let Some(mark) = marks.iter().rfind(|mark| mark.level == Level::Held) else { return Ok(None) };
    let last = found.last().map_or(mark.at, |(seq, _)| *seq);
    let window = Window::upto(found, mark, last);
    explain(ctx, caller, sides, window, marks).await.map(Some)
}

/// Explains the exchange that a message belongs to, if R5 warned of it or held it, or would have; otherwise `None`.
pub async fn of_message(
    ctx: &Context,
    caller: Caller,
    seq: Seq,
    message: &Message,
) -> Result<Option<ExchangeView>, ApiError> {
    let Some(sides) = sides_of_message(ctx, message).await? else { return Ok(None) };
    let (found, marks) = load(ctx, sides, Seq(u64::MAX)).await?;
    let Sides { task, delegate, .. } = sides;
    let open = move |live: &Live<'_>| live.state.exchange(task, delegate).map(|open| open.curve().messages);
    let open = ctx.handle.query(open).await?;
    let newest = found.last().map_or(Seq(0), |(seq, _)| *seq);
    let began = open.map(|messages| begin(&found, newest, messages).0);
    let goes_on = |mark: &Mark| began.is_some_and(|began| found[began..].iter().any(|(seq, _)| *seq == mark.at));
    let end = |mark: &Mark| if goes_on(mark) { newest } else { mark.at };
    let holds = |mark: &&Mark| {
        let (first, _) = begin(&found, mark.at, mark.curve.messages);
        found.get(first).is_some_and(|(first, _)| *first <= seq) && seq <= end(mark)
    };
    let Some(mark) = marks.iter().rfind(holds).copied() else { return Ok(None) };
    let last = end(&mark);
    let window = Window::upto(found, &mark, last);
    explain(ctx, caller, sides, window, marks).await.map(Some)
}

/// Returns the one of a message's two sides that isn't this one.
fn other_side(message: &Message, side: AgentId) -> AgentId {
    match message.to {
        Recipient::One(to) if message.from == side => to,
        Recipient::One(_) | Recipient::All => message.from,
    }
}

async fn sides_of_refusal(ctx: &Context, seq: Seq, entry: &Entry) -> Result<Option<Sides>, ApiError> {
    let stuck = |refusal: &Refusal| refusal.code == Code::NoProgress;
    if let Fact::Refused(Refused { agent, turn: Some(turn), refusal, .. }) = &entry.fact
        && stuck(refusal)
    {
        let (asker, turn, subject) = (*agent, *turn, refusal.subject.clone());
        let look = move |live: &Live<'_>| {
            let delegate = live.state.agent_of(subject.as_deref()?)?;
            Some(Sides { task: live.state.turns.get(&turn)?.task, asker, delegate })
        };
        return Ok(ctx.handle.query(look).await?);
    }
    if let Fact::Observed { agent, refusal } = &entry.fact
        && stuck(refusal)
    {
        // The fact names no task, but the message that it let through follows.
        for (_, next) in ctx.handle.entries((1..=OBSERVED_MAX).map(|n| Seq(seq.0 + n)).collect()).await? {
            if let Fact::Accepted { message } = &next.fact
                && message.from == *agent
            {
                return sides_of_message(ctx, message).await;
            }
        }
    }
    Ok(None)
}

async fn sides_of_message(ctx: &Context, message: &Message) -> Result<Option<Sides>, ApiError> {
    match (&message.part, message.to) {
        (Part::Request(_), Recipient::One(delegate)) => {
            Ok(message.sender_task.map(|task| Sides { task, asker: message.from, delegate }))
        }
        (Part::Answer(_), Recipient::One(asker)) => {
            let request = ctx.handle.entries(message.in_reply_to.into_iter().collect()).await?;
            let task = request.first().and_then(|(_, entry)| message_of(entry)?.sender_task);
            Ok(task.map(|task| Sides { task, asker, delegate: message.from }))
        }
        (
            Part::Request(_) | Part::Answer(_) | Part::Plain | Part::Reply { .. } | Part::Status { .. } | Part::Echo,
            _,
        ) => Ok(None),
    }
}

/// Returns the message that a fact admitted.
pub fn message_of(entry: &Entry) -> Option<&Message> {
    if let Fact::Accepted { message } = &entry.fact { Some(message) } else { None }
}

/// Returns the newest messages of the two sides up to a position, oldest first, and what the log records after them.
async fn load(ctx: &Context, sides: Sides, upto: Seq) -> Result<(Vec<FoundEntry>, Vec<Mark>), ApiError> {
    let Sides { task, asker, delegate } = sides;
    let asks = move |message: &Message| message.part.is_request() && message.sender_task == Some(task);
    let from_to = |from, to, kind| Filter { from: Some(from), to: Some(to), kind: Some(kind), ..Filter::default() };
    let mut found = search(ctx, from_to(asker, delegate, MessageType::Request), upto, asks).await?;
    let answers = move |message: &Message| matches!(message.part, Part::Answer(_));
    let answers = search(ctx, from_to(delegate, asker, MessageType::Response), upto, answers).await?;
    let asked = answers.iter().filter_map(|(_, entry)| message_of(entry)?.in_reply_to).collect();
    let mut asked: Vec<FoundEntry> = ctx.handle.entries(asked).await?;
    asked.retain(|(_, entry)| message_of(entry).is_some_and(asks));
    let answers = answers.into_iter().filter(|(_, entry)| {
        let to = message_of(entry).and_then(|message| message.in_reply_to);
        asked.iter().any(|(seq, _)| Some(*seq) == to)
    });
    found.extend(answers);
    found.sort_unstable_by_key(|(seq, _)| *seq);
    found.drain(..found.len().saturating_sub(READ_MAX));
    let marks = marks(ctx, sides, &found).await?;
    Ok((found, marks))
}

/// Returns the newest messages of a filter up to a position that pass a test.
async fn search(
    ctx: &Context,
    of: Filter,
    upto: Seq,
    test: impl Fn(&Message) -> bool,
) -> Result<Vec<FoundEntry>, ApiError> {
    let (mut found, mut before, mut searched) = (Vec::new(), Seq(upto.0.saturating_add(1)), 0);
    while found.len() < READ_MAX && searched < SEARCH_MAX {
        let cursor = Cursor { before: Some(before), limit: PAGE, ..Cursor::default() };
        let page = audit::search(ctx, Filter { cursor, ..of.clone() }).await?;
        let Some(last) = page.iter().min().copied() else { break };
        (before, searched) = (last, searched + page.len());
        let whole = page.len() == PAGE;
        let entries = ctx.handle.entries(page).await?;
        found.extend(entries.into_iter().filter(|(_, entry)| message_of(entry).is_some_and(&test)));
        if !whole {
            break;
        }
    }
    Ok(found)
}

/// Returns what the log records of the guard after each of these messages.
async fn marks(ctx: &Context, sides: Sides, found: &[FoundEntry]) -> Result<Vec<Mark>, ApiError> {
    let after = |said: Seq| [STALLED_AFTER, STALLED_AFTER_QUESTION].map(|distance| Seq(said.0 + distance));
    let places = found.iter().flat_map(|(seq, _)| after(*seq)).collect();
    let mut marks: Vec<Mark> = Vec::new();
    for (seq, entry) in ctx.handle.entries(places).await? {
        let Fact::Stalled(Stalled { task, agent, level, stall, enforced, curve, escalation, .. }) = &entry.fact else {
            continue;
        };
        let at = Seq(seq.0 - if escalation.is_some() { STALLED_AFTER_QUESTION } else { STALLED_AFTER });
        let fits = *task == sides.task && *agent == sides.delegate && found.iter().any(|(seq, _)| *seq == at);
        if fits && marks.iter().all(|mark| mark.at != at) {
            let (level, stall, enforced) = (*level, *stall, *enforced);
            marks.push(Mark { at, level, stall, enforced, curve: *curve, escalation: *escalation });
        }
    }
    marks.sort_unstable_by_key(|mark| mark.at);
    Ok(marks)
}

/// Returns the index in `found` at which an exchange of this many `messages` begins that ends with `last`, and how many
/// of them are missing there.
fn begin(found: &[FoundEntry], last: Seq, messages: u32) -> (usize, u32) {
    let end = found.partition_point(|(seq, _)| *seq <= last);
    let messages = usize::try_from(messages).unwrap_or(usize::MAX);
    let unread = u32::try_from(messages.saturating_sub(end)).unwrap_or(u32::MAX);
    (end.saturating_sub(messages), unread)
}

impl Window {
    /// The messages from the begin of the exchange that a mark is about, up to `last`.
    fn upto(mut found: Vec<FoundEntry>, mark: &Mark, last: Seq) -> Self {
        let (first, unread) = begin(&found, mark.at, mark.curve.messages);
        found.truncate(found.partition_point(|(seq, _)| *seq <= last));
        found.drain(..first.min(found.len()));
        Self { messages: found, unread, recorded: mark.curve }
    }
}

/// Folds the texts on a thread that may block, and adds what the caller may see.
async fn explain(
    ctx: &Context,
    caller: Caller,
    sides: Sides,
    window: Window,
    marks: Vec<Mark>,
) -> Result<ExchangeView, ApiError> {
    let (names, may) = readable(ctx, caller.principal, sides, &window).await?;
    Ok(off_thread(move || Ok(view(sides, &names, &may, &window, &marks))).await?)
}

/// The names of the asker and of the delegate, and for each message whether the caller may read it.
async fn readable(
    ctx: &Context,
    who: Principal,
    sides: Sides,
    window: &Window,
) -> Result<([String; 2], Vec<bool>), ApiError> {
    let messages = window.messages.clone();
    let look = move |live: &Live<'_>| {
        let may = |(_, entry): &FoundEntry| message_of(entry).is_some_and(|m| views::may_read(live.state, who, m));
        let names = [sides.asker, sides.delegate].map(|agent| live.state.name_of(agent).to_owned());
        (names, messages.iter().map(may).collect())
    };
    Ok(ctx.handle.query(look).await?)
}

fn view(sides: Sides, names: &[String; 2], may: &[bool], window: &Window, marks: &[Mark]) -> ExchangeView {
    let (mut stall, mut readings) = (Stall::default(), Vec::<Reading>::new());
    let first = window.messages.len().saturating_sub(LINES_MAX);
    let mut lines = Vec::new();
    for (place, (seq, entry)) in window.messages.iter().enumerate() {
        let Some(message) = message_of(entry) else { continue };
        let reading = Reading::of(&message.body, message.payload.as_deref());
        let asks = message.from == sides.asker && message.part.is_request();
        let (from, to) = if asks { (0, 1) } else { (1, 0) };
        let before = stall.curve().units;
        stall.message(from, Some(to), &reading);
        let curve = stall.curve();
        let new_units = curve.units - before;
        if place >= first {
            let mark = marks.iter().find(|mark| mark.at == *seq);
            lines.push(ExchangeLine {
                id: seq.to_string(),
                from: names[from as usize].clone(),
                to: names[to as usize].clone(),
                context_tokens: curve.context,
                new_units,
                dry_millis: curve.dry,
                verdict: mark.map(verdict),
                reason: mark.map(|mark| mark.stall),
                repeats: repeated(&reading, new_units, &readings, &window.messages),
                excerpt: may.get(place).filter(|may| **may).map(|_| excerpt(message)),
            });
        }
        readings.push(reading);
    }
    let whole = window.unread == 0;
    let Curve { messages, dry, units, read_again, .. } = if whole { stall.curve() } else { window.recorded };
    let [asker, delegate] = names.clone();
    ExchangeView {
        summary: format!("{read_again} tokens read again for {units} new words in {messages} messages"),
        asker,
        delegate,
        messages,
        new_units: units,
        read_again_tokens: read_again,
        dry_millis: dry,
        warn_at_millis: WARN_DRY,
        hold_at_millis: HOLD_DRY,
        omitted: u32::try_from(first).unwrap_or(u32::MAX),
        unread: window.unread,
        lines,
    }
}

const fn verdict(mark: &Mark) -> ExchangeVerdict {
    match (mark.level, mark.enforced) {
        (Level::Warned, true) => ExchangeVerdict::Warned,
        (Level::Warned, false) => ExchangeVerdict::WouldWarn,
        (Level::Held, true) => ExchangeVerdict::Held,
        (Level::Held, false) => ExchangeVerdict::WouldHold,
    }
}

/// Returns the earlier message that a text repeats; `None` if the text adds enough.
fn repeated(reading: &Reading, new_units: u64, earlier: &[Reading], messages: &[FoundEntry]) -> Option<Repetition> {
    let of = reading.unit_count();
    if new_units * NEW_SHARE > of {
        return None;
    }
    let same = earlier.iter().position(|earlier| reading.is_same(earlier));
    let (place, units) = same.map(|place| (place, of)).or_else(|| reading.nearest(earlier))?;
    let (seq, _) = messages.get(place)?;
    Some(Repetition { id: seq.to_string(), same: same.is_some(), units, of })
}

fn excerpt(message: &Message) -> String {
    let text = match message.payload.as_deref() {
        Some(payload) if message.body.is_empty() => payload,
        Some(_) | None => &message.body,
    };
    let mut excerpt: String = text.chars().take(EXCERPT_CHARS).collect();
    if text.chars().nth(EXCERPT_CHARS).is_some() {
        excerpt.push('…');
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use lastword_facts::Time;
    use lastword_facts::fact::{Answer, EndReason};
    use lastword_facts::ids::ConvId;
    use lastword_facts::{AnswerStatus, MessageType};

    use super::*;

    const SIDES: Sides = Sides { task: TaskId(1), asker: AgentId(2), delegate: AgentId(3) };

    fn said(seq: u64, body: &str) -> FoundEntry {
        let message = Message {
            from: SIDES.delegate,
            to: Recipient::One(SIDES.asker),
            kind: MessageType::Response,
            conv: ConvId(1),
            depth: 0,
            hops: 1,
            grant: None,
            sender_task: Some(TaskId(2)),
            cause: None,
            in_reply_to: None,
            key: None,
            action: None,
            payload: None,
            body: body.into(),
            metadata: None,
            part: Part::Answer(Answer::outcome(TaskId(2), AnswerStatus::Completed, EndReason::Answered)),
        };
        (Seq(seq), Arc::new(Entry { at: Time(seq), grant: None, fact: Fact::Accepted { message: Box::new(message) } }))
    }

    #[test]
    fn a_long_exchange_is_counted_whole_and_its_end_is_listed() {
        let messages: Vec<FoundEntry> = (0..260).map(|n| said(10 * n + 10, "still red, as before")).collect();
        let curve = Curve { messages: 250, ..Curve::default() };
        let mark = Mark {
            at: Seq(2_600),
            level: Level::Held,
            stall: StallCause::Stuck,
            enforced: false,
            curve,
            escalation: None,
        };
        let window = Window::upto(messages, &mark, mark.at);
        let may: Vec<bool> = window.messages.iter().map(|(seq, _)| seq.0 != 2_600).collect();
        let told = view(SIDES, &["kilo".to_owned(), "hive".to_owned()], &may, &window, &[mark]);
        assert_eq!((told.messages, told.omitted, told.unread, told.lines.len()), (250, 50, 0, LINES_MAX));
        let (first, last) = (&told.lines[0], &told.lines[LINES_MAX - 1]);
        // The first message of the exchange is the eleventh that the two said to each other.
        assert_eq!(first.repeats.as_ref().map(|repeats| (repeats.id.as_str(), repeats.same)), Some(("msg-110", true)));
        assert_eq!((last.verdict, last.context_tokens), (Some(ExchangeVerdict::WouldHold), 250 * 5));
        assert_eq!((first.excerpt.as_deref(), last.excerpt.as_deref()), (Some("still red, as before"), None));
    }

    #[test]
    fn what_is_missing_at_the_begin_is_said() {
        let found: Vec<FoundEntry> = (1..=3).map(|n| said(n, "red")).collect();
        assert_eq!(begin(&found, Seq(3), 5), (0, 2));
        assert_eq!(begin(&found, Seq(2), 1), (1, 0));
        assert_eq!(begin(&[], Seq(2), 0), (0, 0));
    }
}
