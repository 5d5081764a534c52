//! `lastword discord check` reports every missing setting and permission on both sides.

use serde_json::Value;

use crate::program::{Ended, lastword};
use crate::town::TestGuild;
use crate::world::{intent, may};

impl TestGuild {
    fn check(&self, more: &[&str]) -> Ended {
        let mut command = lastword(self.server.path());
        command.args(["--token-file", ".lastword/operator.token"]).args(more).args(["discord", "check"]);
        crate::program::finish(&mut command, "")
    }
}

#[test]
fn where_nothing_is_missing_it_says_who_sees_whom() {
    let town = TestGuild::quiet("");
    let checked = town.check(&[]);
    assert_eq!(checked.code, 0, "{checked:?}");
    for line in [
        ", as operator",
        "with the message content intent",
        "✓ kilo      the bridge posts for it, as the Discord user ",
        "✓ hive      it posts itself, as hive",
        "✓ ann       may speak as a human",
        "! kilo      no runner serves it now: 0 wait for it",
        "→ lastword run --as kilo -- PROGRAM",
        "✓ #den      all bots have the permissions they need",
        "#den: broker, kilo, lima, hive see each other's messages",
        "All checks passed: run `lastword discord`.",
    ] {
        assert!(checked.stdout.contains(line), "{line} is not in\n{}", checked.stdout);
    }
    let json: Value = town.check(&["--json"]).json();
    assert_eq!(json["channels"][0]["seen_by"].as_array().unwrap().len(), 4);
}

#[test]
fn each_thing_that_is_missing_is_named_with_what_to_do() {
    let town = TestGuild::quiet("");
    let world = &town.world;
    world.without_intent(town.broker, intent::CONTENT);
    world.deny(town.broker, town.channel, may::CREATE_THREADS);
    world.deny(town.hive, town.channel, may::VIEW);
    world.deny(town.hive, town.other, may::VIEW);
    world.revoke(town.lima);
    let checked = town.check(&[]);
    assert_eq!(checked.code, 1, "{checked:?}");
    for line in [
        "✗ broker    it can't read messages: the message content intent is off",
        "→ developer portal, the application, Bot: switch on Message Content Intent",
        "✗ lima      Discord does not know this bot token",
        "broker may not: Create Public Threads",
        "hive may not: View Channel, Send Messages in Threads, Read Message History",
        "✗ kilo      it shares no channel with hive: they never see each other",
        "#den: broker, kilo see each other's messages",
        "problems.",
    ] {
        assert!(checked.stdout.contains(line), "{line} is not in\n{}", checked.stdout);
    }
    assert!(!format!("{checked:?}").contains("token-"), "no token is shown");
}

#[test]
fn a_channel_that_is_none_a_bot_among_the_humans_and_a_human_among_the_bots_are_named() {
    let town = TestGuild::quiet("");
    let path = town.server.path().join("lastword.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let said = town.world.posts(town.ann, town.channel, "hello");
    let thread = town.world.opens_thread(town.ann, said, "a thread");
    let text = text.replace(&format!("{}]\n", town.other), &format!("{thread}, 77]\n"));
    let text = text.replace(&format!("humans = [{}]", town.ann), &format!("humans = [{}, 78]", town.kilo));
    let text = text.replace(&format!("user = {}", town.hive), &format!("user = {}", town.bob));
    std::fs::write(&path, text).unwrap();
    let checked = town.check(&[]);
    for line in [
        "isn't a text channel".to_owned(),
        "✗ channel 77".to_owned(),
        "kilo is a bot and can't speak as a human".to_owned(),
        format!("the Discord user {} is bob, which isn't a bot", town.bob),
        "✗ 78".to_owned(),
    ] {
        assert!(checked.stdout.contains(&line), "{line} is not in\n{}", checked.stdout);
    }
}

#[test]
fn a_lastword_side_that_is_not_ready_is_named() {
    let town = TestGuild::quiet("");
    town.server.operator(&["agent", "remove", "lima"]).ok();
    let checked = town.check(&[]);
    assert!(
        checked.code == 1 && checked.stdout.contains("→ lastword agent add lima > lima.token"),
        "{}",
        checked.stdout
    );
    let url = ["--url", "http://127.0.0.1:9"];
    let away = town.check(&url);
    assert!(away.stdout.contains("✗ lastword  no answer from http://127.0.0.1:9"), "{}", away.stdout);
}

#[test]
fn a_file_that_can_not_be_read_stops_no_other_check_and_each_invitation_can_be_opened() {
    let town = TestGuild::quiet("");
    std::fs::remove_file(town.server.path().join("discord-lima.token")).unwrap();
    town.world.deny(town.broker, town.channel, may::CREATE_THREADS);
    town.world.deny(town.hive, town.channel, may::SEND_IN_THREADS);
    let checked = town.check(&[]);
    let application = town.world.with(|discord| discord.bots[&town.broker].application);
    for line in [
        "✗ lima".to_owned(),
        "discord-lima.token".to_owned(),
        "✓ kilo      the bridge posts for it".to_owned(),
        format!(
            "https://discord.com/oauth2/authorize?client_id={application}&scope=bot+applications.commands&permissions="
        ),
        "add the bot and allow these\n".to_owned(),
    ] {
        assert!(checked.stdout.contains(&line), "{line} is not in\n{}", checked.stdout);
    }
    assert!(!checked.stdout.contains(&format!("client_id={}", town.hive)), "{}", checked.stdout);
    std::fs::remove_file(town.server.path().join("discord-broker.token")).unwrap();
    let checked = town.check(&[]);
    assert!(checked.stdout.contains("✗ broker") && checked.stdout.contains(", as operator"), "{}", checked.stdout);
}

#[test]
fn doctor_names_an_agent_of_a_bot_that_no_runner_serves() {
    let town = TestGuild::quiet("");
    let doctor = || town.server.operator(&["--json", "doctor"]).json();
    let found = doctor();
    let of_discord = |found: &Value| {
        let all = found.as_array().unwrap().iter().filter(|check| check["what"] == "discord");
        all.map(|check| check["finding"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(of_discord(&found)[0].starts_with("no runner serves kilo, and 0 wait for it"), "{found}");
    let _kilo = town.runs("kilo", &["cat"]);
    crate::running::wait_for("kilo", || of_discord(&doctor())[0] == "a runner serves kilo");
}

#[test]
fn roles_of_the_server_and_the_lists_of_single_channels_are_checked() {
    let town = TestGuild::quiet("");
    let crew = town.world.role("Crew");
    let guild = town.world.with(|discord| discord.guild);
    let table = |id: u64, role: &str| format!("\n[[discord.role]]\nid = \"{id}\"\nrole = \"{role}\"\n");
    town.configure(&(table(crew, "approver") + &table(77, "viewer") + &table(guild, "operator")));
    town.configure(&format!(
        "\n[discord.channel.{}]\nhumans = [{}, {}]\nroles = [77]\nagents = [\"kilo\"]\n\n[discord.channel.{}]\nhumans = []\n\
         roles = []\n",
        town.channel, town.ann, town.bob, town.other
    ));
    town.world.deny(town.lima, town.channel, may::SEND);
    town.world.deny(town.kilo, town.channel, may::SEND);
    let checked = town.check(&[]);
    for line in [
        format!("its members act as approvers ({crew})"),
        "✗ role 77   the server has no such role".to_owned(),
        "✗ @everyone  nobody is given this role".to_owned(),
        format!("{} is listed here, but isn't one of `humans`", town.bob),
        "the role 77 is listed here, but the channel's server doesn't have it".to_owned(),
        "! #den       lima may not: Send Messages. It isn't asked here, but other agents may ask it".to_owned(),
        "✗ #den       kilo may not: Send Messages\n".to_owned(),
        "! #attic     nobody may speak here; only a human's `/lastword stop` is taken".to_owned(),
    ] {
        let seen = checked.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(seen.contains(&line), "{line} is not in\n{}", checked.stdout);
    }
    town.server.operator(&["human", "add", "carl", "--role", "owner"]).ok();
    town.server.operator(&["human", "role", "operator", "operator", "--yes"]).ok();
    let checked = town.check(&[]);
    assert!(checked.stdout.contains("✗ lastword   operator isn't an owner, and so"), "{}", checked.stdout);
}
