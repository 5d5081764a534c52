//! `lastword doctor`: finds faults of this installation and says how to fix each.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use lastword_broker::checkpoint::{FILE_CHECKPOINT_KEY, LogSigner};
use lastword_client::wire::{AgentView, ClockView, DiskSpace, Scrub};
use lastword_client::{Client, ClientError, Endpoint, Pin, Token, Trust};
use lastword_facts::fact::Kind;
use lastword_programs::{ALL, AgentProgram};
use lastword_server::FILE_CERTIFICATE;
use lastword_store::{DataDir, OpenError};
use serde::Serialize;
use serde_json::json;

use super::init_clients;
use super::restore::now;
use super::{Context, bound, cluster, versions};
use crate::failure::Failure;
use crate::notify;
use crate::out::{Out, Tone, escape_line, shell_word};
use crate::session::{Authority, FILE_OPERATOR, confirmed};
use crate::text_file;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check only that the server is ready, for a container's or a script's health check.
    #[arg(long, conflicts_with_all = ["accept_loss", "cluster"])]
    ready: bool,
    /// Accept a log that lost its end: begin a new epoch behind what is left. Needs a stopped server.
    #[arg(long)]
    accept_loss: bool,
    /// Confirm without a terminal, in a script.
    #[arg(long, requires = "accept_loss")]
    yes: bool,
    /// Check a cluster instead: its NATS servers, nodes and workspaces. NATS servers, with commas between them.
    #[arg(long = "cluster", value_name = "URLS", value_delimiter = ',', help_heading = "Cluster")]
    cluster: Vec<String>,
    #[command(flatten)]
    nats: cluster::NatsArgs,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    /// Nothing to do.
    Ok,
    /// It works, but needs attention.
    Warning,
    /// It won't work.
    Failed,
}

#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    grade: Grade,
    finding: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    if args.ready {
        return ready(cx).await;
    }
    if args.accept_loss {
        return accept_loss(args.yes, cx);
    }
    if !args.cluster.is_empty() {
        return cluster::check(&args.cluster, &args.nats, cx).await;
    }
    let dir = &cx.settings.data;
    let mut checks = vec![limits(cx), directory(dir)];
    if dir.is_dir() {
        checks.extend([log(dir), mode("operator token", &dir.join(FILE_OPERATOR), 0o600), lock(dir)]);
        checks.extend(checkpoint_key(dir));
        let key = dir.join(FILE_CERTIFICATE);
        checks.extend(key.exists().then(|| mode("TLS key", &key, 0o600)));
    }
    checks.extend(notify(cx));
    checks.extend(telemetry(cx).await);
    checks.extend(server(cx).await);
    checks.extend(discord(cx).await);
    checks.extend(agents(cx).await);
    for program in ALL {
        checks.push(client(program, cx).await);
        checks.extend(side_channels(program));
    }
    let installed = versions::installed().await;
    let found = checks.len();
    checks.extend(installed.iter().map(version));
    cx.out.show(&checks, |checks, out| {
        format!("{}\n\n{}", words(&checks[..found], out), versions::table(&installed, out))
    })?;
    match checks.iter().filter(|check| check.grade == Grade::Failed).count() {
        0 => Ok(()),
        failed => {
            Err(Failure::refused(format!("{failed} of {} checks failed", checks.len())).hint("see the findings above"))
        }
    }
}

/// Fails unless a server answers that it is ready.
async fn ready(cx: &Context) -> Result<(), Failure> {
    let endpoint = cx.endpoint()?;
    let url = endpoint.url();
    Client::new(&endpoint, None)?.ready().await?;
    cx.out.show(&json!({ "ready": url }), |_, _| format!("{url} is ready"))
}

fn accept_loss(yes: bool, cx: &Context) -> Result<(), Failure> {
    let dir = &cx.settings.data;
    if !confirmed(&format!("Go on with the log in {} as it is? What it lost is gone for good", dir.display()), yes)? {
        return Err(Failure::refused("nothing was changed"));
    }
    let (ends, first) = lastword_server::backup::accept_loss(dir, now())?;
    cx.out.show(&json!({ "ends": ends.0, "epoch_first": first.0 }), |_, _| {
        format!("the log ends at {}; a new epoch begins at {}", ends.0, first.0)
    })
}

fn words(checks: &[Check], out: &Out) -> String {
    let line = |check: &Check| {
        let mark = match check.grade {
            Grade::Ok => out.tone(Tone::Good, "ok     "),
            Grade::Warning => out.tone(Tone::Warn, "warning"),
            Grade::Failed => out.tone(Tone::Bad, "failed "),
        };
        format!("{mark} {}: {}", check.what, escape_line(&check.finding))
    };
    checks.iter().map(line).collect::<Vec<_>>().join("\n")
}

const fn check(what: &'static str, grade: Grade, finding: String) -> Check {
    Check { what, grade, finding }
}

fn limits(cx: &Context) -> Check {
    match bound::check(&cx.settings.limits) {
        Ok(()) => check("limits", Grade::Ok, format!("{} messages per grant", cx.settings.limits.bound_messages())),
        Err(failure) => check("limits", Grade::Failed, failure.message),
    }
}

/// Checks whether the notification channels could be used, without using one.
fn notify(cx: &Context) -> Option<Check> {
    let names: Vec<&str> = cx.settings.notify.iter().map(notify::NotifyTable::name).collect();
    (!names.is_empty()).then(|| match notify::channels(&cx.settings.notify) {
        Ok(_) => check("notifications", Grade::Ok, format!("{}; `lastword notify test` tests them", names.join(", "))),
        Err(failure) => check("notifications", Grade::Failed, failure.message),
    })
}

/// Posts empty lists to the receiver of OTLP. Without it the broker works on, and its log keeps the spans.
async fn telemetry(cx: &Context) -> Option<Check> {
    let table = cx.settings.telemetry.as_ref()?;
    Some(match table.check().await {
        Ok(endpoint) => check("telemetry", Grade::Ok, format!("{endpoint} takes it")),
        Err(reason) => check("telemetry", Grade::Warning, format!("it isn't exported: {reason}")),
    })
}

fn directory(dir: &Path) -> Check {
    if dir.is_dir() {
        return mode("data directory", dir, 0o700);
    }
    check("data directory", Grade::Ok, format!("{} doesn't exist yet; `lastword serve` creates it", dir.display()))
}

fn mode(what: &'static str, path: &Path, wanted: u32) -> Check {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.permissions().mode() & 0o077 == 0 => check(what, Grade::Ok, shown.to_string()),
        Ok(found) => {
            let mode = found.permissions().mode() & 0o777;
            let word = shell_word(&shown.to_string());
            check(what, Grade::Failed, format!("{shown} can be read by others ({mode:o}): chmod {wanted:o} {word}"))
        }
        Err(error) => check(what, Grade::Warning, format!("{shown}: {error}; `lastword serve` creates it")),
    }
}

fn log(dir: &Path) -> Check {
    match DataDir::at(dir).open_reader().map(|reader| reader.last()) {
        Ok(Ok(last)) => check(
            "log",
            Grade::Ok,
            format!("ends at {}; `lastword verify` checks it, `lastword archive` shows its growth", last.0),
        ),
        Ok(Err(error)) => check("log", Grade::Failed, error.to_string()),
        Err(OpenError::Missing { .. }) => check("log", Grade::Ok, "no log yet; `lastword serve` creates it".to_owned()),
        Err(error) => check("log", Grade::Failed, error.to_string()),
    }
}

/// Checks the key that signs checkpoints, if there is one, and shows the public one.
fn checkpoint_key(dir: &Path) -> Option<Check> {
    let path = dir.join(FILE_CHECKPOINT_KEY);
    path.exists().then(|| match (mode("checkpoint key", &path, 0o600), LogSigner::open(dir)) {
        (Check { grade: Grade::Ok, .. }, Ok(signer)) => {
            check("checkpoint key", Grade::Ok, format!("{}; `lastword checkpoint` signs with it", signer.public()))
        }
        (Check { grade: Grade::Ok, .. }, Err(error)) => check("checkpoint key", Grade::Failed, error.to_string()),
        (open, _) => open,
    })
}

fn lock(dir: &Path) -> Check {
    match DataDir::at(dir).lock() {
        Ok(_) => check("lock", Grade::Ok, "no server is running here".to_owned()),
        Err(OpenError::Locked { holder, .. }) => check("lock", Grade::Ok, format!("held by process {holder}")),
        Err(error) => check("lock", Grade::Failed, error.to_string()),
    }
}

/// Names the agents of Discord's bots that no runner serves, as far as the workspace may be read.
async fn discord(cx: &Context) -> Vec<Check> {
    let bots = cx.settings.discord.as_ref().and_then(|table| table.get("bot")).and_then(toml::Value::as_array);
    let ours = |bot: &&toml::Value| bot.get("token_file").or(bot.get("token_env")).is_some();
    let agents: Vec<&str> =
        bots.into_iter().flatten().filter(ours).filter_map(|bot| bot.get("agent")?.as_str()).collect();
    let Ok(client) = cx.client(Authority::Read) else { return Vec::new() };
    let mut checks = Vec::new();
    for name in agents {
        let Ok(agent) = client.agent(name).await else { continue };
        checks.push(if agent.connected || !agent.turns.is_empty() {
            check("discord", Grade::Ok, format!("a runner serves {name}"))
        } else {
            let finding =
                format!("no runner serves {name}, and {} wait for it: `lastword run --as {name}`", agent.queued);
            check("discord", Grade::Warning, finding)
        });
    }
    checks
}

/// Names the agents whose programs can't work, as far as the workspace may be read.
async fn agents(cx: &Context) -> Vec<Check> {
    let Ok(client) = cx.client(Authority::Read) else { return Vec::new() };
    let Ok(page) = client.agents().await else { return Vec::new() };
    let failed = page.items.iter().filter_map(super::agent::unavailable);
    let failed = failed.map(|finding| check("agent", Grade::Failed, finding));
    let several = page.items.iter().filter(|agent| agent.clients > 1).map(|agent| {
        let AgentView { name, clients, .. } = agent;
        let finding =
            format!("{name} has {clients} clients: each delivery goes to one of them, so end what isn't meant");
        check("agent", Grade::Warning, finding)
    });
    failed.chain(several).collect()
}

/// The facts by which the read model of a busy server may be behind.
const BEHIND_USUAL: u64 = 10_000;

/// Checks whether a server answers, and then its clock.
async fn server(cx: &Context) -> Vec<Check> {
    let endpoint = match cx.endpoint() {
        Ok(endpoint) => endpoint,
        Err(none) => {
            return vec![check("server", Grade::Warning, format!("{}; `lastword serve` starts one", none.message))];
        }
    };
    let url = endpoint.url();
    let ready = match Client::new(&endpoint, None) {
        Ok(client) => client.ready().await,
        Err(error) => Err(error),
    };
    let (grade, finding) = match ready {
        Ok(ready) => {
            let server = check("server", Grade::Ok, format!("{url} is ready"));
            return vec![
                server,
                clock(ready.clock),
                disk(ready.disk),
                read_model(ready.read_model_behind),
                scrubbed(ready.scrub),
            ];
        }
        Err(ClientError::Unreachable { .. }) => {
            (Grade::Warning, format!("no server at {url}; `lastword serve` starts one"))
        }
        Err(error) => {
            let hint = error.problem().map(|problem| format!("; {}", problem.hint)).unwrap_or_default();
            (Grade::Failed, format!("{url} answers but isn't ready: {error}{hint}"))
        }
    };
    vec![check("server", grade, finding)]
}

fn clock(clock: ClockView) -> Check {
    match clock.note {
        None => check("clock", Grade::Ok, "the broker's clock matches the system clock".to_owned()),
        Some(note) => check("clock", Grade::Warning, note),
    }
}

fn disk(space: DiskSpace) -> Check {
    let (grade, finding) = match space {
        DiskSpace::Enough => (Grade::Ok, "the data directory has enough space"),
        DiskSpace::Low => {
            (Grade::Failed, "the data directory is low on space, and new work is refused: free space there")
        }
        DiskSpace::Full => {
            (Grade::Failed, "the data directory is full, and only controls are accepted: free space there")
        }
    };
    check("disk", grade, finding.to_owned())
}

fn read_model(behind: u64) -> Check {
    // A server that works is a moment behind.
    let (grade, finding) = match behind {
        0..=BEHIND_USUAL => (Grade::Ok, "searches cover the whole log".to_owned()),
        facts => (Grade::Warning, format!("searches lack the last {facts} facts; the server tries again by itself")),
    };
    check("read model", grade, finding)
}

fn scrubbed(scrub: Option<Scrub>) -> Check {
    let (grade, finding) = match scrub {
        None => (Grade::Ok, "no reading of the whole log has ended yet; the server makes one a week".to_owned()),
        Some(Scrub { at, upto, fault: None }) => (Grade::Ok, format!("read whole and sound up to {upto} at {at}")),
        Some(Scrub { at, fault: Some(fault), .. }) => {
            let way = "restore a backup (`lastword restore`), or run `lastword verify` for the rest";
            (Grade::Failed, format!("changed on the disk, found at {at}: {}; {way}", fault.problem))
        }
    };
    check("log", grade, finding)
}

/// Checks an agent program: whether it is installed, is configured for Lastword here, and has a valid token.
async fn client(program: &AgentProgram, cx: &Context) -> Check {
    let (name, command, flag) = (program.name, program.command.names[0], program.option());
    let set_up = format!("`lastword agent add NAME > NAME.token`, then `lastword --token-file NAME.token init {flag}`");
    let call = match init_clients::configured(program) {
        Ok(Some(call)) => call,
        Ok(None) if on_path(command) => {
            let finding = format!("installed; `lastword {command}` joins it for one run. For this folder: {set_up}");
            return check(name, Grade::Ok, finding);
        }
        Ok(None) => return check(name, Grade::Ok, format!("not set up, and no `{command}` on PATH")),
        Err(problem) => return check(name, Grade::Warning, problem),
    };
    let named = |flag: &str| call.iter().position(|word| word == flag).and_then(|at| call.get(at + 1));
    let Some(token) = named("--token-file") else {
        return check(name, Grade::Ok, "set up with custom settings".to_owned());
    };
    let word = shell_word(token);
    let again = format!("create a new token with `lastword agent token NAME > {word}`");
    let server = match (named("--url"), cx.endpoint()) {
        (_, Ok(server)) => server,
        (Some(url), Err(_)) => Endpoint::new(url),
        (None, Err(none)) => return check(name, Grade::Warning, format!("set up, but {}", none.message)),
    };
    let endpoint = configured(named("--url"), named("--tls-pin"), named("--tls-ca"), server);
    let client = text_file::read(Path::new(token)).map_err(|error| error.to_string()).and_then(|text| {
        let token = Token::new(text.trim()).map_err(|error| error.to_string())?;
        Client::new(&endpoint?, Some(token)).map_err(|error| error.to_string())
    });
    let me = match client {
        Ok(client) => client.agent("me").await,
        Err(problem) => return check(name, Grade::Failed, format!("{token}: {problem}; {again}")),
    };
    match me {
        Ok(me) if me.kind == Kind::Human => {
            check(name, Grade::Failed, format!("{token} is a human's token, which an agent must not have: {set_up}"))
        }
        Ok(me) if !on_path(command) => {
            check(name, Grade::Warning, format!("set up as {}, but `{command}` isn't on PATH", me.name))
        }
        Ok(me) => match mode(name, Path::new(token), 0o600) {
            Check { grade: Grade::Ok, .. } => check(name, Grade::Ok, format!("set up as {}", me.name)),
            open => check(name, Grade::Warning, format!("set up as {}; {}", me.name, open.finding)),
        },
        Err(ClientError::Unreachable { url, .. }) => {
            check(name, Grade::Warning, format!("set up, but no server at {url}; `lastword serve` starts one"))
        }
        Err(error @ ClientError::Untrusted { .. }) => {
            let again = format!("`lastword --token-file {word} init {flag} --replace` writes the new fingerprint");
            check(name, Grade::Failed, format!("{error}; {again}"))
        }
        Err(error) => check(name, Grade::Failed, format!("{token}: {error}; {again}")),
    }
}

/// Returns the server that a configured call names, else that of this run.
fn configured(
    url: Option<&String>,
    pin: Option<&String>,
    authority: Option<&String>,
    server: Endpoint,
) -> Result<Endpoint, String> {
    let Some(url) = url else { return Ok(server) };
    let trust = match (pin, authority) {
        (Some(pin), _) => Trust::Pinned(Pin::parse(pin).map_err(|error| error.to_string())?),
        (None, Some(path)) => Trust::Authority(path.into()),
        (None, None) => Trust::System,
    };
    Ok(Endpoint::new(url).trusting(trust))
}

fn on_path(command: &str) -> bool {
    versions::on_path(command).is_some()
}

/// Names the channels past the broker that a program has here, if Lastword is set up for it.
fn side_channels(program: &AgentProgram) -> Option<Check> {
    let (name, flag) = (program.name, program.option());
    if !matches!(init_clients::configured(program), Ok(Some(_))) {
        return None;
    }
    let open = (program.open_channels)();
    (!open.is_empty()).then(|| {
        let open = open.join(", ");
        check(
            name,
            Grade::Warning,
            format!("channels past the broker are on: {open}; `lastword init {flag}` turns them off"),
        )
    })
}

fn version(installed: &versions::Installed) -> Check {
    let grade = if installed.is_newer() { Grade::Warning } else { Grade::Ok };
    check(installed.program.names[0], grade, installed.words())
}
