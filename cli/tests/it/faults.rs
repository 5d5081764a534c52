//! What is said of a wrong name, token, address or number: the fault at hand, and what to write instead.

use std::fs;

use crate::program::{Ended, Server, finish, lastword};

/// A line is a case: `VARIABLES AND ARGUMENTS | SAID`. Each text of what is said has to be in the error, with `; ` between
/// them; a text that begins with `!` must not. Two spaces separate arguments, `␣` is one within them, `@FILE` is a token
/// file, `KILO` an agent's token and `PORT` the server's port.
const TABLE: &str = r#"
@operator  agent  add  kilo | kilo (name_taken); call `lastword agent token kilo`
@operator  agent  add  研究员 | `name` "研究员" has a character that is not allowed at byte 0: use a-z; `lastword agent add NAME --display-name "研究员"`; !for example
@operator  agent  add  hive  --display-name  评审 | the display name "评审" (name_taken)
@operator  agent  set  kilo  --display-name  Reviewer  --yes | the display name "Reviewer" (name_taken)
@operator  send  评审  look  --ref  R-1 | 评审 is the display name of reviewer (unknown_recipient); Address reviewer
@operator  agent  add  Прüfer | use a-z; !for example
@operator  agent  add  Code Reviewer | for example `code-reviewer`; Fix what the error names
@operator  agent  add  Code.Reviewer. | for example `code.reviewer`
@operator  agent  add  user | `name` "user" is a reserved name
@operator  agent  show  Reviewer | Did you mean reviewer?
@operator  agent  token  reviewr | Did you mean reviewer?
@operator  agent  remove  reviewr | Did you mean reviewer?
@operator  pause  --agent  reviewr | Did you mean reviewer?
@operator  stop  kilo | "kilo" not found (unknown_request); for the agent: --agent kilo
@operator  pause  reviewer | for the agent: --agent reviewer
@operator  stop  reviewr | "reviewr" not found; !--agent
@operator  send  reviewr  look  --ref  R-1 | Did you mean reviewer?
@operator  send  @reviewer  look  --ref  R-1 | There is no such recipient: @reviewer; Did you mean reviewer?
@operator  send  @team-re  look  --ref  R-1 | Did you mean @team-red?
@operator  send  #revew  look  --ref  R-1 | Did you mean #review?
@operator  send  kilo,reviewr  look  --ref  R-1 | no such recipient: reviewr; Did you mean reviewer?
@operator  ask  Reviewer  look  --wait  0s | for example `reviewer`
@operator  ask  reviewer␣  look  --wait  0s | "reviewer " has a character that is not allowed at byte 8; for example `reviewer`
@operator  ask  kilo,reviewer  look  --wait  0s | "kilo,reviewer" names several: send a list of them; !for example
@operator  ask  reviewer  look  --ref  JIRA 12  --wait  0s | `ref` "JIRA 12" has a character that is not allowed at byte 4; for example `JIRA-12`
@operator  ask  reviewer  look  --ref  /JIRA/12  --wait  0s | byte 0; after the first, `.` `_` `/`; for example `JIRA/12`
@operator  ask  reviewer  look  --wait  5 minutes | "5 minutes" isn't a duration such as 500ms, 30s, 10m or 2h
@operator  grant  T-1  --tokens  1k | invalid value '1k' for '--tokens <N>': it is a whole number such as 1000; !digit
@operator  grant  T-1  --cost  $2 | '--cost <USD>': it is a number such as 2.50; !literal
@bearer  agent  list | bearer.token: the token begins with `Bearer`; leave it out
@empty  agent  list | empty.token: the token is empty
@quoted  agent  list | quoted.token: No valid token (unauthenticated); --token-file FILE; !header
@gone  agent  list | no token: gone.token: No such file
@folder  agent  list | no token: folder.token: Is a directory
LASTWORD_TOKEN=wrong  agent  list | LASTWORD_TOKEN: No valid token (unauthenticated)
LASTWORD_TOKEN=kilo.token  agent  list | LASTWORD_TOKEN: No valid token; name its file in LASTWORD_TOKEN_FILE
LASTWORD_TOKEN=Bearer KILO  agent  list | LASTWORD_TOKEN: the token begins with `Bearer`
LASTWORD_TOKEN_FILE=quoted.token  agent  list | quoted.token: No valid token
@operator  --url  localhost:PORT  agent  list | did you mean http://localhost:PORT?
@operator  --url  https://127.0.0.1:PORT  agent  list | without TLS its address begins with http://; !start a server
@operator  --url  http://localhost:x  agent  list | invalid port number; !start a server
@operator  --url  http://127.0.0.1:PORT/v1  agent  list | There is nothing at /v1/v1/agents; Check the path; !id
"#;

fn said(server: &Server, line: &str) -> Ended {
    let port = server.first_line["listening"].as_str().unwrap().rsplit(':').next().unwrap();
    let kilo = fs::read_to_string(server.path().join("kilo.token")).unwrap();
    let mut command = lastword(server.path());
    for word in line.replace("PORT", port).replace("KILO", kilo.trim()).split("  ") {
        match (word.strip_prefix('@'), word.split_once('=')) {
            (Some("operator"), _) => command.args(["--token-file", ".lastword/operator.token"]),
            (Some(name @ ("bearer" | "empty" | "quoted" | "gone" | "folder")), _) => {
                command.args(["--token-file", &format!("{name}.token")])
            }
            (None, Some((name, value))) if name.starts_with("LASTWORD_") => command.env(name, value),
            _ => command.arg(word.replace('␣', " ")),
        };
    }
    finish(&mut command, "")
}

#[test]
fn a_wrong_input_is_named_with_what_to_write_instead() {
    let server = Server::start();
    server.agent("kilo");
    let made = ["agent", "add", "reviewer", "--group", "team-red", "--action", "review"];
    server.operator(&made).ok();
    let named = server.operator(&["agent", "set", "reviewer", "--display-name", "评审", "--yes"]).ok();
    assert_eq!(named, "reviewer (评审)\n");
    assert!(server.operator(&["agent", "list"]).ok().contains("\nreviewer (评审)  agent"), "beside the name");
    let moved = server.operator(&["agent", "set", "reviewer", "--group", "blue", "--group", "red", "--yes"]).ok();
    assert!(moved.contains("blue red") && moved.contains("review "), "in place of its groups alone: {moved}");
    server.operator(&["agent", "set", "reviewer", "--group", "team-red", "--yes"]).ok();
    let kilo = fs::read_to_string(server.path().join("kilo.token")).unwrap();
    for (name, text) in
        [("bearer", format!("Bearer {kilo}")), ("empty", String::new()), ("quoted", format!("{:?}", kilo.trim()))]
    {
        fs::write(server.path().join(format!("{name}.token")), text).unwrap();
    }
    fs::create_dir(server.path().join("folder.token")).unwrap();
    let port = server.first_line["listening"].as_str().unwrap().rsplit(':').next().unwrap();
    let mut wrong = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let (input, texts) = line.split_once(" | ").unwrap();
        let ended = said(&server, input);
        let differs = |text: &str| match text.strip_prefix('!') {
            Some(text) => ended.stderr.contains(text),
            None => !ended.stderr.contains(&text.replace("PORT", port)),
        };
        if ended.code == 0 || texts.split("; ").any(differs) {
            wrong.push(format!("{line}\n    {}", ended.stderr));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    // White space around a token is none of its own, however a file came by it.
    fs::write(server.path().join("quoted.token"), format!("\n{}\r\n\n", kilo.trim())).unwrap();
    assert_eq!(said(&server, "@quoted  agent  list").code, 0);
}
