//! Schedules of `lastword.toml`: set at the start, once (D13).

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Ended, Server, run};

const NIGHTLY: &str = "[[schedule]]\nname = \"nightly\"\ncron = \"0 2 * * *\"\ntime_zone = \"Europe/Berlin\"\nto = \"tester\"\n\
                       body = \"Run the tests.\"\nref = \"RUN-{date}\"\n";

fn configured(toml: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), toml).unwrap();
    dir
}

fn listed(server: &Server) -> Vec<Value> {
    server.operator(&["schedule", "list", "--json"]).json()["items"].as_array().unwrap().clone()
}

/// Returns how often the log sets a schedule.
fn times_set(server: &Server) -> usize {
    server.operator(&["tail", "--lines", "200"]).ok().matches("schedule_set").count()
}

#[test]
fn a_schedule_of_the_file_is_set_once_follows_its_changes_and_stays_when_it_leaves_the_file() {
    let server = Server::start_in(configured(NIGHTLY));
    let [nightly] = &listed(&server)[..] else { panic!() };
    let told = ["name", "cron", "time_zone", "to", "body", "ref", "by"].map(|member| nightly[member].as_str().unwrap());
    assert_eq!(told, ["nightly", "0 2 * * *", "Europe/Berlin", "tester", "Run the tests.", "RUN-{date}", "operator"]);
    assert_eq!(times_set(&server), 1);
    let server = Server::start_in(server.terminate().1);
    assert_eq!(times_set(&server), 1, "it stands already");
    let (_, dir) = server.terminate();
    let weekly = "[[schedule]]\nname = \"weekly\"\ncron = \"0 9 * * MON\"\nto = \"#report\"\nbody = \"Report.\"\n";
    fs::write(dir.path().join("lastword.toml"), format!("{}{weekly}", NIGHTLY.replace("0 2", "0 3"))).unwrap();
    let server = Server::start_in(dir);
    let crons = |server: &Server| -> Vec<String> {
        listed(server).iter().map(|schedule| schedule["cron"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(crons(&server), ["0 3 * * *", "0 9 * * MON"]);
    assert_eq!(times_set(&server), 3);
    let (_, dir) = server.terminate();
    fs::write(dir.path().join("lastword.toml"), weekly).unwrap();
    let server = Server::start_in(dir);
    assert_eq!(crons(&server), ["0 3 * * *", "0 9 * * MON"], "what left the file stays");
    server.operator(&["schedule", "remove", "nightly", "--yes"]).ok();
    server.operator(&["schedule", "remove", "weekly", "--yes"]).ok();
    let server = Server::start_in(server.terminate().1);
    assert_eq!(crons(&server), ["0 9 * * MON"], "what is in the file is set again");
}

#[test]
fn a_schedule_of_the_file_that_is_wrong_is_named_by_its_line_and_nothing_is_set() {
    let wrong = |dir: &TempDir, entry: &str| -> Ended {
        fs::write(dir.path().join("lastword.toml"), format!("{NIGHTLY}\n{entry}")).unwrap();
        run(dir.path(), &["serve", "--listen", "127.0.0.1:0"])
    };
    let dir = tempfile::tempdir().unwrap();
    let with = |changed: &str, to: &str| NIGHTLY.replace("nightly", "second").replace(changed, to);
    for (entry, words) in [
        (with("0 2 * * *", "often"), &["lastword.toml:9: [[schedule]]: `cron` \"often\""][..]),
        (with("0 2 * * *", "* * * * *"), &["lastword.toml:9", "`cron` ticks 1 minutes apart, and 10 is the least"]),
        (with("Europe/Berlin", "Mars"), &["lastword.toml:9", "`time_zone` is not a known time zone: \"Mars\""]),
        (with("RUN-{date}", "a b"), &["lastword.toml:9", "`ref`"]),
        (with("to = ", "whom = "), &["lastword.toml", "line 13", "whom"]),
        (NIGHTLY.to_owned(), &["lastword.toml:9", "`name` \"nightly\" is taken by lastword.toml:1"]),
    ] {
        let ended = wrong(&dir, &entry);
        assert_eq!(ended.code, 2, "{entry}: {ended:?}");
        for part in words {
            assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        }
    }
    fs::write(dir.path().join("lastword.toml"), "").unwrap();
    let server = Server::start_in(dir);
    let names: Vec<_> = listed(&server).iter().map(|schedule| schedule["name"].clone()).collect();
    assert_eq!(names, [] as [Value; 0], "all are read before any is set");
    let all = wrong(&server.terminate().1, &with("tester", "all"));
    assert!(all.code == 2 && all.stderr.contains("lastword.toml:9") && all.stderr.contains("#action"), "{all:?}");
}

#[test]
fn a_schedule_is_set_run_and_removed_by_a_script_that_answers_for_itself() {
    let server = Server::start();
    server.agent("tester");
    let add = ["schedule", "add", "nightly", "--cron", "0 2 * * *", "--to", "tester", "Run the tests."];
    let refused = server.operator(&add);
    assert!(refused.code == 1 && refused.stderr.contains("--yes"), "{refused:?}");
    let set = server.operator(&[&add[..], &["--yes"]].concat()).ok();
    assert!(set.starts_with("nightly ticks next at "), "{set}");
    assert_eq!(server.operator(&["schedule", "run", "nightly", "--yes"]).ok(), "sent to tester; tick 1\n");
    let taken = server.as_agent("tester", &["inbox", "--wait", "5s", "--json"]).json();
    assert_eq!((&taken["message"]["ref"], &taken["message"]["body"]), (&"nightly-1".into(), &"Run the tests.".into()));
    assert!(server.operator(&["schedule", "list"]).ok().contains("open"), "its grant is open");
    assert_eq!(server.operator(&["schedule", "remove", "nightly", "--yes"]).ok(), "removed nightly\n");
    assert_eq!(listed(&server), [] as [Value; 0]);
}
