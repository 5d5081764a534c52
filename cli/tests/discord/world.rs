//! A Discord of our own: REST interface v10 and gateway on a free port of this machine, with the troubles of the real one.
//!
//! Time is virtual: snowflakes advance a millisecond each and by [`TestDiscord::pass`]; only rate limits and the three seconds of
//! an interaction are real.

mod faults;
mod form;
mod gateway;
mod json;
mod model;
mod people;
mod posting;
mod rest;
mod trouble;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tokio::runtime::Runtime;

pub(crate) use faults::{Call, Mishap};
pub(crate) use model::{Channel, Discord, Id, Interaction, Message, intent, kind, may, time_ms};

/// Longest wait for anything; nothing here takes near as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the tests and the connections share.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<(Mutex<Discord>, Condvar)>);

impl Shared {
    /// Does something with Discord; whoever waits for a condition looks again.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Discord) -> T) -> T {
        let (discord, changed) = &*self.0;
        // A test that failed while it held the lock has said so itself.
        let mut discord = discord.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let result = act(&mut discord);
        changed.notify_all();
        result
    }
}

/// A running Discord; gone when the test ends.
#[derive(Debug)]
pub(crate) struct TestDiscord {
    shared: Shared,
    runtime: Option<Runtime>,
}

impl Drop for TestDiscord {
    fn drop(&mut self) {
        // Without waiting: a test may hold the world inside a runtime of its own.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl TestDiscord {
    /// Starts one with an empty guild.
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut discord = Discord::new();
        discord.address = listener.local_addr().unwrap().to_string();
        let shared = Shared(Arc::new((Mutex::new(discord), Condvar::new())));
        let router = rest::router(shared.clone());
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router).await
        });
        Self { shared, runtime: Some(runtime) }
    }

    /// Its REST interface, as `http://127.0.0.1:PORT`.
    pub(crate) fn http(&self) -> String {
        self.with(|discord| format!("http://{}", discord.address))
    }

    /// Its gateway, as `ws://127.0.0.1:PORT`.
    pub(crate) fn gateway(&self) -> String {
        self.with(|discord| format!("ws://{}", discord.address))
    }

    /// Looks at Discord, or changes it.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Discord) -> T) -> T {
        self.shared.with(act)
    }

    /// Time passes.
    pub(crate) fn pass(&self, time: Duration) {
        self.with(|discord| discord.now_ms += u64::try_from(time.as_millis()).unwrap());
    }

    /// Waits until Discord is so that this gives something.
    pub(crate) fn wait<T>(&self, what: &str, condition: impl FnMut(&mut Discord) -> Option<T>) -> T {
        self.wait_for(PATIENCE, condition).unwrap_or_else(|| panic!("{what} never came: {:#?}", self.spoken()))
    }

    /// The same, for so long at most.
    pub(crate) fn wait_for<T>(
        &self,
        most: Duration,
        mut condition: impl FnMut(&mut Discord) -> Option<T>,
    ) -> Option<T> {
        let (discord, changed) = &*self.shared.0;
        let lock = discord.lock().unwrap();
        let mut found = None;
        let unmet = |discord: &mut Discord| {
            found = condition(discord);
            found.is_none()
        };
        drop(changed.wait_timeout_while(lock, most, unmet).unwrap());
        found
    }

    /// The messages of a channel or a thread that everybody sees, oldest first.
    pub(crate) fn messages(&self, channel: Id) -> Vec<Message> {
        self.with(|discord| discord.in_channel(channel).into_iter().cloned().collect())
    }

    /// A message as it stands now.
    pub(crate) fn message(&self, id: Id) -> Message {
        self.with(|discord| discord.messages[&id].clone())
    }

    /// Waits for a message of an author in a channel that contains this text.
    pub(crate) fn wait_message(&self, channel: Id, author: Id, text: &str) -> Message {
        self.wait(&format!("“{text}” of {author}"), |discord| {
            let mut all = discord.in_channel(channel).into_iter();
            all.find(|m| m.author.id == author && m.content.contains(text)).cloned()
        })
    }

    /// Waits for the thread that is started from a message.
    pub(crate) fn wait_thread(&self, message: Id) -> Channel {
        self.wait("a thread", |discord| discord.thread_of(message).cloned())
    }

    /// Waits until a bot is connected, and hears messages.
    pub(crate) fn wait_connected(&self, bot: Id) {
        self.wait("a connection", |discord| discord.connected(bot).then_some(()));
    }

    /// Waits for the message that an interaction is answered with, also one that its user alone sees.
    pub(crate) fn wait_answer(&self, interaction: Id) -> Message {
        self.wait("an answer", |discord| discord.messages.get(&discord.interactions[&interaction].original?).cloned())
    }

    /// Waits until an interaction is answered, if only with a form.
    pub(crate) fn wait_answered(&self, interaction: Id) -> Interaction {
        self.wait("an answer", |discord| {
            Some(&discord.interactions[&interaction]).filter(|i| i.answered.is_some()).cloned()
        })
    }

    /// Every call of the REST interface so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.with(|discord| discord.calls.clone())
    }

    /// All that was said, as one reads it: for messages of failures.
    pub(crate) fn spoken(&self) -> Vec<String> {
        self.with(|discord| {
            let place = |m: &Message| discord.channels.get(&m.channel).map_or("?", |c| c.name.as_str()).to_owned();
            discord.messages.values().map(|m| format!("#{} {}: {}", place(m), m.author.name, m.content)).collect()
        })
    }
}
