//! The command `/lastword` on Discord.

use serde_json::Value;

use crate::town::TestGuild;
use crate::world::{Id, Message};

impl TestGuild {
    /// Gives a command once it is registered; waits for the text of its reply.
    pub(crate) fn gives(&self, user: Id, channel: Id, command: &str, options: &[(&str, &str)]) -> Message {
        self.world.wait("the command", |discord| discord.commands.contains_key(&self.broker).then_some(()));
        let given = self.world.commands(user, self.broker, channel, &format!("lastword {command}"), options);
        self.world.wait_answer(given)
    }

    /// Ann sends kilo a request; returns the thread and its REF.
    fn asked(&self) -> (Id, String) {
        let asked = self.world.posts(self.ann, self.channel, &format!("<@{}> ship `it`", self.kilo));
        let thread = self.world.wait_thread(asked);
        (thread.id, thread.name.split(' ').next().unwrap().to_owned())
    }
}

#[test]
fn what_goes_on_is_shown_to_the_one_who_asks() {
    let town = TestGuild::start();
    let (thread, reference) = town.asked();
    let all = town.gives(town.ann, town.channel, "status", &[]);
    assert_eq!(all.only_for, Some(town.ann));
    assert!(all.content.contains("**Pending decisions**: nothing") && all.content.contains("- kilo: idle, 1 waiting"));
    let one = town.gives(town.ann, thread, "status", &[]);
    assert!(one.content.starts_with(&format!("**{reference}** is running")), "{}", one.content);
    let tree = town.gives(town.ann, thread, "tree", &[]);
    assert!(tree.content.contains("└ operator → kilo REQUEST\n  @kilo ship 'it'\n"), "{}", tree.content);
    let named = town.gives(town.ann, town.channel, "tree", &[("ref", &reference)]);
    assert_eq!(named.content, tree.content);
    let none = town.gives(town.ann, town.channel, "tree", &[]);
    assert!(none.content.contains("in the thread of a conversation"));
    let unknown = town.gives(town.ann, town.channel, "tree", &[("ref", "NO-SUCH")]);
    assert!(unknown.content.contains("NO-SUCH"), "{}", unknown.content);
    let left = town.gives(town.ann, thread, "limits", &[]);
    assert!(left.content.contains(" messages left") && left.content.contains("grant_messages"), "{}", left.content);
    let table = town.gives(town.ann, town.channel, "limits", &[]);
    assert!(table.content.contains("can cause at most") && table.content.contains("limits have their defaults"));
    for shown in [&all, &one, &tree, &left, &table] {
        assert!(shown.content.chars().count() < 2_000 && shown.content.lines().count() < 40, "{}", shown.content);
        // Odd parts are code blocks, which a phone wraps badly.
        let blocks = shown.content.split("```").skip(1).step_by(2);
        let wide = blocks.flat_map(str::lines).find(|line| line.chars().count() > 40);
        assert_eq!(wide, None, "{}", shown.content);
    }
    assert_eq!(town.world.messages(town.channel).len(), 1, "nobody else saw any of it");
}

#[test]
fn a_stop_in_a_thread_stops_its_conversation_elsewhere_everything_and_all_see_it() {
    let town = TestGuild::start();
    let (thread, reference) = town.asked();
    let stopped = town.gives(town.ann, thread, "stop", &[]);
    assert!(stopped.content.contains(&format!("Stopped **{reference}**")) && stopped.only_for.is_none());
    let controls = || {
        let on = |event: &Value| ["ref", "agent"].into_iter().find_map(|name| event[name].as_str().map(str::to_owned));
        let word = |event: &Value| {
            format!(
                "{} {}",
                event["data"]["control"].as_str().unwrap(),
                on(event).unwrap_or_else(|| "everything".to_owned())
            )
        };
        town.events("controlled").iter().map(word).collect::<Vec<_>>()
    };
    let stop = format!("stop {reference}");
    assert_eq!(controls(), [stop.as_str()]);
    let resumed = town.gives(town.ann, thread, "resume", &[]);
    assert!(resumed.content.contains(&format!("Resumed **{reference}**")), "{}", resumed.content);
    town.gives(town.ann, town.channel, "stop", &[]);
    town.gives(town.ann, town.channel, "resume", &[]);
    town.gives(town.ann, thread, "stop", &[("agent", "kilo")]);
    town.gives(town.ann, thread, "stop", &[("where", "everything")]);
    let resume = format!("resume {reference}");
    let all = [&stop, &resume, "stop everything", "resume everything", "stop kilo", "stop everything"];
    assert_eq!(controls(), all);
    assert!(town.world.messages(town.channel).len() >= 3, "all see it");
    assert_eq!(town.events("posted").len(), 1, "and no answer of the broker's counts as a post");
}

#[test]
fn who_is_not_listed_commands_nothing() {
    let town = TestGuild::start();
    for command in ["stop", "resume", "status", "tree", "limits"] {
        let refused = town.gives(town.bob, town.channel, command, &[]);
        assert!(refused.content.contains("`humans`"), "{}", refused.content);
        assert_eq!(refused.only_for, Some(town.bob));
    }
    assert_eq!(town.events("controlled").len(), 0);
}

#[test]
fn a_stop_overtakes_everything_that_the_bridge_still_has_to_do() {
    let town = TestGuild::start();
    town.world.wait("the command", |discord| discord.commands.contains_key(&town.broker).then_some(()));
    // A hundred posts wait, and Discord accepts none of ours.
    town.world.hold("POST", "/messages");
    town.world.hold("POST", "/threads");
    for number in 0..100 {
        town.world.posts(town.ann, town.channel, &format!("<@{}> and {number}", town.kilo));
    }
    town.world.commands(town.ann, town.broker, town.channel, "lastword stop", &[]);
    crate::running::wait_for("the stop", || !town.events("controlled").is_empty());
    let served = town.events("posted").len();
    assert!(served < 100, "the stop came before {served} posts were dealt with");
    town.world.release();
}

#[test]
fn what_lets_one_answer_a_command_is_in_no_log() {
    let mut town = TestGuild::quiet("");
    town.bridge_with(&[("LASTWORD_LOG", "trace")]);
    town.gives(town.ann, town.channel, "status", &[]);
    town.gives(town.bob, town.channel, "stop", &[]);
    town.world.revoke(town.broker);
    let said = town.ended();
    assert!(said.contains("twilight_gateway"), "the libraries told what they do: {said}");
    let told: Vec<&str> = said.lines().filter(|line| line.contains("interaction-")).collect();
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn a_resume_of_everything_lifts_what_a_limit_holds_in_a_channel() {
    // Each post is judged, and so counted.
    let mut town = TestGuild::limited("refused_writes_max = 1000\n", "");
    town.bridge();
    for n in 0..101 {
        town.world.posts(town.hive, town.channel, &format!("message {n}"));
    }
    town.until("warned", |event| event["data"]["crossing"] == "hard");
    let resumed = town.gives(town.ann, town.other, "resume", &[]);
    let lifted = format!("Lifted what held <#{}>", town.channel);
    assert!(resumed.content.contains(&lifted) && !resumed.content.contains("still held"), "{}", resumed.content);
    town.world.posts(town.hive, town.channel, "at last");
    town.until("posted", |event| event["data"]["body"] == "at last");
    let said = town.world.spoken().into_iter().filter(|line| line.ends_with(": resume"));
    assert_eq!(said.count(), 0, "what lifts it is no message on Discord");
}

#[test]
fn the_terminal_resumes_a_channel_by_the_name_of_its_room() {
    // Each post is judged, and so counted.
    let mut town = TestGuild::limited("refused_writes_max = 1000\n", "");
    town.bridge();
    for n in 0..101 {
        town.world.posts(town.hive, town.channel, &format!("message {n}"));
    }
    town.until("warned", |event| event["data"]["crossing"] == "hard");
    let room = format!("discord:{}", town.channel);
    let resumed = town.server.operator(&["resume", &room, "--yes"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    town.world.posts(town.hive, town.channel, "at last");
    town.until("posted", |event| event["data"]["body"] == "at last");
}

#[test]
fn what_a_human_asks_during_a_stop_is_kept_and_passed_on_after_the_resume() {
    let mut town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    town.gives(town.ann, town.channel, "stop", &[]);
    let kept = town.world.posts(town.ann, town.channel, &format!("<@{}> later then", town.kilo));
    let gone = town.world.posts(town.ann, town.channel, &format!("<@{}> never mind", town.kilo));
    let hint = town.world.wait_message(town.channel, town.broker, "kept, because a human has stopped this");
    assert_eq!(hint.reply_to, Some(kept));
    town.world.wait("the second hint", |discord| {
        let hints = discord.in_channel(town.channel).into_iter().filter(|m| m.content.contains("kept, because"));
        (hints.count() == 2).then_some(())
    });
    town.world.deletes(gone);
    town.kill();
    town.bridge();
    assert_eq!(town.events("accepted").len(), 0);
    town.gives(town.ann, town.channel, "resume", &[]);
    let thread = town.world.wait_thread(kept);
    town.world.wait_message(thread.id, town.kilo, "LATER THEN");
    let asked = town.events("accepted").into_iter().filter(|event| event["message"]["type"] == "request");
    assert_eq!(asked.count(), 1, "what was deleted is not passed on");
}

#[test]
fn a_crowd_of_strangers_keeps_no_human_from_a_stop() {
    let town = TestGuild::start();
    town.world.wait("the command", |discord| discord.commands.contains_key(&town.broker).then_some(()));
    let offered = town.world.with(|discord| discord.commands[&town.broker][0]["default_member_permissions"].clone());
    assert_eq!(offered, "8192", "Discord offers it to those who manage messages");
    // No answer of the bridge reaches Discord, so whatever is served stays.
    town.world.hold("POST", "/callback");
    for _ in 0..300 {
        town.world.commands(town.bob, town.broker, town.channel, "lastword stop", &[]);
    }
    town.world.commands(town.ann, town.broker, town.channel, "lastword stop", &[]);
    crate::running::wait_for("the stop", || !town.events("controlled").is_empty());
    assert!(town.world.held() < 20, "{} answers to strangers at once", town.world.held());
    town.world.release();
}
