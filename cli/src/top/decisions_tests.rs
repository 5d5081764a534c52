//! What a key decides is what was shown.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use lastword_client::wire::{Arguments, EscalationView};
use lastword_facts::fact::EscalationCause;
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;

use super::model::ServerConnection;
use super::samples::{painted, text, typed};
use super::{Model, Order, press, samples};
use crate::environment::Environment;
use crate::out::Out;
use crate::render;

/// Returns a model with a held call whose command is the last argument by name, after a long reason.
fn held_command() -> Model {
    let mut model = samples::model();
    let call = &mut model.lists.approvals[0];
    "Bash".clone_into(&mut call.tool);
    call.reason = Some("it has to be done ".repeat(40));
    let noise = (0..40).map(|n| (format!("a{n:02}"), serde_json::json!(n)));
    let command = ("command".to_owned(), serde_json::json!("cd /srv &&\n  git push --force"));
    call.arguments = noise.chain([command]).collect::<serde_json::Value>().into();
    model
}

#[test]
fn the_command_of_a_held_call_stands_in_its_row_and_before_all_else_of_it() {
    for (columns, rows) in [(80, 24), (200, 30)] {
        let mut model = held_command();
        let list = text(&painted(&mut model, columns, rows));
        assert!(list.contains("Bash cd /srv &&\\n  git pu"), "{list}");
        assert!(list.contains("  cd /srv &&\n") || list.contains("│  cd /srv &&"), "{list}");
        typed(&mut model, "a");
        let asked = text(&painted(&mut model, columns, rows));
        let at = |words: &str| asked.find(words).unwrap_or(usize::MAX);
        assert!(at("  git push --force") < at("it has to be done"), "{asked}");
    }
}

#[test]
fn a_yes_counts_only_once_all_of_the_call_was_shown() {
    for (columns, rows) in [(80, 24), (200, 30)] {
        let mut model = held_command();
        typed(&mut model, "a");
        let first = text(&painted(&mut model, columns, rows));
        assert!(first.contains("more lines: Space") && !first.contains("[y/N]"), "{first}");
        assert_eq!(yes(&mut model), None);
        for _ in 0..10 {
            assert_eq!(yes(&mut model), None, "not before the end");
            typed(&mut model, " ");
            if text(&painted(&mut model, columns, rows)).contains("[y/N]") {
                break;
            }
        }
        let last = text(&painted(&mut model, columns, rows));
        assert!(last.contains("\"a39\": 39") && last.contains("[y/N]"), "{last}");
        typed(&mut model, "kkkk");
        painted(&mut model, columns, rows);
        let digest = model.lists.approvals[0].digest.clone();
        assert_eq!(yes(&mut model), Some(Order::Approve { id: "apr-2".into(), digest }), "it was shown");
    }
}

#[test]
fn another_call_that_takes_the_place_of_the_shown_one_is_not_approved_for_it() {
    let mut model = held_command();
    typed(&mut model, "a");
    painted(&mut model, 80, 24);
    // An approval that expires sooner moves to the top of the list.
    let mut sooner = model.lists.approvals[0].clone();
    (sooner.id, sooner.digest) = ("apr-9".into(), "00".repeat(32));
    (sooner.expires_at, sooner.arguments) = ("2026-01-31T09:05:30Z".into(), serde_json::json!({}).into());
    model.lists.approvals.push(sooner);
    let still = text(&painted(&mut model, 80, 24));
    assert!(still.contains("git push --force") && !still.contains("apr-9"), "{still}");
    // The shown call is settled: the question wasn't about the one that took its place.
    model.lists.approvals.remove(0);
    painted(&mut model, 80, 24);
    assert_eq!(yes(&mut model), None);
}

#[test]
fn lines_that_a_wider_terminal_moves_past_the_screen_are_shown_again() {
    let mut model = held_command();
    typed(&mut model, "a");
    painted(&mut model, 30, 12);
    typed(&mut model, "  ");
    painted(&mut model, 30, 12);
    assert!(text(&painted(&mut model, 100, 12)).contains("asks to call Bash"));
}

fn yes(model: &mut Model) -> Option<Order> {
    press(model, KeyEvent::new(KeyCode::Char('y'), KeyModifiers::NONE))
}

#[test]
fn a_call_that_is_longer_than_the_screen_is_read_to_its_last_character() {
    let mut model = samples::model();
    model.lists.approvals[0].arguments = serde_json::json!({ "cmd": format!("{}END", "x".repeat(5_000)) }).into();
    typed(&mut model, "a");
    let first = text(&painted(&mut model, 80, 24));
    assert!(!first.contains("[y/N]") && !first.contains("END"), "{first}");
    for _ in 0..10 {
        typed(&mut model, " ");
        painted(&mut model, 80, 24);
    }
    let last = text(&painted(&mut model, 80, 24));
    assert!(last.contains("END") && last.contains("[y/N]"), "{last}");
}

/// Adds a held call that expires before the one there, and so is listed above it.
fn sooner(model: &mut Model) {
    let mut call = model.lists.approvals[0].clone();
    (call.id, call.digest) = ("apr-9".into(), "00".repeat(32));
    (call.expires_at, call.tool) = ("2026-01-31T09:05:30Z".into(), "wipe".into());
    model.lists.approvals.push(call);
}

/// Returns the screen as one line, without the blanks at the ends of its rows.
fn on_a_line(model: &mut Model, columns: u16, rows: u16) -> String {
    text(&painted(model, columns, rows)).lines().collect()
}

#[test]
fn a_call_that_comes_above_the_selected_one_moves_no_key_to_itself() {
    for (keys, decided) in [("a", "(apr-2, digest 78ca0b98)"), ("r", "reject apr-2"), ("p", "Pause DEPLOY-1?")] {
        let mut model = samples::model();
        painted(&mut model, 80, 24);
        sooner(&mut model);
        // The key may come before the new row is painted, or after.
        for paints in [0, 1] {
            let mut model = model.clone();
            (0..paints).for_each(|_| drop(painted(&mut model, 80, 24)));
            typed(&mut model, keys);
            let shown = text(&painted(&mut model, 80, 24));
            assert!(shown.contains(decided) && !shown.contains("wipe"), "{keys}: {shown}");
        }
    }
}

#[test]
fn the_first_row_of_the_first_lists_is_selected() {
    let mut model = samples::model();
    (model.link, model.selected) = (ServerConnection::Connecting, <[Option<String>; 3]>::default());
    let approvals = std::mem::take(&mut model.lists.approvals);
    painted(&mut model, 80, 24);
    (model.lists.approvals, model.link) = (approvals, ServerConnection::Live);
    assert!(text(&painted(&mut model, 80, 24)).contains("ops asks to call deploy"));
}

#[test]
fn a_row_that_becomes_the_selected_one_by_itself_is_decided_only_once_it_was_there_for_a_moment() {
    for key in ["a", "r", "p", "u", "s"] {
        let mut model = samples::model();
        painted(&mut model, 80, 24);
        sooner(&mut model);
        model.lists.approvals.remove(0);
        for moment in ["before it is painted", "as it is painted"] {
            typed(&mut model, key);
            let shown = text(&painted(&mut model, 80, 24));
            assert!(shown.contains("this row has just come here"), "{key} {moment}: {shown}");
            assert_eq!(yes(&mut model), None, "{key} {moment}");
        }
        assert!(text(&painted(&mut model, 80, 24)).contains("new here: keys decide in a moment"));
        model.now_ms += 1_000;
        assert!(text(&painted(&mut model, 80, 24)).contains("a approve"));
        typed(&mut model, key);
        assert!(!text(&painted(&mut model, 80, 24)).contains("this row has just come here"), "{key}");
    }
    // What a human moves to is what the human chose.
    let mut model = samples::model();
    painted(&mut model, 80, 24);
    model.lists.approvals.clear();
    painted(&mut model, 80, 24);
    typed(&mut model, "jp");
    assert!(text(&painted(&mut model, 80, 24)).contains("Pause BUDGET-1?"));
}

#[test]
fn a_call_that_another_human_edits_or_settles_meanwhile_is_not_approved() {
    let mut model = samples::model();
    typed(&mut model, "a");
    assert!(text(&painted(&mut model, 80, 24)).contains("[y/N]"));
    let call = &mut model.lists.approvals[0];
    call.requested = Some(std::mem::replace(&mut call.arguments, serde_json::json!({ "service": "all" }).into()));
    (call.state, call.digest) = (ApprovalState::Approved, "00".repeat(32));
    assert_eq!(yes(&mut model), None);
    assert!(text(&painted(&mut model, 80, 24)).contains("apr-2 changed or was settled"));
    assert_eq!(yes(&mut model), None);
}

#[test]
fn a_lift_is_chosen_by_its_key_while_the_limit_that_was_shown_still_stops_the_task() {
    let asks = || {
        let mut model = samples::model();
        typed(&mut model, "jL");
        assert!(text(&painted(&mut model, 80, 24)).contains("Lift with \"2 more rounds\", leaving esc-1 open"));
        model
    };
    let chosen = Order::Lift { id: "esc-1".into(), lift: "lift-1".into(), text: "2 more rounds".into() };
    assert_eq!(yes(&mut asks()), Some(chosen));
    let changes: [fn(&mut EscalationView); 4] = [
        |view| view.lifts[0].text = "9 more rounds".into(),
        |view| view.lifts[1].chosen = true,
        |view| view.lifts.clear(),
        |view| view.state = EscalationState::Answered,
    ];
    for change in changes {
        let mut model = asks();
        change(&mut model.lists.escalations[0]);
        assert_eq!(yes(&mut model.clone()), None, "before it is painted");
        let shown = text(&painted(&mut model, 80, 24));
        assert!(shown.contains("esc-1 changed or was settled") && !shown.contains("[y/N]"), "{shown}");
        assert_eq!(yes(&mut model), None);
    }
    // A question that no limit caused offers none, whatever its options say.
    let mut model = samples::model();
    model.lists.escalations[0].lifts.clear();
    model.lists.escalations[0].options = vec!["lift-1".into(), "2 more rounds".into()];
    model.settle(0);
    typed(&mut model, "jL");
    assert!(text(&painted(&mut model, 80, 24)).contains("no limit stopped this task"));
    assert_eq!(yes(&mut model), None);
    // The words of a lift are an answer like any other.
    let mut model = samples::model();
    typed(&mut model, "je2 more rounds");
    painted(&mut model, 80, 24);
    assert_eq!(enter(&mut model), Some(Order::Answer { id: "esc-1".into(), text: "2 more rounds".into() }));
}

#[test]
fn an_option_is_shown_whole_before_it_is_sent() {
    let long = format!("{}but never touch the backups", "delete it all, ".repeat(8));
    assert_eq!(long.len(), 147);
    let chosen = |columns, rows| {
        let mut model = samples::model();
        model.lists.escalations[0].options = vec!["no".into(), long.clone()];
        typed(&mut model, "je");
        for _ in 0..2 {
            press(&mut model, KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE));
        }
        let shown = on_a_line(&mut model, columns, rows);
        (model, shown)
    };
    for columns in [80, 200] {
        let (mut model, shown) = chosen(columns, 24);
        let typed_line = shown.split("(Tab: options): ").nth(1).unwrap_or_default();
        assert_eq!(typed_line.replace(' ', ""), format!("{long}▏").replace(' ', ""), "{shown}");
        assert_eq!(enter(&mut model), Some(Order::Answer { id: "esc-1".into(), text: long.clone() }));
    }
    let (mut model, shown) = chosen(40, 5);
    assert!(shown.contains("too long to show here"), "{shown}");
    assert_eq!(enter(&mut model), None, "no room for it");
    painted(&mut model, 80, 24);
    assert_eq!(enter(&mut model), Some(Order::Answer { id: "esc-1".into(), text: long.clone() }));
}

#[test]
fn a_question_for_which_the_screen_has_no_room_takes_no_yes() {
    let mut model = samples::model();
    typed(&mut model, "2s");
    painted(&mut model, 10, 4);
    assert_eq!(yes(&mut model), None);
    painted(&mut model, 80, 24);
    assert!(yes(&mut model).is_some());
}

#[test]
fn a_call_of_287_lines_is_approved_after_its_last_one() {
    let mut model = samples::model();
    let script: Vec<String> = (1..=287).map(|n| format!("line {n}")).collect();
    model.lists.approvals[0].arguments = serde_json::json!({ "command": script.join("\n") }).into();
    typed(&mut model, "a");
    let mut seen = String::new();
    let order = loop {
        let shown = text(&painted(&mut model, 80, 24));
        seen.push_str(&shown);
        if shown.contains("[y/N]") {
            break yes(&mut model);
        }
        assert_eq!(yes(&mut model), None);
        typed(&mut model, " ");
    };
    assert!(order.is_some());
    script.iter().for_each(|line| assert!(seen.contains(&format!("  {line}\n")), "{line}"));
}

#[test]
fn the_arguments_of_a_call_are_shown_digit_by_digit_and_their_names_whole() {
    let name = format!("│{}END", " ".repeat(90));
    let call = format!(r#"{{"id":1234567890123456789012,"share":1.10,"{name}":"a\nb"}}"#);
    let mut model = samples::model();
    model.lists.approvals[0].arguments = serde_json::from_str(&call).unwrap();
    typed(&mut model, "a");
    let shown = text(&painted(&mut model, 80, 40));
    assert!(shown.contains("\"id\": 1234567890123456789012") && shown.contains("\"share\": 1.10"), "{shown}");
    assert!(shown.contains("END"), "{shown}");
    let twice = serde_json::from_str::<Arguments>(r#"{"id":1,"id":2}"#);
    assert!(twice.is_err(), "two members of a name have no one meaning");
}

fn enter(model: &mut Model) -> Option<Order> {
    press(model, KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE))
}

#[test]
fn a_hold_that_its_agent_asks_about_is_listed_once() {
    let mut model = samples::model();
    let mut hold = model.lists.escalations[0].clone();
    "esc-2".clone_into(&mut hold.id);
    hold.cause = EscalationCause::NoProgress;
    model.lists.escalations.push(hold);
    let list = text(&painted(&mut model, 80, 24));
    assert!(list.contains("esc-1") && !list.contains("esc-2"), "{list}");
    model.lists.escalations[0].state = EscalationState::Answered;
    let list = text(&painted(&mut model, 80, 24));
    assert!(!list.contains("esc-1") && list.contains("esc-2"), "{list}");
}

#[test]
fn a_request_that_timed_out_is_no_question() {
    let mut model = samples::model();
    model.lists.escalations[0].cause = EscalationCause::TimedOut;
    let list = text(&painted(&mut model, 80, 24));
    assert!(list.contains("timed out esc-1") && !list.contains("answer?"), "{list}");
    typed(&mut model, "2");
    // It holds up no work.
    assert!(!text(&painted(&mut model, 80, 24)).contains("for you"));
}

#[test]
fn a_list_on_a_terminal_shows_a_long_call_in_short_and_not_its_digest() {
    let out = Out::new(false, &Environment::default());
    let mut call = held_command().lists.approvals.remove(0);
    let short = render::approval_in_list(&call, &out);
    assert!(!short.contains(&call.digest) && short.contains("lastword approvals --whole"), "{short}");
    assert!(short.contains("… 31 more lines"), "{short}");
    call.arguments = Arguments::from(serde_json::json!({ "command": "x".repeat(4_000) }));
    let short = render::approval_in_list(&call, &out);
    assert!(short.len() < 1_000 && short.contains("more characters"), "{short}");
    call.arguments = Arguments::from(serde_json::json!({ "command": "ls" }));
    assert_eq!(render::approval_in_list(&call, &out), render::approval(&call, &out));
}
