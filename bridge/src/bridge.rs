//! The bridge: connects to the broker and to the platform, and runs its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lastword_client::ClientError;
use lastword_facts::fact::Kind;
use lastword_facts::names::OWN_NAME;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::actors::ActiveMembers;
use super::book::BridgeStore;
use super::bots::{Needs, agent_token, restored, returned, sign_in};
use super::cards::CardQueue;
use super::channels::ChannelNames;
use super::dialect::Dialect;
use super::follow::follow;
use super::foreign_bots::Taker;
use super::ids::{ChannelId, UserId};
use super::inbound::is_inside;
use super::intake::Intake;
use super::interactions;
use super::names::Roster;
use super::outbox::Outbox;
use super::people::enrol;
use super::platform::{Inlet, Platform, Poster};
use super::settings::{Bot, Identity, Secret, Settings};
use super::signs::Signs;
use super::threads::Threads;
use super::unserved::{self, Asked};
use crate::event::{Event, EventSink};
use lastword_client::RetryingClient;

/// Most posts queued; posts beyond that are read from their channel later.
const POSTS_MAX: usize = 1_000;
/// Most interactions queued.
const INTERACTIONS_MAX: usize = 100;
/// Most interactions queued of people who aren't listed; more are dropped.
const STRANGERS_MAX: usize = 20;
/// The broker's limit on a delivery's age, and its default.
const AGE_LIMIT: &str = "delivery_age_ms";
const AGE_USUAL_MS: u64 = 86_400_000;

/// Why a bridge could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
    /// The broker refuses for good, or was unreachable at the start.
    #[error(transparent)]
    Broker(#[from] ClientError),
    /// The platform refuses for good, or was unreachable at the start.
    #[error("{0}")]
    Platform(String),
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
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) dialect: &'static Dialect,
    pub(crate) roster: Roster,
    pub(crate) book: BridgeStore,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) threads: Threads,
    /// The broker, as the bridge's human.
    pub(crate) broker: RetryingClient,
    /// The broker, as each human with a token of their own, by user.
    pub(crate) humans: BTreeMap<UserId, RetryingClient>,
    /// The names of the workspace's humans: the bridge's own, and those with a token of their own, by user.
    pub(crate) me: String,
    pub(crate) names: BTreeMap<UserId, String>,
    /// The humans of the workspace that stand for members of the server.
    pub(crate) members: ActiveMembers,
    pub(crate) guest: RetryingClient,
    pub(crate) takers: BTreeMap<String, Arc<Taker>>,
    /// By agent: why its bot could not be signed in.
    pub(crate) out: BTreeMap<String, String>,
    /// The names of channels that posts link to.
    pub(crate) channels: ChannelNames,
    /// The reactions that say how far a request is.
    pub(crate) signs: Signs,
    /// The cards of held calls and questions.
    pub(crate) desk: CardQueue,
    /// Age beyond which a post asks for nothing: the broker's own limit on a delivery's age.
    pub(crate) age_max: Duration,
    /// The log's head when this bridge took over; a takeover behind it is by another bridge.
    pub(crate) began: u64,
    /// How far events are followed.
    pub(crate) following: watch::Sender<Following>,
    /// The requests whose agents may be unserved.
    pub(crate) asked: mpsc::UnboundedSender<Asked>,
    /// Incremented at each resume, and at the start.
    pub(crate) resumed: watch::Sender<u64>,
    /// The log position up to which events have been shown.
    pub(crate) shown: watch::Sender<u64>,
    known: Mutex<Noted>,
}

/// Facts kept in memory while the bridge runs.
#[derive(Debug, Default)]
struct Noted {
    rooms: BTreeSet<ChannelId>,
    humans: BTreeSet<String>,
    /// Room and agent of posts that came from the platform and whose `posted` event is next.
    keyed: BTreeSet<(String, String)>,
    /// Agents whose bots are out of service.
    lost: BTreeSet<String>,
}

impl BridgeContext {
    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_room(&self, channel: ChannelId) -> bool {
        self.noted().rooms.contains(&channel)
    }

    pub(crate) fn note_room(&self, channel: ChannelId) {
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

    /// Returns whether an agent's bot is out of service.
    pub(crate) fn is_lost(&self, agent: &str) -> bool {
        self.noted().lost.contains(agent)
    }

    /// Takes an agent's bot out of service.
    pub(crate) fn lose(&self, agent: &str) {
        self.noted().lost.insert(agent.to_owned());
    }

    /// Returns whether an agent's or human's post in a room may come from the platform, and so be there already.
    pub(crate) fn posts_there(&self, name: &str) -> bool {
        name == self.dialect.guest || self.is_human(name) || self.roster.foreign(name).is_some()
    }

    /// Notes that the agent's next post in this room came from the platform.
    pub(crate) fn note_keyed(&self, room: Option<&str>, agent: Option<&str>) {
        if let (Some(room), Some(agent)) = (room, agent) {
            self.noted().keyed.insert((room.to_owned(), agent.to_owned()));
        }
    }

    pub(crate) fn take_keyed(&self, room: &str, agent: &str) -> bool {
        self.noted().keyed.remove(&(room.to_owned(), agent.to_owned()))
    }

    /// Returns the channel of a thread; of a channel, itself.
    pub(crate) async fn home_of(&self, channel: ChannelId) -> ChannelId {
        if self.settings.channels.contains(&channel) {
            return channel;
        }
        self.threads.parent(channel).await.ok().flatten().unwrap_or(channel)
    }

    /// Returns whether the bridge takes part in a channel, or in the channel of a thread.
    pub(crate) async fn takes_part(&self, channel: ChannelId) -> bool {
        let channels = &self.settings.channels;
        if is_inside(channels, channel, None) {
            return true;
        }
        let parent = self.threads.parent(channel).await.ok().flatten();
        is_inside(channels, channel, parent)
    }
}

/// A bridge that is connected to the broker and to the platform.
#[derive(Debug)]
pub struct Bridge {
    shared: Arc<BridgeContext>,
    waiting: mpsc::UnboundedReceiver<Asked>,
    report: EventSink,
}

impl Bridge {
    /// Connects to the broker and to the platform, and registers or checks each bot's agent.
    ///
    /// # Errors
    /// The settings are invalid, or the broker or the platform refuses or doesn't answer.
    pub fn start(
        settings: Settings,
        platform: Arc<dyn Platform>,
        report: EventSink,
    ) -> BoxFuture<'static, Result<Self, BridgeError>> {
        // Boxed, so that this crate compiles what runs under it, and not each program again.
        Box::pin(Self::connect(settings, platform, report))
    }

    async fn connect(
        mut settings: Settings,
        platform: Arc<dyn Platform>,
        report: EventSink,
    ) -> Result<Self, BridgeError> {
        let dialect = platform.dialect();
        settings.check(dialect).map_err(BridgeError::Settings)?;
        let broker = client(&settings, &settings.token, &report)?;
        let me = own_name(&broker).await?;
        let unusable = |error: rusqlite::Error| BridgeError::Settings(format!("{}: {error}", settings.book.display()));
        let book = BridgeStore::open(&settings.book).map_err(unusable)?;
        let desk = CardQueue::new(&book).map_err(unusable)?;
        let signed_in = platform.sign_in(&Poster::Broker).await;
        let own = signed_in.map_err(|error| BridgeError::Platform(format!("the broker's bot: {error}")))?;
        let needs = Needs { settings: &settings, platform: &*platform, broker: &broker, report: &report };
        let signed = sign_in(&needs, &book, own).await?;
        // The guest's token is renewed before the head is read: the renewal ends any other bridge on this workspace,
        // and `began` separates its `rekeyed` event from a later one.
        let guest = client(&settings, &agent_token(&broker, dialect.guest).await?, &report)?;
        let began = broker.client().events(None).await?.position();
        let enrolled = enrol(&settings, &broker, &*platform, &book).await?;
        for (user, reason) in &enrolled.refused {
            settings.humans.remove(user);
            settings.unread.push((user.to_string(), reason.clone()));
            let message = format!("the person {user} has no name in the workspace and may do nothing. {reason}");
            report.emit(&Event::Warning { message });
        }
        let humans = speakers(&settings, &enrolled.tokens, &report)?;
        let names = names_of(&humans).await?;
        let age_max = age_max(&broker).await?;
        let agents = signed.ours;
        let outbox = Arc::new(Outbox {
            book: book.clone(),
            platform: Arc::clone(&platform),
            broker: own,
            agents,
            report: report.clone(),
        });
        let lost = signed.out.keys().cloned().collect();
        let known = Mutex::new(Noted { humans: humans_of(&broker).await?, lost, ..Noted::default() });
        let (asked, waiting) = mpsc::unbounded_channel();
        let shared = BridgeContext {
            settings,
            platform,
            dialect,
            roster: signed.roster,
            out: signed.out,
            threads: Threads::new(book.clone(), Arc::clone(&outbox)),
            book,
            outbox,
            broker,
            humans,
            me,
            names,
            members: ActiveMembers::default(),
            guest,
            takers: signed.takers,
            desk,
            channels: ChannelNames::default(),
            signs: Signs::default(),
            age_max,
            began,
            following: watch::Sender::new(Following::Not),
            asked,
            resumed: watch::Sender::new(1),
            shown: watch::Sender::default(),
            known,
        };
        Ok(Self { shared: Arc::new(shared), waiting, report })
    }

    /// Runs the bridge until it is dropped. Returns without an error if it must be started again, because a bot that
    /// was out of service can be signed in.
    ///
    /// # Errors
    /// The broker refuses for good, or the platform refuses the broker's own bot.
    pub fn run(self) -> BoxFuture<'static, Result<(), BridgeError>> {
        Box::pin(self.serve())
    }

    async fn serve(self) -> Result<(), BridgeError> {
        let Self { shared, waiting, report } = self;
        let (posts, received) = mpsc::channel(POSTS_MAX);
        let (interactions, clicked) = mpsc::channel(INTERACTIONS_MAX);
        let (missed, behind) = watch::channel(0);
        let mut listening = behind.clone();
        let mut parts: JoinSet<PartResult> = JoinSet::new();
        restored(&shared, &report);
        parts.spawn({
            let shared = Arc::clone(&shared);
            async move {
                unserved::serve(shared, waiting).await;
                Ok(())
            }
        });
        for taker in shared.takers.keys() {
            parts.spawn(serve_taker(Arc::clone(&shared), taker.clone(), report.clone()));
        }
        parts.spawn({
            let shared = Arc::clone(&shared);
            async move { Err(follow(shared).await.into()) }
        });
        let mut following = shared.following.subscribe();
        let ready = async { following.wait_for(|following| *following != Following::Not).await.is_ok() };
        tokio::select! {
            _ready = ready => {}
            Some(ended) = parts.join_next() => return over(ended),
        }
        // Before the first post is heard: `begin` takes a channel without handled posts for a new one.
        let intake = Intake::new(Arc::clone(&shared));
        intake.begin().await.map_err(BridgeError::Platform)?;
        let (strangers, others) = mpsc::channel(STRANGERS_MAX);
        let (humans, roles) = (ids(&shared.settings.humans), ids(&shared.settings.roles));
        let inlet = Inlet { posts, interactions, strangers, humans, roles, missed, report: report.clone() };
        let inlet = Arc::new(inlet);
        // Answers on the platform refer to the bridge's posts, so posts are read only once the whole log has been shown.
        // Interactions don't wait.
        let mut following = shared.following.subscribe();
        parts.spawn(async move {
            let _live = following.wait_for(|following| *following == Following::Live).await.is_ok();
            Err(BridgeError::Platform(intake.run(received, behind).await))
        });
        parts.spawn({
            let (platform, inlet) = (Arc::clone(&shared.platform), Arc::clone(&inlet));
            async move { Err(BridgeError::Platform(platform.listen(&Poster::Broker, &inlet).await)) }
        });
        for bot in shared.settings.bots.iter().filter(|bot| !shared.takers.contains_key(&bot.agent)) {
            parts.spawn(keep_present(Arc::clone(&shared), bot.clone(), Arc::clone(&inlet), report.clone()));
        }
        parts.spawn({
            let shared = Arc::clone(&shared);
            async move { Err(BridgeError::Platform(interactions::serve(shared, clicked, others).await)) }
        });
        parts.spawn({
            let shared = Arc::clone(&shared);
            async move { Err(CardQueue::serve(shared).await.into()) }
        });
        parts.spawn(offer_commands(Arc::clone(&shared)));
        // The platform has accepted the connection only once the session is ready.
        tokio::select! {
            _session = listening.wait_for(|sessions| *sessions > 0) => {}
            Some(ended) = parts.join_next() => return over(ended),
        }
        report.emit(&Event::Ready { url: shared.broker.client().url().to_owned(), driver: shared.dialect.name });
        parts.join_next().await.map_or(Ok(()), over)
    }
}

fn ids<K: Copy + Ord, T>(by_id: &BTreeMap<K, T>) -> BTreeSet<K> {
    by_id.keys().copied().collect()
}

/// How a part of the bridge ends: with an error, or because the bridge must be started again.
type PartResult = Result<(), BridgeError>;

fn over(ended: Result<PartResult, tokio::task::JoinError>) -> PartResult {
    ended.unwrap_or_else(|error| Err(BridgeError::Platform(format!("a part of the bridge was given up: {error}"))))
}

/// Keeps an agent's bot connected. If the platform refuses it, the bridge goes on without it until it can be signed
/// in.
async fn keep_present(shared: Arc<BridgeContext>, bot: Bot, inlet: Arc<Inlet>, report: EventSink) -> PartResult {
    let reason = match (shared.out.get(&bot.agent), &bot.identity) {
        (None, Identity::Ours) => shared.platform.listen(&Poster::Agent(bot.agent.clone()), &inlet).await,
        (known, _) => known.cloned().unwrap_or_default(),
    };
    returned(&shared, &bot, &reason, &report).await;
    Ok(())
}

/// Takes a foreign bot's deliveries. If the broker refuses its token, the bridge goes on without it.
async fn serve_taker(shared: Arc<BridgeContext>, agent: String, report: EventSink) -> PartResult {
    let found = shared.settings.bots.iter().find(|bot| bot.agent == agent);
    let (Some(taker), Some(bot)) = (shared.takers.get(&agent), found) else { return Ok(()) };
    let error = taker.serve().await;
    returned(&shared, bot, &error.to_string(), &report).await;
    Ok(())
}

/// Makes the platform's commands known. This part must not end: the first that ends also ends the bridge.
async fn offer_commands(shared: Arc<BridgeContext>) -> PartResult {
    shared.platform.offer_commands(&shared.settings.channels).await;
    std::future::pending().await
}

/// Returns the name of the human whose token the bridge has.
async fn own_name(broker: &RetryingClient) -> Result<String, BridgeError> {
    let me = broker.client().agent(OWN_NAME).await?;
    if me.kind != Kind::Human {
        let what = "the bridge needs a human's token: pass it with --token-file or token_file";
        return Err(BridgeError::Settings(what.to_owned()));
    }
    Ok(me.name)
}

pub(crate) fn client(settings: &Settings, token: &Secret, report: &EventSink) -> Result<RetryingClient, ClientError> {
    let events = report.clone();
    RetryingClient::new(&settings.broker_at, token.reveal(), move |change| events.emit(&change.into()))
}

/// Returns a client for each human with a token of their own.
fn speakers(
    settings: &Settings,
    enrolled: &BTreeMap<UserId, Secret>,
    report: &EventSink,
) -> Result<BTreeMap<UserId, RetryingClient>, ClientError> {
    let named = settings.humans.iter().filter_map(|(user, speaker)| Some((*user, speaker.token()?)));
    let tokens = named.chain(enrolled.iter().map(|(user, token)| (*user, token)));
    tokens.map(|(user, token)| Ok((user, client(settings, token, report)?))).collect()
}

/// Returns the humans' names. One whose token is refused has none, and is refused again when it speaks.
async fn names_of(humans: &BTreeMap<UserId, RetryingClient>) -> Result<BTreeMap<UserId, String>, ClientError> {
    let mut names = BTreeMap::new();
    for (user, human) in humans {
        match human.client().agent(OWN_NAME).await {
            Ok(known) => drop(names.insert(*user, known.name)),
            Err(ClientError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(names)
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
