//! The bridge is killed at random points of a busy channel, again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};

use crate::town::Town;

/// How often it is killed.
const KILLS: usize = 100;
/// Posts of a foreign bot in a channel of its own: more than the soft limit, fewer than the hard one.
const PLAIN: usize = 60;
/// Most calls of Discord after which it is killed.
const CALLS_MAX: usize = 25;
/// Longest life of a bridge that has nothing more to do.
const LIFE: Duration = Duration::from_millis(700);

#[test]
fn killed_a_hundred_times_the_bridge_loses_nothing_and_says_nothing_twice() {
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let mut town = Town::quiet("");
    let other = town.other;
    let _kilo = town.runs("kilo", &["sed", "s/.*question/answer/"]);
    // Once to its end, so that it knows where to begin.
    town.bridge();
    town.kill();
    let mut asked = Vec::new();
    for round in 0..KILLS {
        town.spawn();
        asked.push(town.world.posts(town.ann, town.channel, &format!("<@{}> question {round}.", town.kilo)));
        if round < PLAIN {
            town.world.posts(town.hive, other, &format!("plain {round}."));
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
    town.until("heard", |event| event["data"]["turns"] == PLAIN + 1);
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for line in town.world.spoken() {
        if let Some((_, answer)) = line.split_once("answer ") {
            *answers.entry(answer.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(answers.len(), KILLS);
    assert!(answers.values().all(|count| *count == 1), "{answers:?}");
    let requests = town.events("accepted").into_iter().filter(|event| event["message"]["type"] == "request").count();
    assert_eq!(requests, KILLS, "each question was asked once");
    let counted = town.events("heard").into_iter().filter(|event| event["data"]["room"].is_string()).count();
    assert_eq!(counted, PLAIN + 1, "each plain post counted once");
    let warnings = town.world.messages(other).into_iter().filter(|m| m.author.id == town.broker).count();
    assert_eq!(warnings, 1);
    let threads: Vec<_> = asked.iter().map(|question| town.world.wait_thread(*question).id).collect();
    assert_eq!(threads.len(), KILLS);
}
