//! R5 from a terminal: the warning in the reply to a send, the hold, and the human's yes.

use std::fs;

use crate::program::Server;

fn team(configuration: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), configuration).unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    server.agent("hive");
    server.operator(&["ask", "kilo", "why is the build red?", "--ref", "T-1", "--wait", "0s"]).ok();
    server.as_agent("kilo", &["inbox", "--wait", "5s"]).ok();
    server
}

/// One request of kilo, and hive's answer to it.
fn round(server: &Server, ask: &str, answer: &str) -> String {
    let sent = server.as_agent("kilo", &["send", "hive", ask]).ok();
    let taken = server.as_agent("hive", &["inbox", "--wait", "5s", "--json"]).json();
    server.as_agent("hive", &["finish", taken["turn"]["id"].as_str().unwrap(), answer]).ok();
    server.as_agent("kilo", &["inbox", "--wait", "5s"]).ok();
    sent
}

const SAME: &str = "please run the tests again";

#[test]
fn in_the_profile_long_a_loop_is_held_until_a_human_says_yes() {
    let server = team("profile = \"long\"\n");
    for n in 0..2 {
        let sent = round(&server, SAME, &format!("run {n} failed"));
        assert!(!sent.contains("warning:"), "{sent}");
    }
    let third = round(&server, SAME, "run 2 failed, too");
    assert!(third.contains("\nwarning: Your 5 messages with hive in this task made both of you read"), "{third}");
    assert!(third.contains("answer with what you have, or ask the human"), "{third}");
    let refused = server.as_agent("kilo", &["send", "hive", SAME]);
    assert!(refused.code == 1 && refused.stderr.contains("(no_progress)"), "{refused:?}");
    assert!(refused.stderr.contains("\na human can lift it: lastword resume T-1/1\n"), "{refused:?}");
    let listed = server.operator(&["escalations"]).ok();
    for part in ["kilo and hive make no progress", SAME, "lastword answer esc-1 --lift lift-1"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    server.operator(&["answer", "esc-1", "--lift", "lift-1", "--yes"]).ok();
    server.as_agent("kilo", &["inbox", "--wait", "5s"]).ok();
    assert!(!round(&server, SAME, "it is green").contains("warning:"), "the exchange starts anew");
    let told = server.operator(&["limits", "--json"]).json();
    assert_eq!((&told["profile"], &told["guards"]["no_progress"]), (&"long".into(), &"enforce".into()));
}

#[test]
fn in_the_profile_strict_the_same_loop_is_only_recorded() {
    let server = team("[limits]\ndepth_max = 39\n");
    for n in 0..4 {
        let sent = round(&server, SAME, &format!("run {n} failed"));
        assert!(!sent.contains("warning:"), "{sent}");
    }
    let listed = server.operator(&["escalations"]).ok();
    assert!(!listed.contains("no progress"), "{listed}");
    let told = server.operator(&["limits", "--json"]).json();
    assert_eq!((&told["profile"], &told["guards"]["no_progress"]), (&"strict".into(), &"observe".into()));
}
