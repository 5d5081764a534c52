//! Signs the agents' bots in. Only the broker's own bot is needed: an agent's bot that fails is out of service, which
//! the humans are told, and comes back by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lastword_client::wire::NewAgent;
use lastword_client::{Backoff, ClientError, RetryingClient};
use lastword_facts::Code;
use lastword_facts::fact::Kind;
use lastword_facts::names::OWN_NAME;
use tokio::time::sleep;

use super::book::BridgeStore;
use super::bridge::{BridgeContext, BridgeError, client};
use super::dialect::Dialect;
use super::foreign_bots::Taker;
use super::ids::UserId;
use super::names::Roster;
use super::platform::{Platform, Poster};
use super::settings::{Bot, Identity, Secret, Settings};
use crate::event::{Event, EventSink};

/// First and longest pause between two tries to sign a bot in: a platform may block an address that tries too often.
const TRY_MIN: Duration = Duration::from_secs(2);
const TRY_MAX: Duration = Duration::from_secs(300);

/// The bots that are in service, and why the others aren't.
#[derive(Debug)]
pub(crate) struct SignedIn {
    pub(crate) roster: Roster,
    /// By agent: the users of the bots that the bridge posts with.
    pub(crate) ours: BTreeMap<String, UserId>,
    pub(crate) takers: BTreeMap<String, Arc<Taker>>,
    /// By agent: why its bot is out of service.
    pub(crate) out: BTreeMap<String, String>,
}

/// A bot that was signed in.
enum Working {
    Ours(UserId),
    Theirs(Arc<Taker>),
}

/// Why a bot can't be signed in.
enum SignInFailure {
    /// The others work without it.
    Bot(String),
    /// The settings contradict the workspace, or the broker doesn't answer.
    Fatal(BridgeError),
}

impl From<ClientError> for SignInFailure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(problem) => Self::Bot(problem.detail),
            error @ (ClientError::Unreachable { .. }
            | ClientError::Untrusted { .. }
            | ClientError::Unusable(_)
            | ClientError::Unexpected { .. }) => Self::Fatal(error.into()),
        }
    }
}

/// What signs a bot in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) platform: &'a dyn Platform,
    pub(crate) broker: &'a RetryingClient,
    pub(crate) report: &'a EventSink,
}

/// Signs all bots in; fails only where the bridge as a whole can't work.
pub(crate) async fn sign_in(needs: &Needs<'_>, book: &BridgeStore, own: UserId) -> Result<SignedIn, BridgeError> {
    let Needs { settings, platform, broker, .. } = *needs;
    let (ours, takers, out) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut signed = SignedIn { roster: Roster::new(own, platform.dialect()), ours, takers, out };
    for bot in &settings.bots {
        let agent = &bot.agent;
        no_human(broker, agent).await?;
        // A bot out of service is mentioned all the same, where its user is known from before.
        let mut user = match &bot.identity {
            Identity::Ours => book.bot_user(agent).ok().flatten(),
            Identity::Theirs { user, .. } => Some(*user),
        };
        match working(needs, bot).await {
            Ok(Working::Ours(found)) => {
                let _noted = book.set_bot_user(agent, found).is_ok();
                user = Some(found);
                signed.ours.insert(agent.clone(), found);
            }
            Ok(Working::Theirs(taker)) => {
                signed.takers.insert(agent.clone(), taker);
            }
            Err(SignInFailure::Bot(reason)) => {
                signed.out.insert(agent.clone(), reason);
            }
            Err(SignInFailure::Fatal(error)) => return Err(error),
        }
        if let Some(user) = user {
            known_once(&signed.roster, user, agent)?;
            signed.roster.add(user, agent, matches!(bot.identity, Identity::Ours));
        }
    }
    Ok(signed)
}

async fn working(needs: &Needs<'_>, bot: &Bot) -> Result<Working, SignInFailure> {
    let Needs { settings, platform, broker, report } = *needs;
    match &bot.identity {
        Identity::Ours if settings.is_unread(&bot.agent) => Err(SignInFailure::Bot(settings.unreadable(&bot.agent))),
        Identity::Ours => {
            let user = platform.sign_in(&Poster::Agent(bot.agent.clone())).await;
            let user = user.map_err(|error| SignInFailure::Bot(error.to_string()))?;
            registered(broker, &bot.agent).await?;
            Ok(Working::Ours(user))
        }
        Identity::Theirs { token, .. } => {
            let token = match token {
                Some(token) => token.clone(),
                None if settings.is_unread(&bot.agent) => {
                    return Err(SignInFailure::Bot(settings.unreadable(&bot.agent)));
                }
                None => agent_token(broker, &bot.agent).await?,
            };
            let taker = client(settings, &token, report).map_err(|error| SignInFailure::Fatal(error.into()))?;
            let whose = taker.client().agent(OWN_NAME).await?;
            if whose.name != bot.agent || whose.kind == Kind::Human {
                let what = format!("the lastword_token_file of {} is the token of {}", bot.agent, whose.name);
                return Err(SignInFailure::Fatal(BridgeError::Settings(what)));
            }
            Ok(Working::Theirs(Taker::new(taker)))
        }
    }
}

/// Tells the humans that a bot is out of service, and returns once it can be signed in again.
pub(crate) async fn returned(shared: &BridgeContext, bot: &Bot, reason: &str, report: &EventSink) {
    out_of_service(shared, &bot.agent, reason, report).await;
    let BridgeContext { settings, platform, broker, .. } = shared;
    let needs = Needs { settings, platform: &**platform, broker, report };
    let mut backoff = Backoff::new(TRY_MIN, TRY_MAX);
    loop {
        sleep(backoff.grow()).await;
        let again = match (&bot.identity, shared.takers.get(&bot.agent)) {
            (Identity::Theirs { .. }, Some(taker)) => taker.broker.client().agent(OWN_NAME).await.is_ok(),
            (_, _) => working(&needs, bot).await.is_ok(),
        };
        if again {
            return;
        }
    }
}

/// Warns in the log at each start, and sends the humans one ALERT until the bot is back.
async fn out_of_service(shared: &BridgeContext, agent: &str, reason: &str, report: &EventSink) {
    shared.lose(agent);
    let reason = reason.trim_end_matches('.');
    let effect = match shared.roster.foreign(agent) {
        Some(_) => "its posts count as a guest's and it gets no deliveries",
        None => "the broker's bot posts for it",
    };
    let Dialect { name, title, guest, .. } = shared.dialect;
    let message = format!("the {title} bot of {agent} is out of service. {reason}. Meanwhile {effect}");
    report.emit(&Event::Warning { message: format!("{message}. `lastword {name} check` says what to do") });
    let about = out_mark(agent);
    if shared.book.hinted(&about).unwrap_or(true) {
        return;
    }
    let text = format!(
        "[FROM:{guest}][TO:user][TYPE:ALERT][REF:{name}-bots/{agent}][DEPTH:0]\n{message}. Run `lastword {name} check`."
    );
    match shared.guest.persist(|| shared.guest.client().send_text(text.clone())).await {
        Ok(_) => {
            if let Err(error) = shared.book.hint(&about) {
                shared.outbox.warn(&error.to_string());
            }
        }
        Err(error) => shared.outbox.warn(&format!("the humans could not be told that {agent} is out. {error}")),
    }
}

/// Reports the bots that are back in service.
pub(crate) fn restored(shared: &BridgeContext, report: &EventSink) {
    for bot in shared.settings.bots.iter().filter(|bot| !shared.is_lost(&bot.agent)) {
        if shared.book.unhint(&out_mark(&bot.agent)).unwrap_or(false) {
            let message = format!("the {} bot of {} is back in service", shared.dialect.title, bot.agent);
            report.emit(&Event::Restored { message });
        }
    }
}

fn out_mark(agent: &str) -> String {
    format!("out-of-service:{agent}")
}

/// Refuses a bot that the settings name like a human: a bot must never act as one.
async fn no_human(broker: &RetryingClient, name: &str) -> Result<(), BridgeError> {
    match broker.client().agent(name).await {
        Ok(known) if known.kind == Kind::Human => Err(BridgeError::Settings(format!(
            "{name} is a human, and a bot can't be one: register an agent for the bot"
        ))),
        Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => Ok(()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a user that is listed for two agents.
fn known_once(roster: &Roster, user: UserId, agent: &str) -> Result<(), BridgeError> {
    match roster.get(user) {
        Some(member) => {
            Err(BridgeError::Settings(format!("{} and {agent} are the same bot: its user is {user}", member.agent)))
        }
        None => Ok(()),
    }
}

/// Checks that an agent whose bot is ours is registered: its token belongs to the program that runs it.
async fn registered(broker: &RetryingClient, name: &str) -> Result<(), SignInFailure> {
    match broker.client().agent(name).await {
        Ok(_) => Ok(()),
        Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => {
            Err(SignInFailure::Bot(format!("unknown agent {name}: register it with `lastword agent add {name}`")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a new token for an agent that only the bridge acts as: registers it, or renews its token.
pub(crate) async fn agent_token(broker: &RetryingClient, name: &str) -> Result<Secret, ClientError> {
    let new = NewAgent {
        name: name.to_owned(),
        actions: Vec::new(),
        groups: Vec::new(),
        kind: Kind::Agent,
        turns_max: 0,
        role: None,
        display_name: None,
        key: None,
    };
    let registered = match broker.client().agent(name).await {
        Ok(_) => broker.client().rekey(name).await?,
        Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => {
            broker.client().register(&new).await?
        }
        Err(error) => return Err(error),
    };
    Ok(Secret::new(&registered.token))
}
