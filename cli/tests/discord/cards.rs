//! Pending decisions appear on Discord as cards, and each is settled once, by the first human to act.

use serde_json::{Value, json};

use crate::town::TestGuild;
use crate::world::{Id, Interaction, Message};

impl TestGuild {
    /// Makes a call to the server as an agent.
    pub(crate) fn call(&self, agent: &str, path: &str, body: &Value) -> Value {
        let token = std::fs::read_to_string(self.server.path().join(format!("{agent}.token"))).unwrap();
        let url = format!("{}/v1{path}", self.server.first_line["listening"].as_str().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let call = lastword_client::plain_http().unwrap().post(url).bearer_auth(token.trim()).json(body);
            call.send().await.unwrap().json().await.unwrap()
        })
    }

    /// Ann sends kilo a request, which takes it; returns the thread.
    pub(crate) fn taken(&self, text: &str) -> Id {
        let asked = self.world.posts(self.ann, self.channel, &format!("<@{}> {text}", self.kilo));
        let taken = self.server.as_agent("kilo", &["--json", "inbox", "--wait", "30s"]).json();
        let body = taken["message"]["body"].as_str().unwrap_or_default();
        assert!(body.contains(text), "{taken} {:?} {:?}", self.world.spoken(), self.events("refused"));
        self.world.wait_thread(asked).id
    }

    /// Holds a call for kilo; returns its card.
    pub(crate) fn held(&self, thread: Id) -> Message {
        let call = json!({"tool": "deploy", "arguments": {"to": "eu"}, "reason": "asked to"});
        assert_eq!(self.call("kilo", "/approvals", &call)["state"], "pending");
        self.world.wait_message(thread, self.broker, "asks to call `deploy`")
    }

    /// Waits until the card contains this text; returns the card.
    pub(crate) fn wait_card(&self, card: &Message, words: &str) -> Message {
        self.world.wait(words, |discord| discord.messages.get(&card.id).filter(|m| m.content.contains(words)).cloned())
    }

    pub(crate) fn approval(&self) -> Value {
        self.server.operator(&["--json", "approvals", "--all"]).json()["items"][0].clone()
    }
}

/// Returns the id of the button whose label begins with `word`.
pub(crate) fn button(card: &Message, word: &str) -> String {
    let place = card.labels().iter().position(|label| label.starts_with(word));
    card.buttons()[place.unwrap_or_else(|| panic!("no {word} in {:?}", card.labels()))].clone()
}

/// Returns the title of the form that an interaction was answered with.
fn title(interaction: &Interaction) -> String {
    interaction.answered.as_ref().unwrap().1["title"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_held_call_is_approved_with_a_button_and_the_card_says_by_whom() {
    let town = TestGuild::start();
    let thread = town.taken("ship it");
    let card = town.held(thread);
    assert_eq!(card.labels(), ["Approve", "Reject", "Reject with instructions…"]);
    assert!(card.content.contains("\"to\": \"eu\"") && card.content.contains("because: asked to"), "{}", card.content);
    town.world.clicks(town.ann, card.id, &button(&card, "Approve"));
    let settled = town.wait_card(&card, "✅ Approved by operator");
    assert!(
        settled.content.contains(&format!("(<@{}>)", town.ann)) && settled.mentions.is_empty(),
        "{}",
        settled.content
    );
    assert_eq!((settled.buttons().len(), town.approval()["state"].as_str()), (0, Some("approved")));
    let used = town.call("kilo", "/approvals/apr-1/use", &json!({"tool": "deploy", "arguments": {"to": "eu"}}));
    assert_eq!(used["state"], "used", "{used}");
}

#[test]
fn who_has_a_lastword_token_of_her_own_decides_in_her_own_name() {
    let mut town = TestGuild::quiet("");
    let token = town.server.operator(&["agent", "add", "ann", "--kind", "human"]).ok();
    let path = town.server.path().join("ann.token");
    std::fs::write(&path, token).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = town.server.path().join("lastword.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let named = format!("humans = [{{ user = {}, lastword_token_file = \"ann.token\" }}]", town.ann);
    std::fs::write(&config, text.replace(&format!("humans = [{}]", town.ann), &named)).unwrap();
    town.bridge();
    let card = town.held(town.taken("ship it"));
    town.world.clicks(town.ann, card.id, &button(&card, "Approve"));
    town.wait_card(&card, "✅ Approved by ann");
    assert_eq!(town.approval()["by"], "ann");
}

#[test]
fn a_long_call_is_shown_in_parts_with_the_buttons_under_the_last_and_a_longer_one_is_not_approved_here() {
    let town = TestGuild::start();
    let thread = town.taken("ship it");
    let call = |tool: &str, lines: usize| {
        let arguments = json!({"script": (0..lines).map(|n| format!("echo {n} `x`")).collect::<Vec<_>>()});
        assert_eq!(town.call("kilo", "/approvals", &json!({"tool": tool, "arguments": arguments}))["state"], "pending");
    };
    call("long", 80);
    let card = town.world.wait_message(thread, town.broker, "-# digest");
    let parts = town.world.messages(thread).into_iter().filter(|m| m.content.contains("echo ")).count();
    assert!(parts > 1 && card.labels().len() == 3, "{parts}");
    town.world.clicks(town.ann, card.id, &button(&card, "Approve"));
    town.wait_card(&card, "✅ Approved by operator");
    call("longer", 2000);
    let card = town.world.wait_message(thread, town.broker, "too long for Discord");
    assert_eq!(card.labels(), ["Reject", "Reject with instructions…"]);
}

#[test]
fn only_people_who_are_listed_decide() {
    let town = TestGuild::start();
    let card = town.held(town.taken("ship it"));
    for word in ["Approve", "Reject", "Reject with instructions…"] {
        let click = town.world.clicks(town.bob, card.id, &button(&card, word));
        let answer = town.world.wait_answer(click);
        assert!(answer.content.contains("`humans`"), "{}", answer.content);
        assert_eq!(answer.only_for, Some(town.bob));
    }
    assert_eq!(town.approval()["state"], "pending");
}

#[test]
fn a_card_that_is_not_the_one_that_was_posted_decides_nothing() {
    let town = TestGuild::start();
    let card = town.held(town.taken("ship it"));
    // Like a card of another workspace, whose apr-1 was something else.
    let other = town.world.copies(card.id);
    for word in ["Approve", "Reject with instructions…"] {
        let click = town.world.clicks(town.ann, other, &button(&card, word));
        let answer = town.world.wait_answer(click);
        assert!(
            answer.content.contains("another workspace") && answer.only_for == Some(town.ann),
            "{}",
            answer.content
        );
    }
    assert_eq!(town.approval()["state"], "pending");
}

#[test]
fn a_call_is_rejected_in_words_that_a_form_asks_for() {
    let town = TestGuild::start();
    let card = town.held(town.taken("ship it"));
    let click = town.world.clicks(town.ann, card.id, &button(&card, "Reject with instructions…"));
    assert_eq!(title(&town.world.wait_answered(click)), "Reject apr-1 with instructions");
    town.world.submits(click, &[("words", "Not on a Friday.")]);
    let settled = town.wait_card(&card, "❌ Rejected by operator");
    assert!(settled.content.ends_with("Not on a Friday."), "{}", settled.content);
    let decided = town.approval();
    assert_eq!((&decided["decision"], &decided["comment"]), (&json!("respond"), &json!("Not on a Friday.")));
}

#[test]
fn who_comes_second_is_told_who_came_first_and_changes_nothing() {
    let town = TestGuild::start();
    let card = town.held(town.taken("ship it"));
    let (approve, reject) = (button(&card, "Approve"), button(&card, "Reject"));
    // Both users see the buttons before either presses one.
    let first = town.world.clicks(town.ann, card.id, &reject);
    let second = town.world.clicks(town.ann, card.id, &approve);
    let said = town.world.wait("a word to the second", |discord| {
        let all = discord.messages.values();
        all.filter(|m| m.only_for == Some(town.ann)).map(|m| m.content.clone()).next()
    });
    assert!(said.contains("apr-1"), "{said}");
    town.world.wait_answered(first);
    town.world.wait_answered(second);
    let ended = town.world.wait("a settled card", |discord| {
        discord.messages.get(&card.id).filter(|m| m.buttons().is_empty()).map(|m| m.content.clone())
    });
    let state = town.approval()["state"].as_str().unwrap().to_owned();
    assert!(ended.to_lowercase().contains(&state), "{state} {ended}");
    assert_eq!(town.events("approval_decided").len(), 1);
}

#[test]
fn a_card_that_the_terminal_settled_says_so() {
    let town = TestGuild::start();
    let card = town.held(town.taken("ship it"));
    town.server.operator(&["reject", "apr-1", "--comment", "no", "--yes"]).ok();
    let settled = town.wait_card(&card, "❌ Rejected by operator: no");
    assert_eq!(settled.buttons().len(), 0);
}

#[test]
fn a_question_is_answered_with_a_button_or_in_words_and_the_answer_goes_back() {
    let town = TestGuild::start();
    let thread = town.taken("ship it");
    let question = json!({"message": "To eu or us?", "options": ["eu", "us"]});
    assert_eq!(town.call("kilo", "/escalations", &question)["id"], "esc-1");
    let card = town.world.wait_message(thread, town.broker, "To eu or us?");
    assert_eq!(card.labels(), ["eu", "us", "Answer…"]);
    town.world.clicks(town.ann, card.id, &button(&card, "us"));
    town.wait_card(&card, "✅ operator (");
    town.call("kilo", "/escalations", &json!({"message": "Which day?"}));
    let card = town.world.wait_message(thread, town.broker, "Which day?");
    let click = town.world.clicks(town.ann, card.id, &button(&card, "Answer"));
    town.world.wait_answered(click);
    town.world.submits(click, &[("words", "Monday")]);
    let settled = town.wait_card(&card, "answered: Monday");
    assert_eq!(settled.buttons().len(), 0);
    let answers: Vec<Value> = town.server.operator(&["--json", "escalations", "--all"]).json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["answer"].clone())
        .collect();
    assert_eq!(answers, ["Monday", "us"]);
    let posts = town.world.messages(thread).into_iter().filter(|m| m.content.contains("Which day?")).count();
    assert_eq!(posts, 1, "the question stands on its card alone");
}

#[test]
fn a_lift_is_a_button_that_extends_and_resumes_in_one_act() {
    let mut town = TestGuild::limited("task_requests_max = 1\n", "");
    town.bridge();
    let thread = town.taken("ship it");
    let ask =
        |town: &TestGuild| town.call("kilo", "/messages", &json!({"type": "request", "to": "lima", "body": "help"}));
    assert_eq!(ask(&town)["to"], "lima");
    assert_eq!(ask(&town)["code"], "task_requests");
    town.call("kilo", "/escalations", &json!({"message": "May I ask again?"}));
    let card = town.world.wait_message(thread, town.broker, "May I ask again?");
    assert_eq!(card.labels(), ["4 more requests", "Answer…"]);
    assert!(card.content.contains("A green button lifts that and answers no question"), "{}", card.content);
    town.world.clicks(town.bob, card.id, &button(&card, "4 more"));
    town.world.clicks(town.ann, card.id, &button(&card, "4 more"));
    let lifted = town.wait_card(&card, "✅ 4 more requests");
    assert_eq!(lifted.labels(), ["Answer…"], "the question is still open");
    assert_eq!(ask(&town)["to"], "lima", "the task has its requests");
}

#[test]
fn cards_are_posted_once_over_a_kill_and_settled_by_what_happened_meanwhile() {
    let mut town = TestGuild::start();
    let thread = town.taken("ship it");
    let first = town.held(thread);
    town.kill();
    town.server.operator(&["approve", "apr-1", "--digest", town.approval()["digest"].as_str().unwrap(), "--yes"]).ok();
    town.call("kilo", "/approvals", &json!({"tool": "restart", "arguments": {}}));
    town.bridge();
    town.wait_card(&first, "✅ Approved by operator");
    let second = town.world.wait_message(thread, town.broker, "asks to call `restart`");
    town.kill();
    town.bridge();
    town.world.clicks(town.ann, second.id, &button(&second, "Approve"));
    town.wait_card(&second, "✅ Approved by operator");
    let cards = town.world.messages(thread).into_iter().filter(|m| m.content.contains("asks to call")).count();
    assert_eq!(cards, 2);
}

#[test]
fn a_card_of_a_workspace_that_is_no_more_holds_up_no_other() {
    let mut town = TestGuild::start();
    let old = town.held(town.taken("ship it"));
    // Noted under an id that the workspace doesn't have, like a card of another workspace.
    town.kill();
    let book = town.server.path().join(".lastword/discord.sqlite");
    let book = rusqlite::Connection::open(book).unwrap();
    let renamed = book.execute("UPDATE cards SET id = 'apr-99', post = coalesce(post, 1)", []).unwrap();
    assert_eq!(renamed, 1);
    drop(book);
    town.bridge();
    let thread = old.channel;
    town.call("kilo", "/approvals", &json!({"tool": "restart", "arguments": {}}));
    let card = town.world.wait_message(thread, town.broker, "asks to call `restart`");
    town.world.clicks(town.ann, card.id, &button(&card, "Approve"));
    town.wait_card(&card, "✅ Approved by operator");
}
