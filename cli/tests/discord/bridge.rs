//! What is said on Discord reaches the workspace, and what is said there is posted.

use crate::town::Town;

#[test]
fn a_human_mentions_an_agent_and_its_answer_is_posted_in_a_thread() {
    let town = Town::start();
    let _kilo = town.runs("kilo", &["tr", "a-z", "A-Z"]);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> fix the login form", town.kilo));
    let thread = town.world.wait_thread(asked);
    let answer = town.world.wait_message(thread.id, town.kilo, "FIX THE LOGIN FORM");
    assert!(answer.content.starts_with("[FROM:kilo][TO:operator][TYPE:RESPONSE][REF:D-"), "{}", answer.content);
    assert!(thread.name.starts_with("D-") && thread.name.ends_with(" · @kilo fix the login form"), "{}", thread.name);
    assert!(answer.mentions.is_empty() && !answer.mention_everyone);
}

#[test]
fn a_bot_that_lives_on_discord_is_asked_there_and_what_it_posts_is_its_answer() {
    let town = Town::start();
    let program = format!("L={}", env!("CARGO_BIN_EXE_lastword"));
    let script = r#"if [ "$LASTWORD_TYPE" = request ]; then "$L" send hive "which colour" >/dev/null; else cat; fi"#;
    let _kilo = crate::running::Running::start(&town.server, "kilo", &["--env", &program, "--", "sh", "-c", script]);
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> paint the shed", town.kilo));
    let thread = town.world.wait_thread(asked);
    let request = town.world.wait_message(thread.id, town.kilo, "which colour");
    assert_eq!(request.mentions, [town.hive], "it is pinged, and nobody else");
    town.world.posts(town.hive, thread.id, "red");
    let answer = town.world.wait_message(thread.id, town.kilo, "red");
    assert!(answer.content.contains("[TO:operator][TYPE:RESPONSE]"), "{}", answer.content);
    assert_eq!(town.events("posted").len(), 1, "the answer of hive is an answer, and no post beside it");
}
