//! Who may what by the roles of the Discord server.

use serde_json::Value;

use crate::cards::button;
use crate::town::TestGuild;
use crate::world::{Discord, Id};

/// The roles of the server that the settings name.
#[derive(Clone, Copy)]
struct Roles {
    operators: Id,
    approvers: Id,
    viewers: Id,
}

impl TestGuild {
    /// Starts everything, with three roles that nobody has; `own` are the other channel's settings, in which `APPROVERS`
    /// is the role's id.
    fn with_roles(own: &str) -> (Self, Roles) {
        let (mut town, roles) = Self::quiet_with_roles(own);
        town.bridge();
        // What is posted while it still catches up is read with the roles that its author had when that began. The first
        // look finds where to begin, the second one catches up.
        let path = format!("/channels/{}/messages", town.other);
        let looks = |discord: &mut Discord| discord.calls.iter().filter(|call| call.path == path).count();
        town.world.wait("the end of the catch-up", |discord| (looks(discord) >= 2).then_some(()));
        (town, roles)
    }

    fn quiet_with_roles(own: &str) -> (Self, Roles) {
        let town = Self::quiet("");
        let [operators, approvers, viewers] = ["Crew", "Signers", "Guests"].map(|name| town.world.role(name));
        let table = |id: Id, role: &str| format!("\n[[discord.role]]\nid = \"{id}\"\nrole = \"{role}\"\n");
        let own = own.replace("APPROVERS", &approvers.to_string());
        let own = if own.is_empty() { own } else { format!("\n[discord.channel.{}]\n{own}", town.other) };
        let tables = [(operators, "operator"), (approvers, "approver"), (viewers, "viewer")];
        town.configure(&(tables.map(|(id, role)| table(id, role)).concat() + &own));
        (town, Roles { operators, approvers, viewers })
    }

    /// Returns the role of a human in the workspace, if there is such a human.
    fn role_of(&self, name: &str) -> Option<String> {
        let humans: Value = self.server.operator(&["--json", "human", "list"]).json();
        let items = humans["items"].as_array().unwrap();
        let found = items.iter().find(|human| human["name"] == name)?;
        found["role"].as_str().map(str::to_owned)
    }

    fn mention(&self, user: Id, channel: Id, text: &str) -> Id {
        self.world.posts(user, channel, &format!("<@{}> {text}", self.kilo))
    }

    /// Waits for a hint of the broker's bot about a post.
    fn hint(&self, post: Id) -> String {
        self.world.wait("a hint", |discord| {
            let mut all = discord.messages.values();
            all.find(|m| m.author.id == self.broker && m.reply_to == Some(post)).map(|m| m.content.clone())
        })
    }
}

#[test]
fn who_has_a_role_decides_in_a_name_of_its_own_and_that_is_on_record() {
    let (town, roles) = TestGuild::with_roles("");
    let card = town.held(town.taken("ship it"));
    let click = town.world.clicks(town.bob, card.id, &button(&card, "Approve"));
    let refused = town.world.wait_answer(click).content;
    assert!(
        refused.contains(&format!("one of the roles <@&{}>, ", roles.operators)) && refused.contains("`humans`"),
        "{refused}"
    );
    assert_eq!(town.role_of("bob.discord"), None, "nobody is made of a stranger");
    town.world.appoints(town.bob, roles.viewers);
    let click = town.world.clicks(town.bob, card.id, &button(&card, "Approve"));
    let refused = town.world.wait("a refusal", |discord| {
        discord.messages.values().find(|m| m.only_for == Some(town.bob) && m.content.contains("viewer")).cloned()
    });
    assert_eq!(
        refused.content,
        "Your roles on this server make you a viewer here, who may not do that. Whoever manages the server's roles can \
         give you another."
    );
    town.world.wait_answered(click);
    assert_eq!(
        (town.role_of("bob.discord").as_deref(), town.approval()["state"].as_str()),
        (Some("viewer"), Some("pending"))
    );
    town.world.appoints(town.bob, roles.approvers);
    town.world.clicks(town.bob, card.id, &button(&card, "Approve"));
    let settled = town.wait_card(&card, "✅ Approved by bob.discord");
    assert!(settled.content.contains(&format!("(<@{}>)", town.bob)), "{}", settled.content);
    assert_eq!(
        (town.approval()["by"].as_str(), town.role_of("bob.discord").as_deref()),
        (Some("bob.discord"), Some("approver"))
    );
}

#[test]
fn a_promotion_and_a_demotion_hold_before_the_next_act_and_without_a_role_nobody_is_heard() {
    let (town, roles) = TestGuild::with_roles("");
    town.world.appoints(town.bob, roles.approvers);
    let asked = town.mention(town.bob, town.channel, "one");
    assert!(town.hint(asked).contains("make you an approver here"), "{}", town.hint(asked));
    town.world.appoints(town.bob, roles.operators);
    let asked = town.mention(town.bob, town.channel, "two");
    town.world.wait_thread(asked);
    let sent = town.until("accepted", |event| event["message"]["type"] == "request");
    assert_eq!(sent["message"]["from"], "bob.discord");
    town.world.dismisses(town.bob);
    town.world.appoints(town.bob, roles.viewers);
    let refused = town.gives(town.bob, town.channel, "stop", &[]);
    assert!(refused.content.contains("make you a viewer here"), "{}", refused.content);
    assert_eq!(town.role_of("bob.discord").as_deref(), Some("viewer"));
    town.world.dismisses(town.bob);
    let refused = town.gives(town.bob, town.channel, "stop", &[]);
    assert!(refused.content.starts_with("That takes one of the roles"), "{}", refused.content);
    town.mention(town.bob, town.channel, "three");
    town.world.posts(town.hive, town.channel, "the end");
    town.until("posted", |event| event["data"]["body"] == "the end");
    let heard = |event: &Value| event["agent"] == "bob.discord";
    assert_eq!(town.events("posted").iter().filter(|event| heard(event)).count(), 1, "two was the only one");
    assert_eq!(town.events("controlled").len(), 0);
}

#[test]
fn a_channel_narrows_the_roles_that_count_there_but_for_a_stop() {
    let (town, roles) = TestGuild::with_roles("roles = [\"APPROVERS\"]\n");
    town.world.appoints(town.bob, roles.operators);
    let asked = town.mention(town.bob, town.channel, "one");
    town.world.wait_thread(asked);
    let refused = town.gives(town.bob, town.other, "status", &[]);
    assert!(refused.content.contains(&format!("takes the role <@&{}>, or", roles.approvers)), "{}", refused.content);
    town.world.appoints(town.bob, roles.approvers);
    let asked = town.mention(town.bob, town.other, "two");
    assert!(town.hint(asked).contains("make you an approver here"), "the operators' role doesn't count there");
    assert_eq!(town.role_of("bob.discord").as_deref(), Some("approver"));
    let stopped = town.gives(town.bob, town.other, "stop", &[]);
    assert!(stopped.content.contains("Stopped **everything**"), "{}", stopped.content);
    assert_eq!(town.role_of("bob.discord").as_deref(), Some("operator"));
    let resumed = town.gives(town.bob, town.other, "resume", &[]);
    assert!(resumed.content.contains("make you an approver here"), "{}", resumed.content);
}

#[test]
fn two_first_acts_at_once_make_one_human_and_a_restart_makes_no_other() {
    let (mut town, roles) = TestGuild::with_roles("");
    town.world.wait("the command", |discord| discord.commands.contains_key(&town.broker).then_some(()));
    town.world.appoints(town.bob, roles.operators);
    let all: Vec<Id> =
        (0..6).map(|_| town.world.commands(town.bob, town.broker, town.channel, "lastword status", &[])).collect();
    let asked = town.mention(town.bob, town.channel, "one");
    for given in all {
        let answer = town.world.wait_answer(given);
        assert!(answer.content.contains("**Pending decisions**"), "{}", answer.content);
    }
    town.world.wait_thread(asked);
    town.kill();
    town.bridge();
    let asked = town.mention(town.bob, town.channel, "two");
    town.world.wait_thread(asked);
    let made = |event: &&Value| event["agent"].as_str().is_some_and(|name| name.ends_with(".discord"));
    assert_eq!(town.events("registered").iter().filter(made).count(), 1);
    let sent = town.until("accepted", |event| event["message"]["body"].as_str().is_some_and(|b| b.contains("two")));
    assert_eq!(sent["message"]["from"], "bob.discord");
}

#[test]
fn a_name_that_another_has_is_left_to_it() {
    let (town, roles) = TestGuild::with_roles("");
    town.server.operator(&["human", "add", "bob.discord", "--role", "viewer"]).ok();
    town.world.appoints(town.bob, roles.operators);
    let asked = town.mention(town.bob, town.channel, "one");
    town.world.wait_thread(asked);
    let sent = town.until("accepted", |event| event["message"]["type"] == "request");
    assert_eq!(sent["message"]["from"], format!("{}.discord", town.bob));
    assert_eq!(town.role_of("bob.discord").as_deref(), Some("viewer"));
}

#[test]
fn what_a_member_posted_while_the_bridge_was_away_counts_by_the_roles_that_it_has_now() {
    let (mut town, roles) = TestGuild::with_roles("");
    let zoe = town.world.human("zoe");
    town.kill();
    town.world.appoints(town.bob, roles.operators);
    let asked = town.mention(town.bob, town.channel, "one");
    town.mention(zoe, town.channel, "two");
    town.mention(zoe, town.channel, "three");
    town.world.posts(town.bob, town.channel, "four");
    town.world.posts(town.hive, town.channel, "the end");
    town.bridge();
    town.world.wait_thread(asked);
    town.until("posted", |event| event["data"]["body"] == "the end");
    let posted: Vec<String> =
        town.events("posted").iter().map(|event| event["agent"].as_str().unwrap().to_owned()).collect();
    assert_eq!(posted, ["bob.discord", "bob.discord", "hive"]);
    for user in [town.bob, zoe, town.hive] {
        let path = format!("/members/{user}");
        let looked = town.world.calls().iter().filter(|call| call.path.ends_with(&path)).count();
        assert_eq!(looked, usize::from(user != town.hive), "{user}");
    }
}

#[test]
fn an_owners_word_on_a_members_role_lasts_until_the_member_acts_and_on_its_removal_for_good() {
    let (town, roles) = TestGuild::with_roles("");
    town.world.appoints(town.bob, roles.viewers);
    town.world.posts(town.bob, town.channel, "hello");
    town.until("posted", |event| event["agent"] == "bob.discord");
    town.server.operator(&["human", "role", "bob.discord", "operator", "--yes"]).ok();
    // The bridge has read so far: it shows what the operator posts.
    town.says(town.channel, "promoted");
    town.world.wait_message(town.channel, town.broker, "promoted");
    let refused = town.gives(town.bob, town.channel, "stop", &[]);
    assert!(refused.content.contains("make you a viewer here"), "{}", refused.content);
    // A token that somebody else took is taken back for the act after the one that it fails.
    town.server.operator(&["agent", "token", "bob.discord"]).ok();
    town.gives(town.bob, town.channel, "status", &[]);
    let shown = town.gives(town.bob, town.channel, "status", &[]);
    assert!(shown.content.contains("**Pending decisions**"), "{}", shown.content);
    town.server.operator(&["agent", "remove", "bob.discord"]).ok();
    town.gives(town.bob, town.channel, "status", &[]);
    let refused = town.gives(town.bob, town.channel, "status", &[]);
    assert!(refused.content.contains("bob.discord is no human of the workspace any more"), "{}", refused.content);
    let asked = town.mention(town.bob, town.channel, "one");
    assert!(town.hint(asked).contains("not passed on. bob.discord is no human"), "{}", town.hint(asked));
    assert_eq!(town.role_of("bob.discord"), None);
}

#[test]
fn a_viewers_post_lifts_nothing_and_an_approvers_does() {
    let (mut town, roles) = TestGuild::quiet_with_roles("");
    town.bridge();
    town.world.appoints(town.bob, roles.viewers);
    for number in 1..=20 {
        town.world.posts(town.hive, town.channel, &format!("post {number}"));
    }
    town.until("posted", |event| event["data"]["body"] == "post 19");
    town.world.posts(town.bob, town.channel, "carry on");
    town.until("posted", |event| event["data"]["body"] == "carry on");
    town.world.posts(town.hive, town.channel, "still refused");
    town.world.posts(town.bob, town.channel, "I read along");
    town.until("posted", |event| event["data"]["body"] == "I read along");
    let all: Vec<String> = town.world.messages(town.channel).into_iter().map(|m| m.content).collect();
    let warned = all.iter().filter(|text| text.contains("human")).count();
    assert!(warned <= 1, "one warning, and none for a viewer's words: {all:#?}");
    assert!(!town.events("posted").iter().any(|event| event["data"]["body"] == "still refused"));
    town.world.appoints(town.bob, roles.approvers);
    town.world.posts(town.bob, town.channel, "now go on");
    town.world.posts(town.hive, town.channel, "passed on");
    town.until("posted", |event| event["data"]["body"] == "passed on");
}

#[test]
fn a_stranger_is_made_nothing_of_and_a_bot_with_the_role_is_no_person() {
    let (town, roles) = TestGuild::with_roles("");
    town.world.appoints(town.hive, roles.operators);
    let hook = town.world.webhook(town.channel, "hook");
    for number in 0..5 {
        town.mention(town.bob, town.channel, &format!("stranger {number}"));
        town.mention(town.hive, town.channel, &format!("bot {number}"));
        town.world.hook_posts(hook, "bob", &format!("<@{}> hook {number}", town.kilo));
    }
    town.world.posts(town.ann, town.channel, "the end");
    town.until("posted", |event| event["data"]["body"] == "the end");
    assert_eq!(town.events("accepted").len(), 0, "none asked anybody");
    let names = ["bob.discord", "hive.discord"];
    assert!(names.iter().all(|name| town.role_of(name).is_none()));
    // Discord sends the roles with each post, unless the bridge still catches up with the first ones.
    let looked = town.world.calls().iter().filter(|call| call.path.contains("/members/")).count();
    assert!(looked <= 1, "{looked}");
}

#[test]
fn a_kept_post_of_someone_who_lost_the_role_meanwhile_asks_nobody() {
    let (town, roles) = TestGuild::with_roles("");
    town.world.appoints(town.bob, roles.operators);
    town.server.operator(&["stop", "--workspace"]).ok();
    let asked = town.mention(town.bob, town.channel, "one");
    assert!(town.hint(asked).contains("kept, because a human has stopped this"), "{}", town.hint(asked));
    town.world.dismisses(town.bob);
    town.server.operator(&["resume", "--workspace", "--yes"]).ok();
    town.world.wait_message(town.channel, town.broker, "not passed on. You may no longer act here.");
    assert_eq!(town.events("accepted").len(), 0);
}

#[test]
fn acts_at_once_in_channels_where_other_roles_count_never_share_a_role() {
    let (town, roles) = TestGuild::with_roles("roles = [\"APPROVERS\"]\n");
    town.world.wait("the command", |discord| discord.commands.contains_key(&town.broker).then_some(()));
    town.world.appoints(town.bob, roles.operators);
    town.world.appoints(town.bob, roles.approvers);
    let given: Vec<(Id, Id)> = (0..12)
        .map(|number| if number % 2 == 0 { town.channel } else { town.other })
        .map(|channel| (channel, town.world.commands(town.bob, town.broker, channel, "lastword resume", &[])))
        .collect();
    for (channel, given) in given {
        let answer = town.world.wait_answer(given).content;
        let wanted = if channel == town.channel { "Resumed **everything**" } else { "make you an approver here" };
        assert!(answer.contains(wanted), "{answer}");
    }
}

#[test]
fn a_bridge_that_is_killed_before_it_noted_a_human_makes_no_second_one() {
    let (mut town, roles) = TestGuild::with_roles("");
    town.world.appoints(town.bob, roles.operators);
    let asked = town.mention(town.bob, town.channel, "one");
    town.world.wait_thread(asked);
    town.kill();
    let book = rusqlite::Connection::open(town.server.path().join(".lastword/discord.sqlite")).unwrap();
    assert_eq!(book.execute("DELETE FROM people", []).unwrap(), 1);
    drop(book);
    town.bridge();
    town.mention(town.bob, town.channel, "two");
    let sent = town.until("accepted", |event| event["message"]["body"].as_str().is_some_and(|b| b.contains("two")));
    assert_eq!(sent["message"]["from"], "bob.discord");
}
