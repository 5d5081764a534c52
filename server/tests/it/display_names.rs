//! Display names: in any script, beside the name that messages are addressed to, and nobody else's.

use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::mcp::tool;
use crate::session::{Raw, request};
use crate::world::{Answer, World, id};

async fn named(world: &World, who: &str, agent: &str, name: &str) -> Answer {
    let request = world.request(who, Method::PATCH, &format!("/v1/agents/{agent}"));
    Answer::of(request.json(&json!({ "display_name": name })).send().await.unwrap()).await
}

#[tokio::test]
async fn a_display_name_is_shown_beside_the_name_and_outlives_a_restart() {
    let mut world = World::with(&["kilo"]).await;
    world.register(json!({ "name": "researcher", "display_name": "研究员" })).await;
    assert_eq!(named(&world, "operator", "kilo", "Code Reviewer").await.is(200)["display_name"], "Code Reviewer");
    named(&world, "kilo", "kilo", "Otto").await.refused(403, "forbidden");
    let world = world.restart().await;
    let listed = world.get("kilo", "/v1/agents").await.is(200);
    let of = |name: &str| -> Value {
        let items = listed["items"].as_array().unwrap();
        items.iter().find(|one| one["name"] == name).unwrap()["display_name"].clone()
    };
    assert_eq!([of("researcher"), of("kilo"), of("operator")], [json!("研究员"), json!("Code Reviewer"), Value::Null]);
    let events = world.get("operator", "/v1/events?after=0&until=1000000").await;
    let told = events.body.as_str().unwrap();
    assert!(told.contains("display_name_set") && told.contains("研究员"), "{told}");
    let agents = tool(&world, "kilo", "list_agents", json!({})).await.0;
    assert!(agents.to_string().contains(r#""display_name":"研究员""#), "{agents}");
    let browser = Browser::signed_in(&world).await;
    for page in ["/agents", "/agents/researcher"] {
        let text = browser.get(page).await.is(200).text;
        assert!(text.contains("研究员"), "{page}: {text}");
    }
    let removed = named(&world, "operator", "kilo", "kilo").await.is(200);
    assert!(removed["display_name"].is_null(), "{removed}");
}

#[tokio::test]
async fn a_display_name_is_no_address_and_the_refusal_names_the_name() {
    let mut world = World::with(&["kilo"]).await;
    world.register(json!({ "name": "researcher", "display_name": "研究员" })).await;
    world.register(json!({ "name": "hive", "display_name": "Reviewer2" })).await;
    let mut session = Raw::of(&world, "kilo").await;
    for (to, name) in [("研究员", "researcher"), ("reviewer2", "hive"), ("Reviewer2", "hive")] {
        let problem = world.send("kilo", to, "R-1", "look").await.refused(404, "unknown_recipient");
        assert_eq!(problem["detail"], format!("{to} is the display name of {name}"));
        assert!(id(&problem, "hint").starts_with(&format!("Address {name}: ")), "{problem}");
        let refused = session.call(json!({ "call": "send", "body": request(to, "R-1") })).await;
        assert_eq!((&refused["problem"]["code"], &refused["problem"]["hint"]), (&problem["code"], &problem["hint"]));
        let arguments = json!({ "target_agent_id": to, "message": "look", "ref": "R-1" });
        let refused = tool(&world, "kilo", "send_agent_message", arguments).await.0;
        assert!(refused.to_string().contains(&format!("Address {name}: ")), "{refused}");
        world.send("kilo", name, &format!("R-{name}-{to}").replace("研究员", "x"), "look").await.is(201);
    }
    let problem = world.send("kilo", "某人", "R-1", "look").await.refused(400, "malformed");
    assert!(id(&problem, "detail").contains("use a-z, 0-9"), "{problem}");
}

#[tokio::test]
async fn nobody_reads_as_another_one() {
    let mut world = World::with(&["kilo", "hive"]).await;
    named(&world, "operator", "hive", "Прüfer").await.is(200);
    for taken in ["hive", "HIVE", "прüfer", "Operator"] {
        let problem = named(&world, "operator", "kilo", taken).await.refused(409, "name_taken");
        assert!(id(&problem, "detail").contains("the display name"), "{problem}");
        world
            .post("operator", "/v1/agents", json!({ "name": "lima", "display_name": taken }))
            .await
            .refused(409, "name_taken");
    }
    for (wrong, says) in [
        ("system", "reserved"),
        ("Lastword", "reads as the workspace's own"),
        ("You", "is a word by which pages speak of others"),
        (" Otto", "without spaces at its ends"),
        ("Ot\nto", "one line"),
        ("Ot\u{202e}to", "invisible"),
        (&"é".repeat(65), "longer than 64 characters"),
    ] {
        let problem = named(&world, "operator", "kilo", wrong).await.refused(400, "malformed");
        assert!(id(&problem, "detail").starts_with("`display_name`"), "{problem}");
        assert!(id(&problem, "detail").contains(says), "{problem}");
    }
    // Its own name in another case, and what it has already, are nobody else's; nor is what a removed agent had.
    named(&world, "operator", "kilo", "Kilo").await.is(200);
    named(&world, "operator", "kilo", "Kilo").await.is(200);
    let problem = world.post("operator", "/v1/agents", json!({ "name": "研究员" })).await.refused(400, "malformed");
    assert!(id(&problem, "hint").contains("`display_name`"), "{problem}");
    named(&world, "operator", "hive", "lima").await.is(200);
    world.post("operator", "/v1/agents", json!({ "name": "lima" })).await.refused(409, "name_taken");
    let removed = world.request("operator", Method::DELETE, "/v1/agents/hive").send().await.unwrap();
    assert!(removed.status().is_success());
    world.register(json!({ "name": "lima", "display_name": "Прüfer" })).await;
}
