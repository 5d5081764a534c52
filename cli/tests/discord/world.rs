//! A fake Discord: REST interface v10 and gateway on a free port of this machine, with the faults of the real one.
//!
//! Time is virtual: snowflakes advance a millisecond each and by [`TestDiscord::pass`]; only rate limits and the three
//! seconds of an interaction are real.

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

/// Longest wait; no test needs nearly as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The state that tests and connections share.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<(Mutex<Discord>, Condvar)>);

impl Shared {
    /// Runs `act` on Discord's state and wakes the waiting conditions.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Discord) -> T) -> T {
        let (discord, changed) = &*self.0;
        // A test that failed while it held the lock has already reported that.
        let mut discord = discord.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let result = act(&mut discord);
        changed.notify_all();
        result
    }
}

/// A running fake Discord; it ends with the test.
#[derive(Debug)]
pub(crate) struct TestDiscord {
    shared: Shared,
    runtime: Option<Runtime>,
}

impl Drop for TestDiscord {
    fn drop(&mut self) {
        // Without waiting: a test may hold it inside its own runtime.
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

    /// Returns its REST address, as `http://127.0.0.1:PORT`.
    pub(crate) fn http(&self) -> String {
        self.with(|discord| format!("http://{}", discord.address))
    }

    /// Returns its gateway address, as `ws://127.0.0.1:PORT`.
    pub(crate) fn gateway(&self) -> String {
        self.with(|discord| format!("ws://{}", discord.address))
    }

    /// Reads or changes Discord's state.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Discord) -> T) -> T {
        self.shared.with(act)
    }

    /// Advances the virtual time.
    pub(crate) fn pass(&self, time: Duration) {
        self.with(|discord| discord.now_ms += u64::try_from(time.as_millis()).unwrap());
    }

    /// Waits until `condition` returns a value for Discord's state.
    pub(crate) fn wait<T>(&self, what: &str, condition: impl FnMut(&mut Discord) -> Option<T>) -> T {
        self.wait_for(PATIENCE, condition).unwrap_or_else(|| panic!("{what} never came: {:#?}", self.spoken()))
    }

    /// Like [`TestDiscord::wait`], with a time limit.
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

    /// Returns a channel's or thread's messages that everyone sees, oldest first.
    pub(crate) fn messages(&self, channel: Id) -> Vec<Message> {
        self.with(|discord| discord.in_channel(channel).into_iter().cloned().collect())
    }

    /// Returns a message in its current state.
    pub(crate) fn message(&self, id: Id) -> Message {
        self.with(|discord| discord.messages[&id].clone())
    }

    /// Waits for an author's message in a channel that contains this text.
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

    /// Waits until a bot is connected and receives messages.
    pub(crate) fn wait_connected(&self, bot: Id) {
        self.wait("a connection", |discord| discord.connected(bot).then_some(()));
    }

    /// Waits for the message that answers an interaction, even one that only its user sees.
    pub(crate) fn wait_answer(&self, interaction: Id) -> Message {
        self.wait("an answer", |discord| discord.messages.get(&discord.interactions[&interaction].original?).cloned())
    }

    /// Waits until an interaction is answered, even only with a form.
    pub(crate) fn wait_answered(&self, interaction: Id) -> Interaction {
        self.wait("an answer", |discord| {
            Some(&discord.interactions[&interaction]).filter(|i| i.answered.is_some()).cloned()
        })
    }

    /// Returns every REST call so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.with(|discord| discord.calls.clone())
    }

    /// Returns all messages as readable lines, for failure messages.
    pub(crate) fn spoken(&self) -> Vec<String> {
        self.with(|discord| {
            let place = |m: &Message| discord.channels.get(&m.channel).map_or("?", |c| c.name.as_str()).to_owned();
            discord.messages.values().map(|m| format!("#{} {}: {}", place(m), m.author.name, m.content)).collect()
        })
    }
}
