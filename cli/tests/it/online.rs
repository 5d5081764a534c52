//! What needs a server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::program::{Server, finish, lastword, run};

#[test]
fn a_server_says_where_it_listens_and_is_found_by_itself() {
    let server = Server::start();
    let url = server.first_line["listening"].as_str().unwrap().to_owned();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    let token = server.path().join(server.first_line["operator_token_file"].as_str().unwrap());
    assert_eq!(fs::metadata(token).unwrap().permissions().mode() & 0o777, 0o600);
    let note: serde_json::Value =
        serde_json::from_slice(&fs::read(server.path().join(".lastword/server.json")).unwrap()).unwrap();
    assert_eq!(note["url"].as_str(), Some(url.as_str()));
    assert_eq!(server.operator(&["agent", "list"]).code, 0, "found without --url");
}

#[test]
fn a_token_is_printed_alone_and_works() {
    let server = Server::start();
    let token = server.operator(&["agent", "add", "hive", "--action", "review_code"]).ok();
    assert_eq!(token.split_whitespace().count(), 1, "{token:?}");
    let mut command = lastword(server.path());
    command.args(["inbox"]).env("LASTWORD_TOKEN", token.trim_end());
    assert_eq!(finish(&mut command, "").code, 0);
    assert_eq!(server.operator(&["agent", "add", "hive"]).code, 1, "the name is taken");
    let renewed = server.operator(&["agent", "token", "hive"]).ok();
    assert_ne!(renewed, token);
    assert_eq!(finish(&mut command, "").code, 1, "the old token is dead");
}

#[test]
fn a_request_is_sent_taken_finished_and_its_answer_read() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    let sent = server.as_agent("kilo", &["send", "hive", "look at the parser", "--ref", "E-1", "--json"]).json();
    assert_eq!((sent["type"].as_str(), sent["depth"].as_u64()), (Some("request"), Some(0)));
    let delivery = server.as_agent("hive", &["inbox", "--json"]).json();
    assert_eq!(delivery["message"]["body"], "look at the parser");
    let turn = delivery["turn"]["id"].as_str().unwrap();
    let finish =
        finish(lastword(server.path()).args(["--token-file", "hive.token", "finish", turn, "-"]), "it is fine");
    assert_eq!(finish.code, 0, "{finish:?}");
    let answer = server.as_agent("kilo", &["inbox", "--json", "--wait", "5s"]).json();
    assert_eq!(
        (answer["message"]["body"].as_str(), answer["message"]["status"].as_str()),
        (Some("it is fine"), Some("completed"))
    );
    let tree = server.operator(&["tree", "E-1"]).ok();
    assert!(tree.contains("kilo → hive REQUEST") && tree.contains("   └─ "), "{tree}");
    let found = server.operator(&["audit", "parser", "--json"]).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found}");
    assert!(server.as_agent("hive", &["inbox"]).ok().contains("inbox empty"));
}

#[test]
fn a_refusal_exits_with_one_and_says_what_to_do_instead() {
    let server = Server::start();
    server.agent("kilo");
    let refused = server.as_agent("kilo", &["send", "kilo", "me", "--ref", "E-1"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("(self_send)") && refused.stderr.contains("\nhint: "), "{refused:?}");
    let json = server.as_agent("kilo", &["--json", "send", "nobody", "you", "--ref", "E-1"]);
    let error: serde_json::Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(error["error"]["code"], "unknown_recipient");
    assert_eq!(server.as_agent("kilo", &["pause", "--workspace"]).code, 1, "an agent pauses nothing");
}

#[test]
fn a_body_cannot_steer_the_terminal() {
    let server = Server::start();
    server.agent("hive");
    let body = "harmless\u{1b}[2J\u{202e}txt\u{9b}31m";
    for format in [&[][..], &["--json"]] {
        let sent = server.operator(&[&["send", "hive", body], format].concat()).ok();
        assert!(sent.contains("harmless"), "{sent}");
        assert!(!sent.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{sent:?}");
    }
}

#[test]
fn a_human_asks_and_gets_the_answer_in_one_command() {
    let server = Server::start();
    server.agent("hive");
    let mut ask = lastword(server.path());
    ask.args(["--token-file", ".lastword/operator.token", "ask", "hive", "what is six by seven?", "--json"]);
    let ask = ask.spawn().unwrap();
    let delivery = server.as_agent("hive", &["inbox", "--wait", "10s", "--json"]).json();
    let turn = delivery["turn"]["id"].as_str().unwrap();
    server.as_agent("hive", &["finish", turn, "42"]).ok();
    let output = ask.wait_with_output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["response"]["body"], "42", "{answer}");
    assert!(server.operator(&["inbox"]).ok().contains("inbox empty"), "it does not wait in the inbox as well");
    let nobody = server.operator(&["ask", "hive", "still there?", "--wait", "200ms"]);
    assert_eq!(nobody.code, 5, "{nobody:?}");
    assert!(nobody.stderr.contains("lastword tree"), "{nobody:?}");
}

#[test]
fn tail_shows_what_happened_since_a_position_and_ends_with_the_server() {
    let server = Server::start();
    server.agent("hive");
    server.operator(&["send", "hive", "one"]).ok();
    let mut tail = lastword(server.path());
    tail.args(["--token-file", ".lastword/operator.token", "--json", "tail", "--after", "0", "--messages", "--once"]);
    let mut tail = tail.spawn().unwrap();
    server.operator(&["send", "hive", "two"]).ok();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    for body in ["one", "two"] {
        let event: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(event["message"]["body"], body);
    }
    let (code, _dir) = server.terminate();
    assert_eq!(code, 0);
    assert!(lines.next().is_none(), "the end of the server is the end of the stream");
    assert!(tail.wait().unwrap().success());
}

#[test]
fn everything_acknowledged_is_there_after_a_restart_and_the_log_verifies() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    server.as_agent("kilo", &["send", "hive", "before", "--ref", "E-1"]).ok();
    let (code, dir) = server.terminate();
    assert_eq!(code, 0, "SIGTERM drains and exits with 0");
    assert!(!dir.path().join(".lastword/server.json").exists());

    let verified = run(dir.path(), &["verify", "--json"]).json();
    let anchor = format!("{}:{}", verified["seq"], verified["hash"].as_str().unwrap());
    let reindexed = run(dir.path(), &["reindex", "--json"]).json();
    assert_eq!(reindexed["entries"], verified["entries"]);

    let server = Server::start_in(dir);
    assert_eq!(server.as_agent("hive", &["inbox", "--json"]).json()["message"]["body"], "before");
    assert_eq!(server.operator(&["audit", "before", "--json"]).json()["items"].as_array().unwrap().len(), 1);
    run(server.path(), &["verify", "--expect", &anchor]).ok();
    let forged = anchor.replace(':', ":0").get(..anchor.len()).unwrap().to_owned();
    assert_eq!(run(server.path(), &["verify", "--expect", &forged]).code, 1);
}

#[test]
fn a_second_server_on_one_directory_is_refused_and_tools_that_write_too() {
    let server = Server::start();
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["reindex"]] {
        let second = run(server.path(), args);
        assert_eq!(second.code, 3, "{second:?}");
        assert!(second.stderr.contains("in use by process"), "{second:?}");
    }
}

#[test]
fn doctor_finds_a_token_that_others_can_read() {
    let server = Server::start();
    assert_eq!(run(server.path(), &["doctor"]).code, 0);
    let token = server.path().join(".lastword/operator.token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let found = run(server.path(), &["doctor"]);
    assert_eq!(found.code, 1, "{found:?}");
    assert!(found.stdout.contains("chmod 600"), "{found:?}");
}

#[test]
fn the_clock_is_shown_and_accepted_by_a_human_alone() {
    let server = Server::start();
    let shown = server.operator(&["clock"]).ok();
    assert!(shown.contains("broker") && shown.contains("system clock"), "{shown}");
    assert!(run(server.path(), &["doctor"]).ok().contains("clock: the broker's clock matches the system clock"));
    server.operator(&["clock", "accept", "--yes"]).ok();
    server.agent("hive");
    let agent = server.as_agent("hive", &["clock", "accept", "--yes"]);
    assert!(agent.code == 1 && agent.stderr.contains("(forbidden)"), "{agent:?}");
}

#[test]
fn an_approval_needs_the_digest_of_the_call_that_was_looked_at() {
    let server = Server::start();
    server.agent("hive");
    let token = fs::read_to_string(server.path().join("hive.token")).unwrap();
    let url = server.first_line["listening"].as_str().unwrap();
    let held = hold(url, token.trim(), r#"{"tool":"shell","arguments":{"cmd":"rm -r build"}}"#);
    let (id, digest) = (held["id"].as_str().unwrap(), held["digest"].as_str().unwrap());
    assert!(server.operator(&["approvals"]).ok().contains("rm -r build"));
    assert_eq!(server.operator(&["approve", id, "--yes"]).code, 2, "no terminal to ask at");
    assert_eq!(server.operator(&["approve", id, "--digest", "00000000", "--yes"]).code, 1);
    let own = server.as_agent("hive", &["approve", id, "--digest", digest]);
    assert!(own.code == 1 && own.stderr.contains("(approver_not_allowed)"), "its own call: {own:?}");
    let approved = server.operator(&["approve", id, "--digest", &digest[..8], "--yes"]).ok();
    assert!(approved.contains("approved"), "{approved}");
}

#[test]
fn a_shell_with_a_humans_token_decides_nothing_by_itself() {
    let server = Server::start();
    server.agent("hive");
    let token = fs::read_to_string(server.path().join("hive.token")).unwrap();
    let url = server.first_line["listening"].as_str().unwrap();
    let held = hold(url, token.trim(), r#"{"tool":"shell","arguments":{"cmd":"rm -r build"}}"#);
    let (id, digest) = (held["id"].as_str().unwrap(), held["digest"].as_str().unwrap());
    let deciding = [
        &["approve", id, "--digest", digest][..],
        &["approve", id, "--digest", digest, "--edit", "{}"],
        &["reject", id],
        &["answer", "esc-1", "x"],
        &["answer", "esc-1", "--lift", "lift-1"],
        &["grant", "E-1", "--messages", "1"],
        &["grant", "--agent", "hive", "--tokens", "1"],
        &["agent", "set", "hive", "--turns", "2"],
        &["human", "role", "operator", "viewer"],
        &["resume", "--workspace"],
        &["clock", "accept"],
    ];
    for args in deciding {
        let alone = server.operator(args);
        assert!(alone.code == 1 && alone.stderr.contains("--yes"), "{args:?}: {alone:?}");
        let mut command = lastword(server.path());
        command.args(["--token-file", ".lastword/operator.token"]).args(args).arg("--yes").env("CLAUDECODE", "1");
        let agent = finish(&mut command, "");
        assert!(agent.code == 1 && agent.stderr.contains("CLAUDECODE"), "{args:?}: {agent:?}");
    }
    assert!(server.operator(&["approvals"]).ok().contains("pending"), "nothing was decided");
    // Commands that start work or create tokens need no terminal, but an agent must not run them in a human's name.
    let acting = [
        &["send", "kilo", "x", "--ref", "E-9"][..],
        &["ask", "kilo", "x", "--wait", "0s"],
        &["agent", "add", "mole"],
        &["agent", "token", "kilo"],
        &["agent", "remove", "kilo"],
        &["human", "add", "mole", "--role", "owner"],
    ];
    for variable in ["CLAUDECODE", "CODEX_CI", "CODEX_THREAD_ID", "LASTWORD_AGENT"] {
        for args in acting {
            let mut command = lastword(server.path());
            command.args(["--token-file", ".lastword/operator.token"]).args(args).env(variable, "1");
            let agent = finish(&mut command, "");
            assert!(agent.code == 1 && agent.stderr.contains(variable), "{args:?}: {agent:?}");
        }
    }
    assert_eq!(server.operator(&["agent", "show", "mole"]).code, 1);
}

#[test]
fn conversations_are_listed_with_subject_and_children_and_open_ones_however_old() {
    let server = Server::start();
    for name in ["hive", "kilo"] {
        server.agent(name);
    }
    server.operator(&["ask", "hive", "Paint it\nand more", "--ref", "OLD-1", "--wait", "0s"]).ok();
    server.as_agent("hive", &["inbox"]).ok();
    server.as_agent("hive", &["send", "kilo", "the roof"]).ok();
    for reference in ["NEW-1", "NEW-2"] {
        server.operator(&["ask", "kilo", "quickly", "--ref", reference, "--wait", "0s"]).ok();
        server.operator(&["stop", reference]).ok();
    }
    let all = server.operator(&["ls"]).ok();
    let rows: Vec<&str> = all.lines().skip(1).map(str::trim).collect();
    assert!(rows.len() == 3 && rows[0].starts_with("NEW-2 ") && rows[0].contains(" stopped "), "{all}");
    assert!(rows[2].starts_with("OLD-1 +1 ") && rows[2].contains("active") && rows[2].contains("Paint it  "), "{all}");
    // What is folded into it is counted with it, as in the console; unfolded, each has its own numbers.
    assert!(rows[2].contains("  2         2     "), "{all}");
    let unfolded = server.operator(&["ls", "--all"]).ok();
    assert_eq!(unfolded.lines().filter(|row| row.contains("  1         1     ")).count(), 2, "{unfolded}");
    let token = std::fs::read_to_string(server.path().join("hive.token")).unwrap();
    escalate(server.first_line["listening"].as_str().unwrap(), token.trim(), "red or blue?");
    for args in [&["ls"][..], &["tree", "OLD-1"]] {
        let told = server.operator(args).ok();
        assert!(told.contains("waiting for a human"), "{args:?}: {told}");
    }
    // The newest two have no open request, so a list that is filtered afterwards would be empty.
    let open = server.operator(&["ls", "--open", "-n", "1", "--json"]).json();
    assert_eq!(open["items"][0]["ref"], "OLD-1/1", "{open}");
    let none = server.as_agent("kilo", &["ls", "--open"]);
    assert!(none.ok().contains("OLD-1/1"));
    server.operator(&["stop", "OLD-1"]).ok();
    assert!(server.operator(&["ls", "--open"]).ok().contains("no open conversations"));
}

#[test]
fn a_fresh_link_leads_to_the_console() {
    let server = Server::start();
    let shown = server.operator(&["console", "--print"]).ok();
    let link = shown.lines().next().unwrap();
    let url = server.first_line["listening"].as_str().unwrap();
    let path = link.strip_prefix(url).unwrap_or_else(|| panic!("{shown}"));
    assert!(shown.contains("signs in once, until "), "{shown}");
    let page = get(url, "", path);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert_ne!(server.operator(&["console", "--print"]).ok().lines().next(), Some(link), "each one is fresh");
    server.agent("hive");
    assert_ne!(server.as_agent("hive", &["console", "--print"]).code, 0, "an agent has no console");
}

#[test]
fn each_answer_to_a_held_call_is_a_command() {
    let server = Server::start();
    server.agent("hive");
    let token = fs::read_to_string(server.path().join("hive.token")).unwrap();
    let url = server.first_line["listening"].as_str().unwrap();
    for (args, state, decision) in [
        (&["approve", "--edit", r#"{"cmd":"ls"}"#, "--digest"][..], "approved", "edit"),
        (&["reject", "--comment", "not on a Friday"], "rejected", "reject"),
        (&["reject", "--respond", "which region?"], "rejected", "respond"),
        (&["reject", "--ignore"], "ignored", "ignore"),
    ] {
        let held = hold(url, token.trim(), &format!(r#"{{"tool":"shell","arguments":{{"cmd":"{decision}"}}}}"#));
        let digest = if decision == "edit" { held["digest"].as_str() } else { None };
        let id = held["id"].as_str();
        let args: Vec<&str> = args.iter().copied().chain(digest).chain(id).chain(["--yes", "--json"]).collect();
        let decided = server.operator(&args).json();
        assert_eq!(
            (decided["state"].as_str(), decided["decision"].as_str()),
            (Some(state), Some(decision)),
            "{decided}"
        );
    }
    let shown = server.operator(&["approvals", "--all"]).ok();
    assert!(shown.contains("respond by operator: which region?") && shown.contains(r#""cmd": "ls""#), "{shown}");
    // Without a task, an agent's held call ends with the agent.
    let held = hold(url, token.trim(), r#"{"tool":"shell","arguments":{"cmd":"late"}}"#);
    server.operator(&["agent", "remove", "hive"]).ok();
    for told in [server.operator(&["approvals", "--all"]), server.operator(&["explain", held["id"].as_str().unwrap()])]
    {
        let told = told.ok();
        assert!(told.contains("withdrawn") && told.contains("denied: its agent was removed"), "{told}");
    }
}

#[test]
fn the_policy_decides_and_is_shown_with_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let toml = "[[approval]]\ntool = \"shell(rm *)\"\ndecision = \"deny\"\n[[approval]]\ntool = \"deploy\"\n\
                tier = \"high\"\n[tier.high]\nwho = [\"lead\"]\ntimeout = \"10s\"\n";
    fs::write(dir.path().join("lastword.toml"), toml).unwrap();
    let offline = run(dir.path(), &["limits"]).ok();
    assert!(offline.contains("shell(rm *)") && offline.contains("human, lead"), "{offline}");
    let server = Server::start_in(dir);
    server.agent("hive");
    let token = fs::read_to_string(server.path().join("hive.token")).unwrap();
    let url = server.first_line["listening"].as_str().unwrap();
    let denied = hold(url, token.trim(), r#"{"tool":"shell","arguments":{"command":"cd / && rm -r x"}}"#);
    assert_eq!((denied["state"].as_str(), denied["by"].as_str()), (Some("rejected"), Some("policy")), "{denied}");
    let held = hold(url, token.trim(), r#"{"tool":"deploy","arguments":{}}"#);
    assert_eq!((held["state"].as_str(), held["tier"].as_str()), (Some("pending"), Some("high")), "{held}");
    assert!(server.operator(&["limits"]).ok().contains("high"));

    let (_, dir) = server.terminate();
    let refused = run(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert!(refused.code == 2 && refused.stderr.contains("names lead"), "{refused:?}");
}

#[test]
fn a_question_to_the_user_is_told_in_words() {
    let server = Server::start();
    server.agent("kilo");
    let said = server.as_agent("kilo", &["send", "user", "which colour?", "--ref", "C-1"]).ok();
    assert!(said.contains("esc-1 waits for a human") && said.contains("lastword answer esc-1"), "{said}");
    let said = server.as_agent("kilo", &["send", "user", "which size?", "--ref", "C-1", "--json"]).json();
    assert_eq!(said["id"], "esc-2");
}

#[test]
fn a_conversation_is_paused_resumed_and_stopped() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    server.as_agent("kilo", &["send", "hive", "x", "--ref", "E-1"]).ok();
    for (args, state) in
        [(&["pause", "E-1"][..], "paused"), (&["resume", "E-1", "--yes"], "active"), (&["stop", "E-1"], "stopped")]
    {
        server.operator(args).ok();
        assert_eq!(server.operator(&["tree", "E-1", "--json"]).json()["state"], state);
    }
    server.operator(&["grant", "E-1", "--messages", "5", "--time", "1h", "--yes"]);
    server.operator(&["pause", "--agent", "hive"]).ok();
    assert!(server.operator(&["agent", "show", "hive"]).ok().contains("paused"));
}

/// Holds a tool call, like an agent's runner.
pub(crate) fn hold(url: &str, token: &str, body: &str) -> serde_json::Value {
    post(url, token, "/v1/approvals", body)
}

/// Asks a human, as an agent.
pub(crate) fn escalate(url: &str, token: &str, message: &str) -> serde_json::Value {
    post(url, token, "/v1/escalations", &serde_json::json!({ "message": message }).to_string())
}

/// Makes a call and returns the head of its response, with as much of the body as came at once.
pub(crate) fn get(url: &str, token: &str, path: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

pub(crate) fn post(url: &str, token: &str, path: &str, body: &str) -> serde_json::Value {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

#[test]
fn the_tools_are_served_on_standard_output_and_what_is_wrong_is_told_on_standard_error() {
    let server = Server::start();
    server.agent("kilo");
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"send_agent_message","arguments":{{"target_agent_id":"kilo","message":"me","ref":"E-1"}},{meta}}}}}"#
    );
    let mut command = lastword(server.path());
    let mut child = command.args(["--token-file", "kilo.token", "mcp"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(format!("{call}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let result = serde_json::from_str::<serde_json::Value>(&line).unwrap()["result"].clone();
    assert_eq!(
        (result["isError"].as_bool(), result["resultType"].as_str()),
        (Some(true), Some("complete")),
        "{result}"
    );
    assert_eq!(result["structuredContent"]["code"], "self_send");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0), "it ends with its client");

    let mut command = lastword(server.path());
    let refused = finish(command.arg("mcp").env("LASTWORD_TOKEN", "lw_wrong"), "");
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.contains("(unauthenticated)"), "{refused:?}");
}

#[test]
fn no_token_of_an_mcp_client_is_in_the_log_at_any_level() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("server.log");
    let mut command = lastword(dir.path());
    let command = command.env("LASTWORD_LOG", "trace").args(["serve", "--listen", "127.0.0.1:0", "--json"]);
    let mut child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let first: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = first["listening"].as_str().unwrap().trim_start_matches("http://");
    let token = fs::read_to_string(dir.path().join(first["operator_token_file"].as_str().unwrap())).unwrap();
    let token = token.trim();
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_agents","arguments":{"none":"such"}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"none/such","params":{}}"#,
    ] {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nLastword-As-Human: yes\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 "), "{response}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.is_empty() && !said.contains(token), "{said}");
}

#[test]
fn serve_prints_a_link_that_signs_in_once_and_its_secret_is_in_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("server.log");
    let mut command = lastword(dir.path());
    let command = command.env("LASTWORD_LOG", "trace").args(["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().take(3);
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    let address = lines[0].strip_prefix("listening on http://").unwrap();
    assert!(lines[1].starts_with("operator token in "), "{lines:?}");
    let link = lines[2].strip_prefix("console: ").and_then(|rest| rest.split(' ').next()).unwrap();
    let code = link.strip_prefix(&format!("http://{address}/sign-in#")).unwrap();
    let post = |path: &str, headers: &str, body: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    let sign_in = || post("/sign-in", "Content-Type: application/x-www-form-urlencoded\r\n", &format!("code={code}"));
    let first = sign_in();
    assert!(first.starts_with("HTTP/1.1 303 "), "{first}");
    assert!(sign_in().starts_with("HTTP/1.1 401 "), "it is good once");
    // Cause a log line: an empty log would prove nothing.
    let token = fs::read_to_string(dir.path().join(lines[1].trim_start_matches("operator token in "))).unwrap();
    let headers = format!(
        "Authorization: Bearer {}\r\nLastword-As-Human: yes\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n",
        token.trim()
    );
    post(
        "/mcp",
        &headers,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_agents","arguments":{"none":"such"}}}"#,
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let cookie = first.split("lastword_session_").nth(1).and_then(|rest| rest.split([';', '=']).nth(1)).unwrap();
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.is_empty() && !said.contains(code) && !said.contains(cookie), "{said}");
}
