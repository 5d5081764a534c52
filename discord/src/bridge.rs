//! The bridge: signs in on both sides, and keeps its parts running.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::NewAgent;
use lastword_proto::Code;
use lastword_proto::fact::Kind;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::book::BridgeStore;
use super::cards::CardQueue;
use super::commands;
use super::follow::follow;
use super::foreign_bots::Taker;
use super::gateway::{Ears, Role, listen};
use super::inbound::is_inside;
use super::intake::Intake;
use super::interactions;
use super::names::{GUEST, Roster};
use super::outbox::Outbox;
use super::rest::{Rest, RestError};
use super::settings::{Identity, Secret, Settings};
use super::threads::Threads;
use crate::event::{Event, EventSink};
use lastword_client::RetryingClient;

/// Posts that wait to be dealt with; what comes beyond them is read from the channel.
const POSTS_MAX: usize = 1_000;
/// Clicks that wait to be served.
const INTERACTIONS_MAX: usize = 100;
/// Whoever has the token, as a name.
const OWN_NAME: &str = "me";
/// The broker's limit for what nobody took, and what it usually is.
const AGE_LIMIT: &str = "delivery_age_ms";
const AGE_USUAL_MS: u64 = 86_400_000;

/// Why a bridge could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DiscordBridgeError {
    /// The settings can't work.
    #[error("{0}")]
    Settings(String),
    /// The broker refuses for good, or was not there at the start.
    #[error(transparent)]
    Broker(#[from] ClientError),
    /// Discord refuses, or was not there at the start.
    #[error("{0}")]
    Discord(String),
}

/// How far what happens in the workspace is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    /// The broker was not heard yet.
    Not,
    /// What happened meanwhile is being shown.
    Begun,
    /// All that was in the log is shown.
    Live,
}

/// What the parts of a bridge share.
#[derive(Debug)]
pub(crate) struct BridgeContext {
    pub(crate) settings: Settings,
    pub(crate) roster: Roster,
    pub(crate) book: BridgeStore,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) threads: Threads,
    /// The broker, as the human of the bridge.
    pub(crate) broker: RetryingClient,
    /// The same, as humans with a token of their own.
    pub(crate) humans: BTreeMap<u64, RetryingClient>,
    pub(crate) guest: RetryingClient,
    pub(crate) takers: BTreeMap<String, Arc<Taker>>,
    /// The cards for what waits for a human.
    pub(crate) desk: CardQueue,
    /// Age at which a post asks nobody any more: the broker's own limit for what nobody took.
    pub(crate) age_max: Duration,
    /// Where the log ended when this bridge took its place: who takes it behind that is another.
    pub(crate) began: u64,
    /// How far events are followed.
    pub(crate) following: watch::Sender<Following>,
    /// Up to which position the log was shown.
    pub(crate) shown: watch::Sender<u64>,
    known: Mutex<Noted>,
}

/// What is remembered while the bridge runs.
#[derive(Debug, Default)]
struct Noted {
    rooms: BTreeSet<u64>,
    humans: BTreeSet<String>,
    /// Posts that come from Discord, of which the event is next.
    keyed: BTreeSet<(String, String)>,
}

impl BridgeContext {
    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_room(&self, channel: u64) -> bool {
        self.noted().rooms.contains(&channel)
    }

    pub(crate) fn note_room(&self, channel: u64) {
        self.noted().rooms.insert(channel);
    }

    pub(crate) fn is_human(&self, name: &str) -> bool {
        self.noted().humans.contains(name)
    }

    pub(crate) fn note_kind(&self, name: &str, human: bool) {
        let mut noted = self.noted();
        if human {
            noted.humans.insert(name.to_owned());
        } else {
            noted.humans.remove(name);
        }
    }

    /// Whether what somebody posts in a room may be on Discord already: it comes from there.
    pub(crate) fn posts_there(&self, name: &str) -> bool {
        name == GUEST || self.is_human(name) || self.roster.foreign(name).is_some()
    }

    /// The next post of this agent in this room comes from Discord.
    pub(crate) fn note_keyed(&self, room: Option<&str>, agent: Option<&str>) {
        if let (Some(room), Some(agent)) = (room, agent) {
            self.noted().keyed.insert((room.to_owned(), agent.to_owned()));
        }
    }

    pub(crate) fn take_keyed(&self, room: &str, agent: &str) -> bool {
        self.noted().keyed.remove(&(room.to_owned(), agent.to_owned()))
    }

    /// Whether the bridge takes part in a channel, or in that of a thread.
    pub(crate) async fn takes_part(&self, channel: u64) -> bool {
        let channels = &self.settings.channels;
        if is_inside(channels, channel, None) {
            return true;
        }
        let parent = self.threads.parent(channel).await.ok().flatten();
        is_inside(channels, channel, parent)
    }
}

/// A bridge that is signed in.
#[derive(Debug)]
pub struct Bridge {
    shared: Arc<BridgeContext>,
    report: EventSink,
}

impl Bridge {
    /// Signs in on both sides.
    ///
    /// # Errors
    /// The settings can't work; the broker or Discord refuses, or does not answer.
    pub async fn start(settings: Settings, report: EventSink) -> Result<Self, DiscordBridgeError> {
        settings.check().map_err(DiscordBridgeError::Settings)?;
        let broker = client(&settings, &settings.token, &report)?;
        if broker.client().agent(OWN_NAME).await?.kind != Kind::Human {
            let what = "the bridge needs a human's token: pass it with --token-file or token_file";
            return Err(DiscordBridgeError::Settings(what.to_owned()));
        }
        let book = BridgeStore::open(&settings.book)
            .map_err(|error| DiscordBridgeError::Settings(format!("{}: {error}", settings.book.display())))?;
        let desk = CardQueue::new(&book)
            .map_err(|error| DiscordBridgeError::Settings(format!("{}: {error}", settings.book.display())))?;
        let api = settings.api.as_deref();
        let signed_in = Rest::start(&settings.broker, api).await;
        let own = signed_in.map_err(|error| DiscordBridgeError::Discord(format!("the broker's bot: {error}")))?;
        let mut roster = Roster::new(own.user);
        let (mut agents, mut takers) = (BTreeMap::new(), BTreeMap::new());
        for bot in &settings.bots {
            no_human(&broker, &bot.agent).await?;
            let named = |error: RestError| DiscordBridgeError::Discord(format!("the bot of {}: {error}", bot.agent));
            match &bot.identity {
                Identity::Ours { token } => {
                    let rest = Rest::start(token, api).await.map_err(named)?;
                    registered(&broker, &bot.agent).await?;
                    known_once(&roster, rest.user, &bot.agent)?;
                    roster.add(rest.user, &bot.agent, true);
                    agents.insert(bot.agent.clone(), rest);
                }
                Identity::Theirs { user, token } => {
                    let token = match token {
                        Some(token) => token.clone(),
                        None => agent_token(&broker, &bot.agent).await?,
                    };
                    known_once(&roster, *user, &bot.agent)?;
                    roster.add(*user, &bot.agent, false);
                    let taker = client(&settings, &token, &report)?;
                    let whose = taker.client().agent(OWN_NAME).await?;
                    if whose.name != bot.agent || whose.kind == Kind::Human {
                        let what = format!("the lastword_token_file of {} is the token of {}", bot.agent, whose.name);
                        return Err(DiscordBridgeError::Settings(what));
                    }
                    takers.insert(bot.agent.clone(), Taker::new(taker));
                }
            }
        }
        let guest = client(&settings, &agent_token(&broker, GUEST).await?, &report)?;
        let began = broker.client().events(None).await?.position();
        let humans = speakers(&settings, &report)?;
        let age_max = age_max(&broker).await?;
        let outbox = Arc::new(Outbox { book: book.clone(), broker: own, agents, report: report.clone() });
        let threads = Threads::new(book.clone(), Arc::clone(&outbox));
        let known = Mutex::new(Noted { humans: humans_of(&broker).await?, ..Noted::default() });
        let shared = BridgeContext {
            settings,
            roster,
            book,
            outbox,
            threads,
            broker,
            humans,
            guest,
            takers,
            desk,
            age_max,
            began,
            following: watch::Sender::new(Following::Not),
            shown: watch::Sender::default(),
            known,
        };
        Ok(Self { shared: Arc::new(shared), report })
    }

    /// Serves until it is dropped.
    ///
    /// # Errors
    /// The broker or Discord refuses for good.
    pub async fn run(self) -> Result<(), DiscordBridgeError> {
        let Self { shared, report } = self;
        let (posts, heard) = mpsc::channel(POSTS_MAX);
        let (interactions, clicked) = mpsc::channel(INTERACTIONS_MAX);
        let (missed, behind) = watch::channel(0);
        let mut parts: JoinSet<DiscordBridgeError> = JoinSet::new();
        for taker in shared.takers.values() {
            let taker = Arc::clone(taker);
            parts.spawn(async move { taker.serve().await.into() });
        }
        parts.spawn({
            let shared = Arc::clone(&shared);
            async move { follow(shared).await.into() }
        });
        let mut following = shared.following.subscribe();
        let ready = async { following.wait_for(|following| *following != Following::Not).await.is_ok() };
        tokio::select! {
            _ready = ready => {}
            Some(ended) = parts.join_next() => return Err(over(ended)),
        }
        let intake = Intake::new(Arc::clone(&shared));
        intake.begin().await.map_err(DiscordBridgeError::Discord)?;
        let ears = Arc::new(Ears { posts, interactions, missed });
        // What is answered on Discord is about what was shown there: so all of that is shown first. Clicks and commands wait
        // for nothing.
        let mut following = shared.following.subscribe();
        parts.spawn(async move {
            let _live = following.wait_for(|following| *following == Following::Live).await.is_ok();
            DiscordBridgeError::Discord(intake.run(heard, behind).await)
        });
        parts.spawn(hearing(Arc::clone(&shared), shared.settings.broker.clone(), Role::Reader, &ears, &report));
        for bot in &shared.settings.bots {
            if let Identity::Ours { token } = &bot.identity {
                parts.spawn(hearing(Arc::clone(&shared), token.clone(), Role::Present, &ears, &report));
            }
        }
        parts.spawn({
            let shared = Arc::clone(&shared);
            async move { DiscordBridgeError::Discord(interactions::serve(shared, clicked).await) }
        });
        parts.spawn({
            let shared = Arc::clone(&shared);
            async move { CardQueue::serve(shared).await.into() }
        });
        parts.spawn({
            let shared = Arc::clone(&shared);
            async move {
                commands::register(&shared).await;
                std::future::pending().await
            }
        });
        let url = shared.broker.client().url().to_owned();
        report.emit(&Event::Ready { url, driver: "discord" });
        parts.join_next().await.map_or(Ok(()), |ended| Err(over(ended)))
    }
}

fn over(ended: Result<DiscordBridgeError, tokio::task::JoinError>) -> DiscordBridgeError {
    ended.unwrap_or_else(|error| DiscordBridgeError::Discord(format!("a part of the bridge was given up: {error}")))
}

/// One bot's connection to the gateway.
fn hearing(
    shared: Arc<BridgeContext>,
    token: Secret,
    role: Role,
    ears: &Arc<Ears>,
    report: &EventSink,
) -> impl Future<Output = DiscordBridgeError> + Send + use<> {
    let (ears, report) = (Arc::clone(ears), report.clone());
    async move {
        let url = shared.settings.gateway.clone();
        DiscordBridgeError::Discord(listen(&token, url.as_deref(), role, &ears, &report).await)
    }
}

fn client(settings: &Settings, token: &Secret, report: &EventSink) -> Result<RetryingClient, ClientError> {
    let events = report.clone();
    RetryingClient::new(&settings.url, token.reveal(), move |change| events.emit(&change.into()))
}

/// The broker, as each human with a token of its own.
fn speakers(settings: &Settings, report: &EventSink) -> Result<BTreeMap<u64, RetryingClient>, ClientError> {
    let tokens = settings.humans.iter().filter_map(|(user, token)| Some((*user, token.as_ref()?)));
    tokens.map(|(user, token)| Ok((user, client(settings, token, report)?))).collect()
}

async fn age_max(broker: &RetryingClient) -> Result<Duration, ClientError> {
    let limits = broker.client().limits().await?.items;
    let ms = limits.iter().find(|limit| limit.name == AGE_LIMIT).map_or(AGE_USUAL_MS, |limit| limit.value);
    Ok(Duration::from_millis(ms))
}

/// The names of those who are humans.
async fn humans_of(broker: &RetryingClient) -> Result<BTreeSet<String>, ClientError> {
    let everybody = broker.client().agents().await?.items;
    Ok(everybody.into_iter().filter(|one| one.kind == Kind::Human).map(|one| one.name).collect())
}

/// A bot never speaks as a human, whatever the settings call it.
async fn no_human(broker: &RetryingClient, name: &str) -> Result<(), DiscordBridgeError> {
    match broker.client().agent(name).await {
        Ok(known) if known.kind == Kind::Human => Err(DiscordBridgeError::Settings(format!(
            "{name} is a human, and a bot can't be one: register an agent for the bot"
        ))),
        Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => Ok(()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// One Discord user is one bot of one agent.
fn known_once(roster: &Roster, user: u64, agent: &str) -> Result<(), DiscordBridgeError> {
    match roster.get(user) {
        Some(member) => Err(DiscordBridgeError::Settings(format!(
            "{} and {agent} are the same bot: its user is {user}",
            member.agent
        ))),
        None => Ok(()),
    }
}

/// An agent whose bot is ours is run by somebody, who has its token.
async fn registered(broker: &RetryingClient, name: &str) -> Result<(), DiscordBridgeError> {
    match broker.client().agent(name).await {
        Ok(_) => Ok(()),
        Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => Err(
            DiscordBridgeError::Settings(format!("unknown agent {name}: register it with `lastword agent add {name}`")),
        ),
        Err(error) => Err(error.into()),
    }
}

/// A token of an agent that nobody else acts as: registered, or renewed.
async fn agent_token(broker: &RetryingClient, name: &str) -> Result<Secret, ClientError> {
    let new = NewAgent {
        name: name.to_owned(),
        actions: Vec::new(),
        groups: Vec::new(),
        kind: Kind::Agent,
        turns_max: 0,
        role: None,
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
