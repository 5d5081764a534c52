//! `lastword run` with a command, and the team of a server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::program::{PATH, Server, finish, lastword, run};
use crate::running::{Running, answer, ask, fake_acp, process_in, runs, send, wait_for};

fn program() -> String {
    format!("L={}", env!("CARGO_BIN_EXE_lastword"))
}

#[test]
fn what_a_command_says_goes_to_whoever_asked() {
    let server = Server::start();
    let mut upper = Running::start(&server, "upper", &["--", "tr", "a-z", "A-Z"]);
    let said = ask(&server, "upper", "hello\nworld");
    assert_eq!((said["body"].as_str(), said["status"].as_str()), (Some("HELLO\nWORLD"), Some("completed")));
    let taken = upper.until("taken");
    let finished = upper.until("finished");
    assert_eq!((finished["turn"].as_str(), &finished["answer"]), (taken["turn"].as_str(), &said["id"]));
    assert_eq!(taken["request_id"], said["request_id"], "it answers exactly that request");
    assert_eq!(upper.terminate(), 0);
}

#[test]
fn a_command_asks_another_agent_and_its_answer_is_the_next_run() {
    let server = Server::start();
    let script = r#"if [ "$LASTWORD_TYPE" = request ]; then "$L" send hive "look at $LASTWORD_REF" >/dev/null
        else echo "$LASTWORD_FROM said: $(cat)"; fi"#;
    let mut kilo = Running::start(&server, "kilo", &["--env", &program(), "--", "sh", "-c", script]);
    let _hive = Running::start(&server, "hive", &["--", "sed", "s/^/done: /"]);
    let said = ask(&server, "kilo", "go");
    assert!(said["body"].as_str().unwrap().starts_with("hive said: done: look at "), "{said}");
    assert_eq!(kilo.until("finished")["status"], "waiting");
    assert_eq!(kilo.until("finished")["status"], "completed");
}

#[test]
fn a_command_for_a_model_is_told_again_what_it_was_asked_and_what_it_asked() {
    let server = Server::start();
    let script = r#"if [ "$LASTWORD_TYPE" = request ]; then "$L" send hive "which colour" >/dev/null; else cat; fi"#;
    let args = ["--input", "prompt", "--env", &program(), "--", "sh", "-c", script];
    let _kilo = Running::start(&server, "kilo", &args);
    let _hive = Running::start(&server, "hive", &["--", "echo", "red"]);
    let said = ask(&server, "kilo", "paint the shed");
    let body = said["body"].as_str().unwrap();
    let order: Vec<usize> = ["[FROM:operator]", "paint the shed", "[TO:hive]", "which colour", "[FROM:hive]", "red\n"]
        .map(|part| body.find(part).unwrap_or_else(|| panic!("{part} is missing: {body}")))
        .into();
    assert!(order.is_sorted(), "{order:?}: {body}");
}

#[test]
fn a_program_whose_edits_nothing_claims_says_so_as_it_starts() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let codex = folder.path().join("codex");
    fs::write(&codex, "#!/bin/sh\ncat\n").unwrap();
    fs::set_permissions(&codex, fs::Permissions::from_mode(0o755)).unwrap();
    let agent = Running::start(&server, "coder", &["--", codex.to_str().unwrap(), "exec"]);
    agent.signal("-TERM");
    let (events, _) = agent.rest();
    let warnings =
        events.iter().filter(|event| event["event"] == "warning").filter_map(|event| event["message"].as_str());
    assert_eq!(warnings.filter(|message| message.starts_with("Codex edits files unasked")).count(), 1, "{events:?}");
}

#[test]
fn an_exit_code_is_a_status_and_what_was_said_last_the_reason() {
    let server = Server::start();
    let _agent = Running::start(&server, "sh", &["--", "sh"]);
    for (script, status, body, reason) in [
        ("echo half; echo broken >&2; exit 3", "failed", "half", "exit code 3: broken"),
        ("echo no; echo not me >&2; exit 75", "rejected", "no", "exit code 75: not me"),
        ("true", "failed", "", "the command gave no output (exit code 0)"),
        ("kill -9 $$", "failed", "", "killed by signal 9"),
    ] {
        let said = ask(&server, "sh", script);
        assert_eq!((said["status"].as_str(), said["reason"].as_str()), (Some(status), Some(reason)), "{script}");
        // The broker words an empty answer itself.
        assert!(body.is_empty() || said["body"] == body, "{script}: {said}");
    }
}

#[test]
fn the_message_fills_an_argument_in_and_is_never_run() {
    let server = Server::start();
    let args = ["--", "printf", "%s|%s", "{from} of {ref}", "{message}"];
    let _agent = Running::start(&server, "argue", &args);
    let said = ask(&server, "argue", "$(id) {from}; `id`");
    let body = said["body"].as_str().unwrap();
    assert!(body.starts_with("operator of work-") && body.ends_with("|$(id) {from}; `id`"), "{body}");
}

#[test]
fn a_command_never_sees_a_humans_token() {
    let server = Server::start();
    let operator = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
    let mut command = lastword(server.path());
    command.env("LASTWORD_TOKEN", operator.trim()).env("LASTWORD_CANARY", "1").env("LASTWORD_DATA", ".lastword");
    let script =
        r#"env | grep '^LASTWORD_' | sort; "$L" agent add mole 2>&1; "$L" approve apr-1 --digest 00 2>&1; true"#;
    let script = format!("cat >/dev/null; {script}");
    command.args(["--json", "run", "--as", "spy", "--env", &program(), "--", "sh", "-c", &script]);
    let _spy = Running::of(&mut command).ready();
    let said = ask(&server, "spy", "look around");
    let body = said["body"].as_str().unwrap();
    assert!(!body.contains(operator.trim()) && !body.contains("CANARY") && !body.contains("LASTWORD_DATA"), "{body}");
    for name in ["AGENT=spy", "FROM=operator", "REF=", "REQUEST_ID=", "TURN=", "URL=http://127.0.0.1:", "TYPE=request"]
    {
        assert!(body.contains(&format!("LASTWORD_{name}")), "{name}: {body}");
    }
    assert!(body.contains("(forbidden)"), "its own token registers nobody: {body}");
    assert_eq!(server.operator(&["agent", "show", "mole"]).code, 1);
}

#[test]
fn a_run_that_takes_too_long_is_ended_with_all_that_it_started() {
    let server = Server::start();
    let script =
        "sh -c 'trap \"\" TERM; echo $$ > kid.new; mv kid.new kid; while :; do sleep 1; done' & echo begun; wait";
    let _slow = Running::start(&server, "slow", &["--deadline", "400ms", "--", "sh", "-c", script]);
    let said = ask(&server, "slow", "take your time");
    assert_eq!((said["status"].as_str(), said["body"].as_str()), (Some("failed"), Some("begun")));
    assert!(said["reason"].as_str().unwrap().contains("no answer within 0.4 s"), "{said}");
    let kid = process_in(&server.path().join("kid"));
    wait_for("its end", || !runs(&kid));
}

#[test]
fn a_stop_ends_the_run_and_the_next_delivery_is_served() {
    let server = Server::start();
    let script = r#"read word; [ "$word" = go ] && exit; echo $$ > pid.new; mv pid.new pid; sleep 60"#;
    let script = script.replace("exit;", "{ echo went; exit; };");
    let mut agent = Running::start(&server, "kilo", &["--", "sh", "-c", &script]);
    send(&server, "kilo", "E-1", "stay");
    let pid = process_in(&server.path().join("pid"));
    server.operator(&["stop", "E-1"]).ok();
    agent.until("withdrawn");
    wait_for("its end", || !runs(&pid));
    assert_eq!(answer(&server)["status"], "cancelled");
    assert_eq!(ask(&server, "kilo", "go")["body"], "went");
}

#[test]
fn a_runner_that_ends_lets_what_runs_end_and_tells_what_did_not() {
    let server = Server::start();
    let script = r#"read word; echo $$ > "$word.new"; mv "$word.new" "$word"; while [ ! -e go ]; do sleep 0.02; done; echo went"#;
    let mut agent = Running::start(&server, "kilo", &["--grace", "30s", "--", "sh", "-c", script]);
    send(&server, "kilo", "E-1", "one");
    process_in(&server.path().join("one"));
    agent.signal("-TERM");
    assert_eq!(agent.until("stopping")["turns"], 1);
    fs::write(server.path().join("go"), "").unwrap();
    assert_eq!(agent.wait().code, 0);
    assert_eq!(answer(&server)["body"], "went", "it had its time");

    fs::remove_file(server.path().join("go")).unwrap();
    let agent = Running::start(&server, "kilo", &["--", "sh", "-c", script]);
    send(&server, "kilo", "E-2", "two");
    let pid = process_in(&server.path().join("two"));
    assert_eq!(agent.terminate(), 0);
    assert!(!runs(&pid));
    let told = answer(&server);
    assert_eq!(told["status"], "failed");
    assert!(told["reason"].as_str().unwrap().contains("the runner was stopped"), "{told}");
}

#[test]
fn the_broker_is_killed_in_the_middle_and_the_turn_ends_once() {
    let mut server = Server::start();
    let address = server.first_line["listening"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let script = r#"read word; touch "at-$word"; while [ ! -e "go-$word" ]; do sleep 0.02; done; echo "did $word""#;
    let mut agent = Running::start(&server, "kilo", &["--", "sh", "-c", script]);
    for (name, while_it_is_gone) in [("one", false), ("two", true)] {
        send(&server, "kilo", &format!("E-{name}"), name);
        let path = server.path().to_owned();
        wait_for("the run", || path.join(format!("at-{name}")).exists());
        let dir = server.kill();
        if while_it_is_gone {
            fs::write(path.join(format!("go-{name}")), "").unwrap();
            agent.until("waiting");
        }
        server = Server::start_with(dir, &["--listen", &address]);
        fs::write(path.join(format!("go-{name}")), "").unwrap();
        assert_eq!(agent.until("finished")["status"], "completed");
        assert_eq!(answer(&server)["body"], format!("did {name}"));
        let found = server.operator(&["--json", "audit", "--ref", &format!("E-{name}")]).json();
        let messages: Vec<&str> =
            found["items"].as_array().unwrap().iter().filter_map(|m| m["type"].as_str()).collect();
        assert_eq!(messages.len(), 2, "one request and one answer: {messages:?}");
    }
    let (code, dir) = server.terminate();
    assert_eq!(code, 0);
    run(dir.path(), &["verify"]).ok();
}

#[test]
fn a_killed_runner_takes_all_that_it_started_along() {
    let server = Server::start();
    let script = r#"trap '' TERM; read word; sh -c 'echo $$ > below; sleep 60' & echo $$ > at; wait"#;
    let agent = Running::start(&server, "kilo", &["--", "sh", "-c", script]);
    send(&server, "kilo", "E-1", "go");
    let started = ["at", "below"].map(|file| process_in(&server.path().join(file)));
    agent.signal("-KILL");
    wait_for("their end", || !started.iter().any(|id| runs(id)));
}

#[test]
fn a_turn_that_the_agents_own_tool_finished_is_not_finished_again() {
    let server = Server::start();
    let script = r#""$L" finish "$LASTWORD_TURN_ID" "by its own tool" >/dev/null; echo "once more""#;
    let mut agent = Running::start(&server, "kilo", &["--env", &program(), "--", "sh", "-c", script]);
    assert_eq!(ask(&server, "kilo", "go")["body"], "by its own tool");
    assert_eq!(agent.until("finished")["status"], "finished");
}

#[test]
fn a_finish_whose_confirmation_was_lost_is_sent_no_second_time() {
    let server = Server::start();
    let url = losing_the_answer_to(&server, "/finish");
    let mut agent = Running::start(&server, "kilo", &["--url", &url, "--", "cat"]);
    assert_eq!(ask(&server, "kilo", "once")["body"], "once");
    let finished = agent.until("finished");
    assert_eq!((finished["status"].as_str(), finished["answer"].is_string()), (Some("completed"), true), "{finished}");
    let found = server.operator(&["--json", "audit", "once"]).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 2, "the request and its answer: {found}");
    let more = server.operator(&["--json", "inbox"]);
    assert!(!more.stdout.contains("late"), "{more:?}");
}

/// Returns a proxy's address that loses the response to the first call of this path.
fn losing_the_answer_to(server: &Server, path: &'static str) -> String {
    let to = server.first_line["listening"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let lost = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (Ok(server), lost) = (TcpStream::connect(&to), Arc::clone(&lost)) else { return };
            std::thread::spawn(move || relay(client, server, path, &lost));
        }
    });
    url
}

fn relay(mut client: TcpStream, mut server: TcpStream, path: &str, lost: &AtomicBool) {
    let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let losing = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&losing);
    std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok(n @ 1..) = answers.read(&mut buffer) {
            if cut.load(Ordering::SeqCst) || back.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        back.shutdown(Shutdown::Both).ok();
    });
    let mut buffer = [0; 65536];
    while let Ok(n @ 1..) = client.read(&mut buffer) {
        if String::from_utf8_lossy(&buffer[..n]).contains(path) && !lost.swap(true, Ordering::SeqCst) {
            losing.store(true, Ordering::SeqCst);
        }
        if server.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    server.shutdown(Shutdown::Both).ok();
}

/// A run that ends once the file `go` is there. Its runner slept meanwhile, so that its lease is lost.
fn slept() -> (Server, Running) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\nlease_ms = 600\n").unwrap();
    let server = Server::start_in(dir);
    let script = r#"touch "at-$LASTWORD_ATTEMPT"; while [ ! -e go ]; do sleep 0.02; done; echo "at $LASTWORD_ATTEMPT""#;
    let agent = Running::start(&server, "kilo", &["--", "sh", "-c", script]);
    let asked = send(&server, "kilo", "E-1", "go");
    wait_for("the run", || server.path().join("at-1").exists());
    agent.signal("-STOP");
    let id = asked["request_id"].as_str().unwrap();
    let mut tail = lastword(server.path());
    tail.args(["--token-file", ".lastword/operator.token", "--json", "tail", "--after", "0"]);
    let mut tail = tail.spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("turn_closed") && line.contains("lease_lost")), "{id} loses its lease");
    tail.kill().unwrap();
    tail.wait().unwrap();
    (server, agent)
}

#[test]
fn an_answer_that_comes_when_the_turn_is_lost_is_shown_as_late() {
    // The run has ended when the machine wakes up, or ends soon after.
    for ended in [true, false] {
        let (server, mut agent) = slept();
        let go = || fs::write(server.path().join("go"), "").unwrap();
        if ended {
            go();
            wait_for("the end of the run", || !shell_runs(&agent));
            agent.signal("-CONT");
        } else {
            agent.signal("-CONT");
            assert!(agent.until("warning")["message"].as_str().unwrap().starts_with("the lease was lost"));
            assert!(shell_runs(&agent), "the run goes on");
            go();
        }
        agent.until("late");
        assert_eq!(agent.until("taken")["attempt"], 2);
        assert_eq!(answer(&server)["body"], "at 1", "a human is shown what came too late");
        let told = answer(&server);
        assert_eq!((told["type"].as_str(), told["body"].as_str()), (Some("response"), Some("at 2")));
    }
}

#[test]
fn a_stop_ends_a_run_whose_lease_is_lost() {
    let (server, mut agent) = slept();
    server.operator(&["stop", "E-1"]).ok();
    agent.signal("-CONT");
    agent.until("withdrawn");
    wait_for("the end of the run", || !shell_runs(&agent));
}

/// Returns whether a shell that the runner started still runs.
fn shell_runs(agent: &Running) -> bool {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", agent.id())).unwrap_or_default();
    let shell = |id: &&str| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "sh");
    children.split_whitespace().filter(shell).any(runs)
}

#[test]
fn an_agent_with_two_open_turns_serves_two_requests_at_once() {
    let server = Server::start();
    let script = r#"touch "$LASTWORD_REF"; while [ ! -e E-1 ] || [ ! -e E-2 ]; do sleep 0.02; done; echo met"#;
    let mut agent = Running::start(&server, "kilo", &["--concurrency", "2", "--", "sh", "-c", script]);
    for reference in ["E-1", "E-2"] {
        send(&server, "kilo", reference, "meet the other");
    }
    for _ in 0..2 {
        assert_eq!(answer(&server)["body"], "met");
        agent.until("finished");
    }
}

#[test]
fn what_cannot_be_run_is_told_at_once_with_what_to_do() {
    let server = Server::start();
    server.agent("kilo");
    let human = ["--token-file", ".lastword/operator.token"];
    let kilo = ["--token-file", "kilo.token"];
    let fake = fake_acp();
    let fake = fake.to_str().unwrap();
    for (token, args, code, word) in [
        (&[][..], &["--", "cat"][..], 2, "--as NAME"),
        (&human, &["--", "cat"], 2, "a human's"),
        (&kilo, &["--as", "other", "--", "cat"], 1, "only a human's token"),
        (&kilo, &["--", "sh", "-c", "echo {message}"], 2, "run as commands"),
        (&kilo, &["--", "no-such-program"], 2, "program not found"),
        (&kilo, &["--env", "LASTWORD_TOKEN=x", "--", "cat"], 2, "LASTWORD_TOKEN"),
        (&kilo, &["--cwd", "nowhere", "--", "cat"], 2, "isn't a directory"),
        (&kilo, &["--driver", "acp", "--", "false"], 3, "isn't an ACP agent: exit code 1"),
        (&kilo, &["--driver", "acp", "--", fake, "{message}"], 2, "placeholder"),
    ] {
        let mut command = lastword(server.path());
        let ended = finish(command.args(token).arg("run").args(args).env("PATH", PATH), "");
        assert_eq!(ended.code, code, "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(word) && ended.stderr.contains("hint: "), "{args:?}: {ended:?}");
    }
}

#[test]
fn a_server_runs_the_agents_of_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("work")).unwrap();
    let team = format!(
        "[[agent]]\nname = \"upper\"\ncommand = \"tr\"\nargs = [\"a-z\", \"A-Z\"]\nactions = [\"shout\"]\n\
         limits = {{ roots_per_hour_max = 20 }}\n\
         [[agent]]\nname = \"fake\"\ndriver = \"acp\"\ncommand = {:?}\ncwd = \"work\"\n\
         [[agent]]\nname = \"broken\"\ncommand = \"no-such-program\"\n",
        fake_acp().to_str().unwrap()
    );
    fs::write(dir.path().join("lastword.toml"), team).unwrap();
    let server = Server::start_with(dir, &["--listen", "127.0.0.1:0", "--with-agents"]);
    wait_for("upper", || server.operator(&["agent", "show", "upper"]).code == 0);
    assert_eq!(ask(&server, "#shout", "hello")["body"], "HELLO");
    let shown = server.operator(&["agent", "show", "upper", "--json"]).json();
    assert_eq!(shown["limits"], serde_json::json!({ "roots_per_hour_max": 20 }));
    wait_for("fake", || server.operator(&["agent", "show", "fake"]).code == 0);
    assert_eq!(ask(&server, "fake", "say hello")["body"], "hello");
    let tokens = server.path().join(".lastword/agents");
    for name in ["upper", "fake"] {
        let file = tokens.join(format!("{name}.token"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let before = fs::read_to_string(tokens.join("upper.token")).unwrap();
    let (code, dir) = server.terminate();
    assert_eq!(code, 0);
    let server = Server::start_with(dir, &["--listen", "127.0.0.1:0", "--with-agents"]);
    assert_eq!(ask(&server, "upper", "again")["body"], "AGAIN");
    assert_eq!(fs::read_to_string(tokens.join("upper.token")).unwrap(), before, "a token that holds is kept");
    let (_, dir) = server.terminate();
    let mut server = Server::start_with(dir, &["--listen", "127.0.0.1:0"]);
    server.ask_to_end();
    let said = server.wait().stderr;
    assert!(said.contains("[[agent]]") && said.contains("--with-agents"), "{said}");
}

#[test]
fn a_runner_that_cant_start_tells_whoever_asks_why() {
    let server = Server::start();
    server.agent("kilo");
    let mut ask = lastword(server.path());
    ask.args(["--token-file", ".lastword/operator.token", "ask", "kilo", "hello", "--wait", "60s"]);
    let mut ask = ask.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(ask.stderr.take().unwrap()).lines().map(Result::unwrap);
    let waits = [told.next().unwrap(), told.next().unwrap()];
    assert!(waits[0].contains("kilo is not connected") && waits[1].contains("Ctrl-C leaves"), "{waits:?}");
    let refused = server.as_agent("kilo", &["run", "--", "no-such-program"]);
    let reason = "kilo can't work: program not found: no-such-program";
    assert!(refused.code != 0 && refused.stderr.contains("program not found: no-such-program"), "{refused:?}");
    let waiting = told.next().unwrap();
    assert!(waiting.starts_with(reason), "who waits already: {waiting}");
    for look in [&["agent", "list"][..], &["agent", "show", "kilo"], &["doctor"]] {
        assert!(server.operator(look).stdout.contains(reason), "{look:?}");
    }
    let later = server.operator(&["ask", "kilo", "hello", "--wait", "100ms"]);
    assert!(later.stderr.contains(&format!("hint: {reason}")), "{later:?}");
    // A runner that works takes the reason back, and the request.
    let runner = Running::start(&server, "kilo", &["--", "cat"]);
    let answered = String::from_utf8(ask.wait_with_output().unwrap().stdout).unwrap();
    assert!(answered.contains("completed [settled]\n    hello\n"), "{answered}");
    assert!(!server.operator(&["agent", "list"]).ok().contains("can't work"));
    assert_eq!(runner.terminate(), 0);
    // With a human's token, too, before the agent's token is replaced.
    let refused = server.operator(&["run", "--as", "kilo", "--deadline", "0s", "--", "cat"]);
    assert!(refused.code == 2, "{refused:?}");
    assert!(server.operator(&["agent", "list"]).ok().contains("kilo can't work: "));
}

#[test]
fn an_acp_agent_that_ends_tells_whoever_asks_why() {
    let server = Server::start();
    let program = fake_acp();
    let args = ["--driver", "acp", "--backoff", "60s", "--", program.to_str().unwrap()];
    let mut agent = Running::start(&server, "fake", &args);
    send(&server, "fake", "E-1", "crash");
    agent.until("agent_ended");
    let shown = server.operator(&["agent", "show", "fake", "--json"]).json();
    assert!(shown["unavailable"].as_str().is_some_and(|why| why.starts_with("the agent's process ended")), "{shown}");
    // One that comes back can work, although it fails again.
    let again = ["--driver", "acp", "--", program.to_str().unwrap()];
    let mut again = Running::start(&server, "back", &again);
    send(&server, "back", "E-2", "crash");
    again.until("agent_ended");
    let works = || server.operator(&["agent", "show", "back", "--json"]).json()["unavailable"].is_null();
    wait_for("the agent to work", works);
    server.agent("mute");
    assert_ne!(server.as_agent("mute", &["run", "--driver", "acp", "--", "false"]).code, 0);
    assert!(server.operator(&["agent", "list"]).ok().contains("mute can't work: "));
}

#[test]
fn of_two_runners_of_one_agent_one_runs_each_delivery() {
    let server = Server::start();
    let token = server.operator(&["agent", "add", "kilo"]).ok();
    fs::write(server.path().join("kilo.token"), token).unwrap();
    let start = || {
        let mut command = lastword(server.path());
        let script = "echo run >> log; until [ -e go ]; do sleep 0.01; done; cat";
        command.args(["--token-file", "kilo.token", "--json", "run", "--grace", "300ms", "--", "sh", "-c", script]);
        Running::of(&mut command)
    };
    let clients = |number: u64| {
        wait_for("a client", || server.operator(&["--json", "agent", "show", "kilo"]).json()["clients"] == number);
    };
    let first = start();
    clients(1);
    let mut second = start();
    assert!(second.until("warning")["message"].as_str().unwrap().contains("another live client"));
    clients(2);
    assert!(server.operator(&["agent", "list"]).ok().contains("2 clients"));
    assert!(server.operator(&["doctor"]).stdout.contains("kilo has 2 clients"));
    let said = std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&server, "kilo", "hello"));
        wait_for("a run", || server.path().join("log").exists());
        clients(2);
        fs::write(server.path().join("go"), "").unwrap();
        asked.join().unwrap()
    });
    assert_eq!((said["body"].as_str(), ask(&server, "kilo", "again")["body"].as_str()), (Some("hello"), Some("again")));
    assert_eq!(fs::read_to_string(server.path().join("log")).unwrap(), "run\nrun\n", "each ran once");
    assert_eq!((first.terminate(), second.terminate()), (0, 0));
}
