//! Finds what a human types: names, REFs, ids, and words in what agents and humans wrote.

use lastword_broker::Live;
use lastword_facts::fact::Kind;
use lastword_facts::fact::{Answer, Part};
use lastword_facts::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, RoomId, TurnId};
use lastword_facts::{Fact, Seq};
use lastword_server::calls::read_model::ask;
use lastword_server::calls::{Caller, subjects};
use lastword_server::{ApiError, Context, record_of};
use lastword_wire::Arguments;
use lastword_wire::call::without_secrets;

use super::decisions::DecisionId;
use super::risk;

/// The shortest text that is searched for in what was written.
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
    /// In a room.
    Room(String),
}

/// A message, post, question or held call with words that begin as those that were searched for.
pub(crate) struct FoundText {
    /// Where it is shown.
    pub(crate) place: Whereabouts,
    /// The name of its sender.
    pub(crate) from: String,
    /// The REF of its conversation, or the room; empty outside of both.
    pub(crate) within: String,
    /// The line with the words.
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
    /// What was written, newest first.
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

/// What was found, before names are read of the state.
enum Written {
    Message(Seq, ConvId),
    Post(RoomId),
    Question(EscalationId, ConvId),
    Call(ApprovalId),
}

async fn texts(ctx: &Context, words: String, max: usize) -> Result<Vec<FoundText>, ApiError> {
    let wanted = words.clone();
    let seqs = ask(ctx, move |index| index.beginning_with(&wanted, max)).await?;
    let wanted = words.clone();
    let mut found: Vec<(Seq, Written, AgentId, String)> = Vec::new();
    let read = |seq, entry: &std::sync::Arc<lastword_facts::Entry>| {
        found.extend(written(seq, &entry.fact).map(|(what, from, text)| (seq, what, from, line_with(&text, &wanted))));
    };
    ctx.handle.visit(seqs, read).await?;
    found.sort_by_key(|(seq, ..)| std::cmp::Reverse(*seq));
    let look = move |live: &Live<'_>| {
        let state = live.state;
        let reference = |conv| state.ref_of(conv).map_or_else(String::new, ToString::to_string);
        let named = |(_, what, from, mut text)| {
            let (place, within) = match what {
                Written::Message(seq, conv) => (Whereabouts::Line(seq), reference(conv)),
                Written::Question(id, conv) => (Whereabouts::Decision(DecisionId::Question(id)), reference(conv)),
                Written::Call(id) => {
                    let call = state.approvals.get(&id);
                    if let Some(call) = call.filter(|call| call.requested.is_some()) {
                        text = line_with(&worded(&call.tool, &call.arguments, call.reason.as_deref()), &words);
                    }
                    let task = call.and_then(|call| state.tasks.get(&call.task?));
                    (
                        Whereabouts::Decision(DecisionId::Call(id)),
                        task.map_or_else(String::new, |task| reference(task.conv)),
                    )
                }
                Written::Post(room) => {
                    let name = state.rooms.get(&room)?.name.to_string();
                    (Whereabouts::Room(name.clone()), name)
                }
            };
            Some(FoundText { place, from: state.name_of(from).to_owned(), within, text })
        };
        found.into_iter().filter_map(named).collect()
    };
    Ok(ctx.handle.query(look).await?)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "of no other fact words are found")]
fn written(seq: Seq, fact: &Fact) -> Option<(Written, AgentId, String)> {
    match fact {
        Fact::Accepted { message } => {
            let why = if let Part::Answer(Answer { reason, .. }) = &message.part { reason.as_deref() } else { None };
            let text = format!("{}\n{}", message.body, why.unwrap_or_default());
            Some((Written::Message(seq, message.conv), message.from, text))
        }
        Fact::Posted { room, from, body } => Some((Written::Post(*room), *from, body.to_string())),
        Fact::EscalationOpened(asked) => {
            Some((Written::Question(asked.escalation, asked.conv), asked.agent, asked.body.to_string()))
        }
        Fact::ApprovalAsked(asked) => {
            let text = worded(&asked.tool, &asked.arguments, asked.reason.as_deref());
            Some((Written::Call(asked.approval), asked.agent, text))
        }
        _ => None,
    }
}

fn worded(tool: &str, arguments: &str, reason: Option<&str>) -> String {
    let arguments = risk::on_a_line(&Arguments::stored(arguments));
    without_secrets(&format!("{tool}: {arguments}\n{}", reason.unwrap_or_default()))
}

/// Returns the first line in which a word begins with one of these, from near that word on.
fn line_with(text: &str, words: &str) -> String {
    const BEFORE: usize = 24;
    let wanted: Vec<&str> = words.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let begins = |line: &str, at: usize| {
        let inside = line[..at].chars().next_back().is_some_and(char::is_alphanumeric);
        let is = |word: &str| {
            let letters = line[at..].chars().flat_map(char::to_lowercase);
            letters.take(word.chars().count()).eq(word.chars())
        };
        !inside && wanted.iter().any(|word| is(word))
    };
    let place = |line: &str| line.char_indices().map(|(at, _)| at).find(|at| begins(line, *at));
    let found = text.lines().find_map(|line| Some((line, place(line)?)));
    let Some((line, at)) = found.filter(|(_, at)| *at > 2 * BEFORE) else {
        return subjects::first_line(found.map_or(text, |(line, _)| line));
    };
    let from = line.floor_char_boundary(at - BEFORE);
    subjects::first_line(&format!("…{}", &line[from..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_with_a_word_is_shown_from_near_it_on() {
        assert_eq!(line_with("one two\nthree for", "thr"), "three for");
        assert_eq!(line_with("one\nother", "the"), "one");
        let long = format!("{} the registry", "İ".repeat(90));
        assert!(line_with(&long, "regis").ends_with("the registry"), "{}", line_with(&long, "regis"));
    }
}
