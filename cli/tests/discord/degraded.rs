//! What the bridge goes on without: an agent's bot, or a human's token.

use crate::town::TestGuild;

impl TestGuild {
    /// Replaces the content of a token file.
    fn token(&self, name: &str, text: &str) {
        std::fs::write(self.server.path().join(format!("discord-{name}.token")), text).unwrap();
    }

    /// Returns the bodies of the alerts that humans got.
    fn alerts(&self) -> Vec<String> {
        let sent = self.events("accepted").into_iter().filter(|event| event["message"]["type"] == "alert");
        sent.map(|event| event["message"]["body"].to_string()).collect()
    }
}

#[test]
fn a_bad_token_of_one_agents_bot_at_the_start_leaves_the_others_at_work() {
    let mut town = TestGuild::quiet("");
    town.token("lima", "wrong");
    town.bridge();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> still there", town.kilo));
    let thread = town.world.wait_thread(asked);
    town.world.wait_message(thread.id, town.kilo, "STILL THERE");
    town.until("accepted", |event| event["message"]["type"] == "alert");
    // Another start tells the humans nothing new.
    town.kill();
    town.bridge();
    town.world.posts(town.ann, thread.id, "again");
    town.world.wait_message(thread.id, town.kilo, "AGAIN");
    let alerts = town.alerts();
    assert!(alerts.len() == 1 && alerts[0].contains("bot of lima is out of service"), "{alerts:?}");
}

#[test]
fn a_bot_whose_token_is_revoked_is_spoken_for_and_comes_back_by_itself() {
    let mut town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    town.world.revoke(town.kilo);
    town.until("accepted", |event| event["message"]["type"] == "alert");
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> who speaks", town.kilo));
    let thread = town.world.wait_thread(asked);
    let answer = town.world.wait_message(thread.id, town.broker, "WHO SPEAKS");
    assert!(answer.content.starts_with("[FROM:kilo]"), "{}", answer.content);
    town.world.with(|discord| discord.bots.get_mut(&town.kilo).unwrap().token = "token-kilo".to_owned());
    town.world.wait("kilo's line", |discord| {
        discord.sessions.values().any(|session| session.bot == town.kilo && session.line.is_some()).then_some(())
    });
    town.world.posts(town.ann, thread.id, "and now");
    town.world.wait_message(thread.id, town.kilo, "AND NOW");
    town.world.revoke(town.broker);
    let said = town.ended();
    assert!(said.contains("restored") && said.contains("bot of kilo is back"), "{said}");
}

#[test]
fn a_foreign_bots_lastword_token_that_ends_takes_nobody_else_out() {
    let town = TestGuild::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    assert_eq!(town.server.operator(&["agent", "token", "hive"]).code, 0);
    town.world.posts(town.hive, town.channel, "who am I");
    town.until("posted", |event| event["data"]["body"] == "who am I" && event["agent"] == "discord-guest");
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> still there", town.kilo));
    let thread = town.world.wait_thread(asked);
    town.world.wait_message(thread.id, town.kilo, "STILL THERE");
}

#[test]
fn a_changed_configuration_is_used_without_a_restart_and_a_broken_one_changes_nothing() {
    let mut town = TestGuild::quiet("");
    town.token("lima", "wrong");
    town.bridge();
    let _lima = town.runs("lima", &["tr", "a-z", "A-Z"]);
    town.until("accepted", |event| event["message"]["type"] == "alert");
    let path = town.server.path().join("lastword.toml");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, "[discord]\nchannels = []").unwrap();
    town.world.posts(town.ann, town.channel, "still heard");
    town.until("posted", |event| event["data"]["body"] == "still heard");
    // Another human, and a token that works.
    std::fs::write(
        &path,
        good.replace(&format!("humans = [{}]", town.ann), &format!("humans = [{}, {}]", town.ann, town.bob)),
    )
    .unwrap();
    town.token("lima", "token-lima");
    town.world.wait("lima's line", |discord| {
        discord.sessions.values().any(|session| session.bot == town.lima && session.line.is_some()).then_some(())
    });
    let asked = town.world.posts(town.bob, town.channel, &format!("<@{}> my turn", town.lima));
    let thread = town.world.wait_thread(asked);
    town.world.wait_message(thread.id, town.lima, "MY TURN");
}

#[test]
fn people_have_names_of_their_own_in_the_workspace_and_the_role_that_an_owner_gives_them() {
    let mut town = TestGuild::with("enroll = true\nhome = CHANNEL");
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    town.world.posts(town.ann, town.channel, &format!("<@{}> first", town.kilo));
    // Made on first sight as a viewer, who asks nobody.
    town.world.wait_message(town.channel, town.broker, "This token isn't allowed to do that");
    assert_eq!(town.server.operator(&["human", "role", "ann.discord", "operator", "--yes"]).code, 0);
    town.kill();
    town.bridge();
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> second", town.kilo));
    let thread = town.world.wait_thread(asked);
    town.world.wait_message(thread.id, town.kilo, "[TO:ann.discord][TYPE:RESPONSE]");
    let sent = town.until("accepted", |event| event["message"]["type"] == "request");
    assert_eq!(sent["message"]["from"], "ann.discord");
    // Whoever removed the human meant it.
    assert_eq!(town.server.operator(&["agent", "remove", "ann.discord"]).code, 0);
    town.kill();
    town.bridge();
    town.world.posts(town.ann, town.channel, &format!("<@{}> third", town.kilo));
    town.world.posts(town.hive, town.channel, "the end");
    town.until("posted", |event| event["data"]["body"] == "the end");
    assert_eq!(town.events("accepted").iter().filter(|event| event["message"]["type"] == "request").count(), 1);
}
