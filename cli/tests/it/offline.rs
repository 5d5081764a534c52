//! What works without a server: help, exit codes, configuration, tools around the log.

use std::fs;
use std::path::PathBuf;

use crate::program::{finish, lastword, run};

fn empty() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Compares with a golden file; `UPDATE=1` rewrites it.
fn check(name: &str, now: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, now).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(stored, now, "{name} changed; look at it, then UPDATE=1");
}

#[test]
fn the_help_lists_every_command() {
    let dir = empty();
    let help = run(dir.path(), &["--help"]).ok();
    check("help.txt", &help);
    let listed = help.lines().skip_while(|line| *line != "Set up:").take_while(|line| *line != "Options:");
    let commands: Vec<&str> = listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert!(commands.len() > 35, "{commands:?}");
    for command in commands {
        assert_eq!(run(dir.path(), &[command, "--help"]).code, 0, "{command}");
    }
}

#[test]
fn wrong_usage_exits_with_two() {
    let dir = empty();
    for args in [
        &["nonsense"][..],
        &["send"],
        &["pause"],
        &["pause", "E-1", "--workspace"],
        &["grant", "E-1"],
        &["grant", "--tokens", "5"],
        &["grant", "--agent", "kilo", "--rounds", "2"],
        &["grant", "--agent", "kilo"],
        &["agent", "set", "kilo"],
        &["human", "add", "anna"],
        &["human", "add", "anna", "--role", "king"],
        &["inbox", "--wait", "soon"],
        &["send", "hive", "x", "--type", "letter"],
        &["send", "hive", "x", "--payload", "{"],
        &["audit", "--since", "yesterday"],
        &["explain", "nonsense"],
        &["--config", "nowhere.toml", "limits"],
        &["serve", "--listen", "everywhere"],
        &["serve", "--listen", "0.0.0.0:0"],
    ] {
        let ended = run(dir.path(), args);
        assert_eq!(ended.code, 2, "{args:?}: {ended:?}");
        assert!(ended.stderr.starts_with("error:") && ended.stdout.is_empty(), "{args:?}: {ended:?}");
    }
}

#[test]
fn no_server_exits_with_three_and_says_how_to_start_one() {
    let dir = empty();
    let mut command = lastword(dir.path());
    command.args(["--url", "http://127.0.0.1:9", "tree", "E-1"]).env("LASTWORD_TOKEN", "some");
    let ended = finish(&mut command, "");
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("hint: start a server with `lastword serve`"), "{ended:?}");
    for args in [&["verify"][..], &["reindex"]] {
        assert_eq!(run(dir.path(), args).code, 3, "{args:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "looking makes nothing");
}

#[test]
fn no_human_verb_picks_the_operators_token_up_without_a_terminal() {
    let dir = empty();
    fs::create_dir(dir.path().join(".lastword")).unwrap();
    fs::write(dir.path().join(".lastword/operator.token"), "secret").unwrap();
    for args in [
        &["agent", "add", "x"][..],
        &["ask", "hive", "x"],
        &["answer", "esc-1", "x"],
        &["approve", "apr-1"],
        &["reject", "apr-1"],
        &["pause", "E-1"],
        &["resume", "--workspace"],
        &["stop", "--agent", "hive"],
        &["grant", "E-1", "--messages", "1"],
        &["audit"],
    ] {
        // No server listens at that address; without one the error would be that no server runs.
        let args = &[&["--url", "http://127.0.0.1:9"], args].concat();
        let plain = run(dir.path(), args);
        assert_eq!(plain.code, 1, "{args:?}: {plain:?}");
        assert!(plain.stderr.contains("hint: name a token with --token-file FILE or LASTWORD_TOKEN"), "{plain:?}");
        let empty = finish(lastword(dir.path()).args(args).env("LASTWORD_TOKEN", ""), "");
        assert!(empty.code == 1 && empty.stderr.contains("LASTWORD_TOKEN is set but empty"), "{empty:?}");
        let agent = finish(lastword(dir.path()).args(args).env("CLAUDECODE", "1"), "");
        assert_eq!(agent.code, 1, "{args:?}: {agent:?}");
        assert!(agent.stderr.contains("CLAUDECODE"), "{agent:?}");
    }
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let dir = empty();
    fs::write(dir.path().join("lastword.toml"), "url = \"http://127.0.0.1:1/file\"").unwrap();
    let said = |args: &[&str], variable: Option<&str>| {
        let mut command = lastword(dir.path());
        command.args(args).arg("limits").env("LASTWORD_TOKEN", "some");
        command.envs(variable.map(|value| ("LASTWORD_URL", value)));
        finish(&mut command, "").stderr
    };
    assert!(said(&[], None).contains("/file"));
    assert!(said(&[], Some("http://127.0.0.1:1/variable")).contains("/variable"));
    assert!(said(&["--url", "http://127.0.0.1:1/flag"], Some("http://127.0.0.1:1/variable")).contains("/flag"));
}

#[test]
fn init_writes_a_file_that_is_read_and_never_overwrites_one() {
    let dir = empty();
    assert_eq!(run(dir.path(), &["init"]).code, 0);
    assert_eq!(run(dir.path(), &["limits"]).code, 0);
    fs::write(dir.path().join("lastword.toml"), "[limits]\ndepth_max = 3\n").unwrap();
    assert_eq!(run(dir.path(), &["init"]).code, 1);
    let limits = run(dir.path(), &["limits", "--json"]).json();
    let depth = limits["items"].as_array().unwrap().iter().find(|limit| limit["name"] == "depth_max").unwrap();
    assert_eq!((depth["value"].as_u64(), depth["default"].as_u64()), (Some(3), Some(5)));
}

#[test]
fn a_configuration_beyond_the_ceiling_is_refused_by_bound_and_serve() {
    let dir = empty();
    assert_eq!(run(dir.path(), &["bound", "--json"]).json()["messages"], 64);
    fs::write(dir.path().join("lastword.toml"), "[limits]\ngrant_messages_max = 20000\nhops_max = 9\n").unwrap();
    for args in [&["bound"][..], &["serve"]] {
        let ended = run(dir.path(), args);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains("10000"), "{ended:?}");
    }
    fs::write(dir.path().join("lastword.toml"), "[limits]\ngrant_messages_max = 5000\n").unwrap();
    let warned = run(dir.path(), &["bound"]).ok();
    assert!(warned.contains("warning: more than 1000 waking messages"), "{warned}");
}

#[test]
fn a_code_a_rule_and_a_limit_are_explained() {
    let dir = empty();
    assert!(run(dir.path(), &["explain", "depth_cap"]).ok().contains("(D2, HTTP 422)"));
    let rule = run(dir.path(), &["explain", "d2"]).ok();
    assert!(rule.contains("depth_cap") && rule.contains("depth_max: 5 by default (D2)"), "{rule}");
}

#[test]
fn the_primer_is_short_enough_for_every_system_prompt() {
    let dir = empty();
    let primer = run(dir.path(), &["prompt"]).ok();
    assert!(primer.contains("finish_turn") && primer.len() < 2_000, "{} bytes", primer.len());
}

#[test]
fn completions_and_man_page_come_from_the_same_definition_as_the_help() {
    let dir = empty();
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(dir.path(), &["completions", shell]).ok().contains("escalations"), "{shell}");
    }
    assert!(run(dir.path(), &["man"]).ok().contains("lastword\\-verify"));
    assert!(run(dir.path(), &["man", "verify"]).ok().contains("expect"));
}

#[test]
fn an_error_is_json_where_json_is_wanted() {
    let dir = empty();
    let ended = run(dir.path(), &["--json", "tree", "E-1"]);
    let error: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
    assert!(error["error"]["hint"].is_string(), "{error}");
    assert_eq!((ended.code, ended.stdout.as_str()), (3, ""));
}
