//! What a bot's token gives access to, by name, before there are settings.

use lastword_bridge::settings::Secret;
use serde_json::Value;

use super::check::{Needs, hint};
use super::invite;
use super::rest::{Method, Rest, RestError};

/// Most guilds that one call lists, and that are looked through.
const GUILDS_MAX: usize = 200;
/// Most members that a search lists: a name that more people share has to be given as an id.
const FOUND_MAX: usize = 100;
/// Types of channels that allow messages and threads: text and announcement.
const KINDS: [u64; 2] = [0, 5];

/// Why Discord's answer can't be used, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExploreError {
    /// What happened.
    pub message: String,
    /// The next step; empty if there is none.
    pub hint: &'static str,
}

impl From<RestError> for ExploreError {
    fn from(error: RestError) -> Self {
        Self { message: error.to_string(), hint: hint(&error) }
    }
}

/// A text channel, a person or a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The id, as the settings have it.
    pub id: u64,
    /// The name that Discord shows.
    pub name: String,
    /// The guild's name.
    pub guild: String,
}

/// A bot that Discord knows.
#[derive(Debug)]
pub struct Explorer {
    rest: Rest,
    /// The bot's name.
    pub name: String,
    /// Whether the bot is the broker's.
    broker: bool,
}

impl Explorer {
    /// Connects as the bot with this token: the broker's, or one that posts for an agent.
    ///
    /// # Errors
    ///
    /// Fails if Discord doesn't know the token, or doesn't answer.
    pub async fn connect(token: &Secret, api: Option<&str>, broker: bool) -> Result<Self, ExploreError> {
        let rest = Rest::start(token, api).await?;
        let me = rest.call(Method::Get, "users/@me", None).await?;
        Ok(Self { rest, name: text(&me["username"]), broker })
    }

    /// Returns the bot's Discord user.
    #[must_use]
    pub const fn user(&self) -> u64 {
        self.rest.user.number()
    }

    /// Returns the address that invites the bot into a guild, with exactly the permissions that it needs.
    #[must_use]
    pub fn invite(&self) -> String {
        invite::address(self.rest.application, if self.broker { Needs::Broker } else { Needs::Ours })
    }

    /// Lists the text channels of the bot's guilds.
    ///
    /// # Errors
    ///
    /// Fails if Discord refuses or doesn't answer.
    pub async fn channels(&self) -> Result<Vec<Named>, ExploreError> {
        let mut all = Vec::new();
        for (id, guild) in self.guilds().await? {
            let channels = self.rest.call(Method::Get, &format!("guilds/{id}/channels"), None).await?;
            let places =
                list(&channels).iter().filter(|c| c["type"].as_u64().is_some_and(|kind| KINDS.contains(&kind)));
            all.extend(places.filter_map(|channel| named(channel, text(&channel["name"]), &guild)));
        }
        Ok(all)
    }

    /// Finds the people of this name in the bot's guilds: their user name, display name or nickname, whole.
    ///
    /// # Errors
    ///
    /// Fails if Discord refuses or doesn't answer.
    pub async fn people(&self, name: &str) -> Result<Vec<Named>, ExploreError> {
        let query: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut all: Vec<Named> = Vec::new();
        for (id, guild) in self.guilds().await? {
            let path = format!("guilds/{id}/members/search?query={query}&limit={FOUND_MAX}");
            let members = self.rest.call(Method::Get, &path, None).await?;
            for member in list(&members).iter().filter(|member| member["user"]["bot"] != true) {
                let user = &member["user"];
                let names = [&user["username"], &user["global_name"], &member["nick"]];
                let same = |other: &&Value| other.as_str().is_some_and(|o| o.to_lowercase() == name.to_lowercase());
                if names.iter().any(same)
                    && let Some(person) = named(user, text(&user["username"]), &guild)
                    && all.iter().all(|known| known.id != person.id)
                {
                    all.push(person);
                }
            }
        }
        Ok(all)
    }

    /// Lists the roles of the bot's guilds that somebody can be given.
    ///
    /// # Errors
    ///
    /// Fails if Discord refuses or doesn't answer.
    pub async fn roles(&self) -> Result<Vec<Named>, ExploreError> {
        let mut all = Vec::new();
        for (guild_id, guild) in self.guilds().await? {
            let roles = self.rest.call(Method::Get, &format!("guilds/{guild_id}/roles"), None).await?;
            // The role with the guild's own id is everyone's.
            let given = list(&roles).iter().filter(|role| id(role).is_some_and(|id| id != guild_id));
            all.extend(given.filter_map(|role| named(role, text(&role["name"]), &guild)));
        }
        Ok(all)
    }

    async fn guilds(&self) -> Result<Vec<(u64, String)>, ExploreError> {
        let path = format!("users/@me/guilds?limit={GUILDS_MAX}");
        let guilds = self.rest.call(Method::Get, &path, None).await?;
        let all = list(&guilds).iter().filter_map(|guild| Some((id(guild)?, text(&guild["name"]))));
        Ok(all.collect())
    }
}

fn named(of: &Value, name: String, guild: &str) -> Option<Named> {
    Some(Named { id: id(of)?, name, guild: guild.to_owned() })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn id(value: &Value) -> Option<u64> {
    value["id"].as_str()?.parse().ok()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}
