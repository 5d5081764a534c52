//! A task from its request to its end, and what is refused.

use lastword_facts::fact::Part;
use lastword_facts::{Fact, Seq};
use lastword_server::WorkspaceSettings;
use lastword_store::DataDir;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{World, state, until};

/// Returns the code and the reason of an error.
fn error(answer: Result<Value, Value>) -> (i64, String) {
    let error = answer.expect_err("a refusal");
    let info = &error["data"][0];
    assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{error}");
    (error["code"].as_i64().unwrap(), info["reason"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_request_becomes_a_task_and_its_answer_an_artifact_in_both_bindings() {
    let world = World::new().await;
    let mut message = world.message("Review the parser.");
    message["parts"].as_array_mut().unwrap().push(json!({ "data": { "line": 7 } }));
    message["metadata"] = json!({ "https://example.com/x": 1 });
    let task = world.sent("caller", message.clone()).await;
    assert_eq!(state(&task), "TASK_STATE_SUBMITTED");
    assert_eq!(
        task["history"][0]["parts"],
        json!([
            { "text": "Review the parser.", "mediaType": "text/plain" },
            { "data": { "line": 7 }, "mediaType": "application/json" },
        ])
    );
    assert_eq!(
        (&task["history"][0]["messageId"], &task["history"][0]["metadata"]),
        (&message["messageId"], &message["metadata"])
    );
    let delivery = world.take("coder").await;
    assert_eq!(
        (&delivery["message"]["body"], &delivery["message"]["payload"]),
        (&json!("Review the parser."), &json!({ "line": 7 }))
    );
    assert_eq!(state(&world.task("caller", &task["id"]).await), "TASK_STATE_WORKING");
    world.finish("coder", &delivery, json!({ "answer": "It is fine.", "payload": { "ok": true } })).await;
    let done = world.task("caller", &task["id"]).await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED");
    assert_eq!(
        done["artifacts"][0]["parts"],
        json!([
            { "text": "It is fine.", "mediaType": "text/plain" },
            { "data": { "ok": true }, "mediaType": "application/json" },
        ])
    );
    let id = task["id"].as_str().unwrap();
    let (status, same) = world.rest("caller", Method::GET, &format!("tasks/{id}"), None).await;
    assert_eq!((status, &same), (200, &done));
    let (_, short) = world.rest("caller", Method::GET, &format!("tasks/{id}?historyLength=0"), None).await;
    assert_eq!(short.get("history"), None);
}

/// Returns the facts from a request up to its answer, without moments.
async fn facts(world: World) -> Vec<String> {
    let dir = world.config.data_dir.clone();
    world.server.shutdown().await;
    let log = DataDir::at(&dir).open_reader().unwrap().read(Seq(1), usize::MAX).unwrap();
    let is = |fact: &Fact, request: bool| {
        let Fact::Accepted { message } = fact else { return false };
        if request { message.part.is_request() } else { matches!(message.part, Part::Answer(_)) }
    };
    let first = log.iter().position(|(_, entry)| is(&entry.fact, true)).unwrap();
    let last = log.iter().position(|(_, entry)| is(&entry.fact, false)).unwrap();
    let told = log[first..=last].iter().map(|(_, entry)| format!("{:?} {:?}", entry.grant, entry.fact));
    let timeless = |text: String| {
        let parts = text.split_inclusive(|c: char| !c.is_ascii_digit());
        let is_moment = |part: &str| part.trim_end_matches(|c: char| !c.is_ascii_digit()).len() > 9;
        parts.map(|part| if is_moment(part) { "T" } else { part }).collect()
    };
    told.map(timeless).collect()
}

#[tokio::test]
async fn the_facts_are_those_of_the_same_envelope_over_http() {
    let mut both = Vec::new();
    let mut envelope = Value::Null;
    for by_http in [false, true] {
        let world = World::new().await;
        if by_http {
            world.api("caller", Method::POST, "/v1/messages", Some(envelope.clone())).await;
        } else {
            let mut message = world.message("Review it.");
            message["parts"].as_array_mut().unwrap().push(json!({ "data": { "line": 7 } }));
            world.sent("caller", message).await;
        }
        let delivery = world.take("coder").await;
        let message = &delivery["message"];
        let member = |name: &str| message[name].clone();
        envelope = json!({
            "type": "request", "to": "coder", "ref": member("ref"), "request_id": member("request_id"),
            "body": member("body"), "payload": member("payload"), "metadata": member("metadata"),
        });
        world.note("coder", &delivery, "half of it").await;
        world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
        both.push(facts(world).await);
    }
    assert!(both[0].len() > 4, "{:#?}", both[0]);
    assert_eq!(both[0], both[1]);
}

#[tokio::test]
async fn a_send_waits_for_the_end_by_default_and_a_retry_is_the_same_task() {
    let world = World::new().await;
    let message = world.message("How are you?");
    let params = json!({ "message": message });
    let (answered, ()) = tokio::join!(world.rpc("caller", "SendMessage", params.clone()), async {
        let delivery = world.take("coder").await;
        world.finish("coder", &delivery, json!({ "answer": "Well." })).await;
    });
    let task = answered.unwrap()["task"].take();
    assert_eq!((state(&task), &task["artifacts"][0]["parts"][0]["text"]), ("TASK_STATE_COMPLETED", &json!("Well.")));
    let again = world.rpc("caller", "SendMessage", params).await.unwrap()["task"].take();
    assert_eq!(again, task);
    let (_, by_rest) = world.rest("caller", Method::POST, "message:send", Some(json!({ "message": message }))).await;
    assert_eq!(by_rest["task"], task);
    let mut other = message.clone();
    other["parts"][0]["text"] = "Something else".into();
    let conflict = world.rpc("caller", "SendMessage", json!({ "message": other })).await;
    assert_eq!(error(conflict), (-32000, "IDEMPOTENCY_CONFLICT".into()));
    // The same id of another caller is another task.
    let foreign = world.sent("other", message).await;
    assert_ne!(foreign["id"], task["id"]);
}

#[tokio::test]
async fn an_answer_that_nobody_fetches_leaves_no_work_open() {
    let world = World::new().await;
    let task = world.sent("caller", world.message("Do it.")).await;
    let delivery = world.take("coder").await;
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    until(async || {
        let open = world.api("operator", Method::GET, "/v1/conversations?open=true", None).await;
        open["items"].as_array().unwrap().is_empty()
    })
    .await;
    // One that was answered while no server ran is taken at the next start.
    let again = world.sent("caller", world.message("Once more.")).await;
    let delivery = world.take("coder").await;
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    let world = world.restarted().await;
    until(async || {
        let open = world.api("operator", Method::GET, "/v1/conversations?open=true", None).await;
        open["items"].as_array().unwrap().is_empty()
    })
    .await;
    for id in [&task["id"], &again["id"]] {
        assert_eq!(state(&world.task("caller", id).await), "TASK_STATE_COMPLETED");
    }
}

#[tokio::test]
async fn every_end_has_its_state() {
    let world = World::new().await;
    for (finish, expected, said) in [
        (json!({ "answer": "no", "status": "rejected", "reason": "Not mine." }), "TASK_STATE_REJECTED", "Not mine."),
        (json!({ "answer": "", "status": "failed", "reason": "It broke." }), "TASK_STATE_FAILED", "It broke."),
    ] {
        let task = world.sent("caller", world.message("Try.")).await;
        let delivery = world.take("coder").await;
        world.finish("coder", &delivery, finish).await;
        let done = world.task("caller", &task["id"]).await;
        assert_eq!(state(&done), expected);
        let text = done["status"]["message"]["parts"][0]["text"].as_str().unwrap();
        assert!(text.contains(said), "{text}");
    }
    let task = world.sent("caller", world.message("Stop.")).await;
    let canceled = world.rpc("caller", "CancelTask", json!({ "id": task["id"] })).await.unwrap();
    assert_eq!(state(&canceled), "TASK_STATE_CANCELED");
    let again = world.rpc("caller", "CancelTask", json!({ "id": task["id"] })).await;
    assert_eq!(error(again), (-32002, "TASK_NOT_CANCELABLE".into()));
    let path = format!("tasks/{}:cancel", task["id"].as_str().unwrap());
    let (status, body) = world.rest("caller", Method::POST, &path, None).await;
    assert_eq!((status, &body["error"]["status"]), (400, &json!("FAILED_PRECONDITION")));
}

#[tokio::test]
async fn what_isnt_the_callers_looks_like_nothing() {
    let world = World::new().await;
    let task = world.sent("caller", world.message("Mine.")).await;
    let id = &task["id"];
    for (who, id) in [("other", id.clone()), ("caller", json!("a2a-nothing")), ("coder", id.clone())] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let refused = world.rpc(who, method, json!({ "id": id })).await;
            assert_eq!(error(refused), (-32001, "TASK_NOT_FOUND".into()), "{who} {method}");
        }
        let push = json!({ "taskId": id, "url": "http://127.0.0.1:9/" });
        assert_eq!(error(world.rpc(who, "CreateTaskPushNotificationConfig", push).await).0, -32001);
        let mut message = world.message("Me, too.");
        message["taskId"] = id.clone();
        assert_eq!(error(world.rpc(who, "SendMessage", json!({ "message": message })).await).0, -32001);
    }
    let mut message = world.message("Join.");
    message["contextId"] = task["contextId"].clone();
    assert_eq!(error(world.rpc("other", "SendMessage", json!({ "message": message })).await).0, -32602);
    assert_eq!(world.rpc("other", "ListTasks", json!({})).await.unwrap()["totalSize"], 0);
    // A request that came by another surface is no task of this one.
    let envelope = json!({ "type": "request", "to": "coder", "ref": "T-1", "request_id": "a2a-own", "body": "x" });
    world.api("caller", Method::POST, "/v1/messages", Some(envelope)).await;
    assert_eq!(world.rpc("other", "GetTask", json!({ "id": "a2a-own" })).await.unwrap_err()["code"], -32001);
}

#[tokio::test]
async fn a_context_is_ours_and_the_callers_or_it_is_refused() {
    let world = World::new().await;
    let first = world.sent("caller", world.message("First.")).await;
    for context in ["mine/1", "my own", "a2a-000000000000000000000000", "a2a-x/y", ""] {
        let mut message = world.message("Next.");
        message["contextId"] = context.into();
        let sent = world.rpc(
            "caller",
            "SendMessage",
            json!({ "message": message, "configuration": { "returnImmediately": true } }),
        );
        match context {
            "" => assert_ne!(sent.await.unwrap()["task"]["contextId"], first["contextId"]),
            _ => assert_eq!(error(sent.await), (-32602, "INVALID_PARAMS".into()), "{context}"),
        }
    }
    // Five more in one context: no cap of a conversation ends it.
    for n in 0..5 {
        let mut message = world.message(&format!("Question {n}"));
        message["contextId"] = first["contextId"].clone();
        let task = world.sent("caller", message).await;
        assert_eq!(task["contextId"], first["contextId"]);
        assert_ne!(task["id"], first["id"]);
    }
    let listed = world.rpc("caller", "ListTasks", json!({ "contextId": first["contextId"] })).await.unwrap();
    assert_eq!(listed["totalSize"], 6);
}

#[tokio::test]
async fn a_context_that_a_caller_chooses_is_its_own_and_stays_as_it_is() {
    let world = World::new().await;
    let chosen = "3f2c4f7e-57c2-4d5c-9a59-0b6f3c1f2a10";
    let within = |text: &str| {
        let mut message = world.message(text);
        message["contextId"] = chosen.into();
        message
    };
    let first = within("First.");
    let (task, again) = (world.sent("caller", first.clone()).await, world.sent("caller", first).await);
    assert_eq!((&task["contextId"], &task["id"]), (&json!(chosen), &again["id"]));
    let next = world.sent("caller", within("Next.")).await;
    let others = world.sent("other", within("Of another caller.")).await;
    assert_eq!((&next["contextId"], &others["contextId"]), (&json!(chosen), &json!(chosen)));
    let world = world.restarted().await;
    for (who, count) in [("caller", 2), ("other", 1)] {
        let listed = world.rpc(who, "ListTasks", json!({ "contextId": chosen })).await.unwrap();
        assert_eq!(listed["totalSize"], count, "{who}: {listed}");
    }
    let mut references = Vec::new();
    for _ in 0..3 {
        let delivery = world.take("coder").await;
        let reference = delivery["message"]["ref"].as_str().unwrap();
        references.push(reference.split_once('/').unwrap().0.to_owned());
        world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    }
    assert_eq!((references[0] == references[1], references[0] == references[2]), (true, false), "{references:?}");
}

#[tokio::test]
async fn a_refusal_of_the_broker_keeps_its_code_rule_and_hint_and_makes_no_task() {
    let world = World::new().await;
    let mut refused = None;
    for n in 0..12 {
        let params =
            json!({ "message": world.message(&format!("{n}")), "configuration": { "returnImmediately": true } });
        if let Err(error) = world.rpc("caller", "SendMessage", params).await {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("the allowance of roots has an end");
    let info = &refused["data"][0];
    assert_eq!(
        (&refused["code"], &info["reason"], &info["domain"]),
        (&json!(-32000), &json!("ROOT_ALLOWANCE"), &json!("lastword"))
    );
    assert_eq!(info["metadata"]["rule"], "D7");
    assert!(info["metadata"]["hint"].as_str().unwrap().len() > 10);
    let params = json!({ "message": world.message("more") });
    let (status, body) = world.rest("caller", Method::POST, "message:send", Some(params)).await;
    assert_eq!((status, &body["error"]["details"][0]["reason"]), (429, &json!("ROOT_ALLOWANCE")));
    assert_eq!(world.rpc("caller", "ListTasks", json!({})).await.unwrap()["totalSize"], 10);
}

#[tokio::test]
async fn malformed_calls_are_told_what_is_wrong() {
    let world = World::new().await;
    let message = |change: fn(&mut Value)| {
        let mut message = world.message("x");
        change(&mut message);
        json!({ "message": message })
    };
    for (params, code, named) in [
        (message(|m| m["parts"] = json!([])), -32602, "parts"),
        (message(|m| m["parts"] = json!([{}])), -32602, "parts[0]"),
        (message(|m| m["parts"] = json!([{ "text": "a", "data": 1 }])), -32602, "parts[0]"),
        (message(|m| m["parts"] = json!([{ "text": "a" }, { "raw": "AAAA" }])), -32005, "parts[1]"),
        (message(|m| m["parts"] = json!([{ "url": "http://x/" }])), -32005, "url"),
        (message(|m| m["messageId"] = "".into()), -32602, "messageId"),
        (message(|m| m["role"] = "ROLE_AGENT".into()), -32602, "role"),
        (message(|m| m["role"] = "user".into()), -32602, "role"),
        (message(|m| m["parts"] = json!("x")), -32602, "message.parts"),
        (json!({ "message": world.message("x"), "configuration": { "historyLength": -1 } }), -32602, "historyLength"),
    ] {
        let refused = world.rpc("caller", "SendMessage", params).await.unwrap_err();
        assert_eq!(refused["code"], code, "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(named), "{named}: {refused}");
    }
    assert_eq!(error(world.rpc("caller", "Nothing", json!({})).await), (-32601, "METHOD_NOT_FOUND".into()));
    for (size, token) in [(0, ""), (101, ""), (50, "x")] {
        let refused = world.rpc("caller", "ListTasks", json!({ "pageSize": size, "pageToken": token })).await;
        assert_eq!(error(refused).0, -32602);
    }
    for (body, kind, version, code) in [
        ("{", "application/json", "1.0", -32700),
        ("[]", "application/json", "1.0", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, "application/json", "1.0", -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, "application/json", "1.0", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#, "text/plain", "1.0", -32005),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#, "application/json", "0.3", -32009),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#, "application/json", "", -32009),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#, "application/json", "1.0.1", -32009),
    ] {
        let request = world.request("caller", Method::POST, "/a2a/coder/").header("content-type", kind);
        let response = request.header("a2a-version", version).body(body).send().await.unwrap();
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{body}: {answer}");
    }
    for (method, path, status) in [
        (Method::GET, "message:send", 405),
        (Method::DELETE, "tasks", 405),
        (Method::GET, "tasks/a2a-1:cancel", 405),
        (Method::GET, "nowhere", 404),
        (Method::GET, "tasks?historyLength=x", 400),
        (Method::GET, "tasks?nothing=1", 400),
    ] {
        assert_eq!(world.rest("caller", method.clone(), path, None).await.0, status, "{method} {path}");
    }
    assert_eq!(
        world.rest("caller", Method::GET, "/tasks", None).await.0,
        200,
        "an address that was joined with a slash"
    );
    let by_query = world.request("caller", Method::GET, "/a2a/coder/tasks?A2A-Version=1.0").send().await.unwrap();
    assert_eq!(by_query.status(), 200);
}

#[tokio::test]
async fn only_agents_with_a_token_may_call() {
    let world = World::new().await;
    let human = world.rpc_response("operator", "ListTasks", json!({})).await;
    assert_eq!(human.status(), 403);
    let body: Value = human.json().await.unwrap();
    assert_eq!((&body["error"]["data"][0]["reason"], &body["error"]["code"]), (&json!("FORBIDDEN"), &json!(-32000)));
    for token in [None, Some("lw_wrong")] {
        let mut request = world.http.get(world.url("/a2a/coder/tasks")).header("a2a-version", "1.0");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["www-authenticate"]),
            (401, &"Bearer".parse().unwrap())
        );
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["error"]["status"], "UNAUTHENTICATED");
    }
    for path in ["/a2a/reviewer/tasks", "/a2a/nobody/", "/a2a/absent/.well-known/agent-card.json"] {
        assert_eq!(world.request("caller", Method::GET, path).send().await.unwrap().status(), 404, "{path}");
    }
}

#[tokio::test]
async fn a_question_is_for_a_caller_with_a_seat_and_for_others_a_human_answers_it() {
    let seats = |config: &mut lastword_server::Config| {
        let settings: &mut WorkspaceSettings = &mut config.settings;
        settings.seats.insert("caller".into(), "operator".into());
    };
    let world = World::with(seats).await;
    for (who, expected) in [("caller", "TASK_STATE_INPUT_REQUIRED"), ("other", "TASK_STATE_WORKING")] {
        let task = world.sent(who, world.message("Deploy it.")).await;
        let delivery = world.take("coder").await;
        let turn = delivery["turn"]["token"].as_str().unwrap();
        let asked = world.request("coder", Method::POST, "/v1/escalations").header("lastword-turn", turn);
        let asked: Value = asked.json(&json!({ "message": "Which one?" })).send().await.unwrap().json().await.unwrap();
        world.finish("coder", &delivery, json!({ "answer": "", "status": "waiting" })).await;
        let waits = world.task(who, &task["id"]).await;
        assert_eq!(state(&waits), expected);
        let mut answer = world.message("The second.");
        answer["taskId"] = task["id"].clone();
        let params = json!({ "message": answer, "configuration": { "returnImmediately": true } });
        let answered = world.rpc(who, "SendMessage", params).await;
        if who == "caller" {
            assert_eq!(waits["status"]["message"]["parts"][0]["text"], "Which one?");
            assert_eq!(state(&answered.unwrap()["task"]), "TASK_STATE_WORKING");
        } else {
            assert_eq!(error(answered), (-32004, "UNSUPPORTED_OPERATION".into()));
            let path = format!("/v1/escalations/{}/answer", asked["id"].as_str().unwrap());
            world.api("operator", Method::POST, &path, Some(json!({ "answer": "The second." }))).await;
        }
        let delivery = world.take("coder").await;
        assert_eq!(delivery["message"]["body"], "The second.");
        world.finish("coder", &delivery, json!({ "answer": "Deployed." })).await;
        assert_eq!(state(&world.task(who, &task["id"]).await), "TASK_STATE_COMPLETED");
        let mut late = world.message("And now?");
        late["taskId"] = task["id"].clone();
        assert_eq!(error(world.rpc(who, "SendMessage", json!({ "message": late })).await).0, -32004);
    }
}

#[tokio::test]
async fn a_list_is_filtered_paged_and_newest_first() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(world.sent("caller", world.message(&format!("{n}"))).await["id"].clone());
    }
    let delivery = world.take("coder").await;
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    let all = world.rpc("caller", "ListTasks", json!({})).await.unwrap();
    assert_eq!((&all["totalSize"], &all["pageSize"], &all["nextPageToken"]), (&json!(5), &json!(50), &json!("")));
    let times: Vec<&str> =
        all["tasks"].as_array().unwrap().iter().map(|t| t["status"]["timestamp"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert!(all["tasks"].as_array().unwrap().iter().all(|task| task.get("artifacts").is_none()));
    let done = json!({ "status": "TASK_STATE_COMPLETED", "includeArtifacts": true });
    let done = world.rpc("caller", "ListTasks", done).await.unwrap();
    assert_eq!((&done["totalSize"], &done["tasks"][0]["id"]), (&json!(1), &ids[0]));
    assert_eq!(done["tasks"][0]["artifacts"][0]["parts"][0]["text"], "Done.");
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("tasks?pageSize=2&pageToken={token}");
        let (status, page) = world.rest("caller", Method::GET, &path, None).await;
        assert_eq!(status, 200, "{page}");
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    let whole: Vec<Value> = all["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()).collect();
    assert_eq!(seen, whole);
    let future = json!({ "statusTimestampAfter": "2999-01-01T00:00:00Z" });
    assert_eq!(world.rpc("caller", "ListTasks", future).await.unwrap()["totalSize"], 0);
}

#[tokio::test]
async fn an_answer_to_a_request_of_another_surface_stays_in_its_inbox() {
    let world = World::new().await;
    let id = "a2a-00112233445566778899aabbccddeeff0011";
    let envelope = json!({ "type": "request", "to": "coder", "ref": "T-1", "request_id": id, "body": "x" });
    world.api("caller", Method::POST, "/v1/messages", Some(envelope)).await;
    let delivery = world.take("coder").await;
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    // A task of the edge that ends later is collected by then.
    let task = world.sent("other", world.message("Do it.")).await;
    let delivery = world.take("coder").await;
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    until(async || {
        let path = format!("/v1/requests/{}", task["id"].as_str().unwrap());
        world.api("operator", Method::GET, &path, None).await["state"] == "idle"
    })
    .await;
    assert_eq!(world.take("caller").await["message"]["body"], "Done.");
    assert_eq!(error(world.rpc("caller", "GetTask", json!({ "id": id })).await).0, -32001);
}

#[tokio::test]
async fn a_token_that_may_not_decide_decides_nothing() {
    let world = World::with(|config| config.settings.limits.approvers.asker = true).await;
    let task = world.sent("caller", world.message("Deploy.")).await;
    let delivery = world.take("coder").await;
    let turn = delivery["turn"]["token"].as_str().unwrap();
    let held = world.request("coder", Method::POST, "/v1/approvals").header("lastword-turn", turn);
    let held: Value = held.json(&json!({ "tool": "x", "arguments": {} })).send().await.unwrap().json().await.unwrap();
    let narrow = json!({ "scopes": ["send", "read"], "expires_in_ms": 60_000 });
    let narrow = world.api("caller", Method::POST, "/v1/token", Some(narrow)).await;
    let mut word = world.message("");
    word["taskId"] = task["id"].clone();
    word["parts"] = json!([{ "data": { "decision": "approve", "digest": held["digest"] } }]);
    let params = json!({ "message": word, "configuration": { "returnImmediately": true } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
    let request = world.http.post(world.url("/a2a/coder/")).bearer_auth(narrow["token"].as_str().unwrap());
    let refused: Value = request.header("a2a-version", "1.0").json(&body).send().await.unwrap().json().await.unwrap();
    assert_eq!(refused["error"]["data"][0]["reason"], "FORBIDDEN", "{refused}");
    let decided = world.rpc("caller", "SendMessage", params).await.unwrap();
    assert_eq!(state(&decided["task"]), "TASK_STATE_WORKING", "the whole token may: the policy names the asker");
}

#[tokio::test]
async fn an_older_client_hears_of_the_version_and_protojson_is_read_in_all_its_forms() {
    let world = World::new().await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":[]}"#,
    ] {
        let request = world.request("caller", Method::POST, "/a2a/coder/").header("content-type", "application/json");
        let answer: Value = request.body(body).send().await.unwrap().json().await.unwrap();
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32009), &json!(1)));
    }
    let rest = world.request("caller", Method::POST, "/a2a/coder/v1/message:send").send().await.unwrap();
    assert_eq!(rest.json::<Value>().await.unwrap()["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED");
    let message = json!({
        "message_id": "m-1", "role": "ROLE_USER", "context_id": null, "task_id": null,
        "parts": [{ "text": "x", "raw": null }, { "data": { "a_b": null } }],
    });
    let params = json!({ "message": message, "configuration": { "return_immediately": true, "historyLength": "1" } });
    let task = world.rpc("caller", "SendMessage", params).await.unwrap()["task"].take();
    assert_eq!(task["history"][0]["parts"][1]["data"], json!({ "a_b": null }));
    let (status, list) = world.rest("caller", Method::GET, "tasks?pageSize=&status=&contextId=", None).await;
    assert_eq!((status, &list["totalSize"]), (200, &json!(1)));
    let refused = world.rpc("caller", "ListTasks", json!([1])).await;
    assert_eq!(error(refused).0, -32602);
}

/// Sends a message and waits; returns what the answer with a payload makes of it.
async fn answered(world: &World, answer: &str, payload: &Value) -> Value {
    let params = json!({ "message": world.message("Draw it.") });
    let answering = async {
        let delivery = world.take("coder").await;
        world.finish("coder", &delivery, json!({ "answer": answer, "payload": payload })).await;
    };
    tokio::join!(world.rpc("caller", "SendMessage", params), answering).0.unwrap()
}

#[tokio::test]
async fn an_answer_has_files_and_is_a_message_where_the_agent_says_so() {
    let world = World::new().await;
    let file =
        json!({ "url": "https://files.example/plan.pdf", "filename": "plan.pdf", "mediaType": "application/pdf" });
    let raw = json!({ "raw": "aGk=", "filename": "hi.txt", "mediaType": "text/plain" });
    let sent = answered(&world, "Drawn.", &json!({ "a2a": { "files": [file, raw] }, "pages": 3 })).await;
    let data = json!({ "data": { "pages": 3 }, "mediaType": "application/json" });
    let parts = json!([{ "text": "Drawn.", "mediaType": "text/plain" }, file, raw, data]);
    assert_eq!(sent["task"]["artifacts"][0]["parts"], parts);

    let message = answered(&world, "8123", &json!({ "a2a": { "message": true } })).await["message"].take();
    assert_eq!(message["role"], "ROLE_AGENT");
    assert_eq!(message["parts"], json!([{ "text": "8123", "mediaType": "text/plain" }]));
    // The work has its task, as all work.
    let task = world.rpc("caller", "GetTask", json!({ "id": message["taskId"] })).await.unwrap();
    assert_eq!((state(&task), &task["contextId"]), ("TASK_STATE_COMPLETED", &message["contextId"]));

    // What isn't a file stays what it is: data.
    for wrong in [
        json!([{ "url": "file:///etc/passwd" }]),
        json!([{ "url": "https://a.example", "raw": "aGk=" }]),
        json!([{ "raw": "not base64" }]),
        json!([{}]),
        json!("plan.pdf"),
    ] {
        let payload = json!({ "a2a": { "files": wrong } });
        let sent = answered(&world, "Drawn.", &payload).await;
        assert_eq!(sent["task"]["artifacts"][0]["parts"][1]["data"], payload);
    }
}
