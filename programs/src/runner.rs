//! The runner: takes deliveries and starts a run for each.

use std::collections::HashSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lastword_client::wire::Delivery;
use lastword_facts::fact::Kind;
use lastword_facts::names::OWN_NAME;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::acp;
use crate::event::{Event, EventSink};
use crate::guard::Guard;
use crate::private::PrivateFolder;
use crate::program::{self, AgentProgram};
use crate::run::{DriverHost, Phase, RunnerContext, reached, serve};
use crate::settings::{Driver, Settings, SettingsError};
use crate::watch::Watch;
use lastword_client::{Client, ClientError, Endpoint, RetryingClient, Token};

/// Time beyond the grace in which a stopping runner delivers its last answers.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A handle that stops every runner started with it.
#[derive(Clone, Debug)]
pub struct Stopping(watch::Sender<Phase>);

impl Default for Stopping {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Working))
    }
}

impl Stopping {
    /// Stops taking deliveries; open runs get the grace to finish. A second call ends them at once.
    pub fn stop(&self) {
        self.0.send_modify(|phase| {
            *phase = if *phase == Phase::Working { Phase::Draining } else { Phase::Ending };
        });
    }
}

/// Why a runner could not start, or ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The broker refuses for good, or was unreachable at the start.
    #[error(transparent)]
    Broker(#[from] ClientError),
    /// The token belongs to a human, whose inbox a runner must not take.
    #[error("this token is a human's, and a runner takes an agent's deliveries")]
    Human,
    /// The folder for the agent's token can't be made.
    #[error("no folder for the agent's token: {0}")]
    Folder(std::io::Error),
    /// The agent's process failed to start, or ended and must not be restarted.
    #[error("{0}")]
    Agent(String),
}

/// Time in which the broker has to take the reason of a failure.
const TELL: Duration = Duration::from_secs(5);

impl RunnerError {
    /// Tells the broker why the agent can't work, so that whoever asks it is told; not if another program serves it. Best
    /// effort: the broker may be away, and the error is returned all the same.
    pub async fn tell(&self, client: &Client, agent: &str) {
        if matches!(self, Self::Broker(_) | Self::Human) {
            return;
        }
        let known = timeout(TELL, client.agent(agent)).await;
        if known.is_ok_and(|known| known.is_ok_and(|known| !known.connected)) {
            tell(client, agent, self.to_string()).await;
        }
    }
}

/// Tells the broker why an agent can't work; an empty reason takes the last one back.
pub(crate) async fn tell(client: &Client, agent: &str, reason: String) {
    let _told = timeout(TELL, client.unavailable(agent, reason)).await;
}

/// A pending call for the next delivery.
type Taking = Pin<Box<dyn Future<Output = Result<Delivery, RunnerError>> + Send>>;

/// The turns that a runner serves.
#[derive(Default)]
struct Turns {
    /// Each ends with the id of its turn.
    runs: JoinSet<String>,
    served: HashSet<String>,
    /// Whether the broker gave one of them again: the agent's other turns are another client's, and nothing new can be
    /// taken until one ends.
    repeated: bool,
}

/// A runner that is connected and ready to take deliveries.
pub struct Runner {
    shared: Arc<RunnerContext>,
    /// The agent's `turns_max` at the broker; `None` until the first delivery names the agent.
    turns_max: Option<usize>,
}

impl Runner {
    /// Checks the settings, the token and the program, and starts the process of an ACP agent.
    ///
    /// # Errors
    /// The settings are invalid, the token is a human's, or the broker or the agent doesn't answer.
    pub fn start<'a>(
        settings: Settings,
        endpoint: &'a Endpoint,
        token: &'a str,
        stopping: &'a Stopping,
        report: EventSink,
    ) -> BoxFuture<'a, Result<Self, RunnerError>> {
        // Boxed, so that this crate compiles what runs under it, and not each program again.
        Box::pin(async move {
            let started = Self::connect(settings, endpoint, token, stopping, report).await;
            if let Err(error) = &started
                && let Ok(token) = Token::new(token)
                && let Ok(client) = Client::new(endpoint, Some(token))
            {
                error.tell(&client, OWN_NAME).await;
            }
            started
        })
    }

    async fn connect(
        mut settings: Settings,
        endpoint: &Endpoint,
        token: &str,
        stopping: &Stopping,
        report: EventSink,
    ) -> Result<Self, RunnerError> {
        settings.check()?;
        if settings.driver != Driver::A2a {
            settings.program = found(&settings)?;
            program::prepare(&mut settings);
        }
        if settings.unheld {
            let message = "runs unheld: the agent decides on its calls, and the broker holds none of them".to_owned();
            report.emit(&Event::Warning { message });
        } else if let Some(program) = program::edits_unasked(&settings) {
            report.emit(&Event::Warning { message: unclaimed(program) });
        }
        let events = report.clone();
        let broker = RetryingClient::new(endpoint, token, move |change| events.emit(&change.into()))?;
        let limits = broker.limits().await?;
        let me = broker.me().await?;
        if me.kind == Kind::Human {
            return Err(RunnerError::Human);
        }
        if me.clients > 0 {
            report.emit(&Event::Warning { message: other_client(&me.name) });
        }
        let host = match settings.driver {
            Driver::Command => DriverHost::Command,
            Driver::A2a => DriverHost::A2a,
            Driver::Acp => {
                let folder =
                    PrivateFolder::make(&std::env::temp_dir(), "lastword-run-").map_err(RunnerError::Folder)?;
                program::hold(&mut settings, &folder).map_err(RunnerError::Agent)?;
                DriverHost::Acp(Box::new(acp::Host::new(folder, token).map_err(RunnerError::Folder)?))
            }
        };
        let phase = stopping.0.subscribe();
        let watch = Watch::default();
        let (agent, guard) = (me.name, Guard::of_this_process(&settings.lastword));
        let shared = Arc::new(RunnerContext { settings, agent, broker, limits, watch, report, host, guard, phase });
        if let DriverHost::Acp(host) = &shared.host {
            host.start(&shared).await.map_err(RunnerError::Agent)?;
        }
        Ok(Self { shared, turns_max: None })
    }

    /// Serves deliveries until it is stopped.
    ///
    /// # Errors
    /// The broker refuses for good, or the agent's process ended and must not be restarted.
    pub fn run(self) -> BoxFuture<'static, Result<(), RunnerError>> {
        Box::pin(self.serve())
    }

    async fn serve(mut self) -> Result<(), RunnerError> {
        let shared = Arc::clone(&self.shared);
        let (connected, mut listening) = watch::channel(false);
        let mut watching = pin!(shared.watch.follow(&shared.broker, connected));
        let mut turns = Turns::default();
        let ended = {
            let mut serving = pin!(async {
                // Listen before the first delivery: a turn whose end goes unseen would keep its run going for nothing.
                let _listening = listening.wait_for(|up| *up).await.is_ok();
                self.serve_all(&mut turns).await
            });
            tokio::select! {
                ended = &mut serving => ended,
                refused = &mut watching => Err(refused.into()),
            }
        };
        let mut turns = turns.runs;
        let still = ended.is_ok() && !turns.is_empty();
        if still {
            shared.report.emit(&Event::Stopping { turns: turns.len() });
        }
        // At most a grace each to wait, to end the runs, and to end what they started, and time to deliver the answers.
        let time = shared.settings.grace.saturating_mul(3).saturating_add(LAST_WORDS);
        let rest = async { while turns.join_next().await.is_some() {} };
        tokio::select! {
            _ = timeout(time, rest), if still => {}
            // Polled on: a turn that is cancelled now must not be finished. Resolves only if the broker refuses.
            _ = &mut watching, if still => {}
            else => {}
        }
        // Aborts the runs that exceeded the time; a dropped run kills its process group.
        turns.shutdown().await;
        if let DriverHost::Acp(host) = &shared.host {
            host.end(shared.settings.grace).await;
        }
        if let Err(RunnerError::Agent(reason)) = &ended {
            tell(shared.broker.client(), OWN_NAME, reason.clone()).await;
        }
        ended
    }

    async fn serve_all(&mut self, turns: &mut Turns) -> Result<(), RunnerError> {
        let shared = Arc::clone(&self.shared);
        let (url, driver) = (shared.broker.client().url().to_owned(), shared.settings.driver.word());
        shared.report.emit(&Event::Ready { url, driver });
        let mut phase = shared.phase.clone();
        let mut taking: Option<Taking> = None;
        loop {
            if taking.is_none() && !turns.repeated && turns.runs.len() < self.room() {
                taking = Some(Box::pin(next(Arc::clone(&shared))));
            }
            tokio::select! {
                // Dropping a pending call loses nothing: what it may have taken is delivered again.
                () = reached(&mut phase, Phase::Draining) => return Ok(()),
                Some(served) = turns.runs.join_next(), if !turns.runs.is_empty() => {
                    turns.repeated = false;
                    match served {
                        Ok(turn) => drop(turns.served.remove(&turn)),
                        Err(error) => {
                            shared.report.emit(&Event::Warning { message: format!("a turn was given up: {error}") });
                        }
                    }
                }
                taken = taken(&mut taking) => {
                    taking = None;
                    self.begin(taken?, turns).await;
                }
            }
        }
    }

    /// Returns how many turns may be open: 1 until the broker's limit for this agent is known.
    fn room(&self) -> usize {
        self.turns_max.map_or(1, |max| max.min(self.shared.settings.concurrency))
    }

    async fn begin(&mut self, delivery: Delivery, turns: &mut Turns) {
        let Some(turn) = delivery.turn.clone() else { return };
        if !turns.served.insert(turn.id.clone()) {
            turns.repeated = true;
            return;
        }
        if self.turns_max.is_none() {
            self.learn(&delivery.message.to).await;
        }
        let (shared, id) = (Arc::clone(&self.shared), turn.id.clone());
        turns.runs.spawn(async move {
            serve(shared, delivery, turn).await;
            id
        });
    }

    /// Reads the broker's limit of open turns for this agent; 1 if the call fails.
    async fn learn(&mut self, name: &str) {
        let wanted = self.shared.settings.concurrency;
        if wanted == 1 {
            return;
        }
        let known = self.shared.broker.client().agent(name).await;
        let max = known.ok().and_then(|agent| usize::try_from(agent.turns_max).ok()).unwrap_or(1);
        if max < wanted {
            let message = format!("{name} may have {max} open turns, not {wanted}: a human's `--as {name}` raises it");
            self.shared.report.emit(&Event::Warning { message });
        }
        self.turns_max = Some(max);
    }
}

/// Says that another client serves the same agent (F1).
/// Says that a program's edits are not claimed, and what claims or catches them.
fn unclaimed(program: &AgentProgram) -> String {
    let name = program.name;
    format!(
        "{name} edits files unasked when it runs as a command, so its edits aren't claimed and may overwrite another \
         agent's; --driver acp claims them, and `lastword guard install` refuses their commit"
    )
}

fn other_client(agent: &str) -> String {
    format!("{agent} has another live client: each delivery goes to one of the two")
}

/// Takes the next delivery once the agent is ready to serve it.
async fn next(shared: Arc<RunnerContext>) -> Result<Delivery, RunnerError> {
    let DriverHost::Acp(host) = &shared.host else { return Ok(shared.broker.take().await?) };
    loop {
        host.ready(&shared).await.map_err(RunnerError::Agent)?;
        tokio::select! {
            taken = shared.broker.take() => return Ok(taken?),
            // The call is dropped, so what it may have taken comes again with the next call.
            () = host.gone() => {}
        }
    }
}

async fn taken(taking: &mut Option<Taking>) -> Result<Delivery, RunnerError> {
    match taking {
        Some(taking) => taking.await,
        None => std::future::pending().await,
    }
}

/// Resolves the program's file as a shell would: through `PATH`, or relative to the working directory.
fn found(settings: &Settings) -> Result<PathBuf, SettingsError> {
    let program = &settings.program;
    let path = if program.components().count() > 1 {
        Some(settings.cwd.join(program)).filter(|path| path.is_file())
    } else {
        let given = settings.env.get("PATH").map(Into::into);
        let path = given.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path: &PathBuf| is_program(path))
    };
    path.ok_or_else(|| SettingsError {
        message: format!("program not found: {}", program.display()),
        hint: "name one in PATH or by its path, after --",
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
