//! Settings that single channels have of their own.

use crate::town::TestGuild;

impl TestGuild {
    /// Starts everything, with settings of the other channel's own.
    fn with_own(own: &str) -> Self {
        let mut town = Self::quiet("");
        town.configure(&format!("\n[discord.channel.{}]\n{own}", town.other));
        town.bridge();
        town
    }
}

#[test]
fn a_channel_has_its_own_agents_and_header_also_in_its_threads() {
    let town = TestGuild::with_own("agents = [\"lima\"]\nheader = \"compact\"\n");
    let (_kilo, _lima) = (town.runs("kilo", &["cat"]), town.runs("lima", &["cat"]));
    town.world.posts(town.ann, town.other, &format!("<@{}> one", town.kilo));
    town.world.wait_message(town.other, town.broker, "kilo isn't asked in this channel.");
    let asked = town.world.posts(town.ann, town.other, &format!("<@{}> two", town.lima));
    let thread = town.world.wait_thread(asked).id;
    let answer = town.world.wait_message(thread, town.lima, "two");
    assert!(answer.content.starts_with("-# RESPONSE"), "{}", answer.content);
    town.world.posts(town.ann, thread, &format!("<@{}> three", town.kilo));
    town.world.wait_message(thread, town.broker, "kilo isn't asked in this channel.");
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> four", town.kilo));
    let answer = town.world.wait_message(town.world.wait_thread(asked).id, town.kilo, "four");
    assert!(answer.content.starts_with("[FROM:kilo]"), "{}", answer.content);
    let asked = town.events("accepted").into_iter().filter(|event| event["message"]["type"] == "request").count();
    assert_eq!(asked, 2);
}

#[test]
fn a_channel_has_its_own_humans_and_its_own_policy_for_bots() {
    let town = TestGuild::with_own("humans = []\nbots = \"off\"\n");
    let refused = town.gives(town.ann, town.other, "resume", &[]);
    assert!(refused.content.contains("people listed as `humans` of this channel"), "{}", refused.content);
    town.world.posts(town.ann, town.other, &format!("<@{}> nothing", town.kilo));
    let text = "[FROM:hive][TO:kilo][TYPE:REQUEST][REF:HIVE-1][DEPTH:0] look";
    town.world.posts(town.hive, town.other, text);
    town.world.posts(town.hive, town.other, "the last");
    town.until("posted", |event| event["data"]["body"] == "the last");
    assert_eq!(town.events("accepted").len(), 0, "its posts are counted, and ask nobody");
    assert_eq!(town.events("posted").len(), 2);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> here", town.kilo));
    town.world.wait_thread(asked);
}

#[test]
fn a_stop_is_taken_in_every_channel_from_whoever_may_act_in_another() {
    let town = TestGuild::with_own("humans = []\n");
    let stopped = town.gives(town.ann, town.other, "stop", &[]);
    assert!(stopped.content.contains("Stopped **everything**"), "{}", stopped.content);
    let refused = town.gives(town.bob, town.other, "stop", &[]);
    assert!(refused.content.contains("people listed as `humans`"), "{}", refused.content);
    assert_eq!(town.events("controlled").len(), 1);
}
