//! The agent's process and the connection to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentCapabilities, EnvVariable, HttpHeader, Implementation, InitializeRequest, McpServer, McpServerHttp,
    McpServerStdio, SessionId, SessionNotification, SessionUpdate,
};
use lastword_client::Trust;
use tokio::io::AsyncRead;
use tokio::process::Child;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Connection, Heard};
use super::updates::Route;
use crate::event::{Event, EventSink};
use crate::process::{self, Group};
use crate::program::{self, Acp, SessionToken};
use crate::run::RunnerContext;

/// Time limit of the `initialize` call.
const INITIALIZE: Duration = Duration::from_secs(60);
/// How long after a prompt its last updates may come.
const SETTLED: Duration = Duration::from_secs(2);
/// Most sessions without a prompt that are watched for work.
const IDLE_MAX: usize = 512;
/// The name of Lastword's MCP server in an agent's session.
const MCP_NAME: &str = "lastword";

/// The agent's process, running or ended.
pub(super) struct Process {
    link: Option<AgentConnection>,
    /// The number of this start; sessions of another start have to be loaded again.
    pub(super) start: u64,
    pub(super) routes: Arc<Routes>,
    /// The file with the agent's token.
    token_file: PathBuf,
    /// How the process ended; `None` while it runs.
    ended: watch::Receiver<Option<String>>,
    asked_to_end: Arc<Notify>,
    grace: watch::Sender<Duration>,
    /// The tasks that own the connection and the process; dropping them kills the process.
    tasks: JoinSet<()>,
}

/// The connection of a live process.
pub(super) struct AgentConnection {
    pub(super) connection: Connection,
    pub(super) capabilities: AgentCapabilities,
    pub(super) acp: Acp,
}

/// The sessions that have had a prompt.
#[derive(Default)]
pub(super) struct Routes(Mutex<BTreeMap<String, Use>>);

/// What a session is at.
enum Use {
    /// A prompt runs since then.
    Runs(Arc<Route>, Instant),
    /// No prompt has run since.
    Idle(Instant, Arc<After>),
}

/// The last prompt of an idle session.
struct After {
    turn: String,
    route: Arc<Route>,
}

/// A session whose agent works without an open prompt.
type Stray = (SessionId, Arc<After>);

impl Routes {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Use>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, session: &SessionId) -> Option<Arc<Route>> {
        match self.sessions().get(&*session.0)? {
            Use::Runs(route, _) => Some(Arc::clone(route)),
            Use::Idle(..) => None,
        }
    }

    /// Returns the prompt to which the tool calls of a session belong: its own; for a session that had none, such as a
    /// sub-agent's, the prompt that began last.
    fn find_for_call(&self, session: &SessionId) -> Option<Arc<Route>> {
        let sessions = self.sessions();
        if sessions.contains_key(&*session.0) {
            drop(sessions);
            return self.find(session);
        }
        let running = sessions.values().filter_map(|at| match at {
            Use::Runs(route, since) => Some((*since, route)),
            Use::Idle(..) => None,
        });
        running.max_by_key(|(since, _)| *since).map(|(_, route)| Arc::clone(route))
    }

    /// Takes what the agent says of its own accord.
    fn take(&self, heard: Heard, stray: &mpsc::Sender<Stray>) {
        match heard {
            Heard::Update(said) => {
                if let Some(session) = self.hear(said) {
                    // One that is waiting says the same.
                    let _queued = stray.try_send(session);
                }
            }
            // One that nobody takes is cancelled as it is dropped.
            Heard::Asked(request, responder) => {
                if let Some(route) = self.find_for_call(&request.session_id) {
                    route.ask(request, responder);
                }
            }
        }
    }

    /// Passes an update on to the session's prompt. Returns the session if its agent works and no prompt is open.
    fn hear(&self, said: SessionNotification) -> Option<Stray> {
        let calls = matches!(said.update, SessionUpdate::ToolCall(_) | SessionUpdate::ToolCallUpdate(_));
        let route = if calls { self.find_for_call(&said.session_id) } else { self.find(&said.session_id) };
        if let Some(route) = route {
            route.receive(said.update);
            return None;
        }
        let sessions = self.sessions();
        let Some(Use::Idle(since, after)) = sessions.get(&*said.session_id.0) else { return None };
        after.route.overhear(&said.update);
        let after = (since.elapsed() > SETTLED && is_work(&said.update)).then(|| Arc::clone(after));
        after.map(|after| (said.session_id, after))
    }

    /// Routes the session's updates until the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>, session: &SessionId, route: Arc<Route>, turn: &str) -> Routed {
        self.sessions().insert(session.0.to_string(), Use::Runs(Arc::clone(&route), Instant::now()));
        let after = Arc::new(After { turn: turn.to_owned(), route });
        Routed { routes: Arc::clone(self), session: session.0.to_string(), after }
    }
}

/// Returns whether an update says that the agent's model works.
const fn is_work(update: &SessionUpdate) -> bool {
    matches!(
        update,
        SessionUpdate::AgentMessageChunk(_) | SessionUpdate::AgentThoughtChunk(_) | SessionUpdate::ToolCall(_)
    )
}

/// Interrupts an agent that works in a session without an open prompt, such as by a goal or a monitor of its own: no stop
/// reaches it. What it used is charged to the grant of the turn before, and an agent that goes on is ended.
async fn end_stray_work(
    mut strays: mpsc::Receiver<Stray>,
    connection: Connection,
    broker: lastword_client::Client,
    report: EventSink,
    asked_to_end: Arc<Notify>,
    grace: watch::Receiver<Duration>,
) {
    let warn = |message: String| report.emit(&Event::Warning { message });
    let charge = async |after: &After| {
        let charged = broker.worked_outside(&after.turn, after.route.take_estimate().as_ref()).await;
        if let Err(error) = charged {
            warn(format!("the broker doesn't know of it: {error}"));
        }
    };
    while let Some((session, after)) = strays.recv().await {
        warn(format!("the agent works in the session {} without an open message; it is interrupted", session.0));
        connection.cancel(session.clone());
        let patience = *grace.borrow();
        sleep(patience).await;
        // What came until now was on its way.
        while strays.try_recv().is_ok() {}
        charge(&after).await;
        if let Ok(Some((session, after))) = timeout(patience.max(SETTLED), strays.recv()).await {
            charge(&after).await;
            warn(format!("the agent went on in the session {} after the interrupt; its process is ended", session.0));
            asked_to_end.notify_one();
            return;
        }
    }
}

/// A session whose updates are routed.
pub(super) struct Routed {
    routes: Arc<Routes>,
    session: String,
    after: Arc<After>,
}

impl Drop for Routed {
    fn drop(&mut self) {
        // It was charged with the turn.
        self.after.route.take_estimate();
        let mut sessions = self.routes.sessions();
        sessions.insert(std::mem::take(&mut self.session), Use::Idle(Instant::now(), Arc::clone(&self.after)));
        if sessions.len() > IDLE_MAX {
            let idle = sessions.iter().filter_map(|(name, at)| match at {
                Use::Idle(since, _) => Some((*since, name.clone())),
                Use::Runs(..) => None,
            });
            if let Some((_, oldest)) = idle.min() {
                sessions.remove(&oldest);
            }
        }
    }
}

impl Process {
    /// Starts the process and initializes the connection.
    ///
    /// # Errors
    /// The process can't be started, or isn't an ACP agent of protocol version 1.
    pub(super) async fn start(shared: &RunnerContext, start: u64, token_file: &Path) -> Result<Self, String> {
        let settings = &shared.settings;
        let mut command = process::command(settings);
        command.args(&settings.args);
        process::equip(&mut command, &shared.broker);
        // Lets everything that the process starts know which agent is at work.
        command.env("LASTWORD_AGENT", &shared.agent);
        let program = settings.program.display().to_string();
        let mut child = command.spawn().map_err(|error| format!("can't start {program}: {error}"))?;
        let pid = child.id().unwrap_or_default();
        let group = Group::of(&child, shared.guard);
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(format!("{program} has no input and output"));
        };
        let (ended, ending) = watch::channel(None);
        let grace = watch::Sender::new(settings.grace);
        let asked_to_end = Arc::new(Notify::new());
        let routes = Arc::new(Routes::default());
        let (connection, lines) = Connection::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(own(child, group, stderr, Arc::clone(&asked_to_end), grace.subscribe(), ended));
        let (stray, strays) = mpsc::channel(1);
        tasks.spawn(connection.clone().write(stdin, lines));
        let hearing = Arc::clone(&routes);
        tasks.spawn(connection.clone().read(stdout, move |heard| hearing.take(heard, &stray)));
        let token_file = token_file.to_owned();
        let mut process = Self { link: None, start, routes, token_file, ended: ending, asked_to_end, grace, tasks };
        let (report, asked_to_end) = (shared.report.clone(), Arc::clone(&process.asked_to_end));
        let (broker, grace) = (shared.broker.client().clone(), process.grace.subscribe());
        process.tasks.spawn(end_stray_work(strays, connection.clone(), broker, report, asked_to_end, grace));
        let capabilities = process.initialize(shared, &connection, pid).await?;
        process.link = Some(AgentConnection { connection, capabilities, acp: program::acp(settings) });
        Ok(process)
    }

    async fn initialize(
        &self,
        shared: &RunnerContext,
        connection: &Connection,
        pid: u32,
    ) -> Result<AgentCapabilities, String> {
        let us = Implementation::new("lastword", env!("CARGO_PKG_VERSION"));
        let request = InitializeRequest::new(ProtocolVersion::V1).client_info(us);
        let program = shared.settings.program.display();
        let answer = tokio::select! {
            answer = timeout(INITIALIZE, connection.call(&request)) => answer,
            reason = self.ended() => return Err(format!("{program} isn't an ACP agent: {reason}")),
        };
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            // An error often means that the process is ending; its exit says more than the error.
            Ok(Err(error)) => {
                let ended = timeout(process::DRAIN, self.ended()).await;
                return Err(format!("{program} isn't an ACP agent: {}", ended.unwrap_or_else(|_| error.message())));
            }
            Err(_) => {
                self.end(shared.settings.grace).await;
                return Err(format!("{program} said nothing within {} s", INITIALIZE.as_secs()));
            }
        };
        if answer.protocol_version != ProtocolVersion::V1 {
            self.end(shared.settings.grace).await;
            return Err(format!("{program} speaks version {:?} of ACP, not 1", answer.protocol_version));
        }
        let name = answer.agent_info.map(|info| format!("{} {}", info.name, info.version));
        shared.report.emit(&Event::AgentStarted { pid, name });
        Ok(answer.agent_capabilities)
    }

    /// Returns an already ended process, for one that failed to start.
    pub(super) fn failed(reason: String) -> Self {
        Self {
            link: None,
            start: 0,
            routes: Arc::default(),
            token_file: PathBuf::new(),
            ended: watch::channel(Some(reason)).1,
            asked_to_end: Arc::default(),
            grace: watch::Sender::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Returns the connection; `None` if the process failed to start.
    pub(super) const fn link(&self) -> Option<&AgentConnection> {
        self.link.as_ref()
    }

    /// Returns how the process ended, if it has.
    pub(super) fn ending(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Resolves with how the process ended, once it has.
    pub(super) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        let found = ended.wait_for(Option::is_some).await;
        found.ok().and_then(|reason| reason.clone()).unwrap_or_else(|| "it ended".to_owned())
    }

    /// Ends the process and its group.
    pub(super) async fn end(&self, grace: Duration) {
        self.grace.send_replace(grace);
        self.asked_to_end.notify_one();
        self.ended().await;
    }

    /// Returns Lastword's MCP server for a new session: over HTTP if the agent supports that and its program is known,
    /// else `lastword mcp`.
    pub(super) fn mcp(&self, shared: &RunnerContext) -> McpServer {
        let endpoint = shared.broker.client().endpoint();
        let http = self.link.as_ref().is_some_and(|link| link.capabilities.mcp_capabilities.http);
        let token = match self.link.as_ref().map_or(SessionToken::File, |link| link.acp.token) {
            SessionToken::Text => Some(shared.broker.token().reveal()),
            SessionToken::Variable => Some("${LASTWORD_TOKEN}"),
            SessionToken::File => None,
        };
        // The agent's own client knows the system's authorities alone.
        if let Some(token) = token.filter(|_| http && *endpoint.trust() == Trust::System) {
            let header = HttpHeader::new("Authorization", format!("Bearer {token}"));
            return McpServer::Http(
                McpServerHttp::new(MCP_NAME, format!("{}/mcp", endpoint.url())).headers(vec![header]),
            );
        }
        let args = std::iter::once("mcp".to_owned()).chain(endpoint.flags()).collect();
        let env = vec![match token {
            Some(token) => EnvVariable::new("LASTWORD_TOKEN", token),
            None => EnvVariable::new("LASTWORD_TOKEN_FILE", self.token_file.display().to_string()),
        }];
        McpServer::Stdio(McpServerStdio::new(MCP_NAME, &shared.settings.lastword).args(args).env(env))
    }
}

/// Owns the process until it has ended and its group with it.
async fn own(
    mut child: Child,
    group: Group,
    stderr: impl AsyncRead + Unpin + Send,
    asked_to_end: Arc<Notify>,
    grace: watch::Receiver<Duration>,
    ended: watch::Sender<Option<String>>,
) {
    let said = Mutex::new(String::new());
    let keep = |text: &str| text.clone_into(&mut said.lock().unwrap_or_else(PoisonError::into_inner));
    let mut telling = std::pin::pin!(process::tail(stderr, keep));
    let mut told = false;
    let status = loop {
        tokio::select! {
            // A process may close its standard error and keep running.
            () = &mut telling, if !told => told = true,
            status = child.wait() => {
                let time = *grace.borrow();
                group.end(time).await;
                break status;
            }
            () = asked_to_end.notified() => {
                let time = *grace.borrow();
                break process::end(&mut child, group, time).await;
            }
        }
    };
    if !told {
        // A process that left the group may hold the pipe open; what it has written by then is enough.
        let _over = timeout(process::DRAIN, telling).await;
    }
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ended.send_replace(Some(process::with_tail(&process::ending(&status), &said)));
}
