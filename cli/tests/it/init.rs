//! `lastword init` adds Lastword to agent programs, names what it did, and takes it out again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::program::{Ended, PATH, Server, finish, lastword, run};

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs `init` with an agent's token, without a home directory's configuration.
fn init(server: &Server, name: &str, args: &[&str]) -> Ended {
    server.as_agent(name, &[&["init"], args].concat())
}

#[test]
fn init_adds_itself_to_claude_code_and_shows_what_it_added() {
    let server = Server::start();
    server.agent("kilo");
    let dir = server.path();
    let refused = run(dir, &["init", "--claude"]);
    assert!(refused.code == 2 && refused.stderr.contains("lastword agent add NAME > NAME.token"), "{refused:?}");
    let dry = run(dir, &["--token-file", "kilo.token", "init", "--claude", "--opencode", "--dry-run"]).ok();
    assert!(dry.contains("+  \"mcpServers\"") && !dir.join(".mcp.json").exists(), "{dry}");
    run(dir, &["--token-file", "kilo.token", "init", "--claude"]).ok();
    let again = run(dir, &["--token-file", "kilo.token", "init", "--claude"]).ok();
    assert_eq!(again.matches("nothing to add").count(), 2, "{again}");
    let servers = read(&dir.join(".mcp.json"));
    let program = servers["mcpServers"]["lastword"].clone();
    assert!(program["args"].as_array().unwrap().contains(&json!("mcp")), "{program}");
    assert!(!fs::read_to_string(dir.join(".mcp.json")).unwrap().contains("lw_"), "the token itself is in no file");
    let settings = read(&dir.join(".claude/settings.local.json"));
    assert_eq!(settings["permissions"]["allow"], json!(["mcp__lastword"]));
    let hooks = read(&dir.join(".claude/settings.local.json"));
    let command = hooks["hooks"]["Stop"][0]["hooks"][0]["command"].as_str().unwrap().to_owned();
    // Exactly the configured line, as the program's shell runs it.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &command]).env_clear().env("HOME", dir).current_dir("/");
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    server.operator(&["send", "kilo", "is it set up?", "--ref", "S-1"]).ok();
    let said = finish(&mut shell, r#"{"hook_event_name": "Stop", "session_id": "s-9"}"#).json();
    assert!(said["reason"].as_str().unwrap().contains("is it set up?"), "{said}");
}

#[test]
fn init_says_whom_it_set_up_and_what_is_next() {
    let server = Server::start();
    server.agent("kilo");
    for flag in ["--claude", "--codex", "--opencode", "--gemini"] {
        let said = init(&server, "kilo", &[flag]).ok();
        assert!(said.contains("works as kilo") && said.contains("next: "), "{said}");
    }
    let codex = fs::read_to_string(server.path().join(".codex/config.toml")).unwrap();
    let codex: toml::Table = codex.parse().unwrap();
    let lastword = &codex["mcp_servers"]["lastword"];
    assert_eq!(lastword["default_tools_approval_mode"].as_str(), Some("approve"));
    assert_eq!(lastword["tool_timeout_sec"].as_integer(), Some(330));
    let passed: Vec<_> = lastword["env_vars"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect();
    assert!(passed.contains(&"LASTWORD_AGENT"), "Codex passes no other variables to the server: {passed:?}");
    let said = init(&server, "kilo", &["--claude", "--replace", "--tools", "core,approve_tool_use", "--check"]).ok();
    assert!(said.contains("starts Lastword as kilo: 7 tools"), "{said}");
    let claude = fs::read_to_string(server.path().join(".mcp.json")).unwrap();
    assert!(claude.contains("\"alwaysLoad\": true"), "{claude}");
    let wrong = init(&server, "kilo", &["--claude", "--replace", "--tools", "everything"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("there is no tool \"everything\""), "{wrong:?}");
    let usage = init(&server, "kilo", &["--replace"]);
    assert!(usage.code == 2 && usage.stderr.contains("--claude"), "{usage:?}");
}

#[test]
fn init_refuses_the_place_of_another_agent_and_names_both() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("bob");
    for flag in ["--claude", "--codex", "--opencode", "--gemini"] {
        init(&server, "kilo", &[flag]).ok();
        let refused = init(&server, "bob", &[flag]);
        assert!(refused.code == 1 && refused.stderr.contains("kilo") && refused.stderr.contains("bob"), "{refused:?}");
        assert!(refused.stderr.contains("--replace"), "{refused:?}");
        let said = init(&server, "bob", &[flag, "--replace"]).ok();
        assert!(said.contains("works as bob"), "{said}");
        let refused = init(&server, "kilo", &[flag]);
        assert!(refused.code == 1, "{refused:?}");
        init(&server, "kilo", &[flag, "--force"]).ok();
    }
    let hooks = fs::read_to_string(server.path().join(".claude/settings.local.json")).unwrap();
    assert_eq!((hooks.matches("kilo.token").count(), hooks.matches("bob.token").count()), (3, 0), "{hooks}");
    fs::write(server.path().join(".mcp.json"), r#"{"mcpServers": {"lastword": {"type": "http", "url": "x"}}}"#)
        .unwrap();
    for args in [&["--claude"][..], &["--claude", "--remove"]] {
        let refused = init(&server, "kilo", args);
        assert!(refused.code == 1 && refused.stderr.contains("lastword"), "{refused:?}");
    }
}

#[test]
fn init_removes_what_it_added_and_nothing_else() {
    let server = Server::start();
    server.agent("kilo");
    let dir = server.path();
    let flags = ["--claude", "--codex", "--opencode", "--gemini"];
    init(&server, "kilo", &flags).ok();
    let dry = run(dir, &["init", "--claude", "--remove", "--dry-run"]).ok();
    assert!(dry.contains("-  \"mcpServers\"") && dir.join(".mcp.json").exists(), "{dry}");
    run(dir, &[&["init", "--remove"], &flags[..]].concat()).ok();
    let files =
        [".mcp.json", ".claude/settings.local.json", ".codex/config.toml", "opencode.json", ".gemini/settings.json"];
    for file in files {
        assert!(!dir.join(file).exists(), "{file}");
    }
    for folder in [".claude", ".codex", ".gemini"] {
        assert!(!dir.join(folder).exists(), "{folder}");
    }
    let said = run(dir, &["init", "--claude", "--remove"]).ok();
    assert!(said.contains("isn't set up"), "{said}");
    let mine = "{\n  \"permissions\": {\n    \"deny\": [\"Agent\"]\n  }\n}\n";
    for folder in [".claude", ".codex"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    fs::write(dir.join(files[1]), mine).unwrap();
    fs::write(dir.join(files[2]), "model = \"x\"\n").unwrap();
    init(&server, "kilo", &flags).ok();
    run(dir, &[&["init", "--remove"], &flags[..]].concat()).ok();
    assert_eq!(fs::read_to_string(dir.join(files[1])).unwrap(), mine);
    assert_eq!(fs::read_to_string(dir.join(files[2])).unwrap(), "model = \"x\"\n");
}

#[test]
fn init_checks_what_it_wrote_by_starting_it() {
    let server = Server::start();
    server.agent("kilo");
    let dir = server.path();
    let nothing = run(dir, &["init", "--claude", "--check"]);
    assert!(nothing.code == 1 && nothing.stderr.contains("init --claude"), "{nothing:?}");
    let said = init(&server, "kilo", &["--claude", "--check"]).ok();
    assert!(said.contains("starts Lastword as kilo: 6 tools"), "{said}");
    assert!(said.contains("channels past the broker are off"), "{said}");
    let bin = tempfile::tempdir().unwrap();
    fs::write(bin.path().join("claude"), "#!/bin/sh\necho \"lastword: $1 $2 - Connected\"\n").unwrap();
    fs::set_permissions(bin.path().join("claude"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{PATH}", bin.path().display());
    let said = finish(lastword(dir).args(["init", "--claude", "--check"]).env("PATH", path), "").ok();
    assert!(said.contains("`claude mcp list`: lastword: mcp list - Connected"), "{said}");
    server.operator(&["agent", "token", "kilo"]).ok();
    let failed = run(dir, &["init", "--claude", "--check"]);
    assert!(failed.code == 1 && failed.stderr.contains("No valid token"), "{failed:?}");
}

#[test]
fn several_agents_share_a_folder_and_each_session_brings_its_token() {
    let server = Server::start();
    let dir = server.path();
    for name in ["kilo", "bob"] {
        server.agent(name);
        server.operator(&["send", name, &format!("for {name}"), "--ref", &format!("S-{name}")]).ok();
    }
    let said = run(dir, &["init", "--claude", "--from-env"]).ok();
    assert!(said.contains("LASTWORD_TOKEN_FILE"), "{said}");
    let settings = read(&dir.join(".claude/settings.local.json"));
    let line = settings["hooks"]["Stop"][0]["hooks"][0]["command"].as_str().unwrap();
    let stop = |name: &str| format!(r#"{{"hook_event_name": "Stop", "session_id": "s-{name}"}}"#);
    let shell = |name: &str, token: Option<&str>| {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", line]).env_clear().env("HOME", dir).current_dir("/");
        if let Some(token) = token {
            shell.env("LASTWORD_TOKEN_FILE", dir.join(token));
        }
        finish(shell.stdout(Stdio::piped()).stderr(Stdio::piped()), &stop(name))
    };
    for name in ["kilo", "bob"] {
        let said = shell(name, Some(&format!("{name}.token"))).ok();
        assert!(said.contains(&format!("for {name}")), "{said}");
    }
    let silent = shell("none", None);
    assert_eq!((silent.code, silent.stdout.as_str()), (0, ""), "{silent:?}");
    let mut check = lastword(dir);
    check.args(["init", "--claude", "--check"]).env("LASTWORD_TOKEN_FILE", dir.join("bob.token"));
    let said = finish(&mut check, "").ok();
    assert!(said.contains("as bob") && said.contains("6 tools"), "{said}");
    let refused = init(&server, "kilo", &["--claude"]);
    assert!(refused.code == 1 && refused.stderr.contains("each session"), "{refused:?}");
}
