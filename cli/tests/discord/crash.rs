//! The bridge is killed repeatedly, at random points of a busy channel.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};

use crate::running::Running;
use crate::town::TestGuild;
use crate::world::{Id, Message};

/// How often the bridge is killed: `LASTWORD_BRIDGE_KILLS`, else 100.
fn kills() -> usize {
    std::env::var_os("LASTWORD_BRIDGE_KILLS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(100)
}

/// Posts of a foreign bot in its own channel, however often the bridge is killed: more than the soft limit, fewer than
/// the hard one.
const PLAIN: usize = 60;
/// Most calls to Discord after which the bridge is killed.
const CALLS_MAX: usize = 25;
/// Longest life of a bridge that has nothing left to do.
const LIFE: Duration = Duration::from_millis(700);

#[test]
fn killed_again_and_again_the_bridge_loses_nothing_and_says_nothing_twice() {
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let mut town = TestGuild::quiet("");
    let other = town.other;
    let _kilo = town.runs("kilo", &["sed", "s/.*question/answer/"]);
    // Once undisturbed, so that it notes where to begin.
    town.bridge();
    town.kill();
    let mut asked = Vec::new();
    let kills = kills();
    for round in 0..kills {
        town.spawn();
        asked.push(town.world.posts(town.ann, town.channel, &format!("<@{}> question {round}.", town.kilo)));
        let a_kill = PLAIN.div_ceil(kills);
        for plain in (round * a_kill..PLAIN).take(a_kill) {
            town.world.posts(town.hive, other, &format!("plain {plain}."));
        }
        let calls = town.world.calls().len() + random.random_range(1..=CALLS_MAX);
        let _reached = town.world.wait_for(LIFE, |discord| (discord.calls.len() >= calls).then_some(()));
        town.kill();
    }
    town.bridge();
    for (round, question) in asked.iter().enumerate() {
        let thread = town.world.wait_thread(*question);
        town.world.wait_message(thread.id, town.kilo, &format!("answer {round}."));
    }
    town.world.posts(town.hive, other, "the last one.");
    town.until("heard", |event| event["data"]["agent_messages"] == PLAIN + 1);
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for line in town.world.spoken() {
        if let Some((_, answer)) = line.split_once("answer ") {
            *answers.entry(answer.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(answers.len(), kills);
    assert!(answers.values().all(|count| *count == 1), "{answers:?}");
    let requests = town.events("accepted").into_iter().filter(|event| event["message"]["type"] == "request").count();
    assert_eq!(requests, kills, "each question was asked once");
    let counted = town.events("heard").into_iter().filter(|event| event["data"]["room"].is_string()).count();
    assert_eq!(counted, PLAIN + 1, "each plain post counted once");
    let warnings = town.world.messages(other).into_iter().filter(|m| m.author.id == town.broker).count();
    assert_eq!(warnings, 1);
    let threads: Vec<_> = asked.iter().map(|question| town.world.wait_thread(*question).id).collect();
    assert_eq!(threads.len(), kills);
}

/// Requests to a foreign bot: fewer than an agent may send another in a minute.
const QUESTIONS: usize = 9;
/// How often the bridge is killed at each of them.
const KILLS_A_QUESTION: usize = 5;

/// Answers, once each, the requests that the foreign bot has received but not yet answered.
fn answers(town: &TestGuild, answered: &mut BTreeSet<Id>) {
    let asked: Vec<Message> = town.world.with(|discord| {
        let pings = |m: &&Message| m.author.id == town.kilo && m.mentions.contains(&town.hive);
        discord.messages.values().filter(pings).cloned().collect()
    });
    for message in asked {
        if answered.insert(message.id) {
            let what = message.content.split("about ").nth(1).unwrap().lines().next().unwrap().to_owned();
            town.world.posts(town.hive, message.channel, &format!("hive knows {what}"));
        }
    }
}

#[test]
fn a_foreign_bots_answer_ends_its_turn_once_whenever_the_bridge_is_killed() {
    let mut random = rand::rngs::StdRng::seed_from_u64(11);
    let mut town = TestGuild::quiet("");
    let program = format!("L={}", crate::program::path().display());
    let script = r#"if [ "$LASTWORD_TYPE" = request ]; then "$L" send hive "about $(sed 's/.*question //')" >/dev/null
        else cat; fi"#;
    let _kilo = Running::start(&town.server, "kilo", &["--env", &program, "--", "sh", "-c", script]);
    town.bridge();
    town.kill();
    let mut answered = BTreeSet::new();
    let mut asked = Vec::new();
    for round in 0..QUESTIONS {
        asked.push(town.world.posts(town.ann, town.channel, &format!("<@{}> question n{round}.", town.kilo)));
        for _ in 0..KILLS_A_QUESTION {
            town.spawn();
            let calls = town.world.calls().len() + random.random_range(1..=CALLS_MAX);
            let _reached = town.world.wait_for(LIFE, |discord| (discord.calls.len() >= calls).then_some(()));
            answers(&town, &mut answered);
            let _reached = town.world.wait_for(LIFE / 4, |discord| (discord.calls.len() > calls + 3).then_some(()));
            town.kill();
            answers(&town, &mut answered);
        }
    }
    town.bridge();
    for (round, question) in asked.iter().enumerate() {
        let thread = town.world.wait_thread(*question);
        let mut ended = false;
        while !ended {
            // The next request is shown once the one before is answered.
            ended = town.world.wait("an end, or a question", |discord| {
                let end =
                    |m: &&Message| m.author.id == town.kilo && m.content.ends_with(&format!("hive knows n{round}."));
                let open = |m: &Message| m.mentions.contains(&town.hive) && !answered.contains(&m.id);
                let ended = discord.in_channel(thread.id).into_iter().any(|m| end(&m));
                (ended || discord.messages.values().any(open)).then_some(ended)
            });
            answers(&town, &mut answered);
        }
    }
    let finals = town.events("accepted").into_iter().filter(|event| event["message"]["from"] == "hive");
    let finals: Vec<String> = finals.map(|event| event["message"]["body"].as_str().unwrap().to_owned()).collect();
    let distinct: BTreeSet<&String> = finals.iter().collect();
    assert_eq!((finals.len(), distinct.len()), (QUESTIONS, QUESTIONS), "{finals:?}");
    assert_eq!(answered.len(), QUESTIONS, "each was asked once");
    let plain = town.events("posted").into_iter().filter(|event| event["agent"] == "hive").count();
    assert_eq!(plain, 0, "no answer was taken for a mere post");
}

#[test]
fn a_refused_message_whose_bridge_was_killed_before_it_heard_of_that_counts_once() {
    let mut town = TestGuild::start();
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> ship it", town.hive));
    let thread = town.world.wait_thread(asked);
    let reference = thread.name.split(' ').next().unwrap().to_owned();
    town.until("turn_opened", |event| event["agent"] == "hive");
    town.kill();
    // The state of a bridge killed between the broker's refusal and its own note of it.
    let text = format!("[FROM:hive][TO:hive][TYPE:REQUEST][REF:{reference}][DEPTH:0] think about it");
    let post = town.world.posts(town.hive, thread.id, &text);
    let acts = serde_json::json!([
        { "post": { "voice": { "agent": "hive" }, "body": text } },
        { "submit": { "voice": { "agent": "hive" }, "text": text } },
    ]);
    let head = town.events("turn_opened").last().unwrap()["seq"].as_i64().unwrap();
    let book = rusqlite::Connection::open(town.server.path().join(".lastword/discord.sqlite")).unwrap();
    book.execute("INSERT INTO decided VALUES (?1, ?2)", (post.cast_signed(), acts.to_string())).unwrap();
    book.execute("INSERT INTO heads VALUES (?1, ?2)", (post.cast_signed(), head)).unwrap();
    drop(book);
    town.sends("hive", &text, &format!("discord:{post}.0"));
    assert_eq!(town.events("refused").len(), 1);
    town.bridge();
    town.world.wait_message(thread.id, town.broker, "hive: not passed on. ");
    assert_eq!(town.events("refused").len(), 1, "{:#?}", town.events("refused"));
    let turns: Vec<bool> = town.events("heard").iter().map(|event| event["data"]["room"].is_string()).collect();
    assert_eq!(turns, [false, true], "once in its conversation, and its post once in the thread");
}
