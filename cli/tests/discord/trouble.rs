//! Faults of Discord and the network, and users who aren't allowed, against the bridge.

use std::time::Duration;

use crate::town::TestGuild;
use crate::world::{Call, Mishap, intent, kind, may};

impl TestGuild {
    /// Ann posts and the bridge hears it; everything before is handled by then.
    fn heard(&self, text: &str) {
        self.world.posts(self.ann, self.channel, text);
        self.until("posted", |event| event["data"]["body"] == text);
    }

    /// Returns the humans' posts as the workspace got them.
    fn words(&self) -> Vec<String> {
        let posted = self.events("posted").into_iter().filter(|event| event["agent"] == "operator");
        posted.map(|event| event["data"]["body"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn a_line_on_which_no_heartbeat_is_answered_is_given_up_and_the_session_goes_on() {
    let mut town = TestGuild::quiet("");
    town.world.heartbeats_every(200);
    town.bridge();
    town.world.deafen(true);
    town.world.wait("a new line for the same session", |discord| discord.resumed.get(&town.broker).copied());
    town.world.deafen(false);
    town.world.wait_connected(town.broker);
    town.heard("again");
    assert_eq!(town.words(), ["again"]);
}

#[test]
fn whatever_code_a_session_is_closed_with_what_is_said_then_is_heard_once() {
    let town = TestGuild::start();
    let mut said = Vec::new();
    for code in [1000, 1001, 4000, 4003, 4007, 4008, 4009] {
        for bot in [town.broker, town.kilo] {
            town.world.close(bot, code);
        }
        town.heard(&format!("after {code}"));
        said.push(format!("after {code}"));
    }
    town.world.cut_for_good(town.broker);
    town.heard("after all");
    said.push("after all".to_owned());
    assert_eq!(town.words(), said);
}

#[test]
fn a_bot_that_is_refused_ends_the_bridge_with_what_to_do() {
    let mut town = TestGuild::quiet("");
    town.world.without_intent(town.broker, intent::CONTENT);
    town.spawn();
    let said = town.ended();
    assert!(said.contains("MESSAGE CONTENT INTENT"), "{said}");
    assert!(!said.contains("ready"), "it is not ready without its intents: {said}");
}

#[test]
fn a_bridge_ends_where_another_one_begins() {
    let mut town = TestGuild::start();
    // As each bridge does when it starts.
    assert_eq!(town.server.operator(&["agent", "token", "discord-guest"]).code, 0);
    let said = town.ended();
    assert!(said.contains("another bridge has started on this workspace"), "{said}");
    // Only another bridge's renewal ends it, not its own.
    town.bridge();
    town.world.posts(town.ann, town.channel, "still here");
    town.until("posted", |event| event["data"]["body"] == "still here");
}

#[test]
fn what_is_no_word_of_an_allowed_human_asks_nobody_and_grants_nothing() {
    let town = TestGuild::start();
    let world = &town.world;
    let mention = format!("<@{}> do it", town.kilo);
    let said = world.posts(town.bob, town.channel, &mention);
    let hook = world.webhook(town.channel, "hook");
    world.hook_posts(hook, "ann", &mention);
    world.posts(town.hive, town.channel, &mention);
    world.edits(said, &mention);
    world.reacts(town.ann, said, "👍");
    world.pins(town.ann, said);
    world.system(town.ann, town.channel, kind::JOIN);
    world.posts(town.ann, town.channel, " ");
    let gone = world.posts(town.bob, town.channel, &mention);
    world.deletes(gone);
    let thread = world.opens_thread(town.bob, said, "a thread of bob's");
    world.posts(town.bob, thread, &mention);
    town.heard("this is one");
    assert_eq!(town.words(), ["this is one"]);
    assert_eq!(town.events("accepted").len(), 0, "nobody was asked");
    let counted = town.events("heard").into_iter().filter(|event| event["data"]["room"].is_string()).count();
    assert_eq!(counted, 2, "hive's post and the webhook's");
}

#[test]
fn a_file_without_words_is_a_humans_word() {
    let town = TestGuild::start();
    town.world.posts_file(town.ann, town.channel, "", "picture.png");
    town.heard("and this");
    let words = town.words();
    assert!(words.len() == 2 && words[0].contains("picture.png"), "{words:?}");
}

#[test]
fn a_reply_to_an_agents_post_asks_that_agent() {
    let town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> first", town.kilo));
    let thread = town.world.wait_thread(asked);
    let answer = town.world.wait_message(thread.id, town.kilo, "FIRST");
    town.world.replies(town.ann, answer.id, "second");
    town.world.wait_message(thread.id, town.kilo, "SECOND");
}

#[test]
fn where_a_bot_may_not_post_its_answer_is_left_out_and_all_else_goes_on() {
    let mut town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    town.world.deny(town.kilo, town.other, may::SEND_IN_THREADS);
    let asked = town.world.posts(town.ann, town.other, &format!("<@{}> in the attic", town.kilo));
    town.world.wait_thread(asked);
    town.until("turn_closed", |_| true);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> in the den", town.kilo));
    let thread = town.world.wait_thread(asked);
    town.world.wait_message(thread.id, town.kilo, "IN THE DEN");
    assert!(town.world.spoken().iter().all(|line| !line.contains("IN THE ATTIC")));
    // Ended, so that its whole output can be read.
    town.world.revoke(town.broker);
    let said = town.ended();
    assert!(said.contains("is left out") && said.contains("Missing Permissions"), "{said}");
}

#[test]
fn a_thread_that_discord_refuses_is_asked_for_once_and_all_is_shown_in_the_channel() {
    let town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    town.world.deny(town.broker, town.channel, may::CREATE_THREADS);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> first", town.kilo));
    let first = town.world.wait_message(town.channel, town.kilo, "FIRST");
    assert_eq!(first.reply_to, Some(asked));
    // The same conversation continues at the terminal.
    let reference = first.content.split("[REF:").nth(1).unwrap().split(']').next().unwrap();
    assert_eq!(town.server.operator(&["ask", "kilo", "second", "--ref", reference, "--wait", "30s"]).code, 0);
    town.world.wait_message(town.channel, town.kilo, "SECOND");
    let tries = town.world.calls().into_iter().filter(|call| call.path.ends_with("/threads"));
    assert_eq!(tries.map(|call| call.status).collect::<Vec<_>>(), [403]);
}

#[test]
fn a_long_answer_keeps_its_order_and_goes_on_in_a_file_where_bots_may_attach_one() {
    let town = TestGuild::start();
    let script = "for i in $(seq 1 60); do printf 'line %s %0200d\\n' $i 0; done";
    let _kilo = town.runs("kilo", &["sh", "-c", script]);
    town.world.posts_per_window(2, 400);
    let numbers = |text: &str| -> Vec<u32> {
        let lines = text.lines().filter(|line| line.starts_with("line "));
        lines.map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
    };
    town.world.deny(town.kilo, town.other, may::ATTACH);
    for (channel, may_attach) in [(town.channel, true), (town.other, false)] {
        let asked = town.world.posts(town.ann, channel, &format!("<@{}> tell me all", town.kilo));
        let thread = town.world.wait_thread(asked);
        let last = town.world.wait_message(thread.id, town.kilo, "it goes on in the attached file");
        let parts = town.world.messages(thread.id).into_iter().filter(|m| m.author.id == town.kilo);
        let all: Vec<String> = parts.map(|m| m.content).collect();
        assert_eq!(all.len(), 3);
        let shown = numbers(&all.join("\n"));
        assert_eq!(shown, (1..=shown.len() as u32).collect::<Vec<_>>());
        let file = last.attachments.first().map(|file| numbers(file["text"].as_str().unwrap()));
        assert_eq!(file, may_attach.then(|| (1..=60).collect()));
    }
    // The one without a file is refused for the permission, and not for the limit.
    assert!(town.world.answered(429) <= 6, "none is refused twice: {}", town.world.answered(429));
}

#[test]
fn a_limit_of_the_whole_bot_is_waited_for_and_not_run_into_again() {
    let town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    let limited = Mishap::Limited { retry_after_ms: 2_400, global: true };
    town.world.next_call_of(Some(town.kilo), "POST", "/messages", limited);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> slowly", town.kilo));
    let thread = town.world.wait_thread(asked).id;
    town.world.wait_message(thread, town.kilo, "SLOWLY");
    let posts = town.world.wait("the second try's answer", |discord| {
        let calls = discord.calls.iter().filter(|c| c.bot == Some(town.kilo) && c.method == "POST");
        let posts: Vec<Call> = calls.filter(|call| call.path.ends_with("/messages")).cloned().collect();
        (posts.len() == 2).then_some(posts)
    });
    assert_eq!(posts.iter().map(|call| call.status).collect::<Vec<_>>(), [429, 200]);
    assert!(posts[1].at - posts[0].at >= Duration::from_millis(2_400), "{posts:?}");
}

#[test]
fn a_limit_of_the_whole_bot_keeps_all_of_its_calls_back() {
    let town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    let limited = Mishap::Limited { retry_after_ms: 2_400, global: true };
    town.world.next_call_of(Some(town.broker), "POST", "/threads", limited);
    town.world.posts(town.ann, town.channel, &format!("<@{}> slowly", town.kilo));
    let of_broker = |calls: &[Call]| -> Vec<Call> {
        let calls = calls.iter().skip_while(|call| call.status != 429);
        calls.filter(|call| call.bot == Some(town.broker)).cloned().collect()
    };
    town.world.wait("a 429", |discord| discord.calls.iter().any(|call| call.status == 429).then_some(()));
    // A hint would answer this at once.
    town.world.posts(town.ann, town.channel, "[FROM:ann][TYPE:INFO] hello");
    let calls = town.world.wait("the calls that waited", |discord| {
        let calls = of_broker(&discord.calls);
        calls.iter().any(|call| call.method == "POST" && call.path.ends_with("/messages")).then_some(calls)
    });
    // A look that was on its way when the limit came isn't held back.
    let in_flight = |call: &&Call| call.method == "GET" && call.at - calls[0].at < Duration::from_millis(100);
    let early = calls[1..].iter().filter(|call| call.at - calls[0].at < Duration::from_millis(2_400));
    assert_eq!(early.filter(|call| !in_flight(call)).count(), 0, "{calls:#?}");
}

#[test]
fn an_answer_that_was_posted_unheard_is_found_when_discord_has_forgotten_its_nonce() {
    let mut town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> only once", town.kilo));
    let thread = town.world.wait_thread(asked).id;
    town.world.wait_message(thread, town.kilo, "ONLY ONCE");
    // The next post is made but its response is lost, and the search for it is held until the bridge is dead.
    town.world.next_call_of(Some(town.kilo), "POST", "/messages", Mishap::Lost);
    town.world.hold("GET", "/messages");
    town.world.posts(town.ann, thread, "and this");
    town.world.wait_message(thread, town.kilo, "AND THIS");
    town.world.wait("a look for it", |discord| discord.holds.iter().any(|hold| hold.waiting > 0).then_some(()));
    town.kill();
    town.world.release();
    town.world.pass(Duration::from_secs(3600));
    town.bridge();
    town.world.posts(town.ann, thread, "last");
    town.world.wait_message(thread, town.kilo, "LAST");
    let posts = town.world.messages(thread).into_iter().filter(|m| m.author.id == town.kilo).count();
    assert_eq!(posts, 3, "{:#?}", town.world.spoken());
}

#[test]
fn a_bot_that_can_not_connect_for_a_while_keeps_nobody_from_speaking() {
    let town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    // The gateway connection of kilo's bot only shows it as online: it can post without.
    town.world.sever(town.kilo);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> still", town.kilo));
    let thread = town.world.wait_thread(asked).id;
    town.world.wait_message(thread, town.kilo, "STILL");
    assert!(!town.world.connected(town.kilo));
    town.world.mend(town.kilo);
}

#[test]
fn reactions_keep_to_their_limit_and_are_not_refused_one_by_one() {
    let town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    for number in 0..5 {
        let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> number {number}", town.kilo));
        town.world.wait("✅", |discord| discord.messages[&asked].reactions.get("✅").map(|_| ()));
    }
    let reactions = town.world.calls().into_iter().filter(|call| call.path.contains("/reactions/"));
    let refused = reactions.filter(|call| call.status == 429).count();
    // The first call of each bot teaches it the bucket.
    assert!(refused <= 1, "{refused} of the reactions were refused");
}
