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
    explained(&server, &refused.stderr);
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

/// The hold, the refusal after it and the messages before it show the same curve.
fn explained(server: &Server, refused: &str) {
    let told = server.operator(&["explain", "esc-1", "--json"]).json();
    let exchange = &told["exchange"];
    let lines = exchange["lines"].as_array().unwrap();
    assert_eq!((&exchange["asker"], &exchange["delegate"]), (&"kilo".into(), &"hive".into()), "{told}");
    assert_eq!(
        (lines.len() as u64, &exchange["omitted"]),
        (exchange["messages"].as_u64().unwrap(), &0.into()),
        "{told}"
    );
    let ids: Vec<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    let (first, last) = (&lines[0], lines.last().unwrap());
    assert_eq!((&first["dry_millis"], &first["repeats"]), (&0.into(), &serde_json::Value::Null), "{told}");
    assert_eq!((&last["verdict"], &last["reason"]), (&"held".into(), &"stuck".into()), "{told}");
    assert_eq!(last["dry_millis"], exchange["dry_millis"]);
    let again = &lines[4]["repeats"];
    assert_eq!((&again["id"], &again["same"]), (&ids[0].into(), &true.into()), "{told}");
    let like = &lines[3]["repeats"];
    assert_eq!((&like["id"], &like["same"], &like["of"]), (&ids[1].into(), &false.into(), &3.into()), "{told}");
    assert_eq!(first["excerpt"], SAME);

    let text = server.operator(&["explain", "esc-1"]).ok();
    let summary = exchange["summary"].as_str().unwrap();
    for part in ["exchange of kilo and hive", summary, "said again", SAME, &format!("= {}", ids[0])] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let from = text.find("exchange of").unwrap();
    let wide =
        text[from..].lines().take_while(|line| !line.starts_with("limits")).find(|line| line.chars().count() > 100);
    assert_eq!(wide, None, "{text}");

    let record = refused.split_whitespace().find(|word| word.starts_with("refused-"));
    let record = record.unwrap_or_else(|| panic!("{refused}"));
    for (who, id) in [("kilo", record), ("kilo", ids[2]), ("hive", ids[3])] {
        let told = server.as_agent(who, &["explain", id, "--json"]).json();
        assert_eq!(told["exchange"]["lines"][0], *first, "{id}: {told}");
    }
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
    let asked = server.operator(&["audit", "--from", "kilo", "--json"]).json();
    let id = asked["items"][0]["id"].as_str().unwrap();
    let told = server.as_agent("kilo", &["explain", id]).ok();
    assert!(
        told.contains("would hold") && told.contains("\n  would hold: the same message") && !told.contains("  held"),
        "{told}"
    );
    let told = server.operator(&["limits", "--json"]).json();
    assert_eq!((&told["profile"], &told["guards"]["no_progress"]), (&"strict".into(), &"observe".into()));
}
