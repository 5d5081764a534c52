//! The runner: takes deliveries, and has each served.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::Delivery;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::acp;
use crate::event::{Event, EventSink};
use crate::run::{Agent, RunnerContext, reached, serve};
use crate::settings::{Driver, Settings, SettingsError};
use crate::watch::Watch;
use lastword_client::RetryingClient;

/// Time beyond the grace in which a runner that ends brings its last answers home.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How far a runner is in ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Working,
    /// It takes nothing more; what runs may end.
    Draining,
    /// What runs is ended.
    Ending,
}

/// Asks runners to end.
#[derive(Clone, Debug)]
pub struct Stopping(watch::Sender<Phase>);

impl Default for Stopping {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Working))
    }
}

impl Stopping {
    /// Nothing more is taken; what runs gets its grace to end. A second call ends it at once.
    pub fn stop(&self) {
        self.0.send_modify(|phase| {
            *phase = if *phase == Phase::Working { Phase::Draining } else { Phase::Ending };
        });
    }
}

/// Why a runner ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The settings can't work.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The broker refuses for good, or was not there at the start.
    #[error(transparent)]
    Broker(#[from] ClientError),
    /// The token is a human's, whose inbox is no agent's to take.
    #[error("this token is a human's, and a runner takes an agent's deliveries")]
    Human,
    /// The agent's process can't be used.
    #[error("{0}")]
    Agent(String),
}

/// A delivery on its way.
type Taking = Pin<Box<dyn Future<Output = Result<Delivery, RunnerError>> + Send>>;

/// A runner that can take deliveries.
pub struct Runner {
    shared: Arc<RunnerContext>,
    /// The broker's count of open turns, once the agent's name is known.
    turns_max: Option<usize>,
}

impl Runner {
    /// Checks everything that can be checked, and starts an agent that stays.
    ///
    /// # Errors
    /// The settings can't work, the broker or the agent does not answer.
    pub async fn start(
        mut settings: Settings,
        url: &str,
        token: &str,
        stopping: &Stopping,
        report: EventSink,
    ) -> Result<Self, RunnerError> {
        settings.check()?;
        settings.program = found(&settings)?;
        let events = report.clone();
        let broker = RetryingClient::new(url, token, move |change| events.emit(&change.into()))?;
        let numbers = broker.limits().await?;
        if broker.is_human().await? {
            return Err(RunnerError::Human);
        }
        let agent = match settings.driver {
            Driver::Command => Agent::Command,
            Driver::Acp => Agent::Acp(acp::Host::default()),
        };
        let phase = stopping.0.subscribe();
        let watch = Watch::default();
        let shared = Arc::new(RunnerContext { settings, broker, numbers, watch, report, agent, phase });
        if let Agent::Acp(host) = &shared.agent {
            host.start(&shared).await.map_err(RunnerError::Agent)?;
        }
        Ok(Self { shared, turns_max: None })
    }

    /// Serves until it is asked to stop.
    ///
    /// # Errors
    /// The broker refuses for good, or the agent's process ended and is not to be started again.
    pub async fn run(mut self) -> Result<(), RunnerError> {
        let shared = Arc::clone(&self.shared);
        let (connected, mut listening) = watch::channel(false);
        let mut watching = pin!(shared.watch.follow(&shared.broker, connected));
        let mut turns = JoinSet::new();
        let ended = {
            let mut serving = pin!(async {
                // An end that nobody hears of would let a run go on for nothing.
                let _listening = listening.wait_for(|up| *up).await.is_ok();
                self.serve_all(&mut turns).await
            });
            tokio::select! {
                ended = &mut serving => ended,
                refused = &mut watching => Err(refused.into()),
            }
        };
        let still = ended.is_ok() && !turns.is_empty();
        if still {
            shared.report.emit(&Event::Stopping { turns: turns.len() });
        }
        let time = shared.settings.grace.saturating_mul(3).saturating_add(LAST_WORDS);
        let rest = async { while turns.join_next().await.is_some() {} };
        tokio::select! {
            _ = timeout(time, rest), if still => {}
            _ = &mut watching, if still => {}
            else => {}
        }
        turns.shutdown().await;
        if let Agent::Acp(host) = &shared.agent {
            host.end(shared.settings.grace).await;
        }
        ended
    }

    async fn serve_all(&mut self, turns: &mut JoinSet<()>) -> Result<(), RunnerError> {
        let shared = Arc::clone(&self.shared);
        let (url, driver) = (shared.broker.client().url().to_owned(), shared.settings.driver.word());
        shared.report.emit(&Event::Ready { url, driver });
        let mut phase = shared.phase.clone();
        let mut taking: Option<Taking> = None;
        loop {
            if taking.is_none() && turns.len() < self.room() {
                taking = Some(Box::pin(next(Arc::clone(&shared))));
            }
            tokio::select! {
                () = reached(&mut phase, Phase::Draining) => return Ok(()),
                Some(served) = turns.join_next(), if !turns.is_empty() => {
                    if let Err(error) = served {
                        shared.report.emit(&Event::Warning { message: format!("a turn was given up: {error}") });
                    }
                }
                taken = taken(&mut taking) => {
                    taking = None;
                    self.begin(taken?, turns).await;
                }
            }
        }
    }

    /// How many turns may be open: one until the broker's number for this agent is known.
    fn room(&self) -> usize {
        self.turns_max.map_or(1, |max| max.min(self.shared.settings.concurrency))
    }

    async fn begin(&mut self, delivery: Delivery, turns: &mut JoinSet<()>) {
        let Some(turn) = delivery.turn.clone() else { return };
        if self.turns_max.is_none() {
            self.learn(&delivery.message.to).await;
        }
        turns.spawn(serve(Arc::clone(&self.shared), delivery, turn));
    }

    /// The broker's number of open turns for this agent; one where it can't be had.
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

/// The next delivery, once the agent is there to serve it.
async fn next(shared: Arc<RunnerContext>) -> Result<Delivery, RunnerError> {
    let Agent::Acp(host) = &shared.agent else { return Ok(shared.broker.take().await?) };
    loop {
        host.ready(&shared).await.map_err(RunnerError::Agent)?;
        tokio::select! {
            taken = shared.broker.take() => return Ok(taken?),
            // What a call that was cut had taken comes with the next.
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

/// The program's file, looked for as a shell would.
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
