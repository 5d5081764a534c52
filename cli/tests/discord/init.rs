//! `lastword discord init` writes a configuration with which the checks pass.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::cards::button;
use crate::program::{Ended, finish, lastword};
use crate::screen::Terminal;
use crate::town::TestGuild;

impl TestGuild {
    /// Runs `init` with these arguments and the broker's token on standard input.
    fn init(&self, token: &str, more: &[&str]) -> Ended {
        let mut command = lastword(self.server.path());
        command.args(["--token-file", ".lastword/operator.token", "discord", "init", "--bot-token-file", "-"]);
        command.args(["--api", &self.world.http(), "--gateway", &self.world.gateway()]).args(more);
        finish(&mut command, token)
    }

    /// Starts everything except the bridge, without `[discord]`.
    fn plain() -> Self {
        let town = Self::quiet("");
        fs::write(town.server.path().join("lastword.toml"), "# mine\n[limits]\ndepth_max = 2\n").unwrap();
        fs::remove_file(town.server.path().join("discord-broker.token")).unwrap();
        town
    }

    fn config(&self) -> String {
        fs::read_to_string(self.server.path().join("lastword.toml")).unwrap()
    }
}

const NAMES: [&str; 7] = ["--channel", "#den", "--human", "Ann", "--agent", "kilo=discord-kilo.token", "--yes"];

#[test]
fn names_and_tokens_become_a_configuration_with_which_the_bridge_answers() {
    let mut town = TestGuild::plain();
    let ended = town.init("token-broker\n", &NAMES);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("All checks passed"), "{ended:?}");
    for bot in [town.broker, town.kilo] {
        let application = town.world.with(|discord| discord.bots[&bot].application);
        assert!(ended.stderr.contains(&format!("client_id={application}&")), "{ended:?}");
    }
    let text = town.config();
    assert!(text.starts_with("# mine\n[limits]\ndepth_max = 2\n\n[discord]\n"), "{text}");
    for line in [format!("\"{}\", # #den", town.channel), format!("\"{}\", # ann", town.ann)] {
        assert!(text.contains(&line) && ended.stderr.contains(&line), "{text}\n{ended:?}");
    }
    assert!(!text.contains("token-") && !format!("{ended:?}").contains("token-"), "no token is shown");
    let file = town.server.path().join("discord-broker.token");
    assert_eq!(fs::read_to_string(&file).unwrap(), "token-broker\n");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    town.bridge();
    let _kilo = town.runs("kilo", &["cat"]);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> hello", town.kilo));
    let thread = town.world.wait_thread(asked);
    town.world.wait_message(thread.id, town.kilo, "hello");
}

#[test]
fn a_wrong_token_or_name_or_no_consent_writes_nothing() {
    let town = TestGuild::plain();
    let before = town.config();
    let with = |at: usize, text: &'static str| {
        let mut names = NAMES;
        names[at] = text;
        names
    };
    for (token, names, word) in [
        ("token-nobody", NAMES.as_slice(), "the bot of broker: Discord does not know this bot token"),
        ("token-broker", &with(1, "cellar"), "no channel \"cellar\""),
        ("token-broker", &with(3, "zoe"), "no human \"zoe\""),
        ("token-broker", &with(3, "hive"), "no human \"hive\""),
        ("token-broker", &with(5, "kilo=gone.token"), "gone.token"),
        ("token-broker", &NAMES[..6], "nothing was written"),
        ("token-broker", &NAMES[2..], "no channel is named"),
        ("token-broker", &NAMES[..4], "no agent has a bot"),
        ("token-broker", &["--channel", "den", "--agent", "kilo=discord-kilo.token"], "nobody may speak as a human"),
        ("token-broker", &[&NAMES[..], &["--role", "Crew=operator"]].concat(), "no role \"Crew\""),
        ("token-broker", &[&NAMES[..], &["--role", "everyone=viewer"]].concat(), "no role \"everyone\""),
        ("token-broker", &[&NAMES[..], &["--role", "Crew=boss"]].concat(), "owner, operator, approver or viewer"),
        ("token-broker", &with(5, "broker=discord-kilo.token"), "broker has a bot already"),
    ] {
        let ended = town.init(token, names);
        assert!(ended.code != 0 && ended.stderr.contains(word), "{word}: {ended:?}");
        assert_eq!(town.config(), before);
        assert!(!town.server.path().join("discord-broker.token").exists(), "{ended:?}");
    }
}

#[test]
fn an_existing_table_is_replaced_only_on_demand() {
    let town = TestGuild::plain();
    town.init("token-broker", &NAMES).ok();
    let before = town.config();
    let other = ["--channel", "attic", "--human", "ann", "--agent", "lima=discord-lima.token", "--yes"];
    let refused = town.init("token-broker", &other);
    assert!(refused.code == 1 && refused.stderr.contains("--replace"), "{refused:?}");
    assert_eq!(town.config(), before);
    town.init("token-broker", &[&other[..], &["--replace"]].concat()).ok();
    let text = town.config();
    assert!(text.contains("# #attic") && !text.contains("# #den") && !text.contains("kilo"), "{text}");
    assert!(text.starts_with("# mine\n[limits]\n") && text.matches("[discord]").count() == 1, "{text}");
}

#[test]
fn at_a_terminal_it_asks_again_until_it_knows_and_shows_no_token() {
    let mut town = TestGuild::plain();
    fs::remove_file(town.server.path().join("discord-kilo.token")).unwrap();
    let (api, gateway) = (town.world.http(), town.world.gateway());
    let args =
        ["--token-file", ".lastword/operator.token", "discord", "init", "--api", api.as_str(), "--gateway", &gateway];
    let mut terminal = Terminal::run(town.server.path(), &args, &[]);
    let dialogue = [
        ("token of the broker's bot (not shown)", "token-broxx\u{7f}\u{7f}ker"),
        ("agent for which a bot of yours posts (empty: no more):", "no agent!"),
        ("agent for which a bot of yours posts (empty: no more):", "lima"),
        ("agent for which a bot of yours posts (empty: no more):", "kilo"),
        ("token of kilo's bot (not shown)", "token-kilo"),
        ("agent for which a bot of yours posts (empty: no more):", ""),
        ("channel (empty: no more):", ""),
        ("the bridge needs a channel", "cellar"),
        ("no channel \"cellar\"", "#den"),
        ("channel (empty: no more):", ""),
        ("human who may speak to agents, by Discord name (empty: no more):", "zoe"),
        ("no human \"zoe\"", "ann"),
        ("human who may speak to agents, by Discord name (empty: no more):", ""),
        ("role whose members may act as humans (empty: no more):", ""),
        ("write this?", "y"),
    ];
    for (question, answer) in dialogue {
        terminal.asks(question);
        terminal.keys(&format!("{answer}\r"));
    }
    terminal.shows(&["All checks passed"]);
    let written = terminal.written();
    assert!(written.contains("discord-lima.token already exists"), "{written}");
    assert!(!written.contains("token-") && written.matches("client_id=").count() >= 2, "{written}");
    assert_eq!(terminal.ended(), 0);
    for name in ["broker", "kilo"] {
        let file = town.server.path().join(format!("discord-{name}.token"));
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("token-{name}\n"));
    }
    town.bridge();
    town.world.posts(town.ann, town.channel, "hello");
    town.until("posted", |event| event["data"]["body"] == "hello");
}

#[test]
fn a_role_is_found_by_its_name_and_its_members_act() {
    let mut town = TestGuild::plain();
    let crew = town.world.role("Crew = 1");
    town.world.appoints(town.bob, crew);
    let names = ["--channel", "den", "--role", "@Crew = 1=operator", "--agent", "kilo=discord-kilo.token", "--yes"];
    let ended = town.init("token-broker\n", &names);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("its members act as operators"), "{ended:?}");
    let table = format!("[[discord.role]]\nid = \"{crew}\" # @Crew = 1\nrole = \"operator\"\n");
    assert!(town.config().contains(&table), "{}", town.config());
    town.bridge();
    let asked = town.world.posts(town.bob, town.channel, &format!("<@{}> hello", town.kilo));
    town.world.wait_thread(asked);
}

/// What a stranger does who reads the guide: from a server of Discord and one of Lastword to a decided request.
#[test]
fn from_nothing_to_a_mention_that_is_answered_after_a_member_decided() {
    let town = TestGuild::plain();
    let crew = town.world.role("Crew");
    let signers = town.world.role("Signers");
    town.world.appoints(town.ann, crew);
    town.world.appoints(town.bob, signers);
    fs::remove_file(town.server.path().join("discord-kilo.token")).unwrap();
    fs::remove_file(town.server.path().join("lastword.toml")).unwrap();
    let (api, gateway) = (town.world.http(), town.world.gateway());
    let init = ["--token-file", ".lastword/operator.token", "discord", "init", "--api", &api, "--gateway", &gateway];
    let mut terminal = Terminal::run(town.server.path(), &init, &[]);
    let dialogue = [
        ("token of the broker's bot (not shown)", "token-broker"),
        ("agent for which a bot of yours posts (empty: no more):", "kilo"),
        ("token of kilo's bot (not shown)", "token-kilo"),
        ("agent for which a bot of yours posts (empty: no more):", ""),
        ("channel (empty: no more):", "den"),
        ("channel (empty: no more):", ""),
        ("human who may speak to agents, by Discord name (empty: no more):", ""),
        ("@Signers in A guild", ""),
        ("the bridge needs a human or a role", ""),
        ("role whose members may act as humans (empty: no more):", "Members"),
        ("no role \"Members\"", "Crew"),
        ("what they are here: owner, operator, approver or viewer:", "boss"),
        ("\"boss\" is no role", "operator"),
        ("role whose members may act as humans (empty: no more):", "@Signers"),
        ("what they are here: owner, operator, approver or viewer:", "approver"),
        ("role whose members may act as humans (empty: no more):", ""),
        ("write this?", "y"),
    ];
    for (question, answer) in dialogue {
        terminal.asks(question);
        terminal.keys(&format!("{answer}\r"));
    }
    terminal.shows(&["All checks passed"]);
    assert_eq!(terminal.ended(), 0);
    let mut bridge = Terminal::run(town.server.path(), &["--token-file", ".lastword/operator.token", "discord"], &[]);
    bridge.asks("ready");
    town.world.wait_connected(town.broker);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> ship it", town.kilo));
    let taken = town.server.as_agent("kilo", &["--json", "inbox", "--wait", "30s"]).json();
    assert_eq!(taken["message"]["from"], "ann.discord");
    let thread = town.world.wait_thread(asked).id;
    let card = town.held(thread);
    town.world.clicks(town.bob, card.id, &button(&card, "Approve"));
    town.wait_card(&card, "✅ Approved by bob.discord");
    assert_eq!(town.approval()["by"], "bob.discord");
    town.server.as_agent("kilo", &["finish", taken["turn"]["id"].as_str().unwrap(), "shipped"]).ok();
    town.world.wait_message(thread, town.kilo, "shipped");
}
