//! Finds what a human types: names, REFs, ids, and words in messages.

use lastword_broker::Live;
use lastword_facts::fact::Kind;
use lastword_facts::ids::{GrantId, TurnId};
use lastword_facts::{Fact, Seq};
use lastword_server::calls::read_model::ask;
use lastword_server::calls::{Caller, subjects};
use lastword_server::{ApiError, Context, record_of};
use lastword_store::{Cursor, Filter};

use super::decisions::DecisionId;

/// The shortest text that is searched for in messages.
const WORDS_MIN: usize = 3;

/// Where something is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// Among the decisions.
    Decision(DecisionId),
    /// As a line of the log.
    Line(Seq),
    /// With its conversation, by REF.
    Conversation(String),
}

/// A message with the words that were searched for.
pub(crate) struct FoundText {
    /// Its position.
    pub(crate) seq: Seq,
    /// The name of its sender.
    pub(crate) from: String,
    /// The REF of its conversation.
    pub(crate) reference: String,
    /// The first line of its text.
    pub(crate) text: String,
}

/// What was found.
pub(crate) struct SearchResults {
    /// The place of the id that was typed, if it is one.
    pub(crate) place: Option<Whereabouts>,
    /// The names of agents and humans.
    pub(crate) people: Vec<(String, Kind)>,
    /// The names of rooms.
    pub(crate) rooms: Vec<String>,
    /// REFs with their subjects: those at the top first, the newest of them first.
    pub(crate) conversations: Vec<(String, String)>,
    /// Messages, newest first.
    pub(crate) texts: Vec<FoundText>,
}

/// Returns where the thing with this id is shown; `None` if it is none that the broker makes, or is forgotten.
pub(crate) async fn whereabouts(ctx: &Context, caller: Caller, id: &str) -> Result<Option<Whereabouts>, ApiError> {
    caller.human()?;
    if let Some(decision) = DecisionId::parse(id) {
        return Ok(Some(Whereabouts::Decision(decision)));
    }
    if let Some(seq) = Seq::parse(id).or_else(|| record_of(id)) {
        return Ok(Some(Whereabouts::Line(seq)));
    }
    let (grant, turn) = (GrantId::parse(id), TurnId::parse(id));
    let look = move |live: &Live<'_>| {
        let state = live.state;
        let of_grant = grant.and_then(|grant| state.grants.get(&grant)).map(|grant| grant.conv);
        let task = turn.and_then(|turn| state.turns.get(&turn)).and_then(|turn| state.tasks.get(&turn.task));
        if let Some(request) = task.and_then(|task| task.request.as_ref()) {
            return Some(Whereabouts::Line(request.message));
        }
        let conv = of_grant.or_else(|| task.map(|task| task.conv))?;
        state.ref_of(conv).map(|reference| Whereabouts::Conversation(reference.to_string()))
    };
    Ok(ctx.handle.query(look).await?)
}

/// Finds what a text names or is in; at most `max` of each kind.
pub(crate) async fn find(ctx: &Context, caller: Caller, text: &str, max: usize) -> Result<SearchResults, ApiError> {
    caller.human()?;
    let wanted = text.trim().to_lowercase();
    let place = if wanted.is_empty() { None } else { whereabouts(ctx, caller, &wanted).await? };
    let words = wanted.clone();
    let look = move |live: &Live<'_>| {
        let state = live.state;
        let has = |name: &str| name.to_ascii_lowercase().contains(&wanted);
        let people = state.live_by_name().into_iter().filter_map(|id| state.agent(id));
        let people = people.filter(|agent| has(agent.name())).map(|agent| (agent.name().to_owned(), agent.kind));
        let people: Vec<(String, Kind)> = people.take(max).collect();
        let rooms = state.room_names.keys().map(ToString::to_string);
        let rooms: Vec<String> = rooms.filter(|name| has(name)).take(max).collect();
        let named = || state.conversations.range(..).rev().filter(|(_, conv)| has(conv.reference.as_str()));
        let tops = named().filter(|(_, conv)| conv.parent.is_none());
        let below = named().filter(|(_, conv)| conv.parent.is_some());
        let convs = tops.chain(below).take(max).map(|(id, conv)| (id, conv.reference.to_string()));
        (people, rooms, convs.collect::<Vec<_>>())
    };
    let (people, rooms, convs) = ctx.handle.query(look).await?;
    let mut named = subjects::of(ctx, convs.iter().map(|(id, _)| *id).collect()).await?;
    let subject = |(id, reference)| (reference, named.remove(&id).unwrap_or_default());
    let conversations = convs.into_iter().map(subject).collect();
    let texts = if words.chars().count() < WORDS_MIN { Vec::new() } else { texts(ctx, words, max).await? };
    Ok(SearchResults { place, people, rooms, conversations, texts })
}

async fn texts(ctx: &Context, words: String, max: usize) -> Result<Vec<FoundText>, ApiError> {
    // Without a word, the filter would match every message.
    if !words.chars().any(char::is_alphanumeric) {
        return Ok(Vec::new());
    }
    let filter = Filter { text: Some(words), cursor: Cursor { limit: max, ..Cursor::default() }, ..Filter::default() };
    let seqs = ask(ctx, move |index| index.messages(&filter)).await?;
    let mut found = Vec::new();
    let text = |seq, entry: &std::sync::Arc<lastword_facts::Entry>| {
        if let Fact::Accepted { message } = &entry.fact {
            found.push((seq, message.from, message.conv, subjects::first_line(&message.body)));
        }
    };
    ctx.handle.visit(seqs, text).await?;
    let look = move |live: &Live<'_>| {
        let named = |(seq, from, conv, text)| FoundText {
            seq,
            from: live.state.name_of(from).to_owned(),
            reference: live.state.ref_of(conv).map_or_else(String::new, ToString::to_string),
            text,
        };
        found.into_iter().map(named).collect()
    };
    Ok(ctx.handle.query(look).await?)
}
