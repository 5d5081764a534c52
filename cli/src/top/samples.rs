//! Example models, as the server would have filled them.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use lastword_client::wire::{ConversationView, parse_rfc3339};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::model::{Lists, Model, ServerConnection};
use super::{Seen, draw, press};

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn distance(name: &str, limit: u64, current: u64) -> Value {
    json!({ "name": name, "limit": limit, "current": current, "left": limit.saturating_sub(current) })
}

fn summary(reference: &str, state: &str, latched: bool, nearest: &Value) -> Value {
    json!({
        "ref": reference, "opener": "operator", "state": state, "latched": latched,
        "counters": { "messages": 4, "turns": 3, "deepest": 2, "open_tasks": 1 },
        "opened_at": "2026-01-31T09:00:00Z", "last_at": "2026-01-31T09:04:55Z", "nearest": nearest,
    })
}

fn failed(mut summary: Value) -> Value {
    summary["outcome"] = json!("failed");
    summary["counters"]["open_tasks"] = json!(0);
    summary
}

fn agent(name: &str, kind: &str, turns: &[&str], sent: u64) -> Value {
    let windows = if kind == "human" {
        json!([])
    } else {
        json!([
            distance("sender_messages_max", 30, sent),
            distance("fan_out_targets_max", 5, 1),
            distance("roots_per_hour_max", 10, 0),
        ])
    };
    json!({
        "name": name, "kind": kind, "actions": ["review"], "groups": [], "incarnation": 1, "state": "active",
        "connected": kind == "agent", "turns_max": 1, "turns": turns, "queued": 2, "notices": 1,
        "tokens_today": 12_345, "cost_today_microusd": if kind == "human" { 0 } else { 625_000 }, "windows": windows,
    })
}

fn message(id: u64, kind: &str, from: &str, to: &str, body: &str) -> Value {
    json!({
        "id": format!("msg-{id}"), "seq": id, "from": from, "to": to, "type": kind, "ref": "LOGIN-1", "depth": 0,
        "hops": 0, "body": body, "created_at": "2026-01-31T09:00:00Z", "delivery_state": "settled",
    })
}

/// Returns a conversation with a request, a refusal and an answer.
pub(crate) fn conversation() -> ConversationView {
    let mut view = summary("LOGIN-1", "active", false, &Value::Null);
    let problem = json!({
        "type": "urn:lastword:cycle", "title": "The recipient is above you in this chain of requests", "status": 422,
        "code": "cycle", "detail": "The recipient is above you: lead", "rule": "D5", "hint": "End your turn.",
        "record": "refused-8",
    });
    let refused = json!({ "from": "coder", "to": "lead", "type": "request", "turn": "turn-1", "problem": problem });
    let mut answer = message(9, "response", "coder", "operator", "Fixed.\u{1b}[2J");
    answer["status"] = json!("completed");
    view["participants"] = json!(["operator", "coder"]);
    view["limits"] = json!([distance("depth_max", 5, 2), distance("turns_soft_max", 20, 3)]);
    view["grants"] = json!([{
        "id": "grant-1", "giver": "operator", "expires_at": "2026-02-01T09:00:00Z", "open": true,
        "can_still_cause": 60, "limits": [distance("grant_messages_max", 64, 4), distance("grant_tokens_max", 1000, 990)],
    }]);
    view["tree"] = json!([{
        "message": message(4, "request", "operator", "coder", "Fix the login form"),
        "turns": 2, "tokens": 4850, "duration_ms": 12_300, "refusals": [refused],
        "children": [{ "message": answer, "children": [] }],
    }]);
    of(view)
}

/// Returns a model of a team at work, with everything that can wait for a human.
pub(crate) fn model() -> Model {
    let approval = json!({
        "id": "apr-2", "digest": "78ca0b9889b91ff76c7724cc5f80497caafc9190b2ee5893e3ab5ad4feaa4903",
        "state": "pending", "expires_at": "2026-01-31T09:09:12Z", "agent": "ops", "tool": "deploy",
        "arguments": { "service": "login", "note": "a\u{202e}b" }, "reason": "the release is tested",
        "ref": "DEPLOY-1", "created_at": "2026-01-31T09:04:12Z",
    });
    let escalation = json!({
        "id": "esc-1", "seq": 7, "state": "open", "cause": "asked", "agent": "hive", "ref": "ASK-1",
        "message": "In which region?\nOnly one can be the first.", "options": ["eu", "us"],
        "limit": "The conversation is as deep as it may be: limit 5, would be 6, never extended.",
        "lifts": [{ "id": "lift-1", "text": "2 more rounds" }, { "id": "lift-2", "text": "20 more messages" }],
        "created_at": "2026-01-31T09:03:00Z",
    });
    let incident = json!({
        "id": "inc-1", "on": "grant-3", "scope": "grant", "ref": "BUDGET-1", "code": "budget", "limit": 200_000,
        "current": 240_150, "at": "2026-01-31T08:00:00Z", "parked": ["req-0007"],
    });
    let lists = Lists {
        approvals: vec![of(approval)],
        escalations: vec![of(escalation)],
        incidents: vec![of(incident)],
        conversations: vec![
            of(summary("LOGIN-1", "active", false, &distance("depth_max", 5, 2))),
            of(summary("BUDGET-1", "active", true, &distance("grant_tokens_max", 200_000, 240_150))),
            of(summary("OLD-7", "paused", false, &distance("turns_soft_max", 20, 16))),
            of(summary("ASK-1", "active", false, &Value::Null)),
            of(failed(summary("LOST-2", "active", false, &Value::Null))),
        ],
        more_conversations: false,
        agents: vec![
            of(agent("coder", "agent", &["turn-3"], 30)),
            of(agent("hive", "agent", &[], 2)),
            of(agent("operator", "human", &[], 0)),
        ],
    };
    let mut model = Model {
        lists,
        link: ServerConnection::Live,
        now_ms: parse_rfc3339("2026-01-31T09:05:00Z").unwrap().0,
        conversation: Some(conversation()),
        ..Model::new("http://127.0.0.1:7171", true)
    };
    model.settle(0);
    model.seen.has_prompt = true;
    model
}

/// Shows the model on a screen of this size.
pub(crate) fn painted(model: &mut Model, columns: u16, rows: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    model.resize(columns);
    let mut seen = Seen::default();
    terminal.draw(|frame| seen = draw(frame, model)).unwrap();
    model.seen(seen);
    terminal.backend().buffer().clone()
}

/// Presses these keys.
pub(crate) fn typed(model: &mut Model, keys: &str) {
    for c in keys.chars() {
        let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
        press(model, KeyEvent::new(code, KeyModifiers::NONE));
    }
}

/// Returns the characters on the screen.
pub(crate) fn text(buffer: &Buffer) -> String {
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..buffer.area.height).map(row).collect::<Vec<_>>().join("\n")
}
