//! The ACP driver: one long-lived process, one session per conversation, one prompt per delivery.

mod connection;
mod content;
mod exact;
mod mode;
mod permission;
mod process;
mod session;
mod updates;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use agent_client_protocol_schema::v1::{SessionId, SessionModeId};
use lastword_client::wire::Delivery;
use lastword_facts::MessageType;
use lastword_facts::names::OWN_NAME;
use tokio::sync::Mutex;
use tokio::time::sleep;

use self::process::Process;
use crate::event::Event;
use crate::private::PrivateFolder;
use crate::run::{Ended, Run, RunnerContext};
use crate::runner::tell;
use crate::settings::Restart;
use crate::watch::stopped;

/// Most sessions kept; the least recently used one that isn't in use is dropped first.
const SESSIONS_MAX: usize = 256;
/// Most deliveries whose conversation is remembered, so that an answer finds the session that asked.
const DELIVERIES_MAX: usize = 4096;
/// Most steps from an answer back through its causes to the request whose session serves it.
const CAUSES_MAX: usize = 64;
/// Longest pause before the process is restarted.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The agent's process, restarted when it ends, and its sessions.
pub(crate) struct Host {
    /// The folder with the agent's token, for `lastword mcp` in a session, and with what holds the program.
    _folder: PrivateFolder,
    token_file: PathBuf,
    /// Locked while the process starts, so that concurrent runs wait for one start instead of each starting one.
    process: Mutex<Current>,
    sessions: StdMutex<Sessions>,
}

#[derive(Default)]
struct Current {
    live: Option<Arc<Process>>,
    /// The number of starts, failed ones included; a session belongs to one start.
    starts: u64,
    /// Ends and failed starts since the last turn that went well; sets the pause before the next start.
    failures: u32,
}

#[derive(Default)]
struct Sessions {
    /// The sessions by conversation, each with the number of its last use.
    slots: BTreeMap<String, (u64, Arc<Mutex<Slot>>)>,
    uses: u64,
    /// The session that was opened at the start, for the first conversation.
    spare: Option<Slot>,
    /// By log position: each delivered message's id and the conversation whose session served it.
    delivered: BTreeMap<u64, (String, String)>,
}

/// A conversation's session. Locked while a prompt runs, because a session takes one prompt at a time.
#[derive(Default)]
struct Slot {
    id: Option<SessionId>,
    /// The process start in which the session was opened or loaded; in a later start the id has to be loaded again.
    start: u64,
    /// The session's total cost in USD so far, as the agent reports it.
    cost: f64,
    /// The mode in which the agent asks; `None` if it reports no modes or may run unheld.
    asking: Option<SessionModeId>,
    /// Opened at the start and not used yet.
    spare: bool,
}

impl Host {
    /// Returns a host whose process isn't started yet.
    pub(crate) fn new(folder: PrivateFolder, token: &str) -> io::Result<Self> {
        let token_file = folder.write("token", token)?;
        Ok(Self { _folder: folder, token_file, process: Mutex::default(), sessions: StdMutex::default() })
    }

    /// Starts the process for the first time, and opens a session: an agent that isn't logged in, or that has no mode in
    /// which it asks, fails now. A failure here is a fault of the settings, so it isn't retried.
    pub(crate) async fn start(&self, shared: &RunnerContext) -> Result<(), String> {
        let mut current = self.process.lock().await;
        current.starts += 1;
        let process = Process::start(shared, current.starts, &self.token_file).await?;
        let spare = session::spare(shared, &process).await?;
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).spare = Some(spare);
        current.live = Some(Arc::new(process));
        Ok(())
    }

    /// Returns the process, restarted if it has ended.
    ///
    /// # Errors
    /// The process ended and the settings forbid a restart.
    async fn live(&self, shared: &RunnerContext) -> Result<Arc<Process>, String> {
        let mut current = self.process.lock().await;
        loop {
            let reason = match current.live.take() {
                // The result of `Process::failed` has ended from the start, so a failed start takes this path, too:
                // it counts as a failure and the pause grows.
                Some(process) => match process.ending() {
                    None => {
                        current.live = Some(Arc::clone(&process));
                        return Ok(process);
                    }
                    Some(reason) => reason,
                },
                None => "it was ended".to_owned(),
            };
            current.failures = current.failures.saturating_add(1);
            let pause = pause(shared.settings.backoff, current.failures);
            let restart_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            if shared.settings.restart == Restart::Never {
                return Err(format!("the agent's process ended: {reason}"));
            }
            tell(shared.broker.client(), OWN_NAME, format!("the agent's process ended: {reason}")).await;
            shared.report.emit(&Event::AgentEnded { reason, restart_in_ms });
            sleep(pause).await;
            current.starts += 1;
            match Process::start(shared, current.starts, &self.token_file).await {
                Ok(process) => {
                    current.live = Some(Arc::new(process));
                    tell(shared.broker.client(), OWN_NAME, String::new()).await;
                }
                // Kept as an ended process instead of returned: only `Restart::Never` gives up.
                Err(reason) => current.live = Some(Arc::new(Process::failed(reason))),
            }
        }
    }

    /// Resolves once the process can take a prompt.
    ///
    /// # Errors
    /// The same as [`Host::live`].
    pub(crate) async fn ready(&self, shared: &RunnerContext) -> Result<(), String> {
        self.live(shared).await.map(drop)
    }

    /// Resolves once the current process has ended; at once if there is none.
    pub(crate) async fn gone(&self) {
        let live = self.process.lock().await.live.clone();
        if let Some(process) = live {
            process.ended().await;
        }
    }

    /// Ends the process and its group: SIGTERM, then SIGKILL after `grace`.
    pub(crate) async fn end(&self, grace: Duration) {
        if let Some(process) = self.process.lock().await.live.take() {
            process.end(grace).await;
        }
    }

    /// Runs the agent for one delivery as a prompt of its conversation's session.
    pub(crate) async fn run(&self, shared: &RunnerContext, run: &mut Run) -> Ended {
        let process = tokio::select! {
            process = self.live(shared) => process,
            // The caller words the failure from the reason to stop.
            _ = stopped(&mut run.run_status) => return Ended::default(),
        };
        let process = match process {
            Ok(process) => process,
            Err(reason) => return Ended::failed(reason),
        };
        let conversation = self.conversation(shared, &run.delivery).await;
        let slot = self.slot(&conversation);
        let mut run_status = run.run_status.clone();
        let mut slot = tokio::select! {
            slot = slot.lock_owned() => slot,
            _ = stopped(&mut run_status) => return Ended::default(),
        };
        let ended = session::prompt(shared, &process, &mut slot, run).await;
        // Only a turn that the agent ended well resets the pause; otherwise an agent that crashes at each prompt would
        // restart without a pause.
        if process.ending().is_none() && ended.status.is_none() {
            self.process.lock().await.failures = 0;
        }
        ended
    }

    /// Returns the conversation whose session serves a delivery: a request's own; for an answer that of the task that
    /// asked.
    async fn conversation(&self, shared: &RunnerContext, delivery: &Delivery) -> String {
        let message = &delivery.message;
        let mut found = message.reference.clone();
        if message.kind == MessageType::Response {
            found = self.asking(shared, delivery).await.unwrap_or(found);
        }
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        // Keys are log positions, so the first entry is the oldest delivery.
        if sessions.delivered.len() >= DELIVERIES_MAX {
            sessions.delivered.pop_first();
        }
        sessions.delivered.insert(message.seq, (message.id.clone(), found.clone()));
        found
    }

    /// Follows an answer back to the request it answers, then to the delivery in whose turn that was sent, and from
    /// there to the conversation. `None` if a step is unknown or the chain exceeds `CAUSES_MAX`.
    async fn asking(&self, shared: &RunnerContext, delivery: &Delivery) -> Option<String> {
        let client = &shared.broker.client();
        let mut message = delivery.message.clone();
        for _ in 0..CAUSES_MAX {
            if message.kind != MessageType::Response {
                return Some(message.reference);
            }
            let asked = client.message(message.in_reply_to.as_ref()?).await.ok()?;
            let cause = asked.cause?;
            if let Some(known) = self.known(&cause) {
                return Some(known);
            }
            message = client.message(&cause).await.ok()?;
        }
        None
    }

    fn known(&self, message: &str) -> Option<String> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, conversation) = sessions.delivered.values().find(|(id, _)| id == message)?;
        Some(conversation.clone())
    }

    fn slot(&self, conversation: &str) -> Arc<Mutex<Slot>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.uses += 1;
        let uses = sessions.uses;
        if sessions.slots.len() >= SESSIONS_MAX && !sessions.slots.contains_key(conversation) {
            // A strong count of 1 means that no run holds the slot; a session in use is never dropped.
            let idle = sessions.slots.iter().filter(|(_, (_, slot))| Arc::strong_count(slot) == 1);
            if let Some(oldest) = idle.min_by_key(|(_, (used, _))| *used).map(|(name, _)| name.clone()) {
                sessions.slots.remove(&oldest);
            }
        }
        let spare = if sessions.slots.contains_key(conversation) { None } else { sessions.spare.take() };
        let slot = sessions.slots.entry(conversation.to_owned()).or_default();
        if let Some(spare) = spare {
            slot.1 = Arc::new(Mutex::new(spare));
        }
        slot.0 = uses;
        Arc::clone(&slot.1)
    }
}

/// Returns the pause before a start after this many consecutive failures: doubled each time, at most `PAUSE_MAX`.
fn pause(least: Duration, failures: u32) -> Duration {
    least.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_before_a_start_doubles_and_has_a_maximum() {
        let pauses: Vec<u64> = (1..=8).map(|failures| pause(Duration::from_secs(1), failures).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn the_session_used_longest_ago_is_forgotten_first_unless_it_is_in_use() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-test-").unwrap();
        let host = Host::new(folder, "x").unwrap();
        let held = host.slot("E-0");
        for n in 1..=SESSIONS_MAX {
            host.slot(&format!("E-{n}"));
        }
        let sessions = host.sessions.lock().unwrap();
        assert_eq!(sessions.slots.len(), SESSIONS_MAX);
        assert!(sessions.slots.contains_key("E-0") && !sessions.slots.contains_key("E-1"));
        drop(held);
    }
}
