//! Reactions that say how far a request is, and what agents read instead of links.

use crate::town::TestGuild;
use crate::world::Id;

impl TestGuild {
    /// Waits until exactly these reactions of kilo's bot are on a post.
    fn wait_signs(&self, post: Id, signs: &[&str]) {
        self.world.wait(&format!("{signs:?}"), |discord| {
            let shown = discord.messages[&post].reactions.iter().filter(|(_, by)| by.contains(&self.kilo));
            let mut shown: Vec<&str> = shown.map(|(sign, _)| sign.as_str()).collect();
            let mut wanted = signs.to_vec();
            shown.sort_unstable();
            wanted.sort_unstable();
            (shown == wanted).then_some(())
        });
    }
}

#[test]
fn a_request_is_seen_to_be_queued_then_worked_on_then_held_for_a_human_then_done() {
    let town = TestGuild::start();
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> ship it", town.kilo));
    town.wait_signs(asked, &["⏳"]);
    let taken = town.server.as_agent("kilo", &["--json", "inbox", "--wait", "30s"]).json();
    town.wait_signs(asked, &["👀"]);
    let thread = town.world.wait_thread(asked).id;
    let card = town.held(thread);
    town.wait_signs(asked, &["👀", "✋"]);
    town.world.clicks(town.ann, card.id, &card.buttons()[0]);
    town.wait_signs(asked, &["👀"]);
    let turn = taken["turn"]["id"].as_str().unwrap();
    town.server.as_agent("kilo", &["finish", turn, "shipped"]).ok();
    town.wait_signs(asked, &["👀", "✅"]);
}

#[test]
fn an_agent_reads_the_names_of_channels_and_not_links() {
    let town = TestGuild::start();
    let _kilo = town.runs("kilo", &["cat"]);
    let said = format!("<@{}> compare <#{}> with <#{}>, <#99> and <#x>", town.kilo, town.other, town.channel);
    let asked = town.world.posts(town.ann, town.channel, &said);
    let thread = town.world.wait_thread(asked).id;
    town.world.wait_message(thread, town.kilo, "@kilo compare #attic with #den, <#99> and <#x>");
}

#[test]
fn a_sign_that_stands_when_the_bridge_is_killed_goes_once_the_request_is_taken() {
    let mut town = TestGuild::start();
    let asked = town.world.posts(town.ann, town.channel, &format!("<@{}> ship it", town.kilo));
    let other = town.world.posts(town.ann, town.channel, &format!("<@{}> then this", town.kilo));
    town.wait_signs(asked, &["⏳"]);
    town.wait_signs(other, &["⏳"]);
    town.kill();
    // Taken while the bridge is away, and after it is back.
    let taken = town.server.as_agent("kilo", &["--json", "inbox", "--wait", "30s"]).json();
    town.bridge();
    town.wait_signs(asked, &["👀"]);
    town.server.as_agent("kilo", &["finish", taken["turn"]["id"].as_str().unwrap(), "shipped"]).ok();
    town.server.as_agent("kilo", &["--json", "inbox", "--wait", "30s"]).ok();
    town.wait_signs(other, &["👀"]);
}
