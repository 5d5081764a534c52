//! Calls on rooms and the posts in them.

#[cfg(feature = "properties")]
pub(crate) mod properties;

use lastword_broker::Live;
use lastword_core::input::RoomPost;
use lastword_core::{Input, Reply};
use lastword_facts::ids::RoomId;
use lastword_facts::names::{AgentName, Ref, RequestId};
use lastword_facts::{Code, Fact, Time};
use lastword_store::{Cursor, PostFilter};
use lastword_wire::{FieldError, NewRoom, Page, Post, Posted, RoomView};

use super::audit::PAGE_BYTES_MAX;
use super::read_model::ask_fresh;
use super::{Caller, Context, admitted, checked};
use crate::error::ApiError;
use crate::views;
use crate::views::Shown;

/// The most names that one post may mention.
pub(crate) const MENTIONS_MAX: usize = 16;

/// Opens a room, or sets the members of an existing one.
pub(crate) async fn open(ctx: &Context, caller: Caller, new: NewRoom) -> Result<RoomView, ApiError> {
    let name = checked("name", &new.name, Ref::new)?;
    let members: Result<Vec<_>, _> = new.members.iter().map(|m| checked("members", m, AgentName::new)).collect();
    let then = |reply: Reply, live: &Live<'_>| match reply {
        Reply::Opened(room) => Ok(views::room(live.state, room)),
        other => Err(other),
    };
    let opened = ctx.handle.submit_then(Input::OpenRoom(caller.principal, name, members?, new.key), then).await?;
    match opened {
        Ok(room) => room.ok_or_else(|| ApiError::unknown(&new.name)),
        Err(other) => Err(admitted(Ok(other)).map_or_else(|fault| fault, |other| ApiError::unexpected(&other))),
    }
}

/// Lists the rooms that `caller` may see: all for a human, its own for an agent.
pub async fn list(ctx: &Context, caller: Caller) -> Result<Page<RoomView>, ApiError> {
    let who = caller.principal;
    let all = move |live: &Live<'_>| {
        let rooms = live.state.rooms.iter();
        let seen = rooms.filter(|(_, room)| who.is_human() || room.members.contains(&who.agent()));
        seen.filter_map(|(id, _)| views::room(live.state, *id)).collect()
    };
    Ok(Page::whole(ctx.handle.query(all).await?))
}

/// One post in a room.
pub struct ShownPost {
    /// The name of its sender.
    pub from: String,
    /// The time at which it was admitted.
    pub at: Time,
    /// Its text.
    pub body: String,
}

/// The most posts that are shown of a room.
const POSTS_MAX: usize = 100;

/// Returns a room and its last posts, newest first, for a human.
pub async fn show(ctx: &Context, caller: Caller, name: &str) -> Result<(RoomView, Vec<ShownPost>), ApiError> {
    caller.human()?;
    let id = find(ctx, name).await?;
    let cursor = Cursor { limit: POSTS_MAX, ..Cursor::default() };
    let filter = PostFilter { room: Some(id), cursor, ..PostFilter::default() };
    let seqs = ask_fresh(ctx, move |index| index.posts(&filter)).await?;
    let (entries, _) = ctx.handle.entries_within(seqs, PAGE_BYTES_MAX).await?;
    let look = move |live: &Live<'_>| {
        let post = |(_, entry): (_, std::sync::Arc<lastword_facts::Entry>)| {
            let Fact::Posted { from, body, .. } = &entry.fact else { return None };
            Some(ShownPost { from: live.state.name_of(*from).to_owned(), at: entry.at, body: body.to_string() })
        };
        Some((views::room(live.state, id)?, entries.into_iter().filter_map(post).collect()))
    };
    ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(name))
}

/// Posts to a room. Only a human's post has mentions: an agent's body is never parsed.
pub async fn post(
    ctx: &Context,
    caller: Caller,
    room: &str,
    post: Post,
    key: Option<RequestId>,
) -> Result<Posted, ApiError> {
    let Post { body, mentions, reference } = post;
    if body.trim().is_empty() {
        return Err(FieldError::new("body", "is empty").into());
    }
    let human = caller.principal.is_human();
    if !human && (mentions.is_some() || reference.is_some()) {
        let text = "`mentions` and `ref` are only for a human's post; an agent's post asks no agent";
        return Err(ApiError::new(Code::Forbidden, text));
    }
    let id = find(ctx, room).await?;
    let mentions = match mentions {
        Some(names) if names.len() > MENTIONS_MAX => {
            return Err(FieldError::new("mentions", format_args!("has more than {MENTIONS_MAX} names")).into());
        }
        Some(names) => names.iter().map(|name| checked("mentions", name, AgentName::new)).collect::<Result<_, _>>()?,
        None if human => known_mentions(ctx, &body).await?,
        None => Vec::new(),
    };
    let reference = reference.map(|text| checked("ref", &text, Ref::new)).transpose()?;
    let post = RoomPost { body: body.into(), mentions, reference, key };
    let reply = ctx.handle.submit(Input::Post(caller.principal, id, Box::new(post))).await;
    match admitted(reply)? {
        Reply::Sent(seqs) | Reply::Again(seqs) => {
            let shown = views::show(&ctx.handle, seqs).await?;
            Ok(Posted { room: room.to_owned(), items: shown.into_iter().filter_map(Shown::stored).collect() })
        }
        Reply::Done => Ok(Posted { room: room.to_owned(), items: Vec::new() }),
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Returns the agents that a text mentions. A mentioned human reads the room anyway and gets no request.
async fn known_mentions(ctx: &Context, body: &str) -> Result<Vec<AgentName>, ApiError> {
    let named = mentions(body);
    let known = move |live: &Live<'_>| {
        let is_agent = |name: &AgentName| {
            let found = live.state.live(name.as_str()).and_then(|id| live.state.agent(id));
            found.is_some_and(|agent| !agent.is_human())
        };
        named.into_iter().filter(is_agent).collect()
    };
    Ok(ctx.handle.query(known).await?)
}

/// Returns each `@name` of a text once, in order. An `@` inside a word, as in an email address, is ignored.
fn mentions(body: &str) -> Vec<AgentName> {
    let mut found: Vec<AgentName> = Vec::new();
    let mut before = ' ';
    for (at, c) in body.char_indices() {
        if c == '@' && !before.is_alphanumeric() {
            let rest = &body[at + 1..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_.-".contains(c))).unwrap_or(rest.len());
            // Punctuation after a name ends the sentence, not the name.
            let name = rest[..end].trim_end_matches(['.', '-', '_']).to_ascii_lowercase();
            if let Ok(name) = AgentName::new(&name)
                && !found.contains(&name)
                && found.len() < MENTIONS_MAX
            {
                found.push(name);
            }
        }
        before = c;
    }
    found
}

async fn find(ctx: &Context, room: &str) -> Result<RoomId, ApiError> {
    let wanted = room.to_owned();
    let look = move |live: &Live<'_>| {
        let by_id = RoomId::parse(&wanted).filter(|id| live.state.rooms.contains_key(id));
        live.state.room_names.get(wanted.as_str()).copied().or(by_id)
    };
    ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_are_words_that_start_with_an_at_sign() {
        let names: Vec<String> =
            mentions("@Kilo, ask @hive. Mail a@b.c; (@kilo) @@ @all").iter().map(ToString::to_string).collect();
        assert_eq!(names, ["kilo", "hive"]);
    }
}
