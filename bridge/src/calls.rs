//! Maps acts to broker calls, refusals to next steps, and events to what an interrupted try has done; without I/O.

use lastword_client::wire::{Event, Post as RoomPost, Problem};
use lastword_facts::fact::Role;
use lastword_facts::refusal::Refusal;
use lastword_facts::{Code, header};
use serde_json::Value;

use super::inbound::{Act, Voice};
use super::post::Post;
use super::wording::for_person;

/// A call to the broker, made under its post's key.
#[derive(Clone, Debug)]
pub(crate) enum BrokerCall {
    /// A post in the room of its channel.
    Post { voice: Voice, said: RoomPost },
    /// A message given as text with its header.
    Send { voice: Voice, text: String },
    /// The end of a turn.
    Finish { agent: String, turn: String, answer: String },
}

/// What to do after an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Continue with the next act.
    GoOn,
    /// Drop the remaining acts.
    Stop,
    /// Do these acts, then the remaining ones.
    Also(Vec<Act>),
}

/// The outcome of an earlier try that was cut off.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    /// The call was carried out.
    All,
    /// The call was refused.
    Refused(Box<Problem>),
}

/// Returns the call that carries out an act; `None` if the broker isn't involved.
pub(crate) fn call(act: &Act) -> Option<BrokerCall> {
    match act {
        Act::Post { voice, body } => {
            let said = RoomPost { body: body.clone(), mentions: None, reference: None };
            Some(BrokerCall::Post { voice: voice.clone(), said })
        }
        Act::Say { user, mentions, reference, body, .. } => {
            let said = RoomPost { body: body.clone(), mentions: Some(mentions.clone()), reference: reference.clone() };
            Some(BrokerCall::Post { voice: Voice::Human(*user), said })
        }
        Act::Submit { voice, text } => Some(BrokerCall::Send { voice: voice.clone(), text: text.clone() }),
        Act::Finish { agent, turn, answer } => {
            Some(BrokerCall::Finish { agent: agent.clone(), turn: turn.clone(), answer: answer.clone() })
        }
        Act::Early { .. } | Act::Hint { .. } | Act::Late => None,
    }
}

/// Returns what follows a call's refusal; `old` marks a post that means less now than at an earlier try, and `member` is
/// the role that the author's roles on the server give.
pub(crate) fn refused(call: &BrokerCall, post: &Post, old: bool, member: Option<Role>, problem: &Problem) -> NextStep {
    // Past the turn limits a room stays silent, because its one warning has been posted.
    if matches!(problem.code, Code::TurnsSoft | Code::TurnsHard) {
        return NextStep::Stop;
    }
    // The earlier try was made before the post became old, with other content under the same key.
    if old && problem.code == Code::IdempotencyConflict {
        return NextStep::Stop;
    }
    match call {
        BrokerCall::Send { voice, .. } | BrokerCall::Post { voice, .. } => {
            let why = for_person(problem, member);
            NextStep::Also(vec![explanation(post, voice, &problem.code.to_string(), &why)])
        }
        BrokerCall::Finish { .. } => NextStep::GoOn,
    }
}

/// Words a hint that explains a refusal to humans: for a human's post each time, for a bot's once per kind and channel.
pub(crate) fn explanation(post: &Post, voice: &Voice, kind: &str, why: &str) -> Act {
    // Name the bot without a mention: an explanation must not wake an agent.
    let once = || format!("{}:{}:{}", post.author.id, post.channel, kind);
    let (who, about) = match voice {
        Voice::Human(_) => (post.author.mention.clone(), post.id.to_string()),
        Voice::Agent(agent) => (agent.clone(), once()),
        Voice::Guest => ("a bot".to_owned(), once()),
    };
    Act::Hint { about, text: format!("{who}: not passed on. {why}") }
}

/// Returns whether repeating a call could repeat its effect. Posts have keys that the broker remembers whatever the
/// outcome; other calls don't.
pub(crate) fn doubles(act: &Act) -> bool {
    match act {
        Act::Submit { .. } | Act::Finish { .. } => true,
        Act::Post { .. } | Act::Say { .. } | Act::Early { .. } | Act::Hint { .. } | Act::Late => false,
    }
}

/// Returns what an event says about an earlier try of an act, if anything; `guest` is the agent of unknown bots.
pub(crate) fn done(act: &Act, event: &Event, guest: &str) -> Option<Done> {
    let member = |name: &str| event.data.get(name).and_then(Value::as_str);
    match act {
        Act::Finish { turn, .. } => {
            let ended =
                event.kind == "turn_closed" && member("turn") == Some(turn) && member("end") == Some("finished");
            ended.then_some(Done::All)
        }
        Act::Submit { voice, text } => {
            let (header, body) = header::parse(text).ok()?;
            let by = |name: &str| match voice {
                Voice::Agent(agent) => name == agent,
                Voice::Guest => name == guest,
                // The human behind the token isn't known here, only that it isn't a bot.
                Voice::Human(_) => true,
            };
            let message = event.message.as_ref().filter(|_| event.kind == "accepted");
            if message.is_some_and(|m| by(&m.from) && m.kind == header.kind && m.body.trim() == body.trim()) {
                return Some(Done::All);
            }
            let refused = event.kind == "refused"
                && event.agent.as_deref().is_some_and(by)
                && member("type") == Some(header.kind.word())
                && member("to") == Some(&header.to.to_string());
            let code = Code::from_word(member("code").filter(|_| refused)?)?;
            let subject = member("subject").unwrap_or_default();
            let refusal = Refusal::new(code);
            let refusal = if subject.is_empty() { refusal } else { refusal.about(subject) };
            Some(Done::Refused(Box::new(Problem::new(&refusal))))
        }
        Act::Post { .. } | Act::Say { .. } | Act::Early { .. } | Act::Hint { .. } | Act::Late => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::den_tests::{ANN, DEN, HIVE};
    use super::super::dialect::tests::PLAIN;
    use super::super::post::tests::post;
    use super::*;

    const TEXT: &str = "[FROM:hive][TO:kilo][TYPE:STATUS][REF:X-1][DEPTH:0] halfway";

    fn submit() -> Act {
        Act::Submit { voice: Voice::Agent("hive".into()), text: TEXT.into() }
    }

    fn done(act: &Act, event: &Event) -> Option<Done> {
        super::done(act, event, PLAIN.guest)
    }

    fn event(kind: &str, agent: &str, data: &Value) -> Event {
        serde_json::from_value(json!({"seq": 9, "type": kind, "at": "", "agent": agent, "data": data})).unwrap()
    }

    fn problem(code: Code) -> Problem {
        Problem::new(&Refusal::new(code))
    }

    #[test]
    fn why_a_message_is_refused_is_said_once() {
        let post = post(1_000, DEN, HIVE, true, TEXT);
        let call = call(&submit()).unwrap();
        let NextStep::Also(more) = refused(&call, &post, false, None, &problem(Code::SelfSend)) else {
            panic!("it is said")
        };
        let [hint @ Act::Hint { text, .. }] = more.as_slice() else { panic!("{more:?}") };
        assert!(text.starts_with("hive: not passed on. "));
        let NextStep::Also(again) = refused(&call, &post, false, None, &problem(Code::SelfSend)) else {
            panic!("it is said")
        };
        assert_eq!(&again[0], hint, "the same reason is the same hint");
        assert_eq!(
            refused(&call, &post, false, None, &problem(Code::TurnsSoft)),
            NextStep::Stop,
            "its one warning was posted"
        );
    }

    #[test]
    fn a_humans_word_that_was_passed_on_before_it_was_old_is_not_missed() {
        let post = post(1_000, DEN, ANN, false, "look");
        let act = Act::Say { user: ANN, mentions: Vec::new(), reference: None, opens: false, body: "look".into() };
        let call = call(&act).unwrap();
        let conflict = problem(Code::IdempotencyConflict);
        assert_eq!(refused(&call, &post, true, None, &conflict), NextStep::Stop);
        assert!(matches!(refused(&call, &post, false, None, &conflict), NextStep::Also(_)));
    }

    #[test]
    fn the_log_tells_what_a_try_has_done_that_was_cut_off() {
        let refused = json!({"code": "forbidden", "type": "status", "to": "kilo"});
        let found = done(&submit(), &event("refused", "hive", &refused));
        assert!(matches!(found, Some(Done::Refused(problem)) if problem.code == Code::Forbidden));
        for other in [
            event("refused", "lima", &refused),
            event("refused", "hive", &json!({"code": "forbidden", "type": "request", "to": "kilo"})),
            event("refused", "hive", &json!({"code": "forbidden", "type": "status", "to": "lima"})),
            event("heard", "hive", &refused),
        ] {
            assert!(done(&submit(), &other).is_none(), "{other:?}");
        }
        let mut accepted = event("accepted", "hive", &json!({}));
        accepted.message = Some(super::super::outbound::tests::message("hive", "kilo", "status", "halfway"));
        assert!(matches!(done(&submit(), &accepted), Some(Done::All)));
        let finish = Act::Finish { agent: "hive".into(), turn: "turn-3".into(), answer: "done".into() };
        let closed = |turn: &str, end: &str| event("turn_closed", "hive", &json!({"turn": turn, "end": end}));
        assert!(matches!(done(&finish, &closed("turn-3", "finished")), Some(Done::All)));
        assert!(done(&finish, &closed("turn-4", "finished")).is_none());
        assert!(done(&finish, &closed("turn-3", "lease_lost")).is_none(), "it is still to be handed in, as late");
    }
}
