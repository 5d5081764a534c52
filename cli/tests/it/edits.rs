//! Sessions claim the files that they edit: the refusal of another task's edit, and the end of a claim.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::hooks::{Session, reason};
use crate::program::{PATH, Server, finish, lastword};

fn git(dir: &Path, args: &[&str]) {
    let mut git = std::process::Command::new("git");
    let ended = git.arg("-C").arg(dir).args(args).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Starts a server with two agents, and a repository with a folder `src` for them.
fn two_agents() -> (Server, PathBuf) {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    let work = server.path().join("work");
    fs::create_dir_all(work.join("src")).unwrap();
    git(&work, &["init", "-q", "--initial-branch=main"]);
    (server, work)
}

#[test]
fn an_edit_claims_its_file_and_another_agents_is_told_how_to_go_on() {
    let (server, work) = two_agents();
    git(&work, &["remote", "add", "origin", "git@example.com:acme/app.git"]);
    let file = work.join("src/a.rs");
    fs::write(&file, "one\n").unwrap();
    let kilo = Session { server: &server, id: "s-1", token: "kilo.token" };
    let hive = Session { server: &server, id: "s-2", token: "hive.token" };
    let edit =
        json!({ "tool_name": "Edit", "tool_input": { "file_path": file, "old_string": "one", "new_string": "two" } });
    let at = |call: &Value, cwd: &Path| {
        let mut call = call.clone();
        call["cwd"] = json!(cwd);
        call
    };
    let denied = |said: &Value| {
        assert_eq!(said["hookSpecificOutput"]["permissionDecision"], "deny", "{said}");
        said["hookSpecificOutput"]["permissionDecisionReason"].as_str().unwrap().to_owned()
    };

    // The first work is that of a task.
    server.operator(&["send", "kilo", "Mend a.rs", "--ref", "P-1"]).ok();
    assert!(reason(&kilo.stop("nothing asked")).contains("Mend a.rs"));
    assert_eq!(kilo.hook("PreToolUse", &edit), Value::Null, "no conflict, no word");
    let claims = server.operator(&["claims", "--json"]).json();
    assert_eq!(claims["items"][0]["resource"], "example.com/acme/app@main:src/a.rs", "{claims}");
    assert_eq!(claims["items"][0]["ref"], "P-1", "{claims}");
    assert_eq!(kilo.hook("PreToolUse", &edit), Value::Null, "the claim is its own");

    let told = denied(&hive.hook("PreToolUse", &edit));
    assert!(told.starts_with("src/a.rs is held by kilo, for P-1 (req-"), "{told}");
    for way in ["check_request with request_id \"clm-1\"", "Ask kilo", "come back to src/a.rs"] {
        assert!(told.contains(way), "{told}");
    }
    let shell = json!({ "tool_name": "Bash", "tool_input": { "command": "cd src && sed -i s/one/three/ a.rs" } });
    assert!(denied(&hive.hook("PreToolUse", &at(&shell, &work))).contains("held by kilo"));
    let stash = json!({ "tool_name": "Bash", "tool_input": { "command": "git stash" } });
    let told = denied(&hive.hook("PreToolUse", &at(&stash, &work)));
    assert!(told.contains("- src/a.rs: kilo, for P-1"), "{told}");
    let reads = json!({ "tool_name": "Bash", "tool_input": { "command": "cat src/a.rs" } });
    assert_eq!(hive.hook("PreToolUse", &at(&reads, &work)), Value::Null);

    // The task ends, and with it the claim; the file isn't as it was.
    fs::write(&file, "two\n").unwrap();
    assert_eq!(kilo.stop("mended"), Value::Null);
    assert_eq!(server.operator(&["claims", "--json"]).json()["items"], json!([]));
    let told = denied(&hive.hook("PreToolUse", &edit));
    assert!(told.contains("was changed by its holder") && told.contains("read it again"), "{told}");
    assert_eq!(hive.hook("PreToolUse", &edit), Value::Null);

    // Hive's user asked for it, so it is held until the model has ended its turn.
    let told = denied(&kilo.hook("PreToolUse", &edit));
    assert!(told.starts_with("src/a.rs is held by hive, so this edit was not made."), "{told}");
    let read = json!({ "tool_name": "Read", "tool_input": { "file_path": file } });
    assert_eq!(hive.stop("done"), Value::Null);
    fs::write(&file, "three\n").unwrap();
    assert_eq!(kilo.hook("PostToolUse", &read), Value::Null);
    assert_eq!(kilo.hook("PreToolUse", &edit), Value::Null, "it has read what is there now");
}

#[test]
fn a_command_with_which_git_changes_a_tree_holds_it_until_the_command_has_ended() {
    let (server, work) = two_agents();
    git(&work, &["remote", "add", "origin", "git@example.com:acme/app.git"]);
    let kilo = Session { server: &server, id: "s-1", token: "kilo.token" };
    let hive = Session { server: &server, id: "s-2", token: "hive.token" };
    let edits = |name: &str| json!({ "tool_name": "Write", "tool_input": { "file_path": work.join(name) } });
    let bash = |line: &str| json!({ "tool_name": "Bash", "tool_input": { "command": line }, "cwd": work });
    let stash = bash("git stash");
    let held = || {
        let claims = server.operator(&["claims", "--json"]).json();
        let names = claims["items"].as_array().unwrap().iter().map(|claim| claim["resource"].as_str().unwrap());
        names.map(|name| name.strip_prefix("example.com/acme/app@main:").unwrap().to_owned()).collect::<Vec<_>>()
    };
    let denied = |said: &Value| {
        said["hookSpecificOutput"]["permissionDecisionReason"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
    };

    server.operator(&["send", "kilo", "Clean up", "--ref", "P-1"]).ok();
    assert!(reason(&kilo.stop("nothing asked")).contains("Clean up"));
    assert_eq!(kilo.hook("PreToolUse", &edits("a")), Value::Null);
    for ended in ["PostToolUse", "PostToolUseFailure"] {
        assert_eq!(kilo.hook("PreToolUse", &stash), Value::Null);
        assert_eq!(held(), ["a", "**"]);
        let told = denied(&hive.hook("PreToolUse", &edits("b")));
        assert!(told.starts_with("b is held with all of its tree by kilo, for P-1"), "{told}");
        let told = denied(&hive.hook("PreToolUse", &bash("git pull")));
        assert!(told.contains("- a: kilo, for P-1") && told.contains("- **: kilo"), "{told}");
        assert_eq!(kilo.hook(ended, &bash("ls")), Value::Null, "another call");
        assert_eq!(held(), ["a", "**"]);
        assert_eq!(kilo.hook(ended, &stash), Value::Null);
        assert_eq!(held(), ["a"], "what is edited for the task stays");
    }
    assert_eq!(hive.hook("PreToolUse", &edits("b")), Value::Null);
    assert!(denied(&kilo.hook("PreToolUse", &stash)).contains("- b: hive"));
    assert_eq!(hive.stop("done"), Value::Null);

    // A call whose end no hook tells ends with the turn; one whose first edit is refused leaves nothing behind.
    assert_eq!(kilo.hook("PreToolUse", &stash), Value::Null);
    assert_eq!(kilo.stop("done"), Value::Null);
    assert_eq!(held(), [""; 0]);
    assert_eq!(hive.hook("PreToolUse", &stash), Value::Null, "nor for its user");
    assert_eq!(hive.stop("done"), Value::Null);
    assert_eq!(held(), [""; 0]);
    // Outside of git there is no tree to hold.
    let outside = json!({ "tool_name": "Bash", "tool_input": { "command": "git stash" }, "cwd": server.path() });
    assert_eq!(kilo.hook("PreToolUse", &outside), Value::Null);
    assert_eq!(held(), [""; 0]);
}

#[test]
fn an_edit_under_a_claim_that_was_lost_is_told_to_both_with_the_difference() {
    let (server, work) = two_agents();
    let file = work.join("src/ä [b].rs");
    fs::write(&file, "one\n").unwrap();
    git(&work, &["add", "."]);
    git(&work, &["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x"]);
    let kilo = Session { server: &server, id: "s-1", token: "kilo.token" };
    let hive = Session { server: &server, id: "s-2", token: "hive.token" };
    let edit =
        json!({ "tool_name": "Edit", "tool_input": { "file_path": file, "old_string": "one", "new_string": "two" } });

    server.operator(&["send", "kilo", "Mend a.rs", "--ref", "P-1"]).ok();
    assert!(reason(&kilo.stop("nothing asked")).contains("Mend a.rs"));
    server.operator(&["send", "hive", "Mend a.rs, too", "--ref", "P-2"]).ok();
    assert!(reason(&hive.stop("nothing asked")).contains("Mend a.rs, too"));
    assert_eq!(kilo.hook("PreToolUse", &edit), Value::Null);
    assert_eq!(kilo.hook("PostToolUse", &edit), Value::Null, "the claim is its own");
    // Kilo's tool takes its time; a human ends the claim, and hive gets the file.
    assert_eq!(kilo.hook("PreToolUse", &edit), Value::Null);
    server.operator(&["release", "clm-1"]).ok();
    assert_eq!(hive.hook("PreToolUse", &edit), Value::Null);
    fs::write(&file, "two\n").unwrap();
    let told = kilo.hook("PostToolUse", &edit);
    let told = told["hookSpecificOutput"]["additionalContext"].as_str().unwrap();
    assert!(told.starts_with("src/ä [b].rs is held by hive, for P-2 (req-") && told.contains("It was told"), "{told}");
    assert_eq!(hive.hook("PostToolUse", &edit), Value::Null, "the holder's own edit");
    kilo.hook("PostToolUse", &edit);
    let messages = server.operator(&["audit", "was changed by me", "--json"]).json();
    let alerts = messages["items"].as_array().unwrap();
    assert_eq!((alerts.len(), &alerts[0]["type"]), (1, &json!("alert")), "it is told once: {messages}");
    assert_eq!((&alerts[0]["from"], &alerts[0]["to"]), (&json!("kilo"), &json!("hive")));
    assert!(alerts[0]["body"].as_str().unwrap().contains("-one\n+two"), "{messages}");

    // Outside of turns, two pairs of agents have reports of their own.
    server.agent("lima");
    server.agent("mike");
    for (n, late, holder) in [(1, "kilo", "lima"), (2, "mike", "hive")] {
        let file = work.join(format!("{n}.rs"));
        server.as_agent(holder, &["claim", file.to_str().unwrap()]).ok();
        let session = Session { server: &server, id: late, token: &format!("{late}.token") };
        let told = session.hook("PostToolUse", &json!({ "tool_name": "Write", "tool_input": { "file_path": file } }));
        let told = told["hookSpecificOutput"]["additionalContext"].as_str().unwrap().to_owned();
        assert!(told.starts_with(&format!("{n}.rs is held by {holder}")) && told.contains("It was told"), "{told}");
    }
}

#[test]
fn git_refuses_a_commit_of_what_another_task_holds_and_keeps_the_hooks_that_are_there() {
    let server = Server::start();
    server.agent("kilo");
    let work = server.path().join("work");
    fs::create_dir_all(&work).unwrap();
    git(&work, &["init", "-q", "--initial-branch=main"]);
    for (name, value) in [("user.name", "x"), ("user.email", "x@example.com")] {
        git(&work, &["config", name, value]);
    }
    let own = work.join(".git/hooks/pre-commit");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    let before = "#!/bin/sh\ntouch ran\n";
    fs::write(&own, before).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    let data = server.path().join(".lastword");
    let human = [("LASTWORD_TOKEN_FILE", data.join("operator.token")), ("LASTWORD_DATA", data)];
    let at = |args: &[&str]| {
        let mut command = lastword(server.path());
        finish(command.args(args).current_dir(&work).env("PATH", PATH).envs(human.clone()), "")
    };
    let commit = |more: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["commit", "-q", "-m", "x"]).args(more).current_dir(&work).env("HOME", server.path());
        finish(command.envs(human.clone()).stdout(Stdio::piped()).stderr(Stdio::piped()), "")
    };
    assert_eq!(at(&["guard", "install"]).code, 0);
    assert_eq!(at(&["guard", "install"]).code, 0, "twice is once");
    assert_eq!(fs::read_to_string(&own).unwrap().matches("guard check").count(), 1);
    fs::write(work.join("a.rs"), "one\n").unwrap();
    git(&work, &["add", "a.rs"]);
    let claimed = at(&["--token-file", "../kilo.token", "claim", "a.rs", "--json"]);
    assert_eq!(claimed.code, 0, "{claimed:?}");
    let refused = commit(&[]);
    assert!(refused.code != 0 && refused.stderr.contains("a.rs: kilo"), "{refused:?}");
    assert_eq!(commit(&["--no-verify"]).code, 0, "a human's way past it");
    fs::write(work.join("b.rs"), "two\n").unwrap();
    git(&work, &["add", "b.rs"]);
    let free = commit(&[]);
    assert!(free.code == 0 && work.join("ran").exists(), "{free:?}");
    let released = at(&["release", "a.rs"]);
    assert!(released.code == 0 && released.stdout.contains("clm-1"), "{released:?}");
    assert_eq!(at(&["guard", "remove"]).code, 0);
    assert_eq!(fs::read_to_string(&own).unwrap(), before);
    assert!(!work.join(".git/hooks/pre-push").exists());
}
