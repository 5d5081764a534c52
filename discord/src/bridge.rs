//! The bridge: connects to the broker and to Discord, and runs its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lastword_client::ClientError;
use lastword_client::wire::NewAgent;
use lastword_proto::Code;
use lastword_proto::fact::Kind;
use lastword_proto::names::OWN_NAME;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::book::BridgeStore;
use super::cards::CardQueue;
use super::commands;
use super::follow::follow;
use super::foreign_bots::Taker;
use super::gateway::{GatewayQueues, Role, listen};
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

/// Most posts queued; posts beyond that are read from their channel later.
const POSTS_MAX: usize = 1_000;
/// Most interactions queued.
const INTERACTIONS_MAX: usize = 100;
/// The broker's limit on a delivery's age, and its default.
const AGE_LIMIT: &str = "delivery_age_ms";
const AGE_USUAL_MS: u64 = 86_400_000;

/// Why a bridge could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DiscordBridgeError {
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
    /// The broker refuses for good, or was unreachable at the start.
    #[error(transparent)]
    Broker(#[from] ClientError),
    /// Discord refuses for good, or was unreachable at the start.
    #[error("{0}")]
    Discord(String),
}

/// How far the bridge has followed the broker's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    /// Not connected to the log yet.
    Not,
    /// Showing the events that happened while the bridge was down.
    Begun,
    /// Everything up to the log's head was shown; now following live events.
    Live,
}

/// State shared by the parts of a bridge.
#[derive(Debug)]
pub(crate) struct BridgeContext {
    pub(crate) settings: Settings,
    pub(crate) roster: Roster,
    pub(crate) book: BridgeStore,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) threads: Threads,
    /// The broker, as the bridge's human.
    pub(crate) broker: RetryingClient,
    /// The broker, as each human with a token of their own, by Discord user.
    pub(crate) humans: BTreeMap<u64, RetryingClient>,
    pub(crate) guest: RetryingClient,
    pub(crate) takers: BTreeMap<String, Arc<Taker>>,
    /// The cards of held calls and questions.
    pub(crate) desk: CardQueue,
    /// Age beyond which a post asks for nothing: the broker's own limit on a delivery's age.
    pub(crate) age_max: Duration,
    /// The log's head when this bridge took over; a takeover behind it is by another bridge.
    pub(crate) began: u64,
    /// How far events are followed.
    pub(crate) following: watch::Sender<Following>,
    /// The log position up to which events have been shown.
    pub(crate) shown: watch::Sender<u64>,
    known: Mutex<Noted>,
}

/// Facts kept in memory while the bridge runs.
#[derive(Debug, Default)]
struct Noted {
    rooms: BTreeSet<u64>,
    humans: BTreeSet<String>,
    /// Room and agent of posts that came from Discord and whose `posted` event is next.
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

    /// Returns whether an agent's or human's post in a room may come from Discord, and so be there already.
    pub(crate) fn posts_there(&self, name: &str) -> bool {
        name == GUEST || self.is_human(name) || self.roster.foreign(name).is_some()
    }

    /// Notes that the agent's next post in this room came from Discord.
    pub(crate) fn note_keyed(&self, room: Option<&str>, agent: Option<&str>) {
        if let (Some(room), Some(agent)) = (room, agent) {
            self.noted().keyed.insert((room.to_owned(), agent.to_owned()));
        }
    }

    pub(crate) fn take_keyed(&self, room: &str, agent: &str) -> bool {
        self.noted().keyed.remove(&(room.to_owned(), agent.to_owned()))
    }

    /// Returns whether the bridge takes part in a channel, or in the channel of a thread.
    pub(crate) async fn takes_part(&self, channel: u64) -> bool {
        let channels = &self.settings.channels;
        if is_inside(channels, channel, None) {
            return true;
        }
        let parent = self.threads.parent(channel).await.ok().flatten();
        is_inside(channels, channel, parent)
    }
}

/// A bridge that is connected to the broker and to Discord.
#[derive(Debug)]
pub struct Bridge {
    shared: Arc<BridgeContext>,
    report: EventSink,
}

impl Bridge {
    /// Connects to the broker and to Discord, and registers or checks each bot's agent.
    ///
    /// # Errors
    /// The settings are invalid, or the broker or Discord refuses or doesn't answer.
    pub fn start(settings: Settings, report: EventSink) -> BoxFuture<'static, Result<Self, DiscordBridgeError>> {
        // Boxed, so that this crate compiles what runs under it, and not each program again.
        Box::pin(Self::connect(settings, report))
    }

    async fn connect(settings: Settings, report: EventSink) -> Result<Self, DiscordBridgeError> {
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
        // The guest's token is renewed before the head is read: the renewal ends any other bridge on this workspace,
        // and `began` separates its `rekeyed` event from a later one.
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

    /// Runs the bridge until it is dropped.
    ///
    /// # Errors
    /// The broker or Discord refuses for good.
    pub fn run(self) -> BoxFuture<'static, Result<(), DiscordBridgeError>> {
        Box::pin(self.serve())
    }

    async fn serve(self) -> Result<(), DiscordBridgeError> {
        let Self { shared, report } = self;
        let (posts, received) = mpsc::channel(POSTS_MAX);
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
        // Before the first post is heard: `begin` takes a channel without handled posts for a new one.
        let intake = Intake::new(Arc::clone(&shared));
        intake.begin().await.map_err(DiscordBridgeError::Discord)?;
        let queues = Arc::new(GatewayQueues { posts, interactions, missed });
        // Answers on Discord refer to the bridge's posts, so posts are read only once the whole log has been shown.
        // Interactions don't wait.
        let mut following = shared.following.subscribe();
        parts.spawn(async move {
            let _live = following.wait_for(|following| *following == Following::Live).await.is_ok();
            DiscordBridgeError::Discord(intake.run(received, behind).await)
        });
        parts.spawn(keep_listening(
            Arc::clone(&shared),
            shared.settings.broker.clone(),
            Role::Reader,
            &queues,
            &report,
        ));
        for bot in &shared.settings.bots {
            if let Identity::Ours { token } = &bot.identity {
                parts.spawn(keep_listening(Arc::clone(&shared), token.clone(), Role::Present, &queues, &report));
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
                // This task must not end: the first part that ends also ends the bridge.
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

/// Runs one bot's connection to the gateway.
fn keep_listening(
    shared: Arc<BridgeContext>,
    token: Secret,
    role: Role,
    queues: &Arc<GatewayQueues>,
    report: &EventSink,
) -> impl Future<Output = DiscordBridgeError> + Send + use<> {
    let (queues, report) = (Arc::clone(queues), report.clone());
    async move {
        let url = shared.settings.gateway.clone();
        DiscordBridgeError::Discord(listen(&token, url.as_deref(), role, &queues, &report).await)
    }
}

fn client(settings: &Settings, token: &Secret, report: &EventSink) -> Result<RetryingClient, ClientError> {
    let events = report.clone();
    RetryingClient::new(&settings.broker_at, token.reveal(), move |change| events.emit(&change.into()))
}

/// Returns a client for each human with a token of their own.
fn speakers(settings: &Settings, report: &EventSink) -> Result<BTreeMap<u64, RetryingClient>, ClientError> {
    let tokens = settings.humans.iter().filter_map(|(user, token)| Some((*user, token.as_ref()?)));
    tokens.map(|(user, token)| Ok((user, client(settings, token, report)?))).collect()
}

async fn age_max(broker: &RetryingClient) -> Result<Duration, ClientError> {
    let limits = broker.client().limits().await?.items;
    let ms = limits.iter().find(|limit| limit.name == AGE_LIMIT).map_or(AGE_USUAL_MS, |limit| limit.value);
    Ok(Duration::from_millis(ms))
}

/// Returns the names of all humans of the workspace.
async fn humans_of(broker: &RetryingClient) -> Result<BTreeSet<String>, ClientError> {
    let everybody = broker.client().agents().await?.items;
    Ok(everybody.into_iter().filter(|one| one.kind == Kind::Human).map(|one| one.name).collect())
}

/// Refuses a bot that the settings name like a human: a bot must never act as one.
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

/// Refuses a Discord user that is listed for two agents.
fn known_once(roster: &Roster, user: u64, agent: &str) -> Result<(), DiscordBridgeError> {
    match roster.get(user) {
        Some(member) => Err(DiscordBridgeError::Settings(format!(
            "{} and {agent} are the same bot: its user is {user}",
            member.agent
        ))),
        None => Ok(()),
    }
}

/// Checks that an agent whose bot is ours is registered: its token belongs to the program that runs it.
async fn registered(broker: &RetryingClient, name: &str) -> Result<(), DiscordBridgeError> {
    match broker.client().agent(name).await {
        Ok(_) => Ok(()),
        Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => Err(
            DiscordBridgeError::Settings(format!("unknown agent {name}: register it with `lastword agent add {name}`")),
        ),
        Err(error) => Err(error.into()),
    }
}

/// Returns a new token for an agent that only the bridge acts as: registers it, or renews its token.
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
