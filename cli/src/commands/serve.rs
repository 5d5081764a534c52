//! `lastword serve`: runs the server.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lastword_broker::BrokerFailure;
use lastword_client::Endpoint;
use lastword_facts::ids::AgentId;
use lastword_server::{AUTH_FAILURES_MAX, BasePath, Config, Server, StartError, Tls, WorkspaceSettings};
use lastword_telemetry::LogLayer;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{Context, bound, cluster};
use crate::config::{CONFIG_FILE, LISTEN, Settings};
use crate::editable_config::ConfigFile;
use crate::failure::Failure;
use crate::notify;
use crate::out::Out;
use crate::quantity::duration;
use crate::service;
use crate::session::{FILE_SERVER, keep_to_itself, kept_trust, read_token};
use crate::team::{Member, Team};
use crate::telemetry::TelemetryTable;
use crate::tls::{TlsMode, certificate};
use crate::token_source::TokenSource;

/// The file that keeps the address of the last server, in the data directory.
const FILE_ADDRESS: &str = "address";
/// Shortest and longest pause between two looks whether an idle server is used.
const IDLE_CHECK: Duration = Duration::from_millis(20);
const IDLE_CHECK_MAX: Duration = Duration::from_secs(60);
/// How long threads that are still at work may take to end.
const END_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on; port 0 picks a free port [default: where it listened last, or 127.0.0.1:7171].
    #[arg(long, value_name = "ADDRESS", env = "LASTWORD_LISTEN", hide_env_values = true)]
    listen: Option<String>,
    /// Host name that clients may use besides IP addresses and localhost; repeatable.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Path under which a reverse proxy serves the console and the API, such as /lw.
    #[arg(long, value_name = "PATH", value_parser = |text: &str| BasePath::try_from(text.to_owned()))]
    path: Option<BasePath>,
    /// Certificate for TLS in PEM, followed by those that lead to its authority; read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "TLS")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM, without a passphrase.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    tls_key: Option<PathBuf>,
    /// TLS with a certificate that is made once in the data directory; clients on other machines name its fingerprint with
    /// --tls-pin.
    #[arg(long, value_name = "MODE", conflicts_with_all = ["tls_cert", "tls_key"], help_heading = "TLS")]
    tls: Option<TlsMode>,
    /// Listen beyond this machine without TLS: tokens and messages can be read in transit.
    #[arg(long)]
    insecure_http: bool,
    /// Replace the operator's token, after it was lost or exposed.
    #[arg(long)]
    renew_operator_token: bool,
    /// Also run each [[agent]] of lastword.toml.
    #[arg(long, conflicts_with = "servers")]
    with_agents: bool,
    /// End once no agent has been connected and nothing has happened for this long. A server with schedules goes on.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with_all = ["servers", "with_agents"])]
    idle: Option<Duration>,
    #[command(flatten)]
    node: cluster::NodeArgs,
}

pub(crate) fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    bound::check(&cx.settings.limits)?;
    if args.with_agents && cx.settings.team.is_empty() {
        return Err(Failure::usage("the configuration has no [[agent]]")
            .hint("add [[agent]] with name and command to lastword.toml, or omit --with-agents"));
    }
    let team: &[Member] = if args.with_agents { &cx.settings.team } else { &[] };
    if args.with_agents {
        keep_to_itself()?;
    } else if !cx.settings.team.is_empty() {
        eprintln!("each [[agent]] of the configuration is left to `lastword run`: --with-agents runs them here");
    }
    let (idle, insecure) = (args.idle, args.insecure_http);
    let (mut config, node) = config(args, cx)?;
    log_to_stderr(&cx.out, cx.settings.telemetry.as_ref().is_some_and(TelemetryTable::exports_logs));
    warn_of_open_directory(&cx.settings.data);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::unavailable)?;
    if node.servers.is_empty() {
        let file = cx.settings.file.clone().unwrap_or_else(|| cx.environment.team.join(CONFIG_FILE));
        config.settings.config = Some(Arc::new(ConfigFile::at(&file)?));
        return runtime.block_on(serve(config, team, idle, cx));
    }
    let served = runtime.block_on(cluster::serve(config, node, insecure, cx));
    // A thread may wait for NATS, and the process doesn't.
    runtime.shutdown_timeout(END_MAX);
    served
}

/// Warns of a data directory that others may read: the files in it are private, but not those that a person adds.
fn warn_of_open_directory(data: &Path) {
    let mode = data.metadata().map_or(0, |found| found.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        eprintln!("warning: {} has mode {mode:o}, so that others may look into it: chmod 700 it", data.display());
    }
}

/// Returns where the server of this data directory listened last: open sessions and configurations name that address.
fn last_address(data: &Path) -> Option<String> {
    fs::read_to_string(data.join(FILE_ADDRESS)).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn config(args: Args, cx: &Context) -> Result<(Config, cluster::NodeArgs), Failure> {
    let named = args.listen.or_else(|| cx.settings.listen.clone());
    let text = named.or_else(|| last_address(&cx.settings.data)).unwrap_or_else(|| LISTEN.to_owned());
    let listen: SocketAddr = text.parse().map_err(|_| {
        Failure::usage(format!("{text:?} isn't an address and port")).hint("for example 127.0.0.1:7171")
    })?;
    // The command line replaces what the configuration says of the certificate.
    let tls = certificate(args.tls, args.tls_cert, args.tls_key)?.or_else(|| cx.settings.tls.clone());
    if !listen.ip().is_loopback() && tls.is_none() && !args.insecure_http {
        return Err(Failure::usage(format!("{listen} is reachable from other machines, and has no TLS"))
            .hint("serve with --tls auto or with a certificate (--tls-cert, --tls-key), or accept the risk with --insecure-http"));
    }
    let mut config = Config { listen, tls, ..of_settings(&cx.settings, args.path)? };
    config.settings.hosts.extend(args.hosts);
    config.settings.renew_operator_token = args.renew_operator_token;
    Ok((config, args.node))
}

/// Returns the server's configuration as far as the settings decide it, under this path if one is named.
pub(super) fn of_settings(settings: &Settings, path: Option<BasePath>) -> Result<Config, Failure> {
    let path = path.unwrap_or_else(|| settings.path.clone());
    let (console, host) = settings.console.settings()?;
    let workspace = WorkspaceSettings {
        limits: settings.limits.clone(),
        policy: settings.policy.clone(),
        archive: settings.archive,
        auth_failures_max: settings.auth_failures_max.unwrap_or(AUTH_FAILURES_MAX),
        seats: settings.seats.clone(),
        claims: settings.claims.clone(),
        set_at: settings.set_at.clone(),
        notify: notify::channels(&settings.notify)?,
        schedules: settings.schedules.clone(),
        oidc: settings.oidc.as_ref().map(|table| table.settings(&path)).transpose()?,
        console,
        hosts: settings.hosts.iter().cloned().chain(host.map(str::to_owned)).collect(),
        path,
        checkpoint_every_facts: settings.checkpoint_every_facts,
        traces: settings.telemetry.as_ref().map(TelemetryTable::traces).unwrap_or_default(),
        companions: settings.telemetry.iter().map(TelemetryTable::companion).collect::<Result<_, _>>()?,
        ..WorkspaceSettings::default()
    };
    let mounts = vec![lastword_mcp::mount(), lastword_a2a::mount(settings.a2a.clone())];
    let pages = lastword_console::pages();
    Ok(Config { mounts, pages, settings: workspace, ..Config::local(&settings.data) })
}

/// Sends logs to standard error, so that the first line on standard output is the server's address, and keeps them for
/// an exporter if one is to have them.
pub(super) fn log_to_stderr(out: &Out, exports: bool) {
    let wanted = crate::environment::variable("LASTWORD_LOG").and_then(|text| text.parse::<Targets>().ok());
    let mut filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    // `rmcp` logs whole messages with their turn tokens. The Discord libraries log paths that hold the token of an
    // interaction. The client library of NATS logs passwords.
    for library in ["rmcp", "twilight_http", "twilight_http_ratelimiting", "async_nats::connection"] {
        filter = filter.with_target(library, LevelFilter::OFF);
    }
    let log = tracing_subscriber::registry().with(filter).with(exports.then_some(LogLayer));
    let lines = fmt::layer().with_writer(io::stderr);
    if out.is_json() { log.with(lines.json()).init() } else { log.with(lines).init() }
}

async fn serve(config: Config, members: &[Member], idle: Option<Duration>, cx: &Context) -> Result<(), Failure> {
    let data = config.data_dir.clone();
    let own = config.tls == Some(Tls::Auto);
    // Before the first line is printed: its reader may send a signal at once.
    let mut end = EndSignals::listen()?;
    let server = Server::start(config).await?;
    let url = server.url();
    let note = Note::write(&server, &data, &server.local_url())?;
    let code = server.sign_in_code().map_err(Failure::unavailable)?;
    let fingerprint = server.fingerprint();
    let mut listening = json!({ "listening": url, "operator_token_file": server.operator_token_file() });
    listening["checkpoint_key"] = json!(server.checkpoint_key().to_string());
    if let Some(fingerprint) = &fingerprint {
        listening["fingerprint"] = json!(fingerprint);
    }
    let shown = cx.out.show(&listening, |_, _| {
        let path = server.operator_token_file();
        let folder = std::path::absolute(&data).unwrap_or_else(|_| data.clone());
        let folder = folder.display();
        let file = if path.exists() { path.display().to_string() } else { "a place of yours".to_owned() };
        let console = format!("{}/sign-in#{}", server.console_url(), code.reveal());
        // A certificate that an authority issued gets a new fingerprint when it is renewed.
        let pin = match fingerprint {
            None => String::new(),
            Some(pin) if own => {
                format!(
                    "\nclients on other machines: --url {}{} --tls-pin {pin}",
                    elsewhere(server.addr()),
                    server.path()
                )
            }
            Some(pin) => format!("\ncertificate {pin}"),
        };
        format!(
            "listening on {url}\noperator token in {file}\nconsole: {console} (signs in once, within 15 minutes){pin}\n\
             data in {folder}; `lastword stop-server` ends the server"
        )
    });
    // A reader that left after the address, as `head -1` does, doesn't end the server.
    drop(shown);
    let operator = operator_token(members, &server, cx)?;
    let endpoint = Endpoint::new(&server.local_url());
    let trust = kept_trust(&data, &endpoint);
    let mut team =
        Team::start(members, &cx.settings.prices, &endpoint.trusting(trust), &operator, &data, cx.out).await?;
    service::ready(&url);
    // Any answer counts: a server with a full disk or a full queue works.
    let answer = async || drop(server.handle().reach().await);
    let failed = tokio::select! {
        () = end.asked() => None,
        reason = server.failed() => Some(reason),
        () = unused(&server, idle) => None,
        () = service::watched(&answer) => None,
    };
    service::stopping();
    // Open runs deliver their answers first.
    team.stop();
    // Without a broker no run can answer, so a failure skips this wait.
    while failed.is_none() {
        tokio::select! {
            () = team.ended() => break,
            () = end.asked() => team.stop(),
            () = service::watched(&answer) => {}
        }
    }
    drop(team);
    // Before the shutdown, so that clients no longer find a server that is about to end.
    drop(note);
    server.shutdown().await;
    match failed {
        None => Ok(()),
        Some(failed) => Err(stopped(&failed)),
    }
}

/// Returns the token with which the agents of the configuration are registered. The operator's token may have been moved
/// to a safe place, so a server without such agents needs none.
fn operator_token(members: &[Member], server: &Server, cx: &Context) -> Result<String, Failure> {
    match &cx.settings.token {
        _ if members.is_empty() => Ok(String::new()),
        TokenSource::File(path) => read_token(path),
        TokenSource::Text(_) | TokenSource::Implicit => read_token(server.operator_token_file()).map_err(|failure| {
            failure.hint(
                "the agents of lastword.toml are registered with a human's token: name its file with --token-file",
            )
        }),
    }
}

/// Returns the URL for clients on other machines.
fn elsewhere(addr: SocketAddr) -> String {
    if addr.ip().is_unspecified() { format!("https://HOST:{}", addr.port()) } else { format!("https://{addr}") }
}

/// Words the end of the broker that no signal asked for: a bug, or a log that couldn't be written.
fn stopped(failed: &BrokerFailure) -> Failure {
    let message = format!("the server stopped: {}", failed.reason);
    if failed.bug {
        Failure::bug(message).hint("this is a bug in lastword; every acknowledged message is in the log")
    } else {
        Failure::unavailable(message).hint("every acknowledged message is in the log; fix the cause, then restart")
    }
}

/// SIGTERM and SIGINT.
pub(super) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Resolves at the next signal.
    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits until nobody has used the server for a time; forever without one.
async fn unused(server: &Server, idle: Option<Duration>) {
    let Some(idle) = idle else { return std::future::pending().await };
    let pause = (idle / 20).clamp(IDLE_CHECK, IDLE_CHECK_MAX);
    let (mut seen, mut quiet) = (None, Duration::ZERO);
    while quiet < idle {
        tokio::time::sleep(pause).await;
        quiet += pause;
        let look = server.handle().query(|live| {
            let used = !live.state.schedules.is_empty()
                || (0..).zip(&live.state.agents).any(|(id, known)| !known.is_human() && live.is_attached(AgentId(id)));
            (live.state.seq, used)
        });
        // A broker that can't answer is told of elsewhere.
        let now = look.await.ok();
        if now.is_none_or(|(_, used)| used) || now != seen {
            (seen, quiet) = (now, Duration::ZERO);
        }
    }
}

/// The file `DIR/server.json`, with which clients find the running server.
pub(super) struct Note(PathBuf);

impl Note {
    pub(super) fn write(server: &Server, data: &Path, url: &str) -> Result<Self, Failure> {
        let keep = |path: &Path, text: String| {
            server.keep_file(path, text.as_bytes()).map_err(|error| {
                Failure::unavailable(format!("{}: {error}", path.display()))
                    .hint("check the disk and its free space, then restart the server")
            })
        };
        if server.addr().ip().is_loopback() {
            keep(&data.join(FILE_ADDRESS), format!("{}\n", server.addr()))?;
        }
        let path = data.join(FILE_SERVER);
        let note = format!("{}\n", json!({ "url": url, "pid": std::process::id() }));
        keep(&path, note)?;
        Ok(Self(path))
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // A note left behind names an address that doesn't answer, which clients report.
        let _removed = fs::remove_file(&self.0);
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        match error {
            StartError::Open(error) => error.into(),
            StartError::Listen { .. } => Self::unavailable(message)
                .hint("another server may use the port; --listen 127.0.0.1:0 picks a free one"),
            StartError::Policy { .. } => Self::usage(message).hint("correct the name under [[approval]] or [tier]"),
            StartError::Schedule { .. } => Self::usage(message).hint("see `lastword schedule add --help`"),
            StartError::Tls(error) => Self::usage(message).hint(error.hint()),
            StartError::Oidc(_) => Self::usage(message).hint("docs/sign-in.md shows a configuration"),
            StartError::Anonymous { .. } => Self::usage(message).hint("listen at 127.0.0.1 or [::1]"),
            StartError::Thread(_) => Self::unavailable(message).hint("raise the limit of processes (`ulimit -u`)"),
            StartError::Checkpoint(_) => {
                Self::unavailable(message).hint("put checkpoint.key back; without that file the server makes a new key")
            }
            StartError::Boot(_) | StartError::Index(_) | StartError::Unserved(_) | StartError::File { .. } => {
                Self::unavailable(message).hint("`lastword doctor` checks the data directory")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_bug_of_ours_ends_the_server_with_another_code_than_a_full_disk() {
        for (bug, exit) in [(true, Exit::Bug), (false, Exit::Unavailable)] {
            let failure = stopped(&BrokerFailure { reason: "why".into(), bug });
            assert_eq!((failure.exit, failure.message.as_str()), (exit, "the server stopped: why"));
        }
    }
}
