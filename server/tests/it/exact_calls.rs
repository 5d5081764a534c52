//! Held calls are kept, shown, compared and ruled exactly as they were written.

use lastword_facts::names::AgentName;
use lastword_facts::policy::{ApprovalRule, CallPattern, Policy, Ruling};
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{Answer, World, id};

const LONG: &str = r#"{"tool":"pay","arguments":{"id":1234567890123456789012}}"#;

async fn raw(world: &World, who: &str, path: &str, body: &str) -> Answer {
    let request = world.request(who, Method::POST, path).header("content-type", "application/json");
    let accepts = request.header("accept", "application/json, text/event-stream");
    Answer::of(accepts.body(body.to_owned()).send().await.unwrap()).await
}

#[tokio::test]
async fn an_approval_of_a_long_number_is_for_each_of_its_digits() {
    let world = World::with(&["kilo"]).await;
    raw(&world, "kilo", "/v1/approvals", LONG).await.is(201);
    let list = world.request("operator", Method::GET, "/v1/approvals").send().await.unwrap().text().await.unwrap();
    assert!(list.contains("{\"id\":1234567890123456789012}"), "{list}");
    let browser = Browser::signed_in(&world).await;
    browser.get("/approvals/apr-1").await.is(200).has("1234567890123456789012");
    world.post("operator", "/v1/approvals/apr-1/decision", json!({"decision": "approve"})).await.is(200);
    let other = LONG.replace("012}", "099}");
    raw(&world, "kilo", "/v1/approvals/apr-1/use", &other).await.refused(422, "digest_mismatch");
    raw(&world, "kilo", "/v1/approvals/apr-1/use", LONG).await.is(200);
}

#[tokio::test]
async fn a_member_that_is_there_twice_is_refused_by_name() {
    let world = World::with(&["kilo"]).await;
    for (arguments, name) in [
        (r#"{"to":"mallory","to":"anna"}"#, "`to` is named twice"),
        (r#"{"a":[{"b":{"to":1,"to":1}}]}"#, "`a.b.to` is named twice"),
    ] {
        let call = format!(r#"{{"tool":"mail","arguments":{arguments}}}"#);
        for path in ["/v1/approvals", "/v1/approvals/apr-1/use"] {
            let refused = raw(&world, "kilo", path, &call).await;
            assert!(refused.body["detail"].as_str().unwrap().contains(name), "{}", refused.body);
        }
        let edit = format!(r#"{{"decision":"edit","input":{arguments}}}"#);
        let refused = raw(&world, "operator", "/v1/approvals/apr-1/decision", &edit).await;
        assert!(refused.body["detail"].as_str().unwrap().contains(name), "{}", refused.body);
    }
    assert_eq!(world.get("operator", "/v1/approvals").await.is(200)["items"], json!([]));
}

#[tokio::test]
async fn over_mcp_arguments_that_would_be_changed_are_refused_by_name() {
    let world = World::with(&["kilo"]).await;
    for (input, named) in [
        (r#"{"id":1234567890123456789012}"#, "1234567890123456789012"),
        (r#"{"to":"mallory","to":"anna"}"#, "`input.to` is named twice"),
    ] {
        for tool in ["approve_tool_use", "request_approval"] {
            let params = format!(r#"{{"name":"{tool}","arguments":{{"tool_name":"pay","input":{input}}}}}"#);
            let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            let told = raw(&world, "kilo", "/mcp", &call).await.is(200);
            assert!(told["result"]["content"][0]["text"].as_str().unwrap().contains(named), "{told}");
        }
    }
    assert_eq!(world.get("operator", "/v1/approvals").await.is(200)["items"], json!([]));
}

#[tokio::test]
async fn an_edited_call_keeps_what_was_requested_and_who_edited_it() {
    let world = World::with(&["kilo"]).await;
    let call = json!({"tool": "shell", "arguments": {"cmd": "rm -rf build"}});
    world.post("kilo", "/v1/approvals", call).await.is(201);
    let edit = json!({"decision": "edit", "input": {"cmd": "ls build"}});
    world.post("operator", "/v1/approvals/apr-1/decision", edit).await.is(200);
    let view = world.get("kilo", "/v1/approvals/apr-1").await.is(200);
    assert_eq!(view["requested"], json!({"cmd": "rm -rf build"}));
    assert_eq!(
        (&view["arguments"], id(&view, "by"), id(&view, "decision")),
        (&json!({"cmd": "ls build"}), "operator", "edit")
    );
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/approvals/apr-1").await.is(200);
    page.has("As kilo asked").has("As operator edited it").has("edited and approved");
    world
        .post("kilo", "/v1/approvals/apr-1/use", json!({"tool": "shell", "arguments": {"cmd": "ls build"}}))
        .await
        .is(200);
    browser.get("/approvals/apr-1").await.is(200).has("kilo made it as edited.");
}

fn rule(call: &str, ruling: Ruling) -> ApprovalRule {
    let call = CallPattern::parse(call).unwrap();
    ApprovalRule { call, agents: Vec::<AgentName>::new(), ruling, tier: None, who: None, timeout_ms: None }
}

#[tokio::test]
async fn a_denied_command_is_denied_in_each_spelling_and_what_can_not_be_read_waits_for_a_human() {
    let policy = Policy { rules: vec![rule("Bash(git push*)", Ruling::Deny), rule("Bash", Ruling::Allow)] };
    let world = World::set(&["kilo"], |config| config.settings.policy = policy).await;
    for (command, state) in [
        ("GIT_TRACE=1 git  push", "rejected"),
        ("if true; then sudo /usr/bin/git -C r push; fi", "rejected"),
        ("eval \"$CMD\"", "pending"),
        ("git commit -m 'git push'", "approved"),
    ] {
        let call = json!({"tool": "Bash", "arguments": {"command": command}});
        let held = world.post("kilo", "/v1/approvals", call).await.is(201);
        assert_eq!(id(&held, "state"), state, "{command}");
    }
}

#[tokio::test]
async fn a_rule_that_is_always_to_allow_says_how_wide_it_is() {
    let world = World::with(&["kilo"]).await;
    let call =
        |command: &str, timeout: u64| json!({"tool": "Bash", "arguments": {"command": command, "timeout": timeout}});
    for n in 0..12 {
        world.post("kilo", "/v1/approvals", call("cargo test", n)).await.is(201);
        let ignored: Value = json!({"decision": "ignore"});
        world.post("operator", &format!("/v1/approvals/apr-{}/decision", n + 1), ignored).await.is(200);
    }
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/approvals/apr-3/always").await.is(200);
    let page = page.has("make exactly this call, with all these arguments").has("tool = 'Bash(sha256:");
    let page = page.has("tool = 'Bash(cargo test)'").has("any <code>timeout</code>, and any other argument");
    page.has("12 of the 12 calls held in the last 7 days, these last:")
        .has("/approvals/apr-12\"")
        .has("/approvals/apr-3\"")
        .lacks("/approvals/apr-2\"");
}
