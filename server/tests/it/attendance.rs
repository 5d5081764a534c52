//! Acts of humans, without which agents start no work of their own (D12).

use lastword_facts::Limits;
use serde_json::json;

use crate::browser::Browser;
use crate::machine::{Machine, SECOND};
use crate::world::World;

const HOUR: u64 = 3_600 * SECOND;

async fn unattended(machine: &Machine) -> World {
    let limits = Limits { unattended_ms: 2 * HOUR, ..Limits::default() };
    machine.world(&["kilo", "hive"], limits).await
}

#[tokio::test]
async fn after_a_long_absence_no_agent_starts_work_until_a_human_signs_in() {
    let machine = Machine::new();
    let world = unattended(&machine).await;
    world.send("kilo", "hive", "R-1", "look").await.is(201);
    machine.run(3 * HOUR);
    let refused = world.send("kilo", "hive", "R-2", "look").await.refused(409, "unattended");
    assert_eq!(refused["lift"]["cli"], "lastword resume --workspace", "{refused}");
    // Reading doesn't count as an act, even by a human.
    world.get("operator", "/v1/inbox").await;
    world.get("operator", "/v1/conversations").await.is(200);
    world.send("kilo", "hive", "R-2", "look").await.refused(409, "unattended");
    let mut browser = Browser::of(&world);
    browser.sign_in("token", "wrong").await.is(401);
    world.send("kilo", "hive", "R-2", "look").await.refused(409, "unattended");
    browser.sign_in("token", world.token("operator")).await.is(303);
    world.send("kilo", "hive", "R-2", "look").await.is(201);
}

#[tokio::test]
async fn a_page_that_a_person_opens_is_an_act_and_what_a_page_does_by_itself_is_none() {
    let machine = Machine::new();
    let mut world = unattended(&machine).await;
    world.register_human("anna", "viewer").await;
    let browser = Browser::signed_in(&world).await;
    let mut viewer = Browser::of(&world);
    viewer.sign_in("token", world.token("anna")).await.is(303);
    machine.run(3 * HOUR);
    for path in ["/", "/waiting", "/standing", "/clock", "/spend"] {
        browser.get(path).await.is(200);
    }
    browser.send("/attend", &[("forms", "guessed")], &[]).await.is(403);
    browser.send("/attend", &[], &[("sec-fetch-site", "cross-site")]).await.is(403);
    viewer.post("/attend", &[]).await.is(204);
    world.send("kilo", "hive", "R-1", "look").await.refused(409, "unattended");
    browser.post("/attend", &[]).await.is(204);
    world.send("kilo", "hive", "R-1", "look").await.is(201);
    // The script may report it more often than the log records it.
    browser.post("/attend", &[]).await.is(204);
    let events = world.get("operator", "/v1/events?until=1000&after=0").await.is(200);
    assert_eq!(events.as_str().unwrap().matches("event: human_acted").count(), 1, "{events}");
    assert_eq!(world.get("operator", "/v1/agents/kilo").await.is(200)["windows"][2]["current"], json!(1));
}
