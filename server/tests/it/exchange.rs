//! Messages, deliveries and answers.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, id};

#[tokio::test]
async fn a_request_is_delivered_answered_and_the_answer_opens_the_next_turn() {
    let world = World::with(&["kilo", "hive"]).await;
    let sent = world.send("operator", "kilo", "T-1", "do it").await.is(201);
    assert_eq!((sent["type"].as_str(), sent["delivery_state"].as_str()), (Some("request"), Some("queued")));

    let task = world.take("kilo").await;
    assert_eq!(task["message"]["body"], "do it");
    let asked = world.send("kilo", "hive", "T-1", "look").await.is(201);
    assert_eq!((asked["depth"].as_u64(), asked["hops"].as_u64()), (Some(0), Some(1)), "{asked}");
    assert_eq!(asked["cause"], sent["id"]);
    let waiting = world.finish("kilo", &task, "asked hive").await.is(200);
    assert_eq!(waiting["open"], true);

    let part = world.take("hive").await;
    assert_eq!(part["message"]["request_id"], asked["request_id"]);
    world.finish("hive", &part, "looked").await.is(200);

    let answer = world.take("kilo").await;
    assert_eq!(answer["message"]["type"], "response");
    assert_eq!(answer["message"]["body"], "looked");
    assert_eq!(answer["message"]["status"], "completed");
    assert_eq!(answer["message"]["in_reply_to"], asked["id"]);
    assert_ne!(answer["turn"]["id"], task["turn"]["id"]);
    world.finish("kilo", &answer, "done").await.is(200);

    let last = world.take("operator").await;
    assert_eq!(last["message"]["body"], "done");
    assert_eq!(last["turn"], Value::Null);
    assert_eq!(last["notices"][0]["body"], "asked hive", "{last}");
    world.get("operator", "/v1/inbox").await.is(204);
    let request = world.get("operator", &format!("/v1/requests/{}", id(&sent, "request_id"))).await.is(200);
    assert_eq!(request["response"]["body"], "done");
    assert_eq!(request["attempts"], 1);
}

#[tokio::test]
async fn a_waiting_poll_is_woken_by_a_send() {
    let world = World::with(&["kilo"]).await;
    let (delivery, sent) = tokio::join!(world.take("kilo"), async {
        // The poll has started once the agent counts as connected.
        while world.get("operator", "/v1/agents/kilo").await.is(200)["connected"] != true {}
        world.send("operator", "kilo", "T-1", "wake up").await.is(201)
    });
    assert_eq!(delivery["message"]["id"], sent["id"]);
}

#[tokio::test]
async fn a_delivery_whose_reader_went_away_is_given_again() {
    let world = World::with(&["kilo"]).await;
    for n in 0..5 {
        let connected = async { while world.get("operator", "/v1/agents/kilo").await.is(200)["connected"] != true {} };
        tokio::select! {
            _ = world.request("kilo", Method::GET, "/v1/inbox?wait=20s").send() => panic!("nothing was sent"),
            () = connected => {}
        }
        let sent = world.send("operator", "kilo", &format!("T-{n}"), "once").await.is(201);
        let delivery = world.take("kilo").await;
        assert_eq!(delivery["message"]["id"], sent["id"]);
        world.finish("kilo", &delivery, "done").await.is(200);
    }
}

#[tokio::test]
async fn a_send_can_wait_for_its_answer() {
    let world = World::with(&["kilo"]).await;
    let (answered, ()) = tokio::join!(
        world.post("operator", "/v1/messages?wait=20s", json!({"type":"request","to":"kilo","ref":"T-1","body":"?"})),
        async {
            let task = world.take("kilo").await;
            world.finish("kilo", &task, "42").await.is(200);
        }
    );
    let answered = answered.is(201);
    assert_eq!((&answered["response"]["body"], &answered["delivery_state"]), (&json!("42"), &json!("settled")));
}

#[tokio::test]
async fn each_of_many_sends_that_wait_hears_its_own_answer() {
    let world = World::with(&["a", "b", "c"]).await;
    let ask = async |to: &'static str| {
        let body = json!({"type":"request","to":to,"ref":format!("T-{to}"),"body":"?"});
        let answered = world.post("operator", "/v1/messages?wait=20s", body).await.is(201);
        assert_eq!(answered["response"]["body"], to);
    };
    let answer = async {
        // Not in the order of the questions.
        for name in ["c", "a", "b"] {
            let task = world.take(name).await;
            world.finish(name, &task, name).await.is(200);
        }
    };
    tokio::join!(ask("a"), ask("b"), ask("c"), answer);
}

#[tokio::test]
async fn a_send_that_is_tried_again_hears_the_answer_that_came_meanwhile() {
    let world = World::with(&["kilo"]).await;
    let ask = async |wait: &'static str| {
        let body = json!({"type":"request","to":"kilo","ref":"T-1","body":"?","request_id":"r-1"});
        world.post("operator", &format!("/v1/messages{wait}"), body).await.is(201)
    };
    let first = ask("").await;
    // No answer arrives in time, and the wait ends.
    assert_eq!(ask("?wait=1ms").await["response"], serde_json::Value::Null);
    let task = world.take("kilo").await;
    world.finish("kilo", &task, "42").await.is(200);
    let again = ask("?wait=20s").await;
    assert_eq!((&again["id"], &again["response"]["body"]), (&first["id"], &json!("42")));
}

#[tokio::test]
async fn a_list_is_one_request_each() {
    let world = World::with(&["a", "b"]).await;
    let sent = world
        .post(
            "operator",
            "/v1/messages",
            json!({"type":"request","to":["a","b"],"ref":"T-1","body":"x","request_id":"r9"}),
        )
        .await
        .is(201);
    let ids: Vec<_> = sent["items"].as_array().unwrap().iter().map(|m| id(m, "request_id")).collect();
    assert_eq!(ids, ["r9.1", "r9.2"]);
}

#[tokio::test]
async fn the_text_form_is_an_envelope_too() {
    let world = World::with(&["kilo", "hive"]).await;
    let post = async |text: &'static str| {
        let request = world.request("kilo", Method::POST, "/v1/messages").header("content-type", "text/plain");
        Answer::of(request.body(text).send().await.unwrap()).await
    };
    let sent = post("[FROM:kilo][TO:hive][TYPE:REQUEST][REF:E-1][DEPTH:0][ID:req-x] look at this").await.is(201);
    assert_eq!((id(&sent, "request_id"), id(&sent, "body")), ("req-x", "look at this"));
    let problem = post("[FROM:kilo][TO:hive][TYPE:request][REF:E-2][DEPTH:0] x").await.refused(400, "malformed_header");
    assert!(id(&problem, "detail").contains("TYPE at byte"), "{problem}");
    assert!(id(&problem, "detail").contains("[TYPE:REQUEST]"), "{problem}");
    post("[FROM:hive][TO:kilo][TYPE:REQUEST][REF:E-3][DEPTH:0] x").await.refused(403, "from_mismatch");
}

#[tokio::test]
async fn a_retry_with_the_same_key_is_the_same_message() {
    let world = World::with(&["kilo"]).await;
    let post = async |body: &'static str| {
        let envelope = json!({"type":"request","to":"kilo","ref":"T-1","body":body});
        let request = world.request("operator", Method::POST, "/v1/messages").header("idempotency-key", "key-1");
        Answer::of(request.json(&envelope).send().await.unwrap()).await
    };
    let first = post("x").await.is(201);
    let again = post("x").await.is(201);
    assert_eq!(first["id"], again["id"]);
    post("y").await.refused(409, "idempotency_conflict");
    // A key is its sender's own: another sender's request under it is a request like any other.
    let other = || world.request("kilo", Method::POST, "/v1/messages").header("idempotency-key", "key-1");
    let info = json!({ "type": "info", "to": "operator", "ref": "K-1", "body": "note" });
    let send = async || Answer::of(other().json(&info).send().await.unwrap()).await.is(201);
    let first = send().await;
    assert_eq!(send().await["id"], first["id"], "and its retry is one, too");
}

#[tokio::test]
async fn refusals_name_what_is_wrong() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "nobody", "T-1", "x").await.refused(404, "unknown_recipient");
    world.send("kilo", "kilo", "T-1", "x").await.refused(422, "self_send");
    let body = "x".repeat(300 * 1024);
    world.send("operator", "kilo", "T-1", &body).await.refused(413, "too_large");
    let body = "x".repeat(2 * 1024 * 1024);
    world.send("operator", "kilo", "T-1", &body).await.refused(413, "too_large");
    let problem =
        world.post("operator", "/v1/messages", json!({"type":"request","to":7})).await.refused(400, "malformed");
    assert!(id(&problem, "detail").contains("to"), "{problem}");
    let problem = world.get("operator", "/v1/messages?colour=red").await.refused(400, "malformed");
    assert!(id(&problem, "detail").contains("colour"), "{problem}");
    let problem = world.get("operator", "/v1/agents?wait=1s").await.refused(400, "malformed");
    assert!(id(&problem, "detail").contains("wait"), "{problem}");
    let deep = format!(r#"{{"type":"info","to":"kilo","payload":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let request = world.request("operator", Method::POST, "/v1/messages").header("content-type", "application/json");
    Answer::of(request.body(deep).send().await.unwrap()).await.refused(400, "malformed");
    let nested = |deep: usize| (0..deep).fold(json!(1), |inside, _| json!([inside]));
    let payload = |deep| json!({"type":"info","to":"kilo","ref":"T-2","payload":nested(deep)});
    world.post("operator", "/v1/messages", payload(32)).await.is(201);
    let problem = world.post("operator", "/v1/messages", payload(33)).await.refused(413, "too_large");
    assert_eq!((problem["limit"].as_u64(), problem["current"].as_u64()), (Some(32), Some(33)));
    world.get("operator", "/v1/nonsense").await.refused(404, "unknown_request");
    // A filter that matches nothing doesn't hide an invalid one.
    world.get("operator", "/v1/messages?from=nobody&since=soon").await.refused(400, "malformed");
    world.post("operator", "/v1/requests/a%20b/cancel", json!({})).await.refused(404, "unknown_request");
    let trace = world.request("operator", Method::TRACE, "/v1/messages?limit=1").send().await.unwrap();
    assert_eq!(trace.status(), 405);
    let status = world.request("operator", Method::POST, "/v1/messages").header("idempotency-key", "a b");
    let status = status.json(&json!({"type": "status"})).send().await.unwrap();
    assert!(id(&Answer::of(status).await.refused(400, "malformed"), "detail").contains("Idempotency-Key"));
}

#[tokio::test]
async fn a_restart_keeps_everything() {
    let world = World::with(&["kilo", "hive"]).await;
    let sent = world.send("operator", "kilo", "T-1", "before").await.is(201);
    let task = world.take("kilo").await;
    let asked = world.send("kilo", "hive", "T-1", "part").await.is(201);

    let world = world.restart().await;
    let shown = world.get("operator", &format!("/v1/messages/{}", id(&sent, "id"))).await.is(200);
    assert_eq!(shown["body"], "before");
    let part = world.take("hive").await;
    assert_eq!(part["message"]["id"], asked["id"]);
    world.finish("hive", &part, "after").await.is(200);
    // The open turn is still open, and its token is valid.
    let token = id(&task["turn"], "token");
    let joined = world.request("kilo", Method::GET, "/v1/inbox?wait=20s").header("lastword-turn", token);
    let joined = Answer::of(joined.send().await.unwrap()).await.is(200);
    assert_eq!(joined["turn"]["id"], task["turn"]["id"]);
    assert_eq!(joined["message"]["body"], "after");
}

#[tokio::test]
async fn the_audit_finds_messages_and_a_conversation_is_a_tree() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "find the needle").await.is(201);
    let task = world.take("kilo").await;
    world.post("kilo", "/v1/messages", json!({"type":"request","to":"hive","body":"haystack"})).await.is(201);
    let found = world.get("operator", "/v1/messages?q=needle").await.is(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found}");
    let found = world.get("operator", "/v1/messages?ref=T-1&type=request").await.is(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 2, "children are included: {found}");
    let found = world.get("operator", "/v1/messages?from=kilo&to=hive&depth=0").await.is(200);
    assert_eq!(found["items"][0]["ref"], "T-1/1");
    let child = world.get("operator", "/v1/conversations/T-1%2F1").await.is(200);
    assert_eq!(child["parent_ref"], "T-1");
    let tree = world.get("operator", "/v1/conversations/T-1").await.is(200);
    assert_eq!(tree["tree"][0]["message"]["id"], task["message"]["id"]);
    assert_eq!(tree["tree"][0]["children"][0]["message"]["body"], "haystack");
    assert!(tree["limits"].as_array().unwrap().iter().any(|l| l["name"] == "depth_max" && l["left"] == 5), "{tree}");
    world.get("hive", "/v1/conversations/T-1").await.refused(404, "unknown_request");
}

#[tokio::test]
async fn an_answer_that_the_broker_gives_tells_the_model_what_to_do() {
    let mut world = World::with(&["kilo"]).await;
    world.register(json!({"name": "hive", "actions": ["review"]})).await;
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    let task = world.take("kilo").await;
    let ask = json!({"type": "request", "to": "#review", "action": "review", "body": "y"});
    world.post("kilo", "/v1/messages", ask).await.is(201);
    let part = world.take("hive").await;
    let finish = json!({"status": "rejected", "reason": "out_of_scope"});
    world.post("hive", &format!("/v1/turns/{}/finish", id(&part["turn"], "id")), finish).await.is(200);
    let joined = world.take("kilo").await;
    assert_eq!(joined["turn"]["id"], task["turn"]["id"]);
    assert_eq!(id(&joined["message"], "status"), "exhausted");
    assert!(id(&joined["message"], "body").contains("Do the work yourself"), "{joined}");
}

#[tokio::test]
async fn the_failed_parts_are_done_again_and_both_results_are_one_answer() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    world.take("kilo").await;
    world.send("kilo", "hive", "T-1", "three parts").await.is(201);
    let first = world.take("hive").await;
    let partial = json!({"answer": "one and two", "status": "partial", "completed": ["1", "2"], "failed": ["3"]});
    let turn = id(&first["turn"], "id");
    assert_eq!(world.post("hive", &format!("/v1/turns/{turn}/finish"), partial).await.is(200)["open"], true);
    let again = world.take("hive").await;
    assert_eq!(again["message"]["failed"], json!(["3"]));
    assert!(id(&again["notices"][0], "body").contains("3"), "{again}");
    let rest = json!({"answer": "and three", "completed": ["3"]});
    world.post("hive", &format!("/v1/turns/{}/finish", id(&again["turn"], "id")), rest).await.is(200);
    let answer = world.take("kilo").await;
    assert_eq!(id(&answer["message"], "body"), "one and two\n\nand three");
    assert_eq!(answer["message"]["completed"], json!(["1", "2", "3"]));
}

#[tokio::test]
async fn a_send_to_a_list_waits_for_nothing_and_so_blocks_on_nobody() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    world.send("operator", "hive", "T-2", "y").await.is(201);
    world.take("kilo").await;
    world.take("hive").await;
    let ask = |to: Value| json!({"type": "request", "to": to, "body": "?"});
    tokio::select! {
        _ = world.post("kilo", "/v1/messages?wait=60s", ask(json!("hive"))) => panic!("nobody answered"),
        () = async {
            let asked = "/v1/messages?from=kilo&to=hive";
            while world.get("operator", asked).await.is(200)["items"] == json!([]) {}
            world.post("hive", "/v1/messages?wait=60s", ask(json!("kilo"))).await.refused(409, "mutual_wait");
            world.post("hive", "/v1/messages?wait=60s", ask(json!(["kilo"]))).await.is(201);
        } => {}
    }
}

#[tokio::test]
async fn what_the_broker_mints_is_no_member_of_an_envelope() {
    let world = World::with(&["kilo"]).await;
    for member in ["hops", "cause", "grant", "conversation"] {
        let mut envelope = json!({"type": "request", "to": "kilo", "ref": "T-1", "body": "x"});
        envelope[member] = json!("1");
        let problem = world.post("operator", "/v1/messages", envelope).await.refused(400, "malformed");
        assert!(id(&problem, "detail").contains(&format!("`{member}` is minted by the broker")), "{problem}");
    }
}

#[tokio::test]
async fn a_list_of_messages_is_sent_in_its_order_and_each_is_judged_for_itself() {
    let world = World::with(&["alice", "bob"]).await;
    let one = |to: &str, reference: &str| json!({ "type": "request", "to": to, "ref": reference, "body": "please" });
    let list = json!([one("alice", "L-1"), one("nobody", "L-2"), one("bob", "L-3")]);
    let sent = world.post("operator", "/v1/messages", list).await.is(200);
    let statuses: Vec<_> = sent["items"].as_array().unwrap().iter().map(|item| item["status"].as_u64()).collect();
    assert_eq!(statuses, [Some(201), Some(404), Some(201)]);
    assert_eq!(sent["items"][1]["problem"]["code"], "unknown_recipient");
    let seqs: Vec<_> = [0, 2].map(|at: usize| sent["items"][at]["body"]["seq"].as_u64().unwrap()).into();
    assert!(seqs[0] < seqs[1], "{seqs:?}");
    // Nothing of a list with a malformed message is sent.
    let broken = json!([one("alice", "L-4"), { "type": "request", "too": "alice" }]);
    let problem = world.post("operator", "/v1/messages", broken).await.refused(400, "malformed");
    assert!(problem["detail"].as_str().unwrap().contains("message 1"), "{problem}");
    world.get("operator", "/v1/conversations/L-4").await.refused(404, "unknown_request");
    world.post("operator", "/v1/messages", json!([])).await.refused(400, "malformed");
    let keyed = world.request("operator", reqwest::Method::POST, "/v1/messages").header("Idempotency-Key", "k");
    let keyed = keyed.json(&json!([one("alice", "L-5")])).send().await.unwrap();
    assert_eq!(keyed.status(), 422);
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_human_is_told_the_outcome_and_no_advice_for_a_model() {
    let world = World::with(&["kilo"]).await;
    let (answered, ()) = tokio::join!(
        world.post("operator", "/v1/messages?wait=20s", json!({"type":"request","to":"kilo","ref":"T-1","body":"?"})),
        async {
            let task = world.take("kilo").await;
            let path = format!("/v1/turns/{}/finish", id(&task["turn"], "id"));
            world.post("kilo", &path, json!({"status": "failed", "reason": "no disk"})).await.is(200);
        }
    );
    let response = &answered.is(201)["response"];
    assert_eq!((id(response, "body"), id(response, "reason")), ("The agent tried and failed.", "no disk"));
}
