//! `lastword run --driver acp` with an agent that does what the message says.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::online::post;
use crate::program::{Server, lastword};
use crate::running::{Running, answer, ask, fake_acp, process_in, runs, send, wait_for};

#[test]
fn what_an_agent_says_is_the_answer_and_its_session_stays() {
    let server = Server::start();
    let program = server.path().join("gemini");
    std::os::unix::fs::symlink(fake_acp(), &program).unwrap();
    let program = program.to_str().unwrap();
    let mut agent = Running::start(&server, "fake", &["--driver", "acp", "--", program, "--http"]);
    let said = ask(&server, "fake", "say I'll look.\ntool look\nsay It is fine.\nusage 900 80");
    assert_eq!(
        (said["body"].as_str(), said["status"].as_str()),
        (Some("I'll look.\n\nIt is fine."), Some("completed"))
    );
    assert_eq!(agent.until("session")["how"], "new");
    assert_eq!(server.operator(&["--json", "agent", "show", "fake"]).json()["tokens_today"], 980);
    let prompt = fs::read_to_string(server.path().join("prompt.txt")).unwrap();
    assert!(
        prompt.contains("[FROM:operator][TO:fake][TYPE:REQUEST][REF:") && prompt.contains("routes it to the requester"),
        "{prompt}"
    );
    let reference = said["ref"].as_str().unwrap();
    let mcp: Value = serde_json::from_str(&fs::read_to_string(server.path().join("mcp.json")).unwrap()).unwrap();
    let url = format!("{}/mcp", server.first_line["listening"].as_str().unwrap());
    assert_eq!((mcp[0]["type"].as_str(), mcp[0]["url"].as_str()), (Some("http"), Some(url.as_str())));
    send(&server, "fake", reference, "session");
    answer(&server);
    assert_eq!(agent.until("session")["how"], "kept", "one session a conversation");
    send(&server, "fake", "OTHER-1", "session");
    assert_eq!(agent.until("session")["how"], "new");
    answer(&server);
    assert_eq!(agent.terminate(), 0);
}

#[test]
fn a_prompt_names_its_place_in_the_trace() {
    const FOREIGN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let server = Server::start();
    let _agent = Running::acp(&server, "fake", &[], &[]);
    let token = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
    let metadata = json!({ "traceparent": FOREIGN });
    let body = json!({ "type": "request", "to": "fake", "ref": "E-1", "body": "say hi", "metadata": metadata });
    let url = server.first_line["listening"].as_str().unwrap();
    post(url, token.trim(), "/v1/messages", &body.to_string());
    answer(&server);
    let meta: Value = serde_json::from_str(&fs::read_to_string(server.path().join("meta.json")).unwrap()).unwrap();
    assert_eq!(meta, metadata);
}

#[test]
fn an_answer_comes_into_the_session_of_the_task_that_asked() {
    let server = Server::start();
    let lastword = format!("L={}", env!("CARGO_BIN_EXE_lastword"));
    let mut agent = Running::acp(&server, "fake", &["--env", &lastword], &[]);
    let _hive = Running::start(&server, "hive", &["--", "sed", "s/.*/say hive answered/"]);
    send(&server, "fake", "E-1", "run \"$L\" send hive look\nsay asked");
    assert_eq!(agent.until("session")["how"], "new");
    assert_eq!(agent.until("finished")["status"], "waiting");
    assert_eq!(agent.until("taken")["ref"], "E-1/1", "the answer has a conversation of its own");
    assert_eq!(agent.until("session")["how"], "kept");
    assert_eq!(answer(&server)["body"], "hive answered");
}

#[test]
fn an_agent_without_mcp_over_http_gets_the_tools_over_standard_output() {
    let server = Server::start();
    let _agent = Running::acp(&server, "fake", &[], &[]);
    ask(&server, "fake", "say hi");
    let mcp: Value = serde_json::from_str(&fs::read_to_string(server.path().join("mcp.json")).unwrap()).unwrap();
    assert_eq!(mcp[0]["args"][0], "mcp");
    assert_eq!(mcp[0]["env"][0]["name"], "LASTWORD_TOKEN_FILE");
    let file = mcp[0]["env"][0]["value"].as_str().unwrap();
    let token = fs::read_to_string(file).unwrap();
    assert_ne!(token, fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap().trim());
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn figures_that_no_model_could_have_produced_are_left_out_and_the_answer_arrives() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    let said = ask(&server, "fake", &format!("say It is fine.\nusage {} 0", u64::MAX));
    assert_eq!((said["body"].as_str(), said["status"].as_str()), (Some("It is fine."), Some("completed")));
    assert!(agent.until("warning")["message"].as_str().unwrap().contains("usage.input_tokens"));
    let tokens = server.operator(&["--json", "agent", "show", "fake"]).json()["tokens_today"].as_u64().unwrap();
    assert!(tokens < 1_000, "{tokens}");
}

#[test]
fn an_agents_token_is_in_no_argument_of_what_its_program_starts() {
    let server = Server::start();
    // `claude-agent-acp` passes its session's servers on in arguments; what another program does isn't known.
    for (name, flags) in
        [("claude-agent-acp", ["--http"].as_slice()), ("claude-agent-acp", &[]), ("some-acp", &["--http"])]
    {
        let program = server.path().join(name);
        let _there = std::os::unix::fs::symlink(fake_acp(), &program);
        let args = [&["--driver", "acp", "--unheld", "--", program.to_str().unwrap()], flags].concat();
        let agent = Running::start(&server, "fake", &args);
        let token = ask(&server, "fake", "run printf %s \"$LASTWORD_TOKEN\" > token\nsay done");
        assert_eq!(token["body"], "done");
        let token = fs::read_to_string(server.path().join("token")).unwrap();
        let mcp = fs::read_to_string(server.path().join("mcp.json")).unwrap();
        assert!(token.len() > 20 && !mcp.contains(&token), "{name} {flags:?}: {mcp}");
        assert_eq!(mcp.contains("${LASTWORD_TOKEN}"), name == "claude-agent-acp", "{mcp}");
        agent.terminate();
    }
}

#[test]
fn a_call_waits_for_a_human_and_goes_on_once_approved() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    send(&server, "fake", "E-1", "permit rm -r build\nsay done");
    let asked = agent.until("approval_asked");
    let id = asked["approval"].as_str().unwrap();
    let held = server.operator(&["--json", "approvals"]).json();
    let call = &held["items"][0];
    assert_eq!(
        (call["tool"].as_str(), &call["arguments"]["input"]["command"]),
        (Some("execute"), &"rm -r build".into())
    );
    server.operator(&["approve", id, "--yes", "--digest", call["digest"].as_str().unwrap()]).ok();
    let told = agent.until("approval_answered");
    assert_eq!(told["allowed"], true);
    assert_eq!(answer(&server)["body"], "allow_oncedone", "once, and never always");
    let mut tail = lastword(server.path());
    tail.args(["--token-file", ".lastword/operator.token", "--json", "tail", "--after", "0"]);
    let mut tail = tail.spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("approval_used")), "the approval was used up");
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn a_call_of_git_holds_its_tree_from_its_approval_to_its_end() {
    let server = Server::start();
    let init = std::process::Command::new("git").args(["init", "-q"]).arg(server.path()).status().unwrap();
    assert!(init.success());
    let claims = || server.operator(&["--json", "claims"]).json()["items"].as_array().unwrap().len();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    let waits = |file: &str| format!("run until [ -e {file} ]; do sleep 0.05; done");
    send(
        &server,
        "fake",
        "E-1",
        &["permit git stash", &waits("ends"), "ended ask-1", &waits("goes"), "say done"].join("\n"),
    );
    let asked = agent.until("approval_asked");
    assert_eq!(claims(), 0, "others go on while it waits");
    let digest = server.operator(&["--json", "approvals"]).json()["items"][0]["digest"].clone();
    let decided = ["approve", asked["approval"].as_str().unwrap(), "--yes", "--digest", digest.as_str().unwrap()];
    server.operator(&decided).ok();
    assert_eq!(agent.until("approval_answered")["allowed"], true);
    assert_eq!(claims(), 1, "while it runs");
    fs::write(server.path().join("ends"), "").unwrap();
    wait_for("the end of the claim", || claims() == 0);
    fs::write(server.path().join("goes"), "").unwrap();
    assert_eq!(answer(&server)["body"], "allow_once\n\ndone");
}

#[test]
fn what_an_agent_tells_of_its_context_is_charged_while_it_works_and_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("lastword.toml"), "[limits]\ngrant_tokens_max = 30000\nprogress_interval_ms = 1\n")
        .unwrap();
    let server = Server::start_in(dir);
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    // Two requests: 20,000 tokens, then those from a cache and 2,000 more.
    send(&server, "fake", "E-1", "context 20000\ncontext 22000\nsay done");
    assert_eq!(agent.until("finished")["status"], "completed");
    let node = server.operator(&["--json", "tree", "E-1"]).json()["tree"][0].clone();
    assert_eq!((&node["tokens"], &node["estimated"]), (&24_000.into(), &true.into()), "{node}");
    // It never ends by itself.
    send(&server, "fake", "E-2", "say half\ncontext 40000\nrun sleep 60");
    let held = agent.until("finished");
    assert_eq!(held["status"], "held", "{held}");
    let incidents = server.operator(&["--json", "incidents"]).json();
    assert_eq!((&incidents["items"][0]["code"], &incidents["items"][0]["ref"]), (&"budget".into(), &"E-2".into()));
}

#[test]
fn a_rejected_call_is_told_to_the_agent_with_the_humans_words() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    send(&server, "fake", "E-1", "permit deploy");
    let asked = agent.until("approval_asked");
    server.operator(&["reject", asked["approval"].as_str().unwrap(), "--yes", "--comment", "not on a Friday"]).ok();
    assert_eq!(agent.until("approval_answered")["allowed"], false);
    assert_eq!(
        answer(&server)["body"],
        "I was told: Your call of \"execute\" was not allowed: rejected by the human operator. \
         The comment of the human operator: not on a Friday"
    );
    send(&server, "fake", "E-2", "permit deploy");
    let asked = agent.until("approval_asked");
    server.operator(&["reject", asked["approval"].as_str().unwrap(), "--yes"]).ok();
    assert_eq!(answer(&server)["body"], "reject_once");
}

#[test]
fn an_agent_that_gives_up_at_a_denial_is_told_why_and_says_what_becomes_of_its_work() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    send(&server, "fake", "E-1", "say I'll deploy.\nneed deploy\nsay deployed");
    let asked = agent.until("approval_asked");
    server.operator(&["reject", asked["approval"].as_str().unwrap(), "--yes"]).ok();
    let said = answer(&server);
    let told = "I was told: Your call of \"execute\" was not allowed: rejected by the human operator.";
    assert!(said["body"].as_str().unwrap().starts_with(told), "{said}");
    assert_eq!(said["status"], "completed");
}

#[test]
fn of_an_agent_that_says_nothing_about_a_denial_the_asker_hears_what_was_denied() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &["--sullen"]);
    send(&server, "fake", "E-1", "need deploy\nsay deployed");
    let asked = agent.until("approval_asked");
    server.operator(&["reject", asked["approval"].as_str().unwrap(), "--yes"]).ok();
    let said = answer(&server);
    assert_eq!(
        (said["status"].as_str(), said["reason"].as_str()),
        (Some("failed"), Some("its call of execute was not allowed: rejected by the human operator"))
    );
}

#[test]
fn a_call_on_which_nobody_decides_is_denied() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\napproval_ms = 200\n").unwrap();
    let server = Server::start_in(dir);
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    assert_eq!(ask(&server, "fake", "permit deploy")["body"], "reject_once");
    let told = agent.until("approval_answered");
    assert!(told["reason"].as_str().unwrap().contains("no human decided in time"), "{told}");
}

#[test]
fn a_tool_that_was_allowed_by_name_needs_no_approval_and_its_title_alone_allows_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\napproval_ms = 100\n").unwrap();
    let server = Server::start_in(dir);
    let _agent = Running::acp(&server, "fake", &["--allow", "look_*"], &[]);
    assert_eq!(ask(&server, "fake", "permit look_up by name")["body"], "allow_once");
    assert_eq!(ask(&server, "fake", "permit look_up")["body"], "reject_once");
}

#[test]
fn a_stop_cancels_the_prompt_and_the_agent_stays() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &["--grace", "30s"], &[]);
    send(&server, "fake", "E-1", "wait");
    wait_for("the prompt", || server.path().join("waits").exists());
    server.operator(&["stop", "E-1"]).ok();
    agent.until("withdrawn");
    wait_for("the cancel", || server.path().join("cancelled").exists());
    assert_eq!(answer(&server)["status"], "cancelled");
    assert_eq!(ask(&server, "fake", "say still here")["body"], "still here");
}

#[test]
fn a_stop_takes_back_what_waits_for_a_human() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &["--grace", "30s"], &[]);
    send(&server, "fake", "E-1", "permit deploy");
    agent.until("approval_asked");
    server.operator(&["stop", "E-1"]).ok();
    agent.until("withdrawn");
    assert_eq!(answer(&server)["status"], "cancelled");
    assert_eq!(ask(&server, "fake", "say still here")["body"], "still here");
}

#[test]
fn a_deaf_agent_is_killed_after_its_grace_and_started_again() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    send(&server, "fake", "E-1", "hang");
    let pid = process_in(&server.path().join("hung"));
    server.operator(&["stop", "E-1"]).ok();
    agent.until("withdrawn");
    wait_for("the end of its process", || !runs(&pid));
    agent.until("agent_started");
    assert_eq!(answer(&server)["status"], "cancelled");
    assert_eq!(ask(&server, "fake", "say anew")["body"], "anew");
}

#[test]
fn a_crash_fails_the_turn_and_the_next_delivery_is_served() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    send(&server, "fake", "E-1", "say half\ncrash");
    let told = answer(&server);
    assert_eq!((told["status"].as_str(), told["body"].as_str()), (Some("failed"), Some("half")));
    assert!(told["reason"].as_str().unwrap().contains("exit code 3: out of memory"), "{told}");
    let ended = agent.until("agent_ended");
    assert_eq!(ended["restart_in_ms"], 10, "{ended}");
    agent.until("agent_started");
    send(&server, "fake", "E-1", "say anew");
    assert_eq!(answer(&server)["body"], "anew");
    let prompt = fs::read_to_string(server.path().join("prompt.txt")).unwrap();
    assert!(prompt.contains("Your earlier session on this work item was lost"), "{prompt}");
}

#[test]
fn the_broker_is_told_of_a_session_without_the_memory_of_the_one_before() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    server.agent("kilo");
    send(&server, "kilo", "T-1", "have it done");
    server.as_agent("kilo", &["inbox", "--wait", "5s"]).ok();
    let asked = |text: &str| {
        server.as_agent("kilo", &["send", "fake", text]).ok();
        server.as_agent("kilo", &["inbox", "--wait", "30s"]).stdout
    };
    assert!(asked("say half\ncrash").contains("half"));
    agent.until("agent_started");
    assert!(asked("say anew").contains("anew"));
    let events = server.operator(&["--json", "tail", "-n", "60"]).ok();
    assert_eq!(events.matches("session_began").count(), 1, "{events}");
}

#[test]
fn an_agent_that_keeps_sessions_goes_on_in_its_own_after_a_crash() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &["--load"]);
    send(&server, "fake", "E-1", "crash");
    answer(&server);
    agent.until("agent_ended");
    send(&server, "fake", "E-1", "say anew");
    assert_eq!(answer(&server)["body"], "anew", "what the session repeats is no answer");
    assert_eq!(agent.until("session")["how"], "loaded");
}

#[test]
fn a_runner_that_may_not_restart_ends_with_its_agent() {
    let server = Server::start();
    let agent = Running::acp(&server, "fake", &["--no-restart"], &[]);
    assert_eq!(ask(&server, "fake", "crash")["status"], "failed");
    let ended = agent.wait();
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("the agent's process ended: exit code 3"), "{ended:?}");
}

#[test]
fn a_child_that_ignores_every_signal_ends_with_the_runner() {
    let server = Server::start();
    let agent = Running::acp(&server, "fake", &[], &[]);
    assert_eq!(ask(&server, "fake", "fork kid\nsay forked")["body"], "forked");
    let kid = process_in(&server.path().join("kid"));
    assert!(runs(&kid));
    assert_eq!(agent.terminate(), 0);
    wait_for("its end", || !runs(&kid));
}

#[test]
fn the_reason_for_which_an_agent_stops_is_the_status() {
    let server = Server::start();
    let _agent = Running::acp(&server, "fake", &[], &[]);
    for (script, status, word) in [
        ("say half\nstop max_tokens", "partial", "tokens ran out"),
        ("stop max_tokens", "failed", "tokens ran out before"),
        ("say no\nstop refusal", "rejected", "refused"),
        ("error the model is down", "failed", "the model is down"),
        ("say", "failed", "no answer at all"),
    ] {
        let said = ask(&server, "fake", script);
        assert_eq!(said["status"], status, "{script}: {said}");
        assert!(said["reason"].as_str().unwrap().contains(word), "{script}: {said}");
    }
}

#[test]
fn an_agent_runs_in_a_mode_in_which_it_asks() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &["--modes=auto,acceptEdits,default"]);
    send(&server, "fake", "E-1", "mode");
    assert_eq!(answer(&server)["body"], "default");
    send(&server, "fake", "E-1", "switch acceptEdits\nmode");
    let warning = agent.until("warning");
    assert!(warning["message"].as_str().unwrap().contains("acceptEdits"), "{warning}");
    assert_eq!(answer(&server)["body"], "default", "set back during the turn");
}

#[test]
fn an_agent_that_never_asks_is_refused_unless_it_may_run_unheld() {
    let server = Server::start();
    let fake = fake_acp();
    let command = ["run", "--as", "fake", "--driver", "acp", "--", fake.to_str().unwrap(), "--modes=auto,yolo"];
    let refused = server.operator(&command).stderr;
    assert!(refused.contains("no mode in which it asks") && refused.contains("--unheld"), "{refused}");
    let agent = Running::acp(&server, "fake", &["--unheld"], &["--modes=auto,yolo"]);
    send(&server, "fake", "E-1", "mode");
    assert_eq!(answer(&server)["body"], "auto");
    agent.signal("-TERM");
    let (events, _) = agent.rest();
    let unheld = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains("unheld"));
    assert!(events.iter().any(unheld), "{events:?}");
}

#[test]
fn an_agent_that_works_without_an_open_message_is_interrupted_and_then_ended() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &["--grace", "1s"], &[]);
    let warned = |agent: &mut Running, words: &str| loop {
        let warning = agent.until("warning");
        if warning["message"].as_str().unwrap().contains(words) {
            break;
        }
    };
    // Its first words may come before the end of its turn.
    let done = |script: &str| assert!(ask(&server, "fake", script)["body"].as_str().unwrap().starts_with("done"));
    done("say done\nstray");
    warned(&mut agent, "without an open message; it is interrupted");
    wait_for("the interrupt", || server.path().join("interrupted").exists());
    assert_eq!(ask(&server, "fake", "say still here")["body"], "still here", "the same process goes on");
    let first = agent.until("finished");
    assert_eq!(first["status"], "completed");
    let incidents = || server.operator(&["--json", "incidents"]).json()["items"].clone();
    let told = || incidents().as_array().unwrap().iter().find(|incident| incident["code"] == "turn_closed").cloned();
    wait_for("the incident", || told().is_some());
    let told = told().unwrap();
    assert!(told["on"] == "fake" && told["current"].as_u64() > Some(0), "what it used is charged: {told}");
    done("say done\nstray deaf");
    warned(&mut agent, "went on in the session");
    agent.until("agent_ended");
    assert_eq!(ask(&server, "fake", "say back")["body"], "back", "a new process serves the next message");
}

#[test]
fn an_agent_is_told_of_the_arguments_that_a_human_approved_instead() {
    let server = Server::start();
    let _agent = Running::acp(&server, "fake", &[], &[]);
    send(&server, "fake", "E-1", "permit deploy");
    let all = || server.operator(&["--json", "approvals"]).json();
    wait_for("the held call", || !all()["items"].as_array().unwrap().is_empty());
    let held = all()["items"][0].clone();
    let (id, digest) = (held["id"].as_str().unwrap(), held["digest"].as_str().unwrap());
    let edit = r#"{"input":{"command":"deploy --dry-run"}}"#;
    server.operator(&["approve", id, "--edit", edit, "--digest", digest, "--yes"]).ok();
    let said = answer(&server)["body"].as_str().unwrap().to_owned();
    for part in ["approved other arguments instead", "deploy --dry-run", "make exactly that one"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
