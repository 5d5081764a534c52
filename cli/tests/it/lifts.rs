//! Lifts and grants from a terminal, and how the terminal shows which one is needed (H6, R3).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::program::{Server, lastword};
use crate::screen::Terminal;

/// Returns a server with two agents, kilo in its turn on T-1, at the cap of one exchange.
pub(crate) fn at_the_cap() -> Server {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\ndepth_max = 1\n").unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    server.agent("hive");
    server.operator(&["ask", "kilo", "write it", "--ref", "T-1", "--wait", "0s"]).ok();
    let turn = |who: &str| {
        let taken = server.as_agent(who, &["inbox", "--wait", "5s", "--json"]).json();
        taken["turn"]["id"].as_str().unwrap().to_owned()
    };
    let first = turn("kilo");
    server.as_agent("kilo", &["send", "hive", "review it", "--ref", "T-1"]).ok();
    server.as_agent("kilo", &["finish", &first, "asked hive"]).ok();
    server.as_agent("hive", &["finish", &turn("hive"), "two remarks"]).ok();
    turn("kilo");
    server
}

/// Sends an agent's question to its human.
pub(crate) fn escalate(server: &Server, agent: &str, message: &str) {
    let token = fs::read_to_string(server.path().join(format!("{agent}.token"))).unwrap();
    crate::online::escalate(server.first_line["listening"].as_str().unwrap(), token.trim(), message);
}

#[test]
fn a_limit_its_lift_and_that_words_extend_nothing_are_told_where_the_human_answers() {
    let server = at_the_cap();
    let again = ["send", "hive", "again", "--ref", "T-1"];
    let limit = server.operator(&["explain", "depth_max"]).ok();
    assert!(limit.contains("depth_max: 1 in force, 5 by default (D2)"), "{limit}");
    let refused = server.as_agent("kilo", &again);
    assert!(refused.stderr.contains("(depth_cap)"), "{refused:?}");
    assert!(refused.stderr.contains("\na human can lift it: lastword grant T-1 --rounds 2\n"), "{refused:?}");
    for _ in 0..2 {
        escalate(&server, "kilo", "two more rounds?");
    }
    let listed = server.operator(&["escalations"]).ok();
    for part in ["The limit is 1, and this would make it 2.", "2 more rounds  lastword answer esc-1 --lift lift-1"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let words = server.operator(&["answer", "esc-1", "sure", "--yes"]);
    assert_eq!(words.code, 0, "{words:?}");
    assert!(
        words.stderr.contains(
            "An answer lifts no limit; this does, and answers nothing:\n  2 more rounds  lastword answer esc-1 --lift"
        ),
        "{words:?}"
    );
    assert_eq!(server.as_agent("kilo", &again).code, 1, "words extended nothing");
    let none = server.operator(&["answer", "esc-2", "--lift", "lift-7", "--yes"]);
    assert!(
        none.code == 1 && none.stderr.contains("hint: 2 more rounds  lastword answer esc-2 --lift lift-1"),
        "{none:?}"
    );
    let chosen = server.operator(&["answer", "esc-2", "--lift", "lift-1", "--yes"]).ok();
    assert_eq!(chosen, "lifted: 2 more rounds; the question of esc-2 is still open\n");
    server.as_agent("kilo", &again).ok();
    assert!(!server.operator(&["escalations", "--all"]).ok().contains("--lift"), "what was chosen is not offered");
}

#[test]
fn rounds_are_granted_by_the_command_that_the_refusal_names() {
    let server = at_the_cap();
    let again = ["send", "hive", "again", "--ref", "T-1"];
    assert_eq!(server.as_agent("kilo", &again).code, 1);
    assert_eq!(server.operator(&["grant", "T-1", "--rounds", "11", "--yes"]).code, 1, "ten at a time");
    server.operator(&["grant", "T-1", "--rounds", "2", "--yes"]).ok();
    server.as_agent("kilo", &again).ok();
}

#[test]
fn who_asks_and_waits_is_told_what_holds_it_and_the_one_step_that_lets_it_go_on() {
    let server = Server::start();
    server.agent("hive");
    server.operator(&["pause", "--agent", "hive"]).ok();
    let mut ask = lastword(server.path());
    ask.args(["--token-file", ".lastword/operator.token", "ask", "hive", "are you there?"]);
    let mut ask = ask.stderr(Stdio::piped()).spawn().unwrap();
    // Behind what it waits for, and how to leave.
    let mut lines = BufReader::new(ask.stderr.take().unwrap()).lines().map(Result::unwrap).skip(2);
    assert_eq!(lines.next().as_deref(), Some("held: agent hive is paused"));
    assert_eq!(lines.next().as_deref(), Some("  lastword resume --agent hive"));
    server.operator(&["resume", "--agent", "hive", "--yes"]).ok();
    let taken = server.as_agent("hive", &["inbox", "--wait", "5s", "--json"]).json();
    escalate(&server, "hive", "which colour?");
    assert_eq!(lines.next().as_deref(), Some("held: hive waits for the answer to esc-1"));
    assert_eq!(lines.next().as_deref(), Some("  lastword answer esc-1 \"…\""));
    server.operator(&["answer", "esc-1", "blue", "--yes"]).ok();
    server.as_agent("hive", &["inbox", "--wait", "5s"]).ok();
    server.as_agent("hive", &["finish", taken["turn"]["id"].as_str().unwrap(), "I am"]).ok();
    let output = ask.wait_with_output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("I am"));
    assert_eq!(lines.next(), None, "each is said once");
}

#[test]
fn who_asks_and_waits_is_told_the_lift_and_gets_the_answer_once_it_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\ntask_requests_max = 1\n").unwrap();
    let server = Server::start_in(dir);
    for name in ["kilo", "hive", "mike"] {
        server.agent(name);
    }
    let mut ask = lastword(server.path());
    ask.args(["--token-file", ".lastword/operator.token", "ask", "kilo", "write it", "--ref", "T-1"]);
    let mut ask = ask.stderr(Stdio::piped()).spawn().unwrap();
    // Behind what it waits for, and how to leave.
    let mut lines = BufReader::new(ask.stderr.take().unwrap()).lines().map(Result::unwrap).skip(2);
    let taken = server.as_agent("kilo", &["inbox", "--wait", "20s", "--json"]).json();
    server.as_agent("kilo", &["send", "hive", "help"]).ok();
    assert!(server.as_agent("kilo", &["send", "mike", "help"]).stderr.contains("(task_requests)"));
    escalate(&server, "kilo", "one more?");
    assert_eq!(lines.next().as_deref(), Some("held: kilo waits for the answer to esc-1"));
    assert_eq!(lines.next().as_deref(), Some("  lastword answer esc-1 --lift lift-1"));
    let given = server.operator(&["answer", "esc-1", "--lift", "lift-1", "--yes"]).ok();
    assert_eq!(given, "lifted: 4 more requests; the question of esc-1 is still open\n");
    server.as_agent("kilo", &["send", "mike", "help"]).ok();
    let finish = ["finish", taken["turn"]["id"].as_str().unwrap(), "written", "--status", "completed"];
    server.as_agent("kilo", &finish).ok();
    assert!(String::from_utf8(ask.wait_with_output().unwrap().stdout).unwrap().contains("written"));
}

#[test]
fn an_agents_own_limits_are_set_shown_and_taken_away() {
    let server = Server::start();
    server.operator(&["agent", "add", "kilo", "--ack", "1d", "--turns", "2"]).ok();
    let shown = server.operator(&["agent", "show", "kilo", "--json"]).json();
    assert_eq!(shown["limits"], serde_json::json!({"ack_ms": 86_400_000, "agent_turns_max": 2}));
    let all = [
        "--roots-per-hour",
        "20",
        "--pair-messages",
        "5",
        "--sender-messages",
        "9",
        "--ack",
        "0s",
        "--turns",
        "0",
        "--day-tokens",
        "1000",
        "--day-cost",
        "1.5",
    ];
    let set = server.operator(&[&["agent", "set", "kilo"][..], &all, &["--yes"]].concat()).ok();
    let own = "kilo has the limits agent_day_cost_microusd_max 1500000, agent_day_tokens_max 1000, pair_messages_max 5, \
               roots_per_hour_max 20, sender_messages_max 9\n";
    assert_eq!(set, own);
    assert!(server.operator(&["agent", "show", "kilo"]).ok().contains(own.trim_end()));
    assert_eq!(server.operator(&["agent", "add", "anna", "--kind", "human", "--turns", "2"]).code, 2);
    let given = server.operator(&["grant", "--agent", "kilo", "--tokens", "500", "--cost", "0.5", "--yes"]).ok();
    assert_eq!(given, "extended the budget of kilo for today\n");
}

#[test]
fn humans_are_added_listed_and_given_a_role() {
    let server = Server::start();
    let token = server.operator(&["human", "add", "anna", "--role", "viewer"]).ok();
    fs::write(server.path().join("anna.token"), &token).unwrap();
    assert_eq!(server.as_agent("anna", &["pause", "--workspace"]).code, 1, "a viewer pauses nothing");
    let listed = server.operator(&["human", "list"]).ok();
    assert!(listed.contains("anna      viewer") && listed.contains("operator  owner"), "{listed}");
    assert_eq!(server.operator(&["human", "role", "anna", "operator", "--yes"]).ok(), "anna is operator now\n");
    server.as_agent("anna", &["pause", "--workspace"]).ok();
    let last = server.operator(&["human", "role", "operator", "viewer", "--yes"]);
    assert!(last.code == 1 && last.stderr.contains("last owner"), "{last:?}");
}

#[test]
fn a_grant_that_is_not_enough_says_so_and_a_schedule_is_a_scripts_with_yes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\ngrant_messages_max = 2\n").unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    server.agent("hive");
    server.operator(&["ask", "kilo", "write it", "--ref", "T-1", "--wait", "0s"]).ok();
    let turn = server.as_agent("kilo", &["inbox", "--wait", "5s", "--json"]).json()["turn"]["id"].clone();
    assert_eq!(server.as_agent("kilo", &["send", "hive", "review it"]).code, 1);
    let grant = || server.operator(&["grant", "T-1", "--messages", "1", "--yes"]).ok();
    let short = grant();
    assert!(
        short.starts_with("not lifted: ") && short.contains("lift it: lastword grant T-1 --messages 20"),
        "{short}"
    );
    assert_eq!(grant(), "extended the budget of T-1\n");
    server.as_agent("kilo", &["send", "hive", "review it"]).ok();
    server.as_agent("kilo", &["finish", turn.as_str().unwrap(), "done", "--status", "completed"]).ok();
    let ended = server.operator(&["grant", "T-1", "--messages", "1", "--yes"]);
    assert!(ended.stderr.contains("send a new request (already_settled)"), "{ended:?}");
    let nightly = ["schedule", "add", "nightly", "run the tests", "--to", "hive", "--cron", "0 2 * * *"];
    assert_eq!(server.operator(&nightly).code, 1, "nobody sits at a terminal");
    server.operator(&[&nightly[..], &["--yes"]].concat()).ok();
    server.operator(&["schedule", "run", "nightly", "--yes"]).ok();
    assert!(server.operator(&["schedule", "list"]).ok().contains("nightly"));
    server.operator(&["schedule", "remove", "nightly", "--yes"]).ok();
}

/// Returns a server with these limits, on which hive has spent $7.50 for kilo's T-1.
fn expensive(limits: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), format!("[limits]\n{limits}\n")).unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    server.agent("hive");
    server.operator(&["ask", "kilo", "write it", "--ref", "T-1", "--wait", "0s"]).ok();
    server.as_agent("kilo", &["inbox", "--wait", "5s"]).ok();
    server.as_agent("kilo", &["send", "hive", "help", "--ref", "T-1"]).ok();
    let taken = server.as_agent("hive", &["inbox", "--wait", "5s", "--json"]).json();
    let token = fs::read_to_string(server.path().join("hive.token")).unwrap();
    let (url, turn) = (server.first_line["listening"].as_str().unwrap(), taken["turn"]["id"].as_str().unwrap());
    let body = r#"{"answer": "done", "usage": {"cost_usd": 7.5}}"#;
    crate::online::post(url, token.trim(), &format!("/v1/turns/{turn}/finish"), body);
    server
}

#[test]
fn a_hold_by_money_is_told_in_dollars_wherever_the_terminal_shows_it() {
    let server = expensive("grant_cost_microusd_max = 6000000");
    server.as_agent("kilo", &["send", "hive", "again", "--ref", "T-1"]);
    let looks: [&[&str]; 6] = [
        &["incidents"],
        &["explain", "inc-1"],
        &["explain", "grant-1"],
        &["tree", "T-1"],
        &["tail", "-n", "200"],
        &["inbox"],
    ];
    for look in looks {
        let told = server.operator(look).ok();
        assert!(told.contains("$6.00") && !told.contains("000000"), "{look:?}: {told}");
    }
    let top = Terminal::run(server.path(), &["top"], &[]);
    top.shows(&["inc-1", "budget $7.50/$6.00"]);
}

#[test]
fn an_extension_that_lifts_no_hold_says_so_in_red_and_what_lifts_it() {
    let server = expensive("grant_cost_microusd_max = 6000000");
    let tokens = ["grant", "T-1", "--tokens", "5", "--yes"];
    let told = server.operator(&tokens).ok();
    let lift = "lastword grant T-1 --cost 6.0";
    assert!(told.starts_with("not lifted: the amount was added to the budget of T-1\n"), "{told}");
    assert!(told.contains("held: grant grant-1 is held") && told.contains(&format!("lift it: {lift}\n")), "{told}");
    let json = server.operator(&[&tokens[..], &["--json"]].concat()).json();
    assert_eq!(json["held_by"][0]["lift"]["cli"], lift, "{json}");
    let red = Terminal::run(server.path(), &tokens, &[]);
    red.shows(&["not lifted", "lift it"]);
    assert!(red.written().contains("\u{1b}[31mnot lifted"), "{}", red.written());
    assert_eq!(red.ended(), 0);
    let json = server.operator(&["grant", "T-1", "--cost", "6.0", "--yes", "--json"]).json();
    assert_eq!(json, serde_json::json!({ "held_by": [] }));
    assert_eq!(server.operator(&tokens).ok(), "extended the budget of T-1\n");
}

#[test]
fn a_day_whose_money_is_used_up_is_told_in_dollars_and_extended_by_them() {
    let server = expensive("agent_day_cost_microusd_max = 6000000");
    assert!(server.operator(&["incidents"]).ok().contains("$6.00"));
    let lift = "lastword grant --agent hive --cost 6.0";
    let by = |more: [&str; 2]| server.operator(&["grant", "--agent", "hive", more[0], more[1], "--yes"]).ok();
    let told = by(["--tokens", "5"]);
    assert!(told.starts_with("not lifted: the amount was added to the budget of hive for today\n"), "{told}");
    assert!(told.contains(&format!("lift it: {lift}\n")), "{told}");
    server.agent("lima");
    let refused = server.as_agent("hive", &["send", "lima", "hello", "--ref", "T-2"]);
    assert!(refused.stderr.contains("(limit $6.00, would be $7.50)"), "{refused:?}");
    assert!(refused.stderr.contains(&format!("a human can lift it: {lift}\n")), "{refused:?}");
    assert_eq!(by(["--cost", "6.0"]), "extended the budget of hive for today\n");
}

#[test]
fn latched_work_is_said_wherever_its_asker_looks() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\ngrant_messages_max = 4\n").unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    server.agent("hive");
    server.operator(&["ask", "kilo", "write it", "--ref", "T-1", "--wait", "0s"]).ok();
    server.as_agent("kilo", &["inbox", "--wait", "5s"]).ok();
    server.as_agent("kilo", &["send", "hive", "help"]).ok();
    assert!(server.as_agent("kilo", &["send", "hive", "more help"]).stderr.contains("(grant_messages)"));
    let lift = "lift it: lastword grant T-1 --messages 20";
    for look in [&["tree", "T-1"][..], &["inbox"], &["explain", "T-1"], &["explain", "inc-1"], &["explain", "grant-1"]]
    {
        let told = server.operator(look).ok();
        assert!(told.contains("held: grant grant-1 is held") && told.contains(lift), "{look:?}: {told}");
        let narrow = |line: &str| line.contains("✗") || line.chars().count() <= 80;
        assert!(told.lines().all(narrow), "{look:?}: {told}");
    }
    let explained = server.operator(&["explain", "inc-1", "--json"]).json();
    assert_eq!((&explained["subject"], &explained["grant"]["id"]), (&"incident".into(), &"grant-1".into()));
    server.operator(&["grant", "T-1", "--messages", "20", "--yes"]).ok();
    assert!(server.operator(&["explain", "inc-1"]).ok().contains("lifted by operator"));
    assert!(!server.operator(&["tree", "T-1"]).ok().contains("held:"));
    let unknown = server.operator(&["explain", "T-99"]);
    assert!(unknown.stderr.contains("isn't an id, REF, code, rule or limit"), "{unknown:?}");
}

#[test]
fn a_latched_room_is_explained_with_the_step_that_resumes_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\nturns_soft_max = 1\nturns_hard_max = 2\n").unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    let token = |file: &str| fs::read_to_string(server.path().join(file)).unwrap().trim().to_owned();
    let (human, kilo) = (token(".lastword/operator.token"), token("kilo.token"));
    let call = |token: &str, path: &str, body: serde_json::Value| {
        crate::online::post(server.first_line["listening"].as_str().unwrap(), token, path, &body.to_string())
    };
    call(&human, "/v1/rooms", serde_json::json!({ "name": "ops", "members": ["kilo"] }));
    for _ in 0..3 {
        call(&kilo, "/v1/rooms/ops/messages", serde_json::json!({ "body": "hello" }));
    }
    let told = server.operator(&["explain", "inc-1"]).ok();
    assert!(told.contains("room ops is held") && told.contains("lastword resume --room ops"), "{told}");
    server.operator(&["resume", "--room", "ops", "--yes"]).ok();
    let told = server.operator(&["explain", "inc-1"]).ok();
    assert!(told.contains("lifted by operator") && !told.contains("is held"), "{told}");
}

#[test]
fn who_asks_is_told_that_nobody_takes_it_and_an_empty_request_is_refused() {
    let server = Server::start();
    server.agent("kilo");
    let empty = server.operator(&["ask", "kilo", "  ", "--wait", "0s"]);
    assert!(empty.code == 1 && empty.stderr.contains("the request asks for nothing"), "{empty:?}");
    let ended = server.operator(&["ask", "kilo", "write it", "--wait", "100ms"]);
    assert!(ended.stderr.contains("kilo is not connected"), "{ended:?}");
    assert!(ended.stderr.contains("the answer will be in `lastword inbox`"), "{ended:?}");
    server.operator(&["pause", "--workspace"]).ok();
    let held = server.operator(&["ask", "kilo", "and this", "--wait", "100ms"]);
    assert!(
        held.stderr.contains("hint: held: the workspace is paused; lift it: lastword resume --workspace"),
        "{held:?}"
    );
}

#[test]
fn the_tree_shows_a_question_and_its_answer_where_they_were_asked() {
    let server = Server::start();
    server.agent("kilo");
    server.operator(&["ask", "kilo", "paint it", "--ref", "T-1", "--wait", "0s"]).ok();
    let taken = server.as_agent("kilo", &["inbox", "--wait", "5s", "--json"]).json();
    escalate(&server, "kilo", "which colour?");
    let asked = server.operator(&["tree", "T-1"]).ok();
    assert!(asked.contains("? esc-1 kilo → humans open") && asked.contains("which colour?"), "{asked}");
    server.operator(&["answer", "esc-1", "blue", "--yes"]).ok();
    server.as_agent("kilo", &["inbox", "--wait", "5s"]).ok();
    server.as_agent("kilo", &["finish", taken["turn"]["id"].as_str().unwrap(), "painted"]).ok();
    let told = server.operator(&["tree", "T-1"]).ok();
    let place = |part: &str| told.find(part).unwrap_or_else(|| panic!("{part}: {told}"));
    assert!(
        place("which colour?") < place("→ operator: blue") && place("→ operator: blue") < place("painted"),
        "{told}"
    );
}

#[test]
fn who_asks_and_waits_gets_the_answer_over_a_restart_of_the_broker() {
    let mut server = Server::start();
    server.agent("kilo");
    let mut ask = lastword(server.path());
    ask.args(["--token-file", ".lastword/operator.token", "ask", "kilo", "write it", "--ref", "T-1"]);
    let mut ask = ask.stderr(Stdio::piped()).spawn().unwrap();
    // Behind what it waits for, and how to leave.
    let mut lines = BufReader::new(ask.stderr.take().unwrap()).lines().map(Result::unwrap).skip(2);
    server.as_agent("kilo", &["inbox", "--wait", "20s"]).ok();
    // The recipient may have the request before the sender has its reply.
    server.as_agent("kilo", &["ls"]).ok();
    let dir = server.take_dir();
    drop(server.kill());
    assert_eq!(lines.next().as_deref(), Some("no broker answers: msg-7 is recorded; waiting for the broker"));
    let server = Server::start_in(dir);
    server.as_agent("kilo", &["finish", "turn-1", "written"]).ok();
    assert!(String::from_utf8(ask.wait_with_output().unwrap().stdout).unwrap().contains("written"));
}

#[test]
fn the_step_that_lifts_a_stop_of_an_agent_names_the_agent_and_lifts_it() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    server.operator(&["stop", "--agent", "hive"]).ok();
    let step = "lastword resume --agent hive";
    let refused = server.operator(&["ask", "hive", "are you there?", "--wait", "0s"]);
    assert!(refused.stderr.contains(&format!("a human can lift it: {step}\n")), "{refused:?}");
    server.operator(&["ask", "kilo", "ask hive", "--ref", "T-1", "--wait", "0s"]).ok();
    server.as_agent("kilo", &["inbox", "--wait", "5s"]).ok();
    let refused = server.as_agent("kilo", &["send", "hive", "are you there?", "--json"]);
    let problem: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(problem["error"]["lift"]["cli"], step, "{refused:?}");
    let record = problem["error"]["record"].as_str().unwrap();
    let explained = server.operator(&["explain", record]).ok();
    assert!(explained.contains(&format!("a human: {step}")), "{explained}");
    server.operator(&["resume", "--agent", "hive", "--yes"]).ok();
    server.as_agent("kilo", &["send", "hive", "are you there?"]).ok();
}
