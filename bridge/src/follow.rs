//! Shows the workspace's events on the platform: follows the stream from a durable cursor.

use std::sync::Arc;
use std::time::Duration;

use lastword_client::wire::{Event, StoredMessage, parse_rfc3339};
use lastword_client::{ClientError, Events};
use lastword_facts::MessageType;
use lastword_facts::fact::{Control, Kind, Role};
use serde_json::Value;
use tokio::time::sleep;

use super::book::{ThreadPlace, lost};
use super::bridge::{BridgeContext, Following};
use super::early;
use super::ids::{ChannelId, PostId};
use super::names::lineage;
use super::outbound::{Posting, header, posting, warning};
use super::signs::{self, origin};
use super::text::title;
use super::unserved::Asked;
use lastword_client::Backoff;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Events without a post after which the cursor is stored regardless.
const QUIET_EVENTS_MAX: u64 = 256;
/// Longest first line about a conversation that began outside of the platform.
const OPENING_CHARS_MAX: usize = 200;

/// Words why this bridge ends when another one takes over.
fn taken(guest: &str) -> String {
    format!(
        "another bridge has started on this workspace, or the token of {guest} was renewed: a workspace has one bridge. \
         Stop the other one, then restart this one if it is to stay"
    )
}

/// Follows the log and reconnects after every loss. Returns only if the broker refuses or another bridge takes over.
pub(crate) async fn follow(shared: Arc<BridgeContext>) -> ClientError {
    let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
    let mut after = None;
    loop {
        match listen(&shared, &mut after, &mut backoff).await {
            // A restore went back to before the cursor: what followed there never happened.
            Err(error) if error.shared_position().is_some() => after = error.shared_position(),
            Err(error @ (ClientError::Refused(_) | ClientError::Unusable(_))) => return error,
            Ok(()) => {}
            Err(error) => shared.broker.fails(&error),
        }
        sleep(backoff.grow()).await;
    }
}

/// Follows one connection's events: first the log up to its head, then live events.
async fn listen(shared: &BridgeContext, after: &mut Option<u64>, backoff: &mut Backoff) -> Result<(), ClientError> {
    let client = &shared.broker.client();
    let cursor = match *after {
        Some(after) => after,
        None => begin_at(shared).await?,
    };
    *after = Some(cursor);
    if *shared.following.borrow() != Following::Live {
        // An end beyond the head: the stream ends at the log's head.
        let mut events = client.events_until(Some(cursor), Some(u64::MAX)).await?;
        shared.broker.works();
        shared.following.send_replace(Following::Begun);
        show_all(shared, &mut events, after, backoff).await?;
        shared.following.send_replace(Following::Live);
    }
    let mut events = client.events(*after).await?;
    shared.broker.works();
    show_all(shared, &mut events, after, backoff).await
}

/// Returns where to begin: the stored cursor, or the log's head at the first start, so that older events aren't shown.
async fn begin_at(shared: &BridgeContext) -> Result<u64, ClientError> {
    if let Some(cursor) = shared.book.cursor().map_err(lost)? {
        return Ok(cursor);
    }
    let head = shared.broker.client().events(None).await?.position();
    shared.book.set_cursor(head).map_err(lost)?;
    Ok(head)
}

async fn show_all(
    shared: &BridgeContext,
    events: &mut Events,
    after: &mut Option<u64>,
    backoff: &mut Backoff,
) -> Result<(), ClientError> {
    let mut noted = after.unwrap_or_default();
    while let Some(event) = events.next().await? {
        *backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        // Later events are the other bridge's to show, so each event is shown once, by position.
        if event.kind == "rekeyed" && event.agent.as_deref() == Some(shared.dialect.guest) && event.seq > shared.began {
            return Err(ClientError::Unusable(taken(shared.dialect.guest)));
        }
        let posted = show(shared, &event).await?;
        shared.desk.apply(&event);
        *after = Some(event.seq);
        shared.shown.send_replace(event.seq);
        // Never store the cursor between a post's key and the post: a restart there would mirror a post that came from
        // the platform.
        let quiet = event.seq - noted >= QUIET_EVENTS_MAX && event.kind != "post_keyed";
        if posted || quiet {
            shared.book.set_cursor(event.seq).map_err(lost)?;
            noted = event.seq;
        }
    }
    Ok(())
}

/// Shows one event; returns whether something may have been posted.
async fn show(shared: &BridgeContext, event: &Event) -> Result<bool, ClientError> {
    match event.kind.as_str() {
        "accepted" => match &event.message {
            Some(message) => accepted(shared, event, message).await,
            None => Ok(false),
        },
        "turn_opened" | "joined" => {
            at_work_since(shared, event)?;
            given(shared, event).await
        }
        "turn_closed" => {
            at_work_since(shared, event)?;
            if let Some(turn) = text(event, "turn") {
                shared.book.end_turn(turn).map_err(lost)?;
                shared.takers.values().for_each(|taker| taker.end(turn));
            }
            Ok(false)
        }
        "warned" => warned(shared, event).await,
        "post_keyed" => {
            // The key comes right before its `posted` event, which is then not mirrored back.
            let ours = text(event, "key").and_then(|key| shared.dialect.post_of(key)).is_some();
            let there = event.agent.as_deref().is_some_and(|agent| shared.posts_there(agent));
            if ours && there && event.data.get("admitted") == Some(&Value::Bool(true)) {
                shared.note_keyed(text(event, "room"), event.agent.as_deref());
            }
            Ok(false)
        }
        "posted" => posted(shared, event).await,
        "controlled" if text(event, "control") == Some(Control::Resume.word()) => {
            shared.resumed.send_modify(|count| *count += 1);
            Ok(false)
        }
        "role_set" => {
            let role = text(event, "role").and_then(Role::from_word);
            if let (Some(name), Some(role)) = (&event.agent, role) {
                shared.members.note_role(name, role);
            }
            Ok(false)
        }
        "registered" => {
            if let Some(name) = &event.agent {
                shared.note_kind(name, text(event, "kind") == Some(Kind::Human.word()));
            }
            Ok(false)
        }
        _ => Ok(false),
    }
}

/// Notes that an agent whose bot is ours was at work.
fn at_work_since(shared: &BridgeContext, event: &Event) -> Result<(), ClientError> {
    let agent = event.agent.as_deref().filter(|agent| shared.outbox.agents.contains_key(*agent));
    match agent.zip(parse_rfc3339(&event.at)) {
        Some((agent, at)) => shared.book.see(agent, at.0).map_err(lost),
        None => Ok(()),
    }
}

fn text<'a>(event: &'a Event, name: &str) -> Option<&'a str> {
    event.data.get(name).and_then(Value::as_str)
}

async fn accepted(shared: &BridgeContext, event: &Event, message: &StoredMessage) -> Result<bool, ClientError> {
    let posted = message.request_id.as_deref().and_then(|id| shared.dialect.post_of(id)).filter(|_| {
        // Senders choose their keys; only posts of humans and foreign bots are there already.
        let there = shared.is_human(&message.from) || shared.roster.foreign(&message.from).is_some();
        there && message.kind != MessageType::Response
    });
    let waits = shared.roster.foreign(&message.to).is_some()
        && matches!(message.kind, MessageType::Request | MessageType::Response);
    let human = shared.is_human(&message.from);
    if let Some(taker) = shared.takers.get(&message.to).filter(|_| message.kind == MessageType::Response) {
        taker.answered();
    }
    if let Some(request) = message.request_id.as_deref().filter(|_| message.kind == MessageType::Response) {
        shared.book.settle_early(request).map_err(lost)?;
    }
    let Some(thread) = place(shared, message).await? else { return Ok(false) };
    signs::answered(shared, message).await;
    if let Some(request) = message.request_id.as_ref().filter(|_| message.kind == MessageType::Request)
        && shared.roster.user_of(&message.to).is_some()
        && shared.roster.foreign(&message.to).is_none()
    {
        let (request, agent) = (request.clone(), message.to.clone());
        // The receiver lives as long as the bridge runs.
        let spot = origin(shared, message);
        let _watched = shared.asked.send(Asked { seq: event.seq, request, agent, thread, spot }).is_ok();
    }
    if posted.is_some() || waits {
        // The post is there already, or is sent when the message's turn opens.
        return Ok(false);
    }
    let style = shared.settings.header_in(shared.home_of(thread).await);
    let Some(posting) = posting(message, human, &shared.roster, style) else { return Ok(false) };
    let _posted = send(shared, event, message, thread, &posting).await;
    Ok(true)
}

async fn send(
    shared: &BridgeContext,
    event: &Event,
    message: &StoredMessage,
    thread: ChannelId,
    posting: &Posting,
) -> Option<PostId> {
    let origin = origin(shared, message).filter(|_| message.kind == MessageType::Response);
    let reply = origin.and_then(|spot| spot.within(thread));
    shared.outbox.send(&event.seq.to_string(), thread, posting, reply).await
}

/// Returns the thread that shows a message's conversation; opens it if it began outside of the platform.
async fn place(shared: &BridgeContext, message: &StoredMessage) -> Result<Option<ChannelId>, ClientError> {
    let BridgeContext { threads, broker, .. } = shared;
    let known = match message.parent_ref.as_deref() {
        // A conversation without a parent needs no lookup at the broker.
        None => threads.place(&message.reference, None).map_err(lost)?,
        parent => threads.find(broker, &message.reference, parent).await?,
    };
    let place = match known {
        Some(place) => place,
        None => match begin(shared, message).await? {
            Some(place) => place,
            None => return Ok(None),
        },
    };
    if !shared.settings.channels.contains(&place.channel) {
        return Ok(None);
    }
    Ok(shared.threads.thread(&place, &message.body).await)
}

/// Opens a conversation that began outside of the platform: a post and a thread in the home channel, if there is one.
async fn begin(shared: &BridgeContext, message: &StoredMessage) -> Result<Option<ThreadPlace>, ClientError> {
    let Some(home) = shared.settings.home else { return Ok(None) };
    let root = lineage(&message.reference).last().unwrap_or(&message.reference).to_owned();
    let line = format!("**{root}** · {} → {}: {}", message.from, message.to, title(&message.body, OPENING_CHARS_MAX));
    let Some(origin) = shared.outbox.send(&format!("o{}", message.seq), home, &Posting::of_broker(line), None).await
    else {
        return Ok(None);
    };
    let place = ThreadPlace { reference: root, channel: home, origin, thread: None };
    shared.book.place(&place).map_err(lost)?;
    Ok(Some(place))
}

/// Shows a delivery: posts it with a mention for a foreign bot, or shows the typing sign of a bot of ours.
async fn given(shared: &BridgeContext, event: &Event) -> Result<bool, ClientError> {
    let (Some(agent), Some(turn), Some(id)) = (event.agent.as_deref(), text(event, "turn"), text(event, "message"))
    else {
        return Ok(false);
    };
    let foreign = shared.roster.foreign(agent).is_some();
    if !foreign && !shared.outbox.agents.contains_key(agent) {
        return Ok(false);
    }
    let message = shared.broker.persist(|| shared.broker.client().message(id)).await?;
    if let Some(request) = message.request_id.as_deref().filter(|_| foreign && message.kind == MessageType::Request)
        && early::finish(shared, agent, turn, request).await?
    {
        return Ok(false);
    }
    let Some(thread) = place(shared, &message).await? else { return Ok(false) };
    if !foreign {
        signs::at_work(shared, agent, &message, thread).await;
        return Ok(false);
    }
    let asked_in =
        message.request_id.as_deref().map(|id| shared.book.asked_in(id)).transpose().map_err(lost)?.flatten();
    let first = event.data.get("attempt").and_then(Value::as_u64).is_none_or(|attempt| attempt <= 1);
    let floor = match asked_in {
        // A retried request is already known to the bot; a first attempt from the human's own post on.
        _ if !first => PostId::default(),
        Some(_) => message.request_id.as_deref().and_then(|id| shared.dialect.post_of(id)).unwrap_or_default(),
        // Nothing answers a delivery that isn't posted yet.
        None => PostId::LAST,
    };
    shared.book.show_turn(agent, thread, turn, floor).map_err(lost)?;
    if let Some(channel) = asked_in.filter(|_| first) {
        // The human's own post mentions the bot, and the bot answers there.
        shared.book.show_turn(agent, channel, turn, floor).map_err(lost)?;
        return Ok(false);
    }
    // The post must mention the agent that has the turn, even if the broker itself worded the answer.
    let message = StoredMessage { to: agent.to_owned(), ..message };
    let human = shared.is_human(&message.from);
    let style = shared.settings.header_in(shared.home_of(thread).await);
    let posting = posting(&message, human, &shared.roster, style).unwrap_or_else(|| {
        let text = format!("{}\n{}", header(&message), message.body);
        Posting { ping: shared.roster.foreign(agent), ..Posting::of_broker(text) }
    });
    let shown = send(shared, event, &message, thread, &posting).await;
    // If the post was refused, any post of the bot in the thread may answer the turn.
    shared.book.answers_behind(turn, shown.unwrap_or_default()).map_err(lost)?;
    Ok(true)
}

async fn warned(shared: &BridgeContext, event: &Event) -> Result<bool, ClientError> {
    let room = text(event, "room").and_then(|room| shared.dialect.channel_of(room));
    let (channel, what) = match (room, &event.reference) {
        (Some(channel), _) => (channel, "here".to_owned()),
        (None, Some(reference)) => match shared.threads.find(&shared.broker, reference, None).await? {
            Some(place) => (place.thread.unwrap_or(place.channel), format!("on {reference}")),
            None => return Ok(false),
        },
        (None, None) => return Ok(false),
    };
    let inside = shared.takes_part(channel).await;
    let crossing = text(event, "crossing").unwrap_or_default();
    let agent_messages = event.data.get("agent_messages").and_then(Value::as_u64).unwrap_or_default();
    let Some(posting) = warning(agent_messages, crossing, &what, inside) else { return Ok(false) };
    shared.outbox.send(&event.seq.to_string(), channel, &posting, None).await;
    Ok(true)
}

/// Mirrors a post in a channel's room that was made outside of the platform.
async fn posted(shared: &BridgeContext, event: &Event) -> Result<bool, ClientError> {
    let (Some(room), Some(from), Some(body)) = (text(event, "room"), event.agent.as_deref(), text(event, "body"))
    else {
        return Ok(false);
    };
    let Some(channel) = shared.dialect.channel_of(room) else { return Ok(false) };
    if shared.take_keyed(room, from) || !shared.takes_part(channel).await {
        return Ok(false);
    }
    let posting = Posting::in_room(from, body, shared.outbox.posts_as(from), shared.dialect);
    shared.outbox.send(&event.seq.to_string(), channel, &posting, None).await;
    Ok(true)
}
