//! The tools, over streamable HTTP.

use lastword_facts::limits::Approvers;
use lastword_facts::names::AgentName;
use lastword_facts::policy::{ApprovalRule, CallPattern, Policy, Ruling};
use lastword_mcp::serve_pipe;
use reqwest::Method;
use serde_json::{Value, json};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::world::{Answer, World, id, remote};

async fn rpc(world: &World, who: &str, method: &str, params: Value) -> Value {
    let request = world.request(who, Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Answer::of(request.json(&body).send().await.unwrap()).await.is(200)["result"].clone()
}

pub(crate) async fn tool(world: &World, who: &str, name: &str, arguments: Value) -> (Value, bool) {
    let result = rpc(world, who, "tools/call", json!({ "name": name, "arguments": arguments })).await;
    (result["structuredContent"].clone(), result["isError"] == true)
}

pub(crate) async fn done(world: &World, who: &str, name: &str, arguments: Value) -> Value {
    let (value, error) = tool(world, who, name, arguments).await;
    assert!(!error, "{value}");
    value
}

#[tokio::test]
async fn a_client_shakes_hands_and_sees_the_tools() {
    let world = World::with(&["kilo"]).await;
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let info = rpc(&world, "kilo", "initialize", hello).await;
    assert_eq!(info["serverInfo"]["name"], "lastword");
    let tools = rpc(&world, "kilo", "tools/list", json!({})).await;
    let names: Vec<_> = tools["tools"].as_array().unwrap().iter().map(|tool| id(tool, "name")).collect();
    assert_eq!(
        names,
        ["next_message", "finish_turn", "send_agent_message", "escalate_to_user", "check_request", "list_agents"]
    );
    let tools = listed(&world, "kilo", "?tools=all").await;
    let names: Vec<_> = tools.iter().map(|tool| id(tool, "name")).collect();
    assert_eq!(names.len(), 15, "{names:?}");
    let told = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/mcp.md")).unwrap();
    for name in names {
        assert!(told.contains(&format!("| `{name}` |")), "docs/mcp.md has no {name}");
    }
    let request = world.http.post(world.url("/mcp")).json(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    Answer::of(request.send().await.unwrap()).await.refused(401, "unauthenticated");
}

/// Returns the tools that an address lists.
async fn listed(world: &World, who: &str, query: &str) -> Vec<Value> {
    let request = world.request(who, Method::POST, &format!("/mcp{query}"));
    let request = request.header("accept", "application/json, text/event-stream");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let answer = Answer::of(request.json(&body).send().await.unwrap()).await.is(200);
    answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

async fn names(world: &World, who: &str, query: &str) -> Vec<String> {
    listed(world, who, query).await.iter().map(|tool| id(tool, "name").to_owned()).collect()
}

#[tokio::test]
async fn a_tool_is_listed_where_it_is_needed_and_called_wherever() {
    let approvers = Approvers { asker: false, agents: vec![AgentName::new("boss").unwrap()] };
    let ask = ApprovalRule {
        call: CallPattern::parse("Bash").unwrap(),
        agents: vec![AgentName::new("kilo").unwrap()],
        ruling: Ruling::Ask,
        tier: None,
        who: None,
        timeout_ms: None,
    };
    let world = World::set(&["kilo", "hive", "boss"], |config| {
        (config.settings.limits.approvers, config.settings.policy) = (approvers, Policy { rules: vec![ask] });
    })
    .await;
    assert_eq!(names(&world, "hive", "").await.len(), 6);
    assert_eq!(names(&world, "boss", "").await[6..], ["resolve_agent_approval"]);
    assert_eq!(names(&world, "kilo", "").await[6..], ["request_approval", "use_approval"]);
    let lease = done(&world, "hive", "claim_resource", json!({"resource": "repo:x"})).await;
    assert_eq!(names(&world, "hive", "").await[6..], ["claim_resource", "release_resource"]);
    done(&world, "hive", "release_resource", json!({"claim_id": lease["id"]})).await;
    world.send("operator", "hive", "T-1", "ask boss").await.is(201);
    done(&world, "hive", "next_message", json!({})).await;
    assert_eq!(names(&world, "hive", "").await.len(), 6, "the first message of its conversation");
    done(&world, "hive", "send_agent_message", json!({"target_agent_id": "boss", "message": "x", "ref": "T-1"})).await;
    assert_eq!(names(&world, "hive", "").await[6..], ["get_conversation"]);
}

#[tokio::test]
async fn a_client_chooses_the_tools_that_are_listed() {
    let world = World::with(&["kilo"]).await;
    let permit = names(&world, "kilo", "?tools=core,approve_tool_use").await;
    assert_eq!((permit.len(), permit[6].as_str()), (7, "approve_tool_use"));
    assert_eq!(names(&world, "kilo", "?tools=list_agents").await, ["list_agents"]);
    let send = |tools: &[Value]| tools.iter().find(|tool| tool["name"] == "send_agent_message").unwrap().clone();
    let arguments = |tool: &Value| tool["inputSchema"]["properties"].as_object().unwrap().len();
    let [short, full] =
        [listed(&world, "kilo", "").await, listed(&world, "kilo", "?tools=all").await].map(|t| send(&t));
    assert!(arguments(&short) < arguments(&full), "{short} {full}");
    let request = world.request("kilo", Method::POST, "/mcp?tools=everything");
    let request = request.header("accept", "application/json, text/event-stream");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let refused = Answer::of(request.json(&body).send().await.unwrap()).await.body;
    assert!(id(&refused["error"], "message").contains("everything"), "{refused}");
    let unknown = Answer::of(world.request("kilo", Method::POST, "/mcp?tool=all").send().await.unwrap()).await;
    unknown.refused(400, "malformed");
}

#[tokio::test]
async fn a_delivery_has_what_a_model_can_use_and_its_ids_are_for_the_client() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "compare").await.is(201);
    let result = rpc(&world, "kilo", "tools/call", json!({"name": "next_message", "arguments": {}})).await;
    let content = json!({"message": {
        "from": "operator", "from_human": true, "type": "request", "ref": "T-1", "request_id": "req-0001",
        "body": "compare",
    }});
    assert_eq!(result["structuredContent"], content);
    let ids = &result["_meta"]["lastword/delivery"];
    assert!(id(&ids["turn"], "token").starts_with("turn-1.") && id(ids, "message").starts_with("msg-"), "{ids}");
    let several = world.request("operator", Method::PATCH, "/v1/agents/hive").json(&json!({"turns_max": 2}));
    Answer::of(several.send().await.unwrap()).await.is(200);
    world.send("operator", "hive", "T-2", "with a token").await.is(201);
    let result = rpc(&world, "hive", "tools/call", json!({"name": "next_message", "arguments": {}})).await;
    let token = &result["structuredContent"]["turn"];
    assert_eq!(token, &result["_meta"]["lastword/delivery"]["turn"]["token"]);
    let finish = &listed(&world, "hive", "").await[1];
    assert!(finish["inputSchema"]["properties"]["turn"].is_object(), "{finish}");
    done(&world, "hive", "finish_turn", json!({"answer": "done", "turn": token})).await;
}

#[tokio::test]
async fn two_models_work_together() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "compare").await.is(201);
    let task = done(&world, "kilo", "next_message", json!({})).await;
    assert_eq!(task["message"]["body"], "compare");
    let asked = json!({"target_agent_id": "hive", "message": "your half", "payload": {"n": 1}});
    let sent = done(&world, "kilo", "send_agent_message", asked).await;
    assert_eq!(sent["ref"], "T-1/1");
    done(&world, "kilo", "finish_turn", json!({"answer": "asked hive"})).await;
    let half = done(&world, "hive", "next_message", json!({})).await;
    assert_eq!(half["message"]["payload"], json!({"n": 1}));
    done(&world, "hive", "report_progress", json!({"note": "reading"})).await;
    done(&world, "hive", "finish_turn", json!({"answer": "same", "status": "completed"})).await;
    let answer = done(&world, "kilo", "next_message", json!({})).await;
    assert_eq!(answer["message"]["body"], "same");
    assert_eq!(answer["notices"][0]["body"], "reading", "{answer}");
    done(&world, "kilo", "finish_turn", json!({"answer": "equal"})).await;
    let none = done(&world, "kilo", "next_message", json!({"wait_ms": 0})).await;
    assert_eq!(none, json!({"message": null}));
    let request = done(&world, "kilo", "check_request", json!({"request_id": sent["request_id"]})).await;
    assert_eq!(request["status"], "completed");
}

#[tokio::test]
async fn a_refusal_is_a_result_that_a_model_can_act_on() {
    let world = World::with(&["kilo"]).await;
    let (refusal, error) =
        tool(&world, "kilo", "send_agent_message", json!({"target_agent_id": "kilo", "message": "x", "ref": "A"}))
            .await;
    assert!(error);
    assert_eq!(refusal["code"], "self_send");
    assert!(!id(&refusal, "hint").is_empty());
    let (refusal, error) = tool(&world, "kilo", "finish_turn", json!({"answr": "x"})).await;
    assert!(error && id(&refusal, "detail").contains("answr"), "{refusal}");
}

#[tokio::test]
async fn approvals_and_claims_are_tools_too() {
    let world = World::with(&["kilo"]).await;
    let held = done(&world, "kilo", "request_approval", json!({"tool_name": "rm", "input": {"path": "/"}})).await;
    let seen = done(&world, "kilo", "check_request", json!({"request_id": held["id"]})).await;
    assert_eq!(seen["state"], "pending");
    let (refusal, error) = tool(
        &world,
        "kilo",
        "resolve_agent_approval",
        json!({"approval_id": held["id"], "decision": "approve", "digest": held["digest"]}),
    )
    .await;
    assert!(error && refusal["code"] == "approver_not_allowed", "{refusal}");
    let lease = done(&world, "kilo", "claim_resource", json!({"resource": "repo:x"})).await;
    done(&world, "kilo", "release_resource", json!({"claim_id": lease["id"]})).await;
    let agents = done(&world, "kilo", "list_agents", json!({})).await;
    assert_eq!(agents["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_newest_revision_needs_no_handshake() {
    let world = World::with(&["kilo"]).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = async |method: &str, name: Option<&str>, params: Value| {
        let mut request = world
            .request("kilo", Method::POST, "/mcp")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Answer::of(request.json(&body).send().await.unwrap()).await.is(200)["result"].clone()
    };
    let found = call("server/discover", None, json!({ "_meta": meta })).await;
    assert!(found["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")), "{found}");
    let params = json!({ "name": "list_agents", "arguments": {}, "_meta": meta });
    let agents = call("tools/call", Some("list_agents"), params).await;
    assert_eq!(agents["structuredContent"]["items"][0]["name"], "kilo", "{agents}");
}

#[tokio::test]
async fn a_client_on_a_pipe_reaches_the_running_server() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "hello").await.is(201);
    let remote = remote(&world.url(""), world.token("kilo"));
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(theirs);
    let talk = async {
        let (read, mut write) = tokio::io::split(ours);
        let mut lines = BufReader::new(read).lines();
        let mut say = async |message: Value| write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        let mut hear = async || serde_json::from_str::<Value>(&lines.next_line().await.unwrap().unwrap()).unwrap();
        let hello =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        say(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})).await;
        assert_eq!(hear().await["result"]["serverInfo"]["name"], "lastword");
        say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        let call = json!({"name": "next_message", "arguments": {}});
        say(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})).await;
        assert_eq!(hear().await["result"]["structuredContent"]["message"]["body"], "hello");
        let call = json!({"name": "send_agent_message", "arguments": {"target_agent_id": "nobody", "message": "x"}});
        say(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})).await;
        let refused = hear().await["result"].clone();
        assert_eq!(
            (&refused["isError"], id(&refused["structuredContent"], "code")),
            (&json!(true), "unknown_recipient")
        );
    };
    tokio::select! {
        ended = serve_pipe(remote, read, write) => panic!("{ended:?}"),
        () = talk => {}
    }
}
