//! The `[discord]` table of `lastword.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use lastword_discord::bridge::ids::{ChannelId, RoleId, UserId};
use lastword_discord::bridge::settings::{self as bridge, Bot, BotPolicy, HeaderStyle, Identity, Secret, Speaker};
use lastword_discord::bridge::{BridgeError, ByChannel, ChannelSettings};
use lastword_discord::{BROKER, DiscordSettings};
use lastword_facts::fact::Role;
use lastword_facts::names::AgentName;
use serde::{Deserialize, Deserializer};

use crate::environment::variable;
use crate::failure::Failure;
use crate::notify::private;
use crate::session::ServerAccess;

/// The name of the bridge's own file in the data directory.
const FILE_BOOK: &str = "discord.sqlite";
/// Prefix of the variables that may hold a token: agents that Lastword runs don't get them.
const OWN_VARIABLES: &str = "LASTWORD_";

/// The members of `[discord]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiscordTable {
    api: Option<String>,
    gateway: Option<String>,
    #[serde(default)]
    channels: Vec<Snowflake<ChannelId>>,
    home: Option<Snowflake<ChannelId>>,
    broker: Token,
    #[serde(default)]
    bot: Vec<BotTable>,
    #[serde(default)]
    bots: BotPolicy,
    #[serde(default)]
    trusted: Vec<Snowflake<UserId>>,
    #[serde(default)]
    humans: Vec<Human>,
    #[serde(default)]
    enroll: bool,
    #[serde(default)]
    role: Vec<RoleTable>,
    #[serde(default)]
    header: HeaderStyle,
    #[serde(default)]
    channel: BTreeMap<String, ChannelTable>,
}

/// The members of `[discord.channel.ID]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelTable {
    bots: Option<BotPolicy>,
    trusted: Option<Vec<Snowflake<UserId>>>,
    humans: Option<Vec<Snowflake<UserId>>>,
    roles: Option<Vec<Snowflake<RoleId>>>,
    agents: Option<BTreeSet<String>>,
    header: Option<HeaderStyle>,
}

/// The source of a token: a file or a variable.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    token_env: Option<String>,
    token_file: Option<PathBuf>,
}

/// The members of `[[discord.bot]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BotTable {
    agent: String,
    user: Option<Snowflake<UserId>>,
    token_env: Option<String>,
    token_file: Option<PathBuf>,
    lastword_token_file: Option<PathBuf>,
}

/// A Discord user: alone, with their own Lastword token, or with the role of the human that the bridge makes for them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Human {
    User(Snowflake<UserId>),
    Named { user: Snowflake<UserId>, lastword_token_file: PathBuf },
    Enrolled { user: Snowflake<UserId>, role: Role },
}

/// The members of `[[discord.role]]`: a role of the Discord server, and the role in the workspace that it gives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleTable {
    id: Snowflake<RoleId>,
    role: Role,
}

/// A Discord id, as a number or, as Discord itself writes it, as text.
#[derive(Clone, Copy, Debug)]
struct Snowflake<Id>(Id);

impl<'de, Id: FromStr> Deserialize<'de> for Snowflake<Id> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        let wrong = |text: &dyn std::fmt::Display| {
            serde::de::Error::custom(format!("{text} isn't a Discord id such as 175928847299117063"))
        };
        let text = match Form::deserialize(from)? {
            Form::Number(0) => return Err(wrong(&0)),
            Form::Number(id) => id.to_string(),
            Form::Text(text) => text,
        };
        text.parse().map(Self).map_err(|_| wrong(&format!("{text:?}")))
    }
}

/// Returns the ids of a list.
fn ids<Id: Copy + Ord>(list: &[Snowflake<Id>]) -> BTreeSet<Id> {
    list.iter().map(|id| id.0).collect()
}

/// Returns the bridge's settings with all tokens; `access` has a human's token.
pub(crate) fn settings(
    table: &toml::Table,
    base: &Path,
    data: &Path,
    access: ServerAccess,
) -> Result<DiscordSettings, Failure> {
    let failed = |what: String| Failure::usage(format!("[discord]: {what}"));
    let table: DiscordTable = table.clone().try_into().map_err(|error| failed(error.to_string()))?;
    table.broker.check().map_err(|what| failed(format!("broker: {what}")))?;
    let mut unread = Vec::new();
    let broker = table.broker.secret(base).map_err(|what| unread.push((BROKER.to_owned(), what))).ok();
    let mut tokens = BTreeMap::new();
    let bots: Result<Vec<Bot>, Failure> =
        table.bot.iter().map(|bot| bot.bot(base, &mut tokens, &mut unread).map_err(failed)).collect();
    let humans = humans(&table, base, &mut unread);
    let roles = roles(&table.role).map_err(failed)?;
    let by_channel = by_channel(&table.channel).map_err(failed)?;
    let bridge = bridge::Settings {
        broker_at: access.endpoint,
        token: Secret::new(&access.token),
        channels: ids(&table.channels),
        home: table.home.map(|id| id.0),
        bots: bots?,
        policy: table.bots,
        trusted: ids(&table.trusted),
        humans,
        roles,
        header: table.header,
        by_channel,
        book: data.join(FILE_BOOK),
        unread,
    };
    let settings = DiscordSettings { bridge, api: table.api, gateway: table.gateway, broker, tokens };
    settings.check().map_err(failed)?;
    Ok(settings)
}

/// Turns the bridge's error into a failure with a hint.
pub(crate) fn failure(failed: BridgeError) -> Failure {
    match failed {
        BridgeError::Settings(what) => Failure::usage(what),
        BridgeError::Broker(error) => error.into(),
        BridgeError::Platform(what) => Failure::unavailable(what).hint("see docs/discord.md"),
    }
}

/// Reads the roles of the Discord server.
fn roles(tables: &[RoleTable]) -> Result<BTreeMap<RoleId, Role>, String> {
    let mut roles = BTreeMap::new();
    for table in tables {
        if roles.insert(table.id.0, table.role).is_some() {
            return Err(format!("two [[discord.role]] have the id {}: a Discord role gives one role", table.id.0));
        }
    }
    Ok(roles)
}

/// Reads the settings of single channels.
fn by_channel(tables: &BTreeMap<String, ChannelTable>) -> Result<ByChannel, String> {
    let one = |(channel, own): (&String, &ChannelTable)| {
        let channel = channel.parse().map_err(|_| format!("channel.{channel} isn't a Discord id"))?;
        let own = ChannelSettings {
            policy: own.bots,
            trusted: own.trusted.as_deref().map(ids),
            humans: own.humans.as_deref().map(ids),
            roles: own.roles.as_deref().map(ids),
            agents: own.agents.clone(),
            header: own.header,
        };
        Ok((channel, own))
    };
    tables.iter().map(one).collect()
}

/// Reads the humans' tokens. A human whose token can't be read is left out: no one else's may stand in for it.
fn humans(table: &DiscordTable, base: &Path, unread: &mut Vec<(String, String)>) -> BTreeMap<UserId, Speaker> {
    let mut humans = BTreeMap::new();
    for human in &table.humans {
        match human {
            Human::User(user) => {
                humans.insert(user.0, if table.enroll { Speaker::Enrolled(None) } else { Speaker::Bridge });
            }
            Human::Enrolled { user, role } => {
                humans.insert(user.0, Speaker::Enrolled(Some(*role)));
            }
            Human::Named { user, lastword_token_file } => {
                match private("lastword_token_file", &base.join(lastword_token_file)) {
                    Ok(token) => {
                        humans.insert(user.0, Speaker::Own(Secret::new(&token)));
                    }
                    Err(what) => unread.push((user.0.to_string(), what)),
                }
            }
        }
    }
    humans
}

impl Token {
    /// Refuses a source that no token can be read from, whatever is in it.
    fn check(&self) -> Result<(), String> {
        match (&self.token_env, &self.token_file) {
            (Some(name), None) if !name.starts_with(OWN_VARIABLES) => {
                Err("token_env must begin with LASTWORD_, so that agents run by Lastword don't see it".to_owned())
            }
            (Some(_), None) | (None, Some(_)) => Ok(()),
            (Some(_), Some(_)) | (None, None) => Err("set its Discord token in token_env or token_file".to_owned()),
        }
    }

    fn secret(&self, base: &Path) -> Result<Secret, String> {
        self.check()?;
        match (&self.token_env, &self.token_file) {
            (Some(name), _) => {
                variable(name).map(|text| Secret::new(&text)).ok_or_else(|| format!("{name} is not set"))
            }
            (None, file) => {
                let file = file.as_deref().unwrap_or(Path::new(""));
                private("token_file", &base.join(file)).map(|text| Secret::new(&text))
            }
        }
    }
}

impl BotTable {
    /// Reads the bot's tokens; one of Discord's goes to `tokens`. A token that can't be read takes only this bot out of
    /// service, and is noted in `unread`.
    fn bot(
        &self,
        base: &Path,
        tokens: &mut BTreeMap<String, Secret>,
        unread: &mut Vec<(String, String)>,
    ) -> Result<Bot, String> {
        let agent = self.agent.clone();
        let wrong = |what: String| format!("the bot of {agent}: {what}");
        AgentName::new(&agent).map_err(|error| format!("agent = {agent:?} {error}"))?;
        let token = Token { token_env: self.token_env.clone(), token_file: self.token_file.clone() };
        let ours = token.token_env.is_some() || token.token_file.is_some();
        let mut read = |found: Result<Secret, String>| found.map_err(|what| unread.push((agent.clone(), what))).ok();
        let identity = match (ours, self.user) {
            (true, _) if self.lastword_token_file.is_some() => {
                return Err(wrong("lastword_token_file is only for a bot without token_env or token_file".into()));
            }
            (true, _) => {
                token.check().map_err(wrong)?;
                tokens.extend(read(token.secret(base)).map(|token| (agent.clone(), token)));
                Identity::Ours
            }
            (false, Some(user)) => {
                let file = self.lastword_token_file.as_ref();
                let token = file.map(|file| private("lastword_token_file", &base.join(file)));
                let token = token.and_then(|token| read(token.map(|text| Secret::new(&text))));
                Identity::Theirs { user: user.0, token }
            }
            (false, None) => {
                let what = "give its Discord token (token_env, token_file) if we post for it, or its user id if it \
                            posts by itself";
                return Err(wrong(what.into()));
            }
        };
        Ok(Bot { agent, identity })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use lastword_client::Endpoint;

    use super::*;

    fn read(text: &str) -> (tempfile::TempDir, Result<DiscordSettings, Failure>) {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("bot.token");
        fs::write(&token, "canary\n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let access = ServerAccess { endpoint: Endpoint::new("http://127.0.0.1:9"), token: "lw_canary".into() };
        let settings = settings(&table, dir.path(), dir.path(), access);
        (dir, settings)
    }

    const GOOD: &str = "channels = [1]\nbroker = { token_file = \"bot.token\" }\n";

    #[test]
    fn a_table_is_read_with_its_tokens_which_are_nowhere_in_what_is_printed() {
        let bots = "[[bot]]\nagent = \"kilo\"\ntoken_file = \"bot.token\"\n[[bot]]\nagent = \"hive\"\nuser = \"9\"\n";
        let humans = "humans = [5, { user = 6, lastword_token_file = \"bot.token\" }, { user = 7, role = \"approver\" }]\n\
                      bots = \"mentions\"\n";
        let (_dir, settings) = read(&format!("{humans}{GOOD}{bots}"));
        let settings = settings.unwrap();
        assert!(!format!("{settings:?}").contains("canary"));
        assert_eq!(settings.tokens, [("kilo".to_owned(), Secret::new("canary"))].into());
        let settings = settings.bridge;
        assert_eq!(settings.bots[1].identity, Identity::Theirs { user: UserId::new(9), token: None });
        assert_eq!(
            settings.humans.into_values().collect::<Vec<_>>(),
            [
                Speaker::Bridge,
                Speaker::Own(Secret::new("canary")),
                Speaker::Enrolled(Some(lastword_facts::fact::Role::Approver))
            ]
        );
        assert_eq!(settings.policy, BotPolicy::Mentions);
    }

    #[test]
    fn the_roles_of_the_discord_server_are_read_and_each_gives_one_role() {
        let kilo = "[[bot]]\nagent = \"kilo\"\nuser = 9\n";
        let role = |role: &str| format!("[[role]]\nid = \"50\"\nrole = \"{role}\"\n");
        let own = "[channel.1]\nroles = [50]\n";
        let settings = read(&format!("{GOOD}{kilo}{}{own}", role("approver"))).1.unwrap().bridge;
        assert_eq!(settings.roles, [(RoleId::new(50), Role::Approver)].into());
        assert_eq!(settings.by_channel[&ChannelId::new(1)].roles, Some([RoleId::new(50)].into()));
        for (text, word) in [
            (format!("{}{}", role("viewer"), role("owner")), "two [[discord.role]] have the id 50"),
            (role("boss"), "boss"),
            (own.replace("50", "51"), "51 has no [[discord.role]]"),
        ] {
            let failure = read(&format!("{GOOD}{kilo}{text}")).1.unwrap_err();
            assert!(failure.message.contains(word), "{text}: {}", failure.message);
        }
    }

    #[test]
    fn a_token_that_can_not_be_read_takes_only_its_bot_or_human_out() {
        let bots = "[[bot]]\nagent = \"kilo\"\ntoken_file = \"no.token\"\n[[bot]]\nagent = \"lima\"\n\
                    token_env = \"LASTWORD_NOT_SET_ANYWHERE\"\n";
        let humans = "humans = [5, { user = 6, lastword_token_file = \"gone.token\" }]\n";
        let (_dir, settings) = read(&format!("{humans}{GOOD}{bots}"));
        let DiscordSettings { bridge: settings, tokens, .. } = settings.unwrap();
        let unread = format!("{:?}", settings.unread);
        for word in ["no.token", "is not set", "gone.token"] {
            assert!(unread.contains(word), "{word} is not in {unread}");
        }
        assert!(settings.bots[0].identity == Identity::Ours && tokens.is_empty());
        assert_eq!(settings.humans.keys().collect::<Vec<_>>(), [&UserId::new(5)], "nobody speaks for 6");
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_do() {
        let kilo = "[[bot]]\nagent = \"kilo\"\n";
        for (text, word) in [
            ("channels = [1]", "broker"),
            ("colour = 1", "colour"),
            (&format!("{GOOD}{kilo}"), "the bot of kilo: give its Discord token"),
            (&format!("{GOOD}[[bot]]\nagent = \"Kilo\"\nuser = 1"), "Kilo"),
            (&format!("{GOOD}{kilo}user = \"x\""), "isn't a Discord id"),
            (&format!("{GOOD}{kilo}token_env = \"OTHER\""), "LASTWORD_"),
            (
                &format!("{kilo}user = 1").replace("[[bot]]", "broker.token_file = \"bot.token\"\n[[bot]]"),
                "channels is empty",
            ),
        ] {
            let failure = read(text).1.unwrap_err();
            assert!(failure.message.contains(word), "{text}: {}", failure.message);
        }
    }
}
