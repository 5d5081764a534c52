//! MCP on the wire: authentication, sessions, resources, subscriptions, the prompt, and traces.

use std::time::Duration;

use lastword_mcp::{PRIMER, mount_with_anonymous, serve_pipe};
use lastword_server::{Config, Server, StartError};
use reqwest::{Method, RequestBuilder, Response};
use rmcp::ServerHandler;
use rmcp::model::{ErrorData, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::world::{Answer, World, id, remote};

/// A surface of one tool, for callers without a token.
#[derive(Clone)]
struct Suite;

impl ServerHandler for Suite {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![Tool::new("test_simple_text", "For tests", Map::new())]))
    }
}

const NEWEST: &str = "2026-07-28";
const OLDER: &str = "2025-11-25";
const INBOX: &str = "lastword://inbox";
const PATIENCE: Duration = Duration::from_secs(20);

fn call(world: &World, who: &str, method: &str, params: &Value) -> RequestBuilder {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let request = world.request(who, Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    request.json(&body)
}

/// Returns a self-contained request of the newest revision.
pub(crate) fn newest(world: &World, who: &str, method: &str, params: Value) -> RequestBuilder {
    offering(world, who, &json!({}), method, params)
}

/// Returns such a request from a client with these capabilities.
pub(crate) fn offering(world: &World, who: &str, can: &Value, method: &str, mut params: Value) -> RequestBuilder {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(NEWEST);
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "t", "version": "1" });
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can.clone();
    let named = params.get("name").or_else(|| params.get("uri")).and_then(Value::as_str).map(str::to_owned);
    let request = call(world, who, method, &params).header("mcp-protocol-version", NEWEST).header("mcp-method", method);
    match named {
        Some(name) => request.header("mcp-name", name),
        None => request,
    }
}

async fn answer(request: RequestBuilder) -> Answer {
    Answer::of(request.send().await.unwrap()).await
}

pub(crate) async fn result(request: RequestBuilder) -> Value {
    let body = answer(request).await.is(200);
    assert!(body["result"].is_object(), "{body}");
    body["result"].clone()
}

/// Reads a resource whose only text is JSON.
async fn read(world: &World, who: &str, uri: &str) -> Value {
    let read = result(newest(world, who, "resources/read", json!({ "uri": uri }))).await;
    assert_eq!(read["contents"][0]["uri"], uri);
    serde_json::from_str(id(&read["contents"][0], "text")).unwrap()
}

/// The messages of a stream, one at a time.
struct EventReader {
    stream: Response,
    text: String,
}

impl EventReader {
    async fn open(request: RequestBuilder) -> Self {
        let stream = request.send().await.unwrap();
        assert_eq!(stream.status(), 200);
        assert!(stream.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
        Self { stream, text: String::new() }
    }

    /// Returns the next message; `None` when the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some((line, rest)) = self.text.split_once('\n') {
                let data = line.strip_prefix("data:").and_then(|data| serde_json::from_str(data).ok());
                self.text = rest.to_owned();
                if data.is_some() {
                    return data;
                }
            }
            let bytes = tokio::time::timeout(PATIENCE, self.stream.chunk()).await.expect("nothing came").ok()??;
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }
}

/// A session of an older revision.
struct Session<'a> {
    world: &'a World,
    who: &'a str,
    id: String,
}

impl<'a> Session<'a> {
    async fn begin(world: &'a World, who: &'a str) -> Self {
        let hello =
            json!({ "protocolVersion": OLDER, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let response = call(world, who, "initialize", &hello).send().await.unwrap();
        let id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let result = Answer::of(response).await.is(200)["result"].clone();
        assert_eq!(result["protocolVersion"], OLDER);
        assert_eq!(result["capabilities"]["resources"]["subscribe"], true, "{result}");
        let session = Self { world, who, id };
        session.notify("notifications/initialized", &json!({})).await;
        session
    }

    async fn notify(&self, method: &str, params: &Value) {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let request = self.request(Method::POST).header("accept", "application/json, text/event-stream");
        assert_eq!(request.json(&body).send().await.unwrap().status(), 202);
    }

    fn request(&self, method: Method) -> RequestBuilder {
        self.named(self.world.request(self.who, method, "/mcp"))
    }

    fn named(&self, request: RequestBuilder) -> RequestBuilder {
        request.header("mcp-session-id", &self.id).header("mcp-protocol-version", OLDER)
    }

    async fn call(&self, method: &str, params: Value) -> Value {
        answer(self.named(call(self.world, self.who, method, &params))).await.is(200)
    }

    async fn stream(&self) -> EventReader {
        EventReader::open(self.request(Method::GET).header("accept", "text/event-stream")).await
    }
}

#[tokio::test]
async fn who_has_no_token_is_told_where_to_look() {
    let world = World::with(&[]).await;
    let place = world.url("/.well-known/oauth-protected-resource/mcp");
    for (token, error) in [(None, ""), (Some("lw_wrong"), r#"error="invalid_token", "#)] {
        let mut request = world.http.post(world.url("/mcp"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let refused = answer(request).await;
        let challenge = format!(r#"Bearer {error}resource_metadata="{place}""#);
        assert_eq!(refused.headers["www-authenticate"], challenge);
        refused.refused(401, "unauthenticated");
    }
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let document = answer(world.http.get(world.url(path))).await.is(200);
        assert_eq!(document["resource"], world.url("/mcp"));
        assert_eq!(document["bearer_methods_supported"], json!(["header"]));
        let behind = world.http.get(world.url(path)).header("host", "localhost").header("x-forwarded-proto", "https");
        assert_eq!(answer(behind).await.is(200)["resource"], "https://localhost/mcp");
    }
}

#[tokio::test]
async fn other_hosts_and_origins_reach_no_method_of_the_endpoint() {
    let world = World::set(&["kilo"], |config| config.mounts = vec![mount_with_anonymous(|_| Suite)]).await;
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example"), ("origin", "null")] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let named = world.request("kilo", method.clone(), "/mcp").header(name, value);
            answer(named).await.refused(403, "forbidden");
            let anonymous = world.http.request(method, world.url("/mcp")).header(name, value);
            answer(anonymous).await.refused(403, "forbidden");
        }
        let described = world.http.get(world.url("/.well-known/oauth-protected-resource")).header(name, value);
        answer(described).await.refused(403, "forbidden");
    }
}

#[tokio::test]
async fn resources_show_what_the_tools_and_calls_show() {
    let world = World::with(&["kilo", "hive"]).await;
    let listed = result(newest(&world, "kilo", "resources/list", json!({}))).await;
    let uris: Vec<_> = listed["resources"].as_array().unwrap().iter().map(|r| id(r, "uri")).collect();
    assert_eq!(uris, [INBOX, "lastword://limits"]);
    let templates = result(newest(&world, "kilo", "resources/templates/list", json!({}))).await;
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "lastword://conversations/{ref}");

    assert_eq!(read(&world, "kilo", INBOX).await["queued"], 0);
    world.send("operator", "kilo", "T-1", "compare").await.is(201);
    let inbox = read(&world, "kilo", INBOX).await;
    assert_eq!((&inbox["agent"], &inbox["queued"]), (&json!("kilo"), &json!(1)));
    assert_eq!(inbox["waiting"][0]["type"], "request");
    assert_eq!((id(&inbox["waiting"][0], "ref"), id(&inbox["waiting"][0], "from")), ("T-1", "operator"));
    let task = world.take("kilo").await;
    assert_eq!(read(&world, "kilo", INBOX).await["turns"], json!([task["turn"]["id"]]), "reading took nothing");

    let asked = json!({ "type": "request", "to": "hive", "body": "half" });
    assert_eq!(world.post("kilo", "/v1/messages", asked).await.is(201)["ref"], "T-1/1");
    let half = world.take("hive").await;
    world.finish("hive", &half, "done").await.is(200);
    let inbox = read(&world, "kilo", INBOX).await;
    assert_eq!(inbox["waiting"][0]["type"], "response", "an answer joins the open turn: {inbox}");
    assert_eq!((id(&inbox["waiting"][0], "ref"), id(&inbox["waiting"][0], "from")), ("T-1/1", "hive"));

    let limits = world.get("kilo", "/v1/limits").await.is(200);
    assert_eq!(read(&world, "kilo", "lastword://limits").await, limits);
    for uri in ["lastword://conversations/T-1/1", "lastword://conversations/T-1%2F1"] {
        assert_eq!(read(&world, "kilo", uri).await["ref"], "T-1/1");
    }
}

#[tokio::test]
async fn what_one_may_not_see_is_no_resource() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "secret").await.is(201);
    for uri in
        ["lastword://conversations/T-1", "lastword://conversations/T-2", "lastword://other", "file:///etc/passwd"]
    {
        let newer = answer(newest(&world, "hive", "resources/read", json!({ "uri": uri }))).await;
        assert_eq!((&newer.body["error"]["code"], &newer.body["error"]["data"]["uri"]), (&json!(-32602), &json!(uri)));
        let older = answer(call(&world, "hive", "resources/read", &json!({ "uri": uri }))).await;
        assert_eq!(older.body["error"]["code"], -32002, "{}", older.body);
    }
}

#[tokio::test]
async fn the_prompt_is_the_primer() {
    let world = World::with(&["kilo"]).await;
    let prompts = result(newest(&world, "kilo", "prompts/list", json!({}))).await;
    let name = id(&prompts["prompts"][0], "name").to_owned();
    let prompt = result(newest(&world, "kilo", "prompts/get", json!({ "name": name }))).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], PRIMER);
    let none = answer(newest(&world, "kilo", "prompts/get", json!({ "name": "none" }))).await;
    assert_eq!(none.body["error"]["code"], -32602, "{}", none.body);
}

#[tokio::test]
async fn a_subscription_without_a_session_tells_of_each_new_delivery() {
    let world = World::with(&["kilo", "hive"]).await;
    let filter = json!({ "resourceSubscriptions": [INBOX, "lastword://limits"], "toolsListChanged": true });
    let request = newest(&world, "kilo", "subscriptions/listen", json!({ "notifications": filter }));
    let mut told = EventReader::open(request).await;
    let first = told.next().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({ "resourceSubscriptions": [INBOX], "toolsListChanged": true }));
    assert_eq!(world.get("kilo", "/v1/agents/kilo").await.is(200)["connected"], true);

    world.send("operator", "hive", "T-1", "not for kilo").await.is(201);
    for reference in ["T-2", "T-3"] {
        world.send("operator", "kilo", reference, "do it").await.is(201);
        let news = told.next().await.unwrap();
        assert_eq!(news["method"], "notifications/resources/updated");
        assert_eq!(news["params"]["uri"], INBOX);
        assert_eq!(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7, "{news}");
    }
    world.post("operator", "/v1/agents/kilo/token", json!({})).await.is(201);
    world.send("operator", "kilo", "T-4", "with the old token, no more").await.is(201);
    let last = told.next().await.unwrap();
    assert!(last["result"].is_object(), "{last}");
    assert_eq!(told.next().await, None);
}

#[tokio::test]
async fn a_changed_list_of_tools_is_told_to_those_who_asked() {
    let world = World::with(&["kilo", "hive"]).await;
    let filter = json!({ "resourceSubscriptions": [INBOX], "toolsListChanged": true });
    let request = newest(&world, "kilo", "subscriptions/listen", json!({ "notifications": filter }));
    let mut told = EventReader::open(request).await;
    let session = Session::begin(&world, "kilo").await;
    let mut streamed = EventReader::open(session.request(Method::GET).header("accept", "text/event-stream")).await;
    while world.get("kilo", "/v1/agents/kilo").await.is(200)["connected"] == false {
        tokio::task::yield_now().await;
    }
    let changed = async |told: &mut EventReader| {
        while told.next().await.unwrap()["method"] != "notifications/tools/list_changed" {}
    };
    // The session's watch may begin after the claim and miss it, so the second change is for it.
    let lease = world.post("hive", "/v1/claims", json!({ "resource": "repo:x" })).await.is(201);
    world.send("operator", "kilo", "T-1", "look").await.is(201);
    changed(&mut told).await;
    answer(world.request("hive", Method::DELETE, &format!("/v1/claims/{}", id(&lease, "id")))).await.is(204);
    world.send("operator", "kilo", "T-2", "look again").await.is(201);
    changed(&mut streamed).await;
}

/// With the empty event first, Gemini CLI 0.61 closes the connection and has no tools.
#[tokio::test]
async fn a_stream_begins_with_an_empty_event_for_those_only_who_know_it() {
    let world = World::with(&["kilo"]).await;
    let session = Session::begin(&world, "kilo").await;
    session.call("resources/subscribe", json!({ "uri": INBOX })).await;
    world.send("operator", "kilo", "T-1", "waits").await.is(201);
    for (version, empty) in [(Some(OLDER), true), (Some("2025-06-18"), false), (None, false)] {
        let request = world.request("kilo", Method::GET, "/mcp").header("mcp-session-id", &session.id);
        let request = request.header("accept", "text/event-stream");
        let request = match version {
            Some(version) => request.header("mcp-protocol-version", version),
            None => request,
        };
        let mut stream = request.send().await.unwrap();
        let mut text = String::new();
        while !text.contains("notifications/resources/updated") {
            let bytes = tokio::time::timeout(PATIENCE, stream.chunk()).await.expect("nothing came").unwrap().unwrap();
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        assert_eq!(text.lines().any(|line| line.trim_end() == "data:"), empty, "{version:?}: {text}");
    }
}

#[tokio::test]
async fn a_subscription_in_a_session_tells_of_each_new_delivery() {
    let world = World::with(&["kilo"]).await;
    let session = Session::begin(&world, "kilo").await;
    let other = session.call("resources/subscribe", json!({ "uri": "lastword://limits" })).await;
    assert_eq!(other["error"]["code"], -32602, "{other}");
    assert_eq!(session.call("resources/subscribe", json!({ "uri": INBOX })).await["result"], json!({}));
    assert_eq!(world.get("kilo", "/v1/agents/kilo").await.is(200)["connected"], false, "nobody listens yet");

    world.send("operator", "kilo", "T-1", "before the stream").await.is(201);
    let mut told = session.stream().await;
    let news = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": INBOX } });
    assert_eq!(told.next().await.as_ref(), Some(&news));
    world.send("operator", "kilo", "T-2", "during it").await.is(201);
    assert_eq!(told.next().await.as_ref(), Some(&news));
    assert_eq!(world.get("kilo", "/v1/agents/kilo").await.is(200)["connected"], true);

    assert_eq!(session.call("resources/unsubscribe", json!({ "uri": INBOX })).await["result"], json!({}));
    while world.get("kilo", "/v1/agents/kilo").await.is(200)["connected"] == true {
        tokio::task::yield_now().await;
    }
    world.server.shutdown().await;
    assert_eq!(told.next().await, None, "the stream ends with the server, at once");
}

#[tokio::test]
async fn a_session_is_its_owners_and_ends() {
    let world = World::with(&["kilo", "hive"]).await;
    let session = Session::begin(&world, "kilo").await;
    let tools = session.call("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 6);
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let stolen = session.named(world.request("hive", method, "/mcp")).header("accept", "text/event-stream");
        answer(stolen).await.is(404);
    }
    let nobody = session.named(world.http.get(world.url("/mcp"))).header("accept", "text/event-stream");
    answer(nobody).await.refused(401, "unauthenticated");
    assert_eq!(session.request(Method::DELETE).send().await.unwrap().status(), 204);
    answer(session.named(call(&world, "kilo", "tools/list", &json!({})))).await.is(404);
}

#[tokio::test]
async fn a_call_that_is_taken_back_ends() {
    let world = World::with(&["kilo"]).await;
    let session = Session::begin(&world, "kilo").await;
    let wait = session.call("tools/call", json!({ "name": "next_message", "arguments": { "wait_ms": 120_000 } }));
    let take_back = async {
        while world.get("kilo", "/v1/agents/kilo").await.is(200)["connected"] == false {
            tokio::task::yield_now().await;
        }
        session.notify("notifications/cancelled", &json!({ "requestId": 7 })).await;
    };
    let both = async { tokio::join!(wait, take_back) };
    tokio::time::timeout(PATIENCE, both).await.expect("it waits on");
    world.send("operator", "kilo", "T-1", "for the next call").await.is(201);
    let task = session.call("tools/call", json!({ "name": "next_message", "arguments": {} })).await;
    assert_eq!(task["result"]["structuredContent"]["message"]["ref"], "T-1");
}

#[tokio::test]
async fn after_a_restart_an_old_session_is_good_for_calls_but_not_for_a_stream() {
    let world = World::with(&["kilo"]).await;
    let id = Session::begin(&world, "kilo").await.id;
    let world = world.restart().await;
    let session = Session { world: &world, who: "kilo", id };
    let tools = result(session.named(call(&world, "kilo", "tools/list", &json!({})))).await;
    assert_eq!(tools["tools"].as_array().unwrap().len(), 6);
    answer(session.request(Method::GET).header("accept", "text/event-stream")).await.is(404);
    let subscribe = call(&world, "kilo", "resources/subscribe", &json!({ "uri": INBOX }));
    let refused = answer(session.named(subscribe)).await;
    assert_eq!(refused.body["error"]["code"], -32600, "{}", refused.body);
}

#[tokio::test]
async fn a_trace_goes_with_the_message() {
    let world = World::with(&["kilo", "mike", "hive"]).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
    for (who, reference, given, kept) in
        [("kilo", "T-1", parent, json!(parent)), ("mike", "T-2", "no trace\nat all", Value::Null)]
    {
        let params = json!({
            "name": "send_agent_message",
            "arguments": { "target_agent_id": "hive", "message": "x", "ref": reference },
            "_meta": { "traceparent": given, "tracestate": "vendor=1" },
        });
        let sent = result(newest(&world, who, "tools/call", params)).await;
        assert_eq!(sent["structuredContent"]["ref"], reference, "{sent}");
        let task = world.take("hive").await;
        assert_eq!(task["message"]["metadata"]["traceparent"], kept);
        world.finish("hive", &task, "done").await.is(200);
    }
}

#[tokio::test]
async fn a_client_on_a_pipe_reads_and_is_told() {
    let world = World::with(&["kilo"]).await;
    let remote = remote(&world.url(""), world.token("kilo"));
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(theirs);
    let talk = async {
        let (read, mut write) = tokio::io::split(ours);
        let mut lines = BufReader::new(read).lines();
        let mut say = async |message: Value| write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        let mut hear = async || {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("nothing came");
            serde_json::from_str::<Value>(&line.unwrap().unwrap()).unwrap()
        };
        let hello =
            json!({ "protocolVersion": OLDER, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        say(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })).await;
        assert_eq!(hear().await["result"]["protocolVersion"], OLDER);
        say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        for (uri, error) in [("lastword://limits", Value::Null), ("lastword://conversations/none", json!(-32002))] {
            say(json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": { "uri": uri } })).await;
            let heard = hear().await;
            assert_eq!(heard["error"]["code"], error, "{heard}");
        }
        say(json!({ "jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": { "uri": INBOX } })).await;
        assert_eq!(hear().await["result"], json!({}));
        world.send("operator", "kilo", "T-1", "hello").await.is(201);
        assert_eq!(hear().await["method"], "notifications/resources/updated");
    };
    tokio::select! {
        ended = serve_pipe(remote, read, write) => panic!("{ended:?}"),
        () = talk => {}
    }
}

#[tokio::test]
async fn an_anonymous_surface_is_apart_from_the_broker() {
    let world = World::set(&["kilo"], |config| config.mounts = vec![mount_with_anonymous(|_| Suite)]).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let accept = "application/json, text/event-stream";
    let anonymous = |body: &Value| world.http.post(world.url("/mcp")).header("accept", accept).json(body);
    let names = |answer: Value| -> Vec<String> {
        answer["result"]["tools"].as_array().unwrap().iter().map(|tool| id(tool, "name").to_owned()).collect()
    };
    let fixtures = names(answer(anonymous(&list)).await.is(200));
    assert!(fixtures.iter().any(|name| name == "test_simple_text"), "{fixtures:?}");
    let tools = names(answer(call(&world, "kilo", "tools/list", &json!({}))).await.is(200));
    assert!(tools.iter().all(|tool| !fixtures.contains(tool)), "{tools:?}");
    let list_agents = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "list_agents" } });
    assert!(answer(anonymous(&list_agents)).await.is(200)["error"].is_object());
    answer(anonymous(&list).bearer_auth("lw_wrong")).await.refused(401, "unauthenticated");
    answer(world.http.get(world.url("/v1/agents"))).await.refused(401, "unauthenticated");

    let dir = tempfile::tempdir().unwrap();
    let open = Config {
        listen: ([0, 0, 0, 0], 0).into(),
        mounts: vec![mount_with_anonymous(|_| Suite)],
        ..Config::local(dir.path())
    };
    assert!(matches!(Server::start(open).await, Err(StartError::Anonymous { .. })));
}
