//! `lastword top` at a pseudo-terminal whose other end is read as a screen.

use crate::lifts::{at_the_cap, escalate};
use crate::program::Server;
use crate::screen::{COLUMNS, ROWS, Terminal};

/// Returns a server with a held call and a question, from one agent each.
fn waiting() -> Server {
    let server = Server::start();
    for name in ["ops", "hive"] {
        server.agent(name);
    }
    server.as_agent("hive", &["send", "user", "To eu or us?", "--ref", "ASK-1"]).ok();
    let token = std::fs::read_to_string(server.path().join("ops.token")).unwrap();
    let url = server.first_line["listening"].as_str().unwrap();
    crate::online::hold(url, token.trim(), r#"{"tool":"shell","arguments":{"cmd":"rm -r build"}}"#);
    server
}

#[test]
fn a_human_sees_what_waits_and_decides_it() {
    let server = waiting();
    // At a terminal the operator's token is found without a flag.
    let mut top = Terminal::run(server.path(), &["top"], &[]);
    top.shows(&["live 127.0.0.1", "apr-1", "esc-1", "rm -r build"]);
    // A row that has just come is decided a moment later.
    top.shows(&["a approve · r"]);
    top.keys("a");
    top.shows(&["Allow ops to make this call (apr-1", "[y/N]"]);
    top.keys("y");
    // The call is gone from the list, and the question is selected.
    top.shows(&["apr-1 approved", "hive asks"]);
    top.keys("R");
    top.shows(&["e answer · p"]);
    top.keys("enot us\r");
    top.shows(&["answered esc-1", "no pending decisions"]);
    assert_eq!(server.operator(&["approvals", "--all", "--json"]).json()["items"][0]["state"], "approved");
    assert_eq!(server.operator(&["escalations", "--all", "--json"]).json()["items"][0]["answer"], "not us");
    // Actions of others appear as they happen.
    server.operator(&["ask", "ops", "Once more", "--ref", "LATER-1", "--wait", "0s"]).ok();
    top.keys("2");
    top.shows(&["LATER-1"]);
    // The newest is the first, and the one selected before stays so until a key moves on.
    top.keys("g");
    top.shows(&["LATER-1", "operator → ops REQUEST"]);
    top.keys("q");
    assert_eq!(top.ended(), 0);
}

#[test]
fn a_human_chooses_a_lift_by_a_key_and_words_extend_nothing() {
    let server = at_the_cap();
    let again = ["send", "hive", "again", "--ref", "T-1"];
    assert_eq!(server.as_agent("kilo", &again).code, 1);
    for message in ["go on?", "and now?"] {
        escalate(&server, "kilo", message);
    }
    let mut top = Terminal::run(server.path(), &["top"], &[]);
    top.shows(&["esc-1", "esc-2", "L choose lift"]);
    top.keys("eyes, do\r");
    top.shows(&["answered esc-", "Inbox 1"]);
    assert_eq!(server.as_agent("kilo", &again).code, 1, "words extended nothing");
    top.keys("R");
    top.shows(&["L choose lift"]);
    top.keys("L");
    top.shows(&["Lift with \"2 more rounds\"", "[y/N]"]);
    top.keys("y");
    top.shows(&["lifted for esc-", ": 2 more rounds", "Inbox 1"]);
    server.as_agent("kilo", &again).ok();
    top.keys("q");
    assert_eq!(top.ended(), 0);
}

#[test]
fn it_goes_on_after_a_restart_of_the_server_at_another_port() {
    let server = waiting();
    let mut top = Terminal::run(server.path(), &["top"], &[]);
    top.shows(&["live 127.0.0.1", "Inbox 2"]);
    let (_, dir) = server.terminate();
    top.shows(&["reconnecting", "Inbox 2"]);
    let server = Server::start_in(dir);
    let address = server.first_line["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    top.shows(&[&address, "Inbox 2"]);
    server.as_agent("hive", &["send", "user", "And when?", "--ref", "ASK-2"]).ok();
    top.shows(&["Inbox 3", "esc-2"]);
    top.keys("\u{3}");
    assert_eq!(top.ended(), 0);
}

#[test]
fn in_an_agents_terminal_a_humans_token_looks_and_decides_nothing() {
    let server = waiting();
    let found = Terminal::run(server.path(), &["top"], &[("CLAUDECODE", "1")]);
    found.shows(&["without its own token"]);
    assert_eq!(found.ended(), 1);
    let named = ["--token-file", ".lastword/operator.token", "top"];
    let mut top = Terminal::run(server.path(), &named, &[("CLAUDECODE", "1")]);
    top.shows(&["live 127.0.0.1", "apr-1", "a approve · r"]);
    top.keys("ay");
    top.shows(&["an agent is running this command (CLAUDECODE is set)"]);
    assert_eq!(server.operator(&["approvals", "--json"]).json()["items"][0]["state"], "pending");
    top.keys("q");
    assert_eq!(top.ended(), 0);
}

#[test]
fn the_end_that_a_service_manager_asks_for_gives_the_terminal_back_too() {
    let server = waiting();
    let top = Terminal::run(server.path(), &["top"], &[("NO_COLOR", "1")]);
    top.shows(&["live 127.0.0.1", "apr-1"]);
    let coloured = {
        let parser = top.screen.lock().unwrap();
        let cells = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| parser.screen().cell(row, column))
            .any(|c| c.fgcolor() != vt100::Color::Default)
    };
    assert!(!coloured, "NO_COLOR is heeded");
    let pid = top.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(top.ended(), 0);
}
