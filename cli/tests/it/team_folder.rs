//! Commands find the team of their folder: above it, and from every worktree of a repository.

use std::fs;
use std::path::Path;

use crate::program::{Ended, Server, finish, lastword};
use crate::running::comes;

fn git(dir: &Path, args: &[&str]) {
    let mut command = std::process::Command::new("git");
    command.current_dir(dir).args(["-c", "user.name=t", "-c", "user.email=t@localhost"]).args(args);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn run_in(dir: &Path, token: &Path, args: &[&str]) -> Ended {
    finish(lastword(dir).arg("--token-file").arg(token).args(args), "")
}

#[test]
fn a_team_is_found_from_a_subdirectory_and_from_a_worktree_and_ended_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let repository = dir.path().join("repo");
    fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "-q"]);
    git(&repository, &["commit", "-q", "--allow-empty", "-m", "start"]);
    git(&repository, &["worktree", "add", "-q", "../beside"]);
    let (deep, beside) = (repository.join("src/parser"), dir.path().join("beside"));
    fs::create_dir_all(&deep).unwrap();
    // A server that is started in a subdirectory keeps the data of the repository at its top.
    let mut serve = lastword(&deep);
    serve.args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    let server = Server::start_by(tempfile::tempdir().unwrap(), serve);
    let data = repository.join(".lastword").canonicalize().unwrap();
    let token = data.join("operator.token");
    for folder in [&repository, &deep, &beside] {
        let listed = run_in(folder, &token, &["agent", "list", "--json"]);
        assert_eq!(listed.code, 0, "{}: {listed:?}", folder.display());
    }
    let missed = run_in(&beside, &token, &["send", "nobody", "hello", "--ref", "A-1"]);
    assert!(missed.stderr.contains(&format!("looked for in the team of {}", data.display())), "{missed:?}");
    let second = run_in(&beside, &token, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(
        second.code == 3 && second.stderr.contains("is in use by process"),
        "one server for a repository: {second:?}"
    );
    let ended = run_in(&beside, &token, &["stop-server"]);
    assert!(ended.stdout.contains(&data.display().to_string()), "{ended:?}");
    let again = run_in(&beside, &token, &["stop-server"]);
    assert!(again.code == 3 && again.stderr.contains("no server is running on"), "{again:?}");
    drop(server);
}

#[test]
fn an_idle_server_ends_once_its_last_agent_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start_with(dir, &["--listen", "127.0.0.1:0", "--idle", "4s"]);
    server.agent("bob");
    let waits = server.as_agent("bob", &["inbox", "--wait", "5s"]);
    assert_eq!(waits.code, 5, "an agent that waits uses it: {waits:?}");
    assert_eq!(server.wait().code, 0);
}

#[test]
fn a_configuration_above_is_the_teams_and_names_its_data() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "data = \"kept\"\n[limits]\ndepth_max = 3\n").unwrap();
    let deep = dir.path().join("a/b");
    fs::create_dir_all(&deep).unwrap();
    let mut serve = lastword(&deep);
    serve.args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    let _server = Server::start_by(tempfile::tempdir().unwrap(), serve);
    let token = dir.path().join("kept/operator.token");
    let limits = run_in(&deep, &token, &["limits", "--json"]);
    let known = limits.json();
    let depth = known["items"].as_array().unwrap().iter().find(|limit| limit["name"] == "depth_max").unwrap();
    assert_eq!(depth["value"], 3, "{limits:?}");
}

#[test]
fn a_server_whose_reader_has_left_serves_on() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut serve = lastword(dir.path());
    serve.args(["serve", "--listen", "127.0.0.1:0"]).stdout(writer).stderr(std::process::Stdio::null());
    let mut server = serve.spawn().unwrap();
    let stopped = || run_in(dir.path(), &dir.path().join(".lastword/operator.token"), &["stop-server"]).code == 0;
    let served = comes(stopped);
    assert!(server.wait().unwrap().success());
    assert!(served, "no server came up");
}

#[test]
fn a_server_listens_where_it_listened_last() {
    let server = Server::start();
    let address = |server: &Server| server.first_line["listening"].clone();
    let first = address(&server);
    let server = Server::start_with(server.kill(), &[]);
    assert_eq!(address(&server), first, "open sessions go on there");
    let (_, dir) = server.terminate();
    let server = Server::start_with(dir, &["--listen", "127.0.0.1:0"]);
    assert_ne!(address(&server), first, "an address that is named comes first");
}
