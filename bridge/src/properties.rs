//! Properties of what the bridge reads from a platform and posts there. Each panics if it is broken. A platform's own
//! properties use them.

use lastword_client::wire::StoredMessage;
use lastword_facts::MessageType;
use lastword_facts::header;
use serde_json::json;

use super::dialect::Dialect;
use super::ids::UserId;
use super::inbound::{Act, Known, Thread, Voice, decide, outdated};
use super::names::Roster;
use super::outbound::posting;
use super::post::Post;
use super::runs::Run;
use super::settings::{BotPolicy, HeaderStyle};

/// The broker's bot in the world of the properties.
pub const BROKER: UserId = UserId::new(1);
/// The bot of an agent that posts for the bridge.
pub const KILO: UserId = UserId::new(2);
/// The bot of a foreign agent.
pub const HIVE: UserId = UserId::new(3);

fn roster(dialect: &'static Dialect) -> Roster {
    let mut roster = Roster::new(BROKER, dialect);
    roster.add(KILO, "kilo", true);
    roster.add(HIVE, "hive", false);
    roster
}

/// Decides a post under each policy, for each age, and with and without a turn. The length of its text picks who is
/// trusted and heard: with all of them an input would take four times as long. What the post means keeps the rules of the
/// bridge.
///
/// # Panics
/// Panics if the property is broken.
pub fn meant(post: &Post, dialect: &'static Dialect) {
    let roster = roster(dialect);
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
        let bot = post.is_automatic();
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
    let bot = post.is_automatic();
    match act {
        Act::Submit { voice, text } => {
            assert!(!known.old && header::parse(text).is_ok(), "{text:?}");
            match voice {
                Voice::Agent(agent) => {
                    assert!(known.trusted && known.policy != BotPolicy::Off && post.author.webhook.is_none());
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
            assert!(bot && agent == "hive" && post.author.id == HIVE && post.author.webhook.is_none());
        }
        Act::Say { user, mentions, .. } => {
            assert!(!bot && known.human && *user == post.author.id);
            assert!(!known.old || mentions.is_empty(), "what is old asks no agent");
        }
        Act::Hint { .. } | Act::Late => {}
    }
}

/// A message with this body as the bridge posts it: a foreign bot finds its header, and only its user is pinged. Returns
/// the parts.
///
/// # Panics
/// Panics if the property is broken.
pub fn posted(body: &str, dialect: &'static Dialect) -> Vec<String> {
    let message = json!({
        "id": "msg-12", "seq": 12, "from": "kilo", "to": "hive", "type": "request", "ref": "D-1", "depth": 1, "hops": 1,
        "request_id": "req-0001", "body": body, "created_at": "2026-01-01T00:00:00Z", "delivery_state": "queued",
    });
    let message: StoredMessage = serde_json::from_value(message).expect("a message");
    assert_eq!(message.kind, MessageType::Request);
    let posted = posting(&message, false, &roster(dialect), HeaderStyle::Compact).expect("it is shown");
    assert_eq!(posted.ping, Some(HIVE));
    let (header, _) = header::parse(&posted.parts[0]).expect("a foreign bot reads the header");
    assert_eq!((header.from.as_str(), header.depth), ("kilo", 1));
    let mention = format!("\n{}", (dialect.user)(HIVE));
    assert!(posted.parts.last().is_some_and(|part| part.ends_with(&mention)), "the ping comes last");
    posted.parts
}
