//! The roles of authors whose posts were read over REST, where Discord sends none.

use std::collections::BTreeMap;

use crate::bridge::BridgeContext;
use crate::model::{GuildMember, Post};

/// Most authors kept; beyond them each is looked up again.
const AUTHORS_MAX: usize = 1_000;

/// What was read while catching up: the guilds of channels, and the members by guild and user.
#[derive(Debug, Default)]
pub(super) struct Sights {
    guilds: BTreeMap<u64, Option<u64>>,
    members: BTreeMap<(u64, u64), Option<GuildMember>>,
}

impl Sights {
    /// Adds the author's roles to a post, if they may matter.
    pub(super) async fn add_roles(&mut self, shared: &BridgeContext, post: &mut Post) {
        let settings = &shared.settings;
        let judged = !settings.roles.is_empty() && post.member.is_none() && post.person().is_some();
        if !judged || settings.humans.contains_key(&post.author.id) {
            return;
        }
        let home = shared.home_of(post.channel).await;
        let Some(guild) = self.guild(shared, home).await else { return };
        let who = (guild, post.author.id);
        if let Some(known) = self.members.get(&who) {
            post.member.clone_from(known);
            return;
        }
        let outbox = &shared.outbox;
        match outbox.persist(|| outbox.broker.member(who.0, who.1)).await {
            Ok(found) => {
                if self.members.len() >= AUTHORS_MAX {
                    self.members.clear();
                }
                post.member.clone_from(&found);
                self.members.insert(who, found);
            }
            Err(error) => outbox.warn(&format!("the roles of {} can't be read. {error}", who.1)),
        }
    }

    async fn guild(&mut self, shared: &BridgeContext, channel: u64) -> Option<u64> {
        if let Some(known) = self.guilds.get(&channel) {
            return *known;
        }
        let outbox = &shared.outbox;
        let found = outbox.persist(|| outbox.broker.channel(channel)).await.ok()?.guild();
        self.guilds.insert(channel, found);
        found
    }
}
