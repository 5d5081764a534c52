//! The roles of authors whose posts were read over REST, where Discord sends none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lastword_bridge::ids::{ChannelId, RoleId, ServerId, UserId};
use lastword_bridge::post::Channel;

use super::model::{ChannelObject, GuildMember};
use super::rest::{Rest, RestError};

/// Most authors kept; beyond them each is looked up again.
const AUTHORS_MAX: usize = 1_000;

/// What was read: the guilds of channels, and the roles by guild and user.
#[derive(Debug, Default)]
pub(crate) struct Sights(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    guilds: BTreeMap<ChannelId, Option<ServerId>>,
    roles: BTreeMap<(ServerId, UserId), Option<BTreeSet<RoleId>>>,
}

impl Sights {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn forget(&self) {
        *self.seen() = Seen::default();
    }

    /// Returns a user's roles in a channel's guild; `None` if the guild or the member isn't known.
    pub(crate) async fn roles(
        &self,
        rest: &Rest,
        channel: ChannelId,
        user: UserId,
    ) -> Result<Option<BTreeSet<RoleId>>, RestError> {
        let Some(guild) = self.guild(rest, channel).await? else { return Ok(None) };
        let known = self.seen().roles.get(&(guild, user)).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let found = match rest.get::<GuildMember>(&format!("guilds/{guild}/members/{user}")).await {
            Ok(member) => Some(member.roles()),
            Err(RestError::Refused { status: 404, .. }) => None,
            Err(error) => return Err(error),
        };
        let mut seen = self.seen();
        if seen.roles.len() >= AUTHORS_MAX {
            seen.roles.clear();
        }
        seen.roles.insert((guild, user), found.clone());
        Ok(found)
    }

    async fn guild(&self, rest: &Rest, channel: ChannelId) -> Result<Option<ServerId>, RestError> {
        let known = self.seen().guilds.get(&channel).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let found = match rest.get::<ChannelObject>(&format!("channels/{channel}")).await {
            Ok(found) => Channel::from(found).server,
            Err(error) if error.may_pass() => return Err(error),
            Err(_) => return Ok(None),
        };
        self.seen().guilds.insert(channel, found);
        Ok(found)
    }
}
