//! Decides what a post means: a post and the known facts become a list of acts, without I/O.
//!
//! Each bot's post in the bridge's channels becomes exactly one call by which the broker counts it where people see it
//! (R1), and that is the first act. Only then do policies decide what else follows.

use std::collections::BTreeSet;

use lastword_facts::header;
use serde::{Deserialize, Serialize};

use super::ids::{ChannelId, UserId};
use super::names::Roster;
use super::post::Post;
use super::runs::Run;
use super::settings::BotPolicy;

/// The body of a bot's post without text.
const WORDLESS: &str = "(without words)";

/// In whose name a call is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Voice {
    /// An agent whose bot is foreign.
    Agent(String),
    /// A bot or webhook that isn't an agent of the workspace.
    Guest,
    /// A human, by user.
    Human(UserId),
}

/// Something to do about a post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// A bot's post without a header: counted in its room, and readable there.
    Post { voice: Voice, body: String },
    /// A message with its header: counted in its conversation, and judged like any other. A bot's is a post first,
    /// because people see it where it was posted.
    Submit { voice: Voice, text: String },
    /// The final answer of the turn that the bot holds here.
    Finish { agent: String, turn: String, answer: String },
    /// The answer to a request whose turn hasn't opened yet.
    Early { agent: String, request: String, answer: String },
    /// A human's post: resets the counters and sends a request to each mentioned agent, under a REF. It `opens` a thread
    /// for that REF.
    Say {
        user: UserId,
        mentions: Vec<String>,
        #[serde(rename = "about")]
        reference: Option<String>,
        opens: bool,
        body: String,
    },
    /// A hint to the humans in the channel, given once per `about`.
    Hint { about: String, text: String },
    /// The post asked for something but is too old for that: the humans in the channel are notified once for all such
    /// posts.
    Late,
}

/// A thread that shows a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) reference: String,
    /// The agent that a human asked here last.
    pub(crate) agent: Option<String>,
}

/// The facts known when a post arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) roster: &'a Roster,
    pub(crate) policy: BotPolicy,
    /// Whether the author is on the list of trusted bots, or that list is empty.
    pub(crate) trusted: bool,
    /// Whether the author is on the list of humans.
    pub(crate) human: bool,
    /// Whether the bridge takes part in the channel, or in the thread's channel.
    pub(crate) inside: bool,
    /// Whether the bridge itself posted this text.
    pub(crate) echo: bool,
    /// Whether the post is so old that it sends no request.
    pub(crate) old: bool,
    pub(crate) thread: Option<&'a Thread>,
    /// The open turn that was shown to the author's bot in this thread.
    pub(crate) turn: Option<&'a str>,
    /// The request that waits for the author and that the post replies to.
    pub(crate) waiting: Option<&'a str>,
}

/// Returns whether the bridge takes part in a channel, or in the channel of a thread.
pub(crate) fn is_inside(channels: &BTreeSet<ChannelId>, channel: ChannelId, parent: Option<ChannelId>) -> bool {
    [Some(channel), parent].into_iter().flatten().any(|id| channels.contains(&id))
}

/// Decides what a run of posts by one author means.
pub(crate) fn decide(run: &Run, known: &Known<'_>) -> Vec<Act> {
    let acts = meaning(run, known);
    if known.old { outdated(acts) } else { acts }
}

/// Returns what remains of a post's acts if it is read too late: its text is counted and readable, but sends no
/// request.
pub(crate) fn outdated(acts: Vec<Act>) -> Vec<Act> {
    let mut left = Vec::new();
    let mut late = false;
    for act in acts {
        let asks_nobody = |user, body| Act::Say { user, mentions: Vec::new(), reference: None, opens: false, body };
        match act {
            Act::Submit { voice: Voice::Human(user), text } => {
                late = true;
                left.push(asks_nobody(user, text));
            }
            // Its text is in the room already.
            Act::Submit { .. } => late = true,
            Act::Say { user, mentions, body, .. } => {
                late |= !mentions.is_empty();
                left.push(asks_nobody(user, body));
            }
            Act::Late => late = true,
            // An answer finishes a turn that is still open, however long it took.
            Act::Post { .. } | Act::Finish { .. } | Act::Early { .. } => left.push(act),
            Act::Hint { .. } => {}
        }
    }
    left.extend(late.then_some(Act::Late));
    left
}

fn meaning(run: &Run, known: &Known<'_>) -> Vec<Act> {
    let Some(post) = run.first().filter(|_| known.inside) else { return Vec::new() };
    let author = post.author.id;
    if known.roster.is_ours(author) {
        return own(run, post, known);
    }
    if post.is_automatic() {
        return bot(run, post, known);
    }
    let said = post.is_said() && !post.is_empty();
    if !(said && known.human) {
        return Vec::new();
    }
    human(run, post, known)
}

/// Decides a post of a user that the bridge posts as: an echo of what the broker has counted, or another program with
/// the same token.
fn own(run: &Run, post: &Post, known: &Known<'_>) -> Vec<Act> {
    // Replies of the broker's bot to a command come as posts of the application's webhook; like a warning, they aren't
    // counted.
    if post.author.webhook.is_some() && post.author.id == known.roster.broker {
        return Vec::new();
    }
    if known.echo || !post.is_written() {
        return Vec::new();
    }
    vec![Act::Post { voice: Voice::Guest, body: words(run, known) }]
}

fn bot(run: &Run, post: &Post, known: &Known<'_>) -> Vec<Act> {
    if !post.is_written() {
        return Vec::new();
    }
    let agent = known.roster.get(post.author.id).filter(|_| post.author.webhook.is_none()).map(|member| &member.agent);
    let voice = agent.map_or(Voice::Guest, |agent| Voice::Agent(agent.clone()));
    let text = run.text();
    let plain = || Act::Post { voice: voice.clone(), body: words(run, known) };
    if !looks_like_header(&text) {
        let said = !text.trim().is_empty();
        // The bot replies to the post of a request that still waits. If it works on another turn here, the reply isn't
        // that turn's answer.
        if let (Some(agent), Some(request)) = (agent, known.waiting.filter(|_| said)) {
            let (agent, request) = (agent.clone(), request.to_owned());
            return vec![Act::Early { agent, request, answer: known.roster.named(run) }];
        }
        return match (agent, known.turn.filter(|_| said)) {
            (Some(agent), Some(turn)) => {
                let (agent, turn) = (agent.clone(), turn.to_owned());
                vec![Act::Finish { agent, turn, answer: known.roster.named(run) }]
            }
            (None, _) | (_, None) => vec![plain()],
        };
    }
    match header::parse(&text) {
        Err(error) => vec![plain(), hint(post, agent, &format!("this header can't be read: {error}"))],
        Ok(_) if agent.is_none() => {
            let name = known.roster.dialect.name;
            let what =
                format!("it posts with a header but isn't an agent here. Add it to lastword.toml as a [[{name}.bot]]");
            vec![plain(), hint(post, None, &what)]
        }
        Ok((header, _)) => {
            let mut acts = vec![plain()];
            if known.trusted && admitted(run, &header.to.to_string(), known) {
                acts.push(Act::Submit { voice, text });
            }
            acts
        }
    }
}

/// Returns a bot's post as text for the room. A post without text, such as a picture or a card, is an ordinary post,
/// too.
fn words(run: &Run, known: &Known<'_>) -> String {
    let text = known.roster.named(run);
    if text.is_empty() { WORDLESS.to_owned() } else { text }
}

/// Returns whether the policy lets a bot's message with a header through.
fn admitted(run: &Run, to: &str, known: &Known<'_>) -> bool {
    match known.policy {
        BotPolicy::Off => false,
        BotPolicy::All => true,
        BotPolicy::Mentions => known.roster.user_of(to).is_some_and(|user| run.mentions().any(|one| one.user == user)),
    }
}

fn human(run: &Run, post: &Post, known: &Known<'_>) -> Vec<Act> {
    let user = post.author.id;
    let text = run.text();
    if looks_like_header(&text) {
        return match header::parse(&text) {
            Ok(_) => vec![Act::Submit { voice: Voice::Human(user), text }],
            Err(error) => vec![hint(post, None, &format!("this header can't be read: {error}"))],
        };
    }
    let mut mentions = known.roster.mentioned(post);
    let replied = || known.roster.replied(post.replied?.author);
    let involved = || known.thread.and_then(|thread| thread.agent.clone());
    if mentions.is_empty() {
        mentions.extend(replied().or_else(involved));
    }
    let opens = known.thread.is_none() && !mentions.is_empty();
    let minted = opens.then(|| known.roster.dialect.reference_of(post.id));
    let reference = known.thread.map(|thread| thread.reference.clone()).or(minted);
    vec![Act::Say { user, mentions, reference, opens, body: known.roster.named(run) }]
}

fn hint(post: &Post, agent: Option<&String>, what: &str) -> Act {
    // One hint per author and kind of mistake.
    let about = format!("{}:{}", post.author.id, what.split(':').next().unwrap_or_default());
    // Name the bot without a mention: a hint is for humans and must not wake an agent.
    let who = match agent {
        Some(agent) => agent.clone(),
        None if post.is_automatic() => "a bot".to_owned(),
        None => post.author.mention.clone(),
    };
    Act::Hint { about, text: format!("{who}: {what}") }
}

/// Returns whether a text begins like a header, valid or not.
pub(crate) fn looks_like_header(text: &str) -> bool {
    let Some(inner) = text.trim_start().strip_prefix('[') else { return false };
    let key = inner.split(':').next().unwrap_or_default().trim();
    ["FROM", "TO", "TYPE", "REF", "DEPTH"].iter().any(|field| key.eq_ignore_ascii_case(field))
}

#[cfg(test)]
mod tests {
    use super::super::den_tests::{ANN, BOB, BROKER, DEN, HIVE, KILO, STRANGER};
    use super::super::dialect::tests::PLAIN;
    use super::super::post::PostKind;
    use super::super::post::tests::{post, reply_to};
    use super::*;

    fn roster() -> Roster {
        let mut roster = Roster::new(BROKER, &PLAIN);
        roster.add(KILO, "kilo", true);
        roster.add(HIVE, "hive", false);
        roster
    }

    fn meant(post: Post, change: impl FnOnce(&mut Known<'_>)) -> Vec<Act> {
        let roster = roster();
        let mut known = Known {
            roster: &roster,
            policy: BotPolicy::All,
            trusted: true,
            human: post.author.id == ANN,
            inside: true,
            echo: false,
            old: false,
            thread: None,
            turn: None,
            waiting: None,
        };
        change(&mut known);
        decide(&Run::of(post), &known)
    }

    fn said(author: UserId, text: &str) -> Post {
        post(9_000, DEN, author, !matches!(author, ANN | BOB), text)
    }

    fn say(mentions: &[&str], reference: Option<String>, opens: bool, body: &str) -> Vec<Act> {
        let mentions = mentions.iter().map(ToString::to_string).collect();
        vec![Act::Say { user: ANN, mentions, reference, opens, body: body.into() }]
    }

    #[test]
    fn a_human_asks_whom_it_mentions_or_answers_or_asked_before() {
        let minted = PLAIN.reference_of(said(ANN, "").id);
        let asked = meant(said(ANN, &format!("<@{KILO}> look")), |_| ());
        assert_eq!(asked, say(&["kilo"], Some(minted.clone()), true, "@kilo look"));
        let answered = meant(reply_to(said(ANN, "why?"), KILO), |_| ());
        assert_eq!(answered, say(&["kilo"], Some(minted), true, "why?"));
        assert_eq!(meant(said(ANN, "nice weather"), |_| ()), say(&[], None, false, "nice weather"));
        let thread = Thread { reference: "X-1".into(), agent: Some("hive".into()) };
        let on = |text: &str| {
            let (roster, post) = (roster(), said(ANN, text));
            let known = Known {
                roster: &roster,
                policy: BotPolicy::All,
                trusted: true,
                human: true,
                inside: true,
                echo: false,
                old: false,
                thread: Some(&thread),
                turn: None,
                waiting: None,
            };
            decide(&Run::of(post), &known)
        };
        assert_eq!(on("go on"), say(&["hive"], Some("X-1".into()), false, "go on"));
        assert_eq!(on(&format!("<@{KILO}> you")), say(&["kilo"], Some("X-1".into()), false, "@kilo you"));
    }

    #[test]
    fn who_may_not_speak_and_what_nobody_said_mean_nothing() {
        assert_eq!(meant(said(BOB, &format!("<@{KILO}> look")), |_| ()), []);
        assert_eq!(meant(said(ANN, "  "), |_| ()), []);
        assert_eq!(meant(said(ANN, "hello"), |known| known.inside = false), []);
        let mut pin = said(ANN, "pinned");
        pin.kind = PostKind::Note;
        assert_eq!(meant(pin, |_| ()), []);
        assert_eq!(meant(said(KILO, "shown before"), |known| known.echo = true), []);
        let mut stopped = said(BROKER, "Stopped everything.");
        stopped.author.webhook = Some("1".into());
        assert_eq!(meant(stopped.clone(), |_| ()), [], "the answer to a command");
        stopped.author.webhook = None;
        assert_eq!(meant(stopped, |_| ()).len(), 1, "another program has the token");
    }

    #[test]
    fn a_bots_post_is_counted_in_its_own_name_and_asks_nobody() {
        let hive = Voice::Agent("hive".into());
        let plain = |voice: Voice, body: &str| vec![Act::Post { voice, body: body.into() }];
        assert_eq!(meant(said(HIVE, &format!("<@{KILO}> look")), |_| ()), plain(hive, "@kilo look"));
        assert_eq!(meant(said(STRANGER, "hello"), |_| ()), plain(Voice::Guest, "hello"));
        let mut hook = said(HIVE, "as hive");
        hook.author.webhook = Some("9".into());
        assert_eq!(meant(hook, |_| ()), plain(Voice::Guest, "as hive"), "a webhook is nobody, whatever its name");
        let answer = Act::Finish { agent: "hive".into(), turn: "turn-1".into(), answer: "done".into() };
        assert_eq!(meant(said(HIVE, "done"), |known| known.turn = Some("turn-1")), [answer]);
    }

    #[test]
    fn a_bots_post_without_words_counts_and_answers_nothing() {
        for (author, kind, name) in [
            (HIVE, PostKind::Said, Some("hive")),
            (STRANGER, PostKind::Response, None),
            (KILO, PostKind::Said, None),
            (KILO, PostKind::Response, None),
        ] {
            let voice = name.map_or(Voice::Guest, |name| Voice::Agent(name.into()));
            let mut post = said(author, "");
            post.kind = kind;
            let counted = vec![Act::Post { voice, body: WORDLESS.into() }];
            assert_eq!(meant(post, |known| known.turn = name.map(|_| "turn-1")), counted, "{author} {kind:?}");
        }
    }

    #[test]
    fn a_mention_in_a_later_part_is_one() {
        let text = format!("[FROM:hive][TO:kilo][TYPE:REQUEST][REF:X-1][DEPTH:0] {}", "x".repeat(1_900));
        let mut run = Run::of(said(HIVE, &text));
        run.go_on(said(HIVE, &format!("the end <@{KILO}>"))).unwrap();
        let roster = roster();
        let known = Known {
            roster: &roster,
            policy: BotPolicy::Mentions,
            trusted: true,
            human: false,
            inside: true,
            echo: false,
            old: false,
            thread: None,
            turn: None,
            waiting: None,
        };
        assert!(matches!(decide(&run, &known).as_slice(), [Act::Post { .. }, Act::Submit { .. }]));
    }

    #[test]
    fn an_envelope_is_submitted_by_its_agent_where_the_policy_lets_it_in() {
        let text = "[FROM:hive][TO:kilo][TYPE:REQUEST][REF:X-1][DEPTH:0] look";
        let submitted = |acts: &[Act]| acts.iter().any(|act| matches!(act, Act::Submit { .. }));
        let with = |text: &str, policy| meant(said(HIVE, text), |known| known.policy = policy);
        assert!(submitted(&with(text, BotPolicy::All)));
        assert!(!submitted(&with(text, BotPolicy::Off)) && !submitted(&with(text, BotPolicy::Mentions)));
        assert!(submitted(&with(&format!("{text} <@{KILO}>"), BotPolicy::Mentions)));
        assert!(!submitted(&meant(said(HIVE, text), |known| known.trusted = false)));
        for author in [HIVE, STRANGER] {
            let acts = meant(said(author, &text.replace("[DEPTH:0]", "")), |_| ());
            assert!(matches!(acts.as_slice(), [Act::Post { .. }, Act::Hint { .. }]), "counted first: {acts:?}");
        }
        // A bot that holds a turn and sends a request to another agent doesn't answer with it.
        assert!(submitted(&meant(said(HIVE, text), |known| known.turn = Some("turn-1"))));
    }

    #[test]
    fn what_is_old_is_counted_and_read_and_asks_nobody() {
        let old = |post| meant(post, |known| known.old = true);
        let mut asked = say(&[], None, false, "@kilo look");
        asked.push(Act::Late);
        assert_eq!(old(said(ANN, &format!("<@{KILO}> look"))), asked);
        assert_eq!(old(said(ANN, "nice weather")), say(&[], None, false, "nice weather"), "nobody misses anything");
        let text = "[FROM:hive][TO:kilo][TYPE:REQUEST][REF:X-1][DEPTH:0] look";
        let body = text.to_owned();
        let counted = vec![Act::Post { voice: Voice::Agent("hive".into()), body }, Act::Late];
        assert_eq!(old(said(HIVE, text)), counted);
        assert_eq!(outdated(counted.clone()), counted, "it does not get older than old");
        assert!(matches!(old(said(STRANGER, "hello")).as_slice(), [Act::Post { .. }]));
    }

    #[test]
    fn what_begins_as_a_header_is_meant_as_one() {
        for text in ["[FROM:a]", "[from:a]", " [TO: x", "[TYPE:REQUEST] x", "[ref:1]"] {
            assert!(looks_like_header(text), "{text}");
        }
        for text in ["[1] see above", "hello [FROM:a]", "[FROMAGE:brie]", "", "[x](https://y)"] {
            assert!(!looks_like_header(text), "{text}");
        }
    }
}
