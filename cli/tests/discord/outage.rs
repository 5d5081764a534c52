//! Threads with posts from while the bridge was down.

use std::time::Duration;

use crate::town::TestGuild;
use crate::world::{Call, Id, Mishap};

/// More threads than the bridge ever followed at once.
const THREADS: usize = 205;
/// How long a test watches for something that must not happen.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same in looks at the workspace.
const LOOKS: usize = 20;

impl TestGuild {
    /// Ann posts; waits until the bridge has heard it.
    fn hears(&self, channel: Id, text: &str) -> Id {
        let post = self.world.posts(self.ann, channel, text);
        self.until("posted", |event| event["data"]["body"] == text);
        post
    }
}

#[test]
fn the_oldest_of_many_threads_is_read_after_an_outage() {
    let mut town = TestGuild::start();
    let threads: Vec<Id> = (0..THREADS)
        .map(|n| {
            let about = town.world.posts(town.ann, town.channel, &format!("about {n}"));
            let thread = town.world.opens_thread(town.ann, about, &format!("about {n}"));
            town.world.posts(town.ann, thread, &format!("in {n}"));
            thread
        })
        .collect();
    town.until("posted", |event| event["data"]["body"] == format!("in {}", THREADS - 1));
    town.kill();
    town.world.posts(town.ann, threads[0], "and this");
    let before = town.world.calls().len();
    town.bridge();
    town.until("posted", |event| event["data"]["body"] == "and this");
    let reads = town.world.calls().into_iter().skip(before).filter(|call| call.path.ends_with("/messages"));
    assert_eq!(reads.count(), 3, "both channels are read, and the one thread in which there was something");
}

#[test]
fn threads_that_an_outage_began_from_old_posts_are_read_open_or_put_away() {
    let mut town = TestGuild::start();
    let [first, second] = ["first", "second"].map(|text| town.hears(town.channel, text));
    town.hears(town.channel, "before");
    town.kill();
    // The bridge's clock ran on while Discord's stood still: what follows is later on both.
    town.world.pass(Duration::from_secs(60));
    let [open, shut] = [first, second].map(|about| town.world.opens_thread(town.bob, about, "later"));
    town.world.posts(town.ann, open, "in the open one");
    town.world.posts(town.ann, shut, "in the one that is shut");
    town.world.pass(Duration::from_secs(3_600));
    town.world.archives(shut);
    town.bridge();
    town.until("posted", |event| event["data"]["body"] == "in the open one");
    town.until("posted", |event| event["data"]["body"] == "in the one that is shut");
}

#[test]
fn a_foreign_bots_answer_is_its_answer_also_where_its_turn_is_shown_late() {
    let mut town = TestGuild::start();
    let about = town.hears(town.channel, "hello");
    let thread = town.world.opens_thread(town.ann, about, "hello");
    town.hears(thread, "in the thread");
    // The operator's post can't be shown, so later events wait behind it.
    town.world.hold("POST", &format!("/channels/{thread}/messages"));
    town.says(thread, "for the record");
    town.world.wait("a try to show it", |discord| (discord.holds.first()?.waiting > 0).then_some(()));
    town.world.posts(town.ann, town.channel, &format!("<@{}> ship it", town.hive));
    town.until("turn_opened", |event| event["agent"] == "hive");
    town.kill();
    town.world.posts(town.hive, town.channel, "shipped");
    let before = town.world.calls().len();
    town.spawn();
    town.world.wait("another try to show it", |discord| (discord.holds.first()?.waiting > 1).then_some(()));
    town.world.wait_connected(town.broker);
    let read = |call: &Call| call.path.ends_with(&format!("/{}/messages", town.channel));
    let early = town.world.wait_for(PATIENCE, |discord| discord.calls[before..].iter().any(read).then_some(()));
    assert!(early.is_none(), "what was posted is read before it is known what it answers");
    town.world.release();
    let answer = town.until("accepted", |event| event["message"]["from"] == "hive");
    assert_eq!(answer["message"]["body"], "shipped");
    assert!(town.events("posted").iter().all(|event| event["agent"] != "hive"));
}

#[test]
fn who_answers_before_its_turn_is_shown_answers_all_the_same() {
    let town = TestGuild::start();
    let about = town.hears(town.channel, "hello");
    let thread = town.world.opens_thread(town.ann, about, "hello");
    town.hears(thread, "in the thread");
    town.world.hold("POST", &format!("/channels/{thread}/messages"));
    town.says(thread, "for the record");
    town.world.wait("a try to show it", |discord| (discord.holds.first()?.waiting > 0).then_some(()));
    town.world.posts(town.ann, town.channel, &format!("<@{}> ship it", town.hive));
    town.until("turn_opened", |event| event["agent"] == "hive");
    town.world.posts(town.hive, town.channel, "shipped");
    let plain = || town.events("posted").into_iter().any(|event| event["agent"] == "hive");
    assert!((0..LOOKS).all(|_| !plain()), "it is taken for a mere post");
    town.world.release();
    let answer = town.until("accepted", |event| event["message"]["from"] == "hive");
    assert_eq!(answer["message"]["body"], "shipped");
    assert!(!plain());
}

#[test]
fn a_thread_that_was_there_before_the_bridge_is_heard_from_then_on() {
    let mut town = TestGuild::quiet("");
    let about = town.world.posts(town.ann, town.channel, "long ago");
    let thread = town.world.opens_thread(town.ann, about, "long ago");
    town.world.posts(town.ann, thread, "nobody was there");
    town.world.pass(Duration::from_secs(60));
    town.bridge();
    town.hears(town.channel, "hello");
    town.kill();
    town.world.posts(town.ann, thread, "are you there now");
    town.bridge();
    town.until("posted", |event| event["data"]["body"] == "are you there now");
    assert!(town.events("posted").iter().all(|event| event["data"]["body"] != "nobody was there"));
}

#[test]
fn a_bridge_that_is_killed_before_it_has_read_a_new_thread_reads_it_the_next_time() {
    let mut town = TestGuild::start();
    town.hears(town.channel, "before");
    town.kill();
    // The bridge's clock ran on while Discord's stood still: what follows is later on both.
    town.world.pass(Duration::from_secs(60));
    let about = town.world.posts(town.ann, town.channel, "a new thing");
    let thread = town.world.opens_thread(town.ann, about, "a new thing");
    town.world.posts(town.ann, thread, "in the thread");
    town.world.posts(town.ann, town.channel, "in the channel");
    let messages = format!("/channels/{thread}/messages");
    town.world.hold("GET", &messages);
    town.spawn();
    town.until("posted", |event| event["data"]["body"] == "in the channel");
    town.world
        .wait("a look into the thread", |discord| discord.holds.iter().any(|hold| hold.waiting > 0).then_some(()));
    town.kill();
    town.world.release();
    town.bridge();
    town.until("posted", |event| event["data"]["body"] == "in the thread");
}

#[test]
fn what_a_foreign_bot_said_before_it_was_asked_is_no_answer() {
    let mut town = TestGuild::start();
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> first", town.hive));
    let thread = town.world.wait_thread(asked).id;
    town.until("turn_opened", |event| event["agent"] == "hive");
    town.world.posts(town.hive, thread, "one");
    let closed = town.until("turn_closed", |event| event["agent"] == "hive");
    let reference = closed["ref"].as_str().unwrap().to_owned();
    town.kill();
    town.world.posts(town.hive, thread, "by the way, nice weather");
    town.world.pass(Duration::from_secs(60));
    crate::running::send(&town.server, "hive", &reference, "which colour");
    town.bridge();
    town.world.wait_message(thread, town.broker, "which colour");
    town.until("posted", |event| event["data"]["body"] == "by the way, nice weather");
    town.world.posts(town.hive, thread, "red");
    town.until("accepted", |event| event["message"]["type"] == "response" && event["message"]["body"] == "red");
}

#[test]
fn an_answer_to_a_request_that_waits_is_no_answer_to_the_one_before_it() {
    let town = TestGuild::start();
    let first = town.world.posts(town.ann, town.channel, &format!("<@{}> question a", town.hive));
    let second = town.world.posts(town.ann, town.channel, &format!("<@{}> question b", town.hive));
    town.until("accepted", |event| event["message"]["body"] == "@hive question b");
    town.until("turn_opened", |event| event["agent"] == "hive");
    town.world.replies(town.hive, second, "answer b");
    town.world.replies(town.hive, first, "answer a");
    for (asked, answer) in [(first, "answer a"), (second, "answer b")] {
        let request = format!("discord:{asked}.1");
        let event = town.until("accepted", |event| {
            event["message"]["type"] == "response" && event["message"]["request_id"] == *request
        });
        assert_eq!(event["message"]["body"], answer);
    }
    assert_eq!(town.events("turn_opened").iter().filter(|event| event["agent"] == "hive").count(), 2);
    assert!(town.events("posted").iter().all(|event| event["agent"] != "hive"), "an answer is no mere post");
}

#[test]
fn what_is_posted_now_waits_for_no_list_of_threads_that_can_not_be_had() {
    let mut town = TestGuild::quiet("");
    for _ in 0..100 {
        town.world.next_call("GET", "/threads/archived/public", Mishap::BadGateway);
    }
    town.bridge();
    town.hears(town.channel, "now");
}
