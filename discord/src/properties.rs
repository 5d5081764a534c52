//! Properties of what the bridge reads from Discord and posts there. Each takes arbitrary bytes and panics if its
//! property is broken. Fuzz targets run them, and tests run them on the targets' corpus.

use lastword_client::wire::StoredMessage;
use lastword_facts::MessageType;
use lastword_facts::header;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::event::EventSink;
use super::gateway::{GatewayQueues, Role, dispatch};
use super::inbound::{Act, Known, Thread, Voice, decide, outdated};
use super::interactions::is_harmless;
use super::model::Post;
use super::names::Roster;
use super::outbound::posting;
use super::runs::Run;
use super::settings::{BotPolicy, HeaderStyle};
use super::text::{MESSAGE_CHARS_MAX, PARTS_MAX, begins_like_header, split, title};

/// The users of the bridge's world: the broker's bot, an agent's bot that posts for the bridge, a foreign agent's bot.
const BROKER: u64 = 1;
const KILO: u64 = 2;
const HIVE: u64 = 3;

/// A frame of the gateway: an event is at most one post or interaction, and what a post means keeps the rules of
/// [`decide`].
///
/// # Panics
/// Panics if the property is broken.
pub fn frame(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for role in [Role::Reader, Role::Present] {
        let (posts, mut read) = mpsc::channel(2);
        let (interactions, mut clicked) = mpsc::channel(2);
        let strangers = interactions.clone();
        let (humans, roles) = ([7].into(), [8].into());
        let queues = GatewayQueues { posts, interactions, strangers, humans, roles, missed: watch::Sender::new(0) };
        dispatch(text, role, &queues, &EventSink::new(|_| ()));
        let (post, click) = (read.try_recv().ok(), clicked.try_recv().ok());
        assert!(read.try_recv().is_err() && clicked.try_recv().is_err() && !(post.is_some() && click.is_some()));
        match role {
            Role::Present => {
                assert!(post.is_none(), "an agent's bot reads no posts");
                assert!(click.is_none_or(|click| is_harmless(&click)), "and passes on no decision");
            }
            Role::Reader => post.iter().for_each(meant),
        }
    }
}

/// A post: the first byte picks author and kind, the rest is its text. The text is posted back as a message, too.
///
/// # Panics
/// Panics if the property is broken.
pub fn post(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let author = [BROKER, KILO, HIVE, 4][usize::from(choice % 4)];
    let kind = [0, 19, 20, 6][usize::from(choice / 4 % 4)];
    let webhook = (choice / 16 % 2 == 1).then_some("9");
    let post = json!({
        "id": "175928847299117063", "channel_id": "7", "type": kind, "content": text, "webhook_id": webhook,
        "author": { "id": author.to_string(), "bot": choice / 32 % 2 == 1 },
    });
    meant(&serde_json::from_value(post).expect("a post"));
    parts(&text, if choice / 64 % 2 == 1 { 60 } else { MESSAGE_CHARS_MAX });
    posted(&text);
    let title = title(&text, 80);
    assert!(!title.contains('\n') && title.chars().count() <= 80);
}

fn roster() -> Roster {
    let mut roster = Roster::new(BROKER);
    roster.add(KILO, "kilo", true);
    roster.add(HIVE, "hive", false);
    roster
}

/// Decides a post under each policy, for each age, and with and without a turn. The length of its text picks who is
/// trusted and heard: with all of them an input would take four times as long.
fn meant(post: &Post) {
    let roster = roster();
    let thread = Thread { reference: "X-1".to_owned(), agent: Some("hive".to_owned()) };
    let run = Run::of(post.clone());
    let listed = u8::try_from(post.content.len() % 4).unwrap_or_default();
    for choice in (listed..48).step_by(4) {
        let on = |bit: u8| choice / bit % 2 == 1;
        let known = Known {
            roster: &roster,
            policy: [BotPolicy::Off, BotPolicy::All, BotPolicy::Mentions][usize::from(choice / 16)],
            trusted: on(1),
            human: on(2),
            inside: true,
            echo: false,
            old: on(4),
            thread: on(8).then_some(&thread),
            turn: on(8).then_some("turn-1"),
            waiting: None,
        };
        let acts = decide(&run, &known);
        assert!(decide(&run, &Known { inside: false, ..known }).is_empty(), "elsewhere nothing means anything");
        let bot = post.author.bot || post.webhook_id.is_some();
        if roster.is_ours(post.author.id) {
            assert!(acts.iter().all(|act| matches!(act, Act::Post { voice: Voice::Guest, .. })), "{acts:?}");
        } else if bot {
            counted(post, &known, &acts);
        } else {
            assert!(known.human || acts.is_empty(), "only listed humans are heard: {acts:?}");
        }
        for act in &acts {
            allowed(act, post, &known);
        }
        if known.old {
            assert_eq!(outdated(acts.clone()), acts, "what is old gets no older");
        }
    }
}

/// A bot's post is counted once where it was posted, and first; a message, in its conversation, too (R1).
fn counted(post: &Post, known: &Known<'_>, acts: &[Act]) {
    let counts = |act: &Act| matches!(act, Act::Post { .. } | Act::Finish { .. } | Act::Early { .. });
    let expected = usize::from(post.is_written());
    assert_eq!(acts.iter().filter(|act| counts(act)).count(), expected, "{acts:?} under {known:?}");
    assert!(acts.first().is_none_or(counts), "{acts:?}");
}

fn allowed(act: &Act, post: &Post, known: &Known<'_>) {
    let bot = post.author.bot || post.webhook_id.is_some();
    match act {
        Act::Submit { voice, text } => {
            assert!(!known.old && header::parse(text).is_ok(), "{text:?}");
            match voice {
                Voice::Agent(agent) => {
                    assert!(known.trusted && known.policy != BotPolicy::Off && post.webhook_id.is_none());
                    assert_eq!((agent.as_str(), post.author.id), ("hive", HIVE));
                }
                Voice::Human(user) => assert!(!bot && known.human && *user == post.author.id),
                Voice::Guest => panic!("a guest submits nothing"),
            }
        }
        Act::Post { voice, body } => {
            assert!(!body.is_empty());
            assert!(!matches!(voice, Voice::Human(_)));
        }
        Act::Finish { agent, .. } | Act::Early { agent, .. } => {
            assert!(bot && agent == "hive" && post.author.id == HIVE && post.webhook_id.is_none());
        }
        Act::Say { user, mentions, .. } => {
            assert!(!bot && known.human && *user == post.author.id);
            assert!(!known.old || mentions.is_empty(), "what is old asks no agent");
        }
        Act::Hint { .. } | Act::Late => {}
    }
}

/// A text in messages: none is too long, code blocks stay blocks, and nothing is lost.
fn parts(text: &str, max: usize) {
    let parts = split(text, max);
    assert!((1..=PARTS_MAX).contains(&parts.len()));
    let cut = parts.len() == PARTS_MAX;
    for part in &parts {
        let notice = cut && part.starts_with("… cut here");
        assert!(notice || part.encode_utf16().count() <= max, "a part is too long: {part:?}");
    }
    assert!(parts.iter().skip(1).all(|part| !begins_like_header(part)), "a part begins like a header: {parts:?}");
    if !cut && !text.contains('`') && !text.contains('…') {
        let bare = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(bare(&parts.concat().replace('…', "")), bare(text), "nothing is lost or added");
    }
}

/// A message with this body as the bridge posts it: a foreign bot finds its header, and only its user is pinged.
fn posted(body: &str) {
    let message = json!({
        "id": "msg-12", "seq": 12, "from": "kilo", "to": "hive", "type": "request", "ref": "D-1", "depth": 1, "hops": 1,
        "request_id": "req-0001", "body": body, "created_at": "2026-01-01T00:00:00Z", "delivery_state": "queued",
    });
    let message: StoredMessage = serde_json::from_value(message).expect("a message");
    assert_eq!(message.kind, MessageType::Request);
    let posted = posting(&message, false, &roster(), HeaderStyle::Compact).expect("it is shown");
    assert_eq!(posted.ping, Some(HIVE));
    let (header, _) = header::parse(&posted.parts[0]).expect("a foreign bot reads the header");
    assert_eq!((header.from.as_str(), header.depth), ("kilo", 1));
    assert!(posted.parts.iter().all(|part| part.encode_utf16().count() <= MESSAGE_CHARS_MAX));
    assert!(posted.parts.last().is_some_and(|part| part.ends_with("\n<@3>")), "the ping comes last");
}
