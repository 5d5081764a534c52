//! Blocking reads of the log and the read model, off the runtime's threads.
//!
//! Reads for humans, for agents and for the server itself have threads of their own, and few: each needs a connection
//! to a database file, and many reads at once only slow each other down. Those for agents have a lower priority.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lastword_store::ReadError;
use tokio::sync::{Semaphore, oneshot};

use crate::handover::handed_over;
use crate::priority;

/// Reads of humans at a time.
const HUMANS_MAX: usize = 4;
/// Reads of the server itself at a time.
const SERVER_MAX: usize = 4;
/// Reads of agents at a time.
const AGENTS_MAX: usize = 2;

static HUMANS: Semaphore = Semaphore::const_new(HUMANS_MAX);
static SERVER: Semaphore = Semaphore::const_new(SERVER_MAX);
static AGENTS: OnceLock<Option<Sender<Job>>> = OnceLock::new();

type Job = Box<dyn FnOnce() + Send>;

/// For whom a task reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadLane {
    /// For the server itself.
    #[default]
    Server,
    /// For a human.
    Humans,
    /// For an agent.
    Agents,
}

tokio::task_local! {
    static LANE: Cell<ReadLane>;
}

impl ReadLane {
    /// Returns the lane of a caller.
    #[must_use]
    pub const fn of(human: bool) -> Self {
        if human { Self::Humans } else { Self::Agents }
    }

    /// Runs `work`, whose reads take this lane until [`ReadLane::enter`] names another.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        LANE.scope(Cell::new(self), work)
    }

    /// Lets the reads of the current task take this lane from here on. Outside of a scope this changes nothing.
    pub fn enter(self) {
        let _scoped = LANE.try_with(|lane| lane.set(self)).is_ok();
    }

    fn current() -> Self {
        LANE.try_with(Cell::get).unwrap_or_default()
    }
}

/// Runs a blocking read on a thread of the current task's lane.
///
/// # Errors
/// The error of `read`, or the thread that ran it ended.
pub async fn off_thread<T, F>(read: F) -> Result<T, ReadError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ReadError> + Send + 'static,
{
    let (put, found) = handed_over();
    run(Box::new(move || put.set(read()))).await?;
    found.take().unwrap_or_else(|| Err(ended()))
}

/// Runs a job on a thread of the current task's lane. Compiled once, for reads of all types.
async fn run(job: Job) -> Result<(), ReadError> {
    let gone = |error: &dyn std::fmt::Display| ReadError::Unavailable { reason: error.to_string() };
    let places = match ReadLane::current() {
        ReadLane::Agents => match AGENTS.get_or_init(start) {
            Some(jobs) => return on(jobs, job).await,
            None => &SERVER,
        },
        ReadLane::Humans => &HUMANS,
        ReadLane::Server => &SERVER,
    };
    let _place = places.acquire().await.map_err(|error| gone(&error))?;
    tokio::task::spawn_blocking(job).await.map_err(|error| gone(&error))
}

/// Runs a job on one of the threads for agents.
async fn on(jobs: &Sender<Job>, job: Job) -> Result<(), ReadError> {
    let (send, receive) = oneshot::channel();
    let job = move || {
        // Its caller may have left while it waited.
        if !send.is_closed() {
            job();
            let _left = send.send(()).is_err();
        }
    };
    jobs.send(Box::new(job)).map_err(|_| ended())?;
    receive.await.map_err(|_| ended())
}

fn ended() -> ReadError {
    ReadError::Unavailable { reason: "the thread that reads has ended".to_owned() }
}

/// Starts the threads for agents; `None` if the system has none.
fn start() -> Option<Sender<Job>> {
    let (send, receive) = channel();
    let receive = Arc::new(Mutex::new(receive));
    let started: io::Result<Vec<_>> = (0..AGENTS_MAX).map(|_| spawn(Arc::clone(&receive))).collect();
    match started {
        Ok(_) => Some(send),
        Err(error) => {
            tracing::warn!(%error, "reads of agents have no threads of their own");
            None
        }
    }
}

fn spawn(jobs: Arc<Mutex<Receiver<Job>>>) -> io::Result<()> {
    let run = move || {
        priority::lower(priority::FOR_AGENTS);
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = job else { return };
            // A read that panics is its caller's error, and no other's.
            let _panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err();
        }
    };
    std::thread::Builder::new().name("agents' reads".into()).spawn(run).map(|_| ())
}
