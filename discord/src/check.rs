//! `lastword discord check`: reports what the bridge still needs on both sides, with what to do about it.

mod people;
mod rights;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lastword_bridge::ids::{ChannelId, UserId};
use lastword_bridge::settings::{Identity, Secret, Settings as Shared};
use lastword_client::wire::AgentView;
use lastword_client::{Client, ClientError, Token};
use lastword_facts::fact::Kind;
use lastword_facts::names::OWN_NAME;
use serde::Serialize;
use serde_json::Value;

use super::invite;
use super::rest::{Method, Rest, RestError};
use super::settings::{BROKER, DiscordSettings};
pub(crate) use rights::Needs;
use rights::{held, missing};

/// Application flags: the message content intent is on, for a large and for a small application.
const CONTENT_ON: u64 = (1 << 18) | (1 << 19);
/// Types of channels that allow messages and threads: text and announcement.
const KINDS: [u64; 2] = [0, 5];
/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject: a bot, a channel or a human.
    pub about: String,
    /// Whether the check passed.
    pub ok: bool,
    /// The result, as a sentence part.
    pub text: String,
    /// What to do about a failed check, or about one that passed with a reserve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The bots' permissions in one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sight {
    /// The channel's name.
    pub channel: String,
    /// By bot: the names of the permissions that it lacks; empty if it has all that it needs.
    pub missing: BTreeMap<String, Vec<&'static str>>,
    /// The bots that see the channel, and so each other's messages in it.
    pub seen_by: Vec<String>,
}

/// All results of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// One entry per check, in the order of the checks.
    pub findings: Vec<Finding>,
    /// One entry per text channel of the settings that the broker's bot can see.
    pub channels: Vec<Sight>,
}

impl Report {
    /// Returns whether all checks passed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.ok)
    }

    fn good(&mut self, about: &str, text: impl Into<String>) {
        self.findings.push(Finding { about: about.to_owned(), ok: true, text: text.into(), hint: None });
    }

    /// Adds a finding that keeps the bridge from nothing.
    fn note(&mut self, about: &str, text: String, hint: &str) {
        self.findings.push(Finding { about: about.to_owned(), ok: true, text, hint: Some(hint.to_owned()) });
    }

    fn bad(&mut self, about: &str, text: impl Into<String>, hint: &str) {
        let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
        self.findings.push(Finding { about: about.to_owned(), ok: false, text: text.into(), hint });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|finding| finding.about.chars().count()).max().unwrap_or(0);
        for Finding { about, ok, text, hint } in &self.findings {
            let sign = match (ok, hint) {
                (true, None) => "✓",
                (true, Some(_)) => "!",
                (false, _) => "✗",
            };
            writeln!(f, "{sign} {about:width$}  {text}")?;
            if let Some(hint) = hint {
                writeln!(f, "  {:width$}  → {hint}", "")?;
            }
        }
        for (place, sight) in self.channels.iter().enumerate() {
            if place == 0 {
                writeln!(f)?;
            }
            writeln!(f, "  #{}: {} see each other's messages", sight.channel, list(&sight.seen_by))?;
        }
        let wrong = self.findings.iter().filter(|finding| !finding.ok).count();
        match wrong {
            0 => write!(f, "\nAll checks passed: run `lastword discord`."),
            1 => write!(f, "\n1 problem."),
            _ => write!(f, "\n{wrong} problems."),
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "no two bots".to_owned() } else { names.join(", ") }
}

/// A bot whose Discord user is known.
struct Bot {
    name: String,
    user: UserId,
    needs: Needs,
    /// The application, whose owner is the reader of the report; `None` for a foreign bot.
    invite: Option<u64>,
}

impl Bot {
    /// Returns what to do about a bot that isn't in the server.
    fn inviting(&self) -> String {
        match self.invite {
            Some(application) => format!("invite it: {}", invite::address(application, self.needs)),
            None => "ask the bot's owner for its own invite address, and open that".to_owned(),
        }
    }

    /// Returns whether the bot is needed in a channel that has these agents; `None` is all.
    fn is_asked(&self, agents: Option<&BTreeSet<String>>) -> bool {
        self.needs == Needs::Broker || agents.is_none_or(|agents| agents.contains(&self.name))
    }

    /// Returns what to do about permissions that a bot lacks in a channel.
    fn permitting(&self) -> String {
        let here = "the channel's settings, Permissions: add the bot and allow these";
        match self.invite {
            Some(application) => format!("{here}; or invite it again: {}", invite::address(application, self.needs)),
            None => here.to_owned(),
        }
    }
}

/// Checks everything that the settings name.
pub async fn check(own: &DiscordSettings) -> Report {
    let mut report = Report::default();
    let settings = &own.bridge;
    lastword(settings, &mut report).await;
    for (about, what) in &settings.unread {
        report.bad(about, what.clone(), "write the token into a file that only its owner can read (chmod 600)");
    }
    let api = own.api.as_deref();
    let Some(token) = &own.broker else { return report };
    let broker = match Rest::start(token, api).await {
        Ok(rest) => rest,
        Err(error) => {
            report.bad(BROKER, error.to_string(), hint(&error));
            return report;
        }
    };
    let invite = Some(broker.application);
    let mut bots = vec![Bot { name: BROKER.to_owned(), user: broker.user, needs: Needs::Broker, invite }];
    intents(&broker, &mut report).await;
    for bot in &settings.bots {
        match &bot.identity {
            Identity::Ours => {
                let Some(token) = own.tokens.get(&bot.agent) else { continue };
                match Rest::start(token, api).await {
                    Ok(rest) => {
                        report.good(&bot.agent, format!("the bridge posts for it, as the Discord user {}", rest.user));
                        let invite = Some(rest.application);
                        bots.push(Bot { name: bot.agent.clone(), user: rest.user, needs: Needs::Ours, invite });
                    }
                    Err(error) => report.bad(&bot.agent, error.to_string(), hint(&error)),
                }
            }
            Identity::Theirs { user, .. } => {
                if foreign(&broker, &bot.agent, *user, &mut report).await {
                    bots.push(Bot { name: bot.agent.clone(), user: *user, needs: Needs::Theirs, invite: None });
                }
            }
        }
    }
    twins(&bots, &mut report);
    for user in settings.humans.keys() {
        people::person(&broker, *user, &mut report).await;
    }
    let mut guilds = BTreeMap::new();
    for channel in &settings.channels {
        place(&broker, settings, *channel, &bots, &mut guilds, &mut report).await;
    }
    people::roles(settings, &guilds, &mut report);
    strangers(&bots, &mut report);
    report
}

/// Returns what to do about a failed call.
pub(crate) fn hint(error: &RestError) -> &'static str {
    match error {
        RestError::Refused { status: 401, .. } => {
            "copy a new token: developer portal, the application, Bot, Reset Token"
        }
        RestError::Refused { .. } => "",
        RestError::Unreachable(_) => "is this machine on the network? `api` names another address of Discord",
    }
}

/// Checks the workspace: the human's token, the agents, and the other tokens.
async fn lastword(settings: &Shared, report: &mut Report) {
    const ABOUT: &str = "lastword";
    let me = match owner_of(settings, &settings.token).await {
        Ok(me) if me.kind == Kind::Human => me,
        Ok(me) => {
            let text = format!("the token is that of the agent {}", me.name);
            return report.bad(ABOUT, text, "give the bridge a human's token with --token-file");
        }
        Err(error) => {
            return report.bad(ABOUT, error.to_string(), "start it with `lastword serve`, or name it with --url");
        }
    };
    report.good(ABOUT, format!("{}, as {}", settings.broker_at.url(), me.name));
    people::makes_humans(settings, &me, report);
    for bot in &settings.bots {
        match &bot.identity {
            Identity::Ours => match agent(settings, &bot.agent).await {
                Ok(known) if !known.connected && known.turns.is_empty() => {
                    let text = format!("no runner serves it now: {} wait for it", known.queued);
                    report.note(&bot.agent, text, &format!("lastword run --as {} -- PROGRAM", bot.agent));
                }
                Ok(_) => {}
                Err(error) => {
                    let hint = format!("lastword agent add {0} > {0}.token", bot.agent);
                    report.bad(&bot.agent, error.to_string(), &hint);
                }
            },
            Identity::Theirs { token: Some(token), .. } => match named(settings, token).await {
                Ok((name, _)) if name == bot.agent => {}
                Ok((name, _)) => {
                    report.bad(&bot.agent, format!("its Lastword token is that of {name}"), "give its own")
                }
                Err(error) => report.bad(&bot.agent, error.to_string(), "renew it: `lastword agent token NAME`"),
            },
            Identity::Theirs { token: None, .. } => {}
        }
    }
    for (user, token) in settings.humans.iter().filter_map(|(user, speaker)| Some((user, speaker.token()?))) {
        match named(settings, token).await {
            Ok((_, Kind::Human)) => {}
            Ok((name, Kind::Agent)) => {
                let text = format!("the Lastword token is that of the agent {name}");
                report.bad(&user.to_string(), text, "lastword agent add NAME --kind human");
            }
            Err(error) => report.bad(&user.to_string(), error.to_string(), "renew it: `lastword agent token NAME`"),
        }
    }
}

/// Returns the name and kind of a token's owner.
async fn named(settings: &Shared, token: &Secret) -> Result<(String, Kind), ClientError> {
    owner_of(settings, token).await.map(|me| (me.name, me.kind))
}

async fn owner_of(settings: &Shared, token: &Secret) -> Result<AgentView, ClientError> {
    let client = Client::new(&settings.broker_at, Some(Token::new(token.reveal())?))?;
    client.agent(OWN_NAME).await
}

async fn agent(settings: &Shared, name: &str) -> Result<AgentView, ClientError> {
    let client = Client::new(&settings.broker_at, Some(Token::new(settings.token.reveal())?))?;
    client.agent(name).await
}

/// Checks the message content intent, without which the broker's bot gets posts without their text.
async fn intents(broker: &Rest, report: &mut Report) {
    match broker.call(Method::Get, "applications/@me", None).await {
        Ok(application) if application["flags"].as_u64().unwrap_or_default() & CONTENT_ON != 0 => {
            report.good(BROKER, format!("the Discord user {}, with the message content intent", broker.user));
        }
        Ok(_) => {
            let hint = "developer portal, the application, Bot: switch on Message Content Intent";
            report.bad(BROKER, "it can't read messages: the message content intent is off", hint);
        }
        Err(error) => report.bad(BROKER, error.to_string(), hint(&error)),
    }
}

/// Checks that a foreign bot's user exists and is a bot.
async fn foreign(broker: &Rest, agent: &str, user: UserId, report: &mut Report) -> bool {
    match broker.call(Method::Get, &format!("users/{user}"), None).await {
        Ok(found) if found["bot"] == true => {
            report.good(agent, format!("it posts itself, as {}", text(&found["username"])));
            true
        }
        Ok(found) => {
            let what = format!("the Discord user {user} is {}, which isn't a bot", text(&found["username"]));
            report.bad(agent, what, "copy the bot's id: Developer Mode, then Copy User ID on the bot");
            false
        }
        Err(error) => {
            report.bad(agent, format!("the Discord user {user}: {error}"), "copy the bot's id again");
            false
        }
    }
}

/// Reports agents with the same Discord user: a post could not be attributed.
fn twins(bots: &[Bot], report: &mut Report) {
    for (place, bot) in bots.iter().enumerate() {
        if let Some(first) = bots.iter().take(place).find(|first| first.user == bot.user) {
            let what = format!("it is the same Discord user as {}", first.name);
            report.bad(&bot.name, what, "create a separate application for each bot");
        }
    }
}

/// Checks a channel's type and each bot's permissions in it.
async fn place(
    broker: &Rest,
    settings: &Shared,
    id: ChannelId,
    bots: &[Bot],
    guilds: &mut BTreeMap<String, Value>,
    report: &mut Report,
) {
    let channel = match broker.call(Method::Get, &format!("channels/{id}"), None).await {
        Ok(channel) => channel,
        Err(error) => {
            let hint =
                "let the broker's bot see it: the channel's settings, Permissions, add the bot with View Channel";
            return report.bad(&format!("channel {id}"), error.to_string(), hint);
        }
    };
    let name = text(&channel["name"]).to_owned();
    let about = format!("#{name}");
    if !channel["type"].as_u64().is_some_and(|kind| KINDS.contains(&kind)) {
        return report.bad(&about, "isn't a text channel", "list a text channel; its threads are part of it");
    }
    let guild = text(&channel["guild_id"]).to_owned();
    if !guilds.contains_key(&guild) {
        let roles = broker.call(Method::Get, &format!("guilds/{guild}/roles"), None).await.unwrap_or_default();
        commands(broker, &guild, report).await;
        guilds.insert(guild.clone(), roles);
    }
    people::lists(settings, id, &about, &guilds[&guild], report);
    let mut sight = Sight { channel: name, ..Sight::default() };
    let asked = settings.own(id).and_then(|own| own.agents.as_ref());
    let mut lacking = 0;
    for bot in bots {
        let path = format!("guilds/{guild}/members/{}", bot.user);
        let Ok(member) = broker.call(Method::Get, &path, None).await else {
            let what = format!("{} is not in the server of the channel", bot.name);
            lacking += lack(&about, what, &bot.inviting(), bot.is_asked(asked), report);
            continue;
        };
        let rights = held(&guild, &guilds[&guild], &member, &channel);
        let lacks = missing(rights, bot.needs);
        if rights & rights::VIEW != 0 {
            sight.seen_by.push(bot.name.clone());
        }
        if !lacks.is_empty() {
            let what = format!("{} may not: {}", bot.name, lacks.join(", "));
            lacking += lack(&about, what, &bot.permitting(), bot.is_asked(asked), report);
        }
        sight.missing.insert(bot.name.clone(), lacks);
    }
    if lacking == 0 {
        report.good(&about, "all bots have the permissions they need");
    }
    report.channels.push(sight);
}

/// Reports what a bot lacks in a channel, and returns 1. Where nobody may ask its agent, another agent still may, so
/// that this is a note there, and counts 0.
fn lack(about: &str, what: String, hint: &str, asked: bool, report: &mut Report) -> usize {
    if asked {
        report.bad(about, what, hint);
    } else {
        report.note(about, format!("{what}. It isn't asked here, but other agents may ask it"), hint);
    }
    usize::from(asked)
}

/// Checks whether `/lastword` can be registered.
async fn commands(broker: &Rest, guild: &str, report: &mut Report) {
    let path = format!("applications/{}/guilds/{guild}/commands", broker.application);
    if let Err(error) = broker.call(Method::Get, &path, None).await {
        let hint = format!("invite the broker's bot again: {}", invite::address(broker.application, Needs::Broker));
        report.bad(BROKER, format!("/lastword can't be registered. {error}"), &hint);
    }
}

/// Reports pairs of bots that share no channel, and so never see each other's messages.
fn strangers(bots: &[Bot], report: &mut Report) {
    let sees = |sight: &Sight, bot: &Bot| sight.seen_by.contains(&bot.name);
    let agents: Vec<&Bot> = bots.iter().filter(|bot| bot.needs != Needs::Broker).collect();
    let mut apart = Vec::new();
    for (place, one) in agents.iter().enumerate() {
        for other in agents.iter().skip(place + 1) {
            if !report.channels.iter().any(|sight| sees(sight, one) && sees(sight, other)) {
                apart.push((
                    one.name.clone(),
                    format!("it shares no channel with {}: they never see each other", other.name),
                ));
            }
        }
    }
    for (about, what) in apart {
        report.bad(&about, what, "let both see one of the channels");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}
