//! What went wrong: all of it is counted, and what timed out stays until a human dismisses it.

use lastword_facts::Limits;
use serde_json::json;

use crate::browser::Browser;
use crate::world::{World, id};

/// Returns the sentences about what went wrong on a page.
fn lines(page: &str) -> Vec<String> {
    let (_, list) = page.split_once("id=\"wrong-title\"").unwrap();
    let (list, _) = list.split_once("</section>").unwrap();
    list.split("<li ").skip(1).map(str::to_owned).collect()
}

/// Returns the number on the tile that leads to them.
fn counted(page: &str) -> usize {
    let (_, tile) = page.split_once("href=\"#wrong\"").unwrap();
    let (_, number) = tile.split_once("<b>").unwrap();
    number.split_once("</b>").unwrap().0.parse().unwrap()
}

#[tokio::test]
async fn all_that_went_wrong_is_counted_and_the_rest_of_the_list_is_one_link_away() {
    let world = World::with(&["kilo"]).await;
    for n in 0..11 {
        world.send("operator", "kilo", &format!("T-{n}"), &format!("job {n}")).await.is(201);
        let turn = world.take("kilo").await;
        let path = format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
        world.post("kilo", &path, json!({"status": "failed", "answer": "no"})).await.is(200);
    }
    let browser = Browser::signed_in(&world).await;
    let short = browser.get("/").await.is(200).has("href=\"/?wrong=all#wrong\">and 3 more</a>");
    assert_eq!((counted(&short.text), lines(&short.text).len()), (11, 8));
    let all = browser.get("/?wrong=all").await.is(200).lacks(" more</a>");
    assert_eq!((counted(&all.text), lines(&all.text).len()), (11, 11));
    assert!(lines(&all.text)[10].contains("job 0"), "the oldest comes last");
    browser.get("/?wrong=none").await.is(400);
}

#[tokio::test]
async fn what_timed_out_goes_once_a_human_dismissed_it_and_stays_away_after_a_restart() {
    let limits = Limits { ack_woken_ms: 50, ack_polling_ms: 50, ..Limits::default() };
    let world = World::within(limits, &["idler"]).await;
    for n in 0..2 {
        world.send("operator", "idler", &format!("LATE-{n}"), &format!("job {n}")).await.is(201);
    }
    let browser = Browser::signed_in(&world).await;
    // Both have timed out twice.
    let is_late = |page: &str| lines(page).iter().filter(|line| line.contains("never took")).count() == 2;
    while !is_late(&browser.get("/").await.is(200).text) {}
    let both = browser.get("/").await.is(200);
    let one = lines(&both.text).into_iter().find(|line| line.contains("job 1")).unwrap();
    let (_, path) = one.split_once("action=\"").unwrap();
    let path = path.split('"').next().unwrap().to_owned();
    assert!(path.starts_with("/escalations/esc-") && path.ends_with("/dismiss"), "{path}");
    browser.post(&path, &[]).await.is(200);
    let rest = lines(&browser.get("/").await.is(200).text);
    assert!(rest.len() == 1 && rest[0].contains("job 0"), "{rest:?}");
    drop(browser);
    let world = world.restart().await;
    let browser = Browser::signed_in(&world).await;
    let rest = lines(&browser.get("/").await.is(200).text);
    assert!(rest.iter().any(|line| line.contains("job 0")) && !rest.iter().any(|line| line.contains("job 1")));
}
