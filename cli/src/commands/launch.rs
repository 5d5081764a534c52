//! Starts an agent program as an agent of the workspace, for one run: a broker if none runs, a name, a token.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use lastword_client::{Client, Endpoint, Token, Trust};
use lastword_facts::status::Running;
use lastword_mcp::PRIMER;
use lastword_programs::{AgentProgram, CLIENT, Launch, end_interrupted, follow_ends, is_at_work, keep_leases, scrub};
use rustix::fs::{Access, access};
use rustix::process::{Pid, getpid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::mpsc::channel;

use super::Context;
use super::attend::PATIENCE;
use super::guard::{Guard, Modes, end_tree};
use super::init_clients::text;
use super::last_session::LastSession;
use super::own_terminal::{OwnTerminal, Vouch};
use super::versions::{newer, on_path};
use crate::failure::Failure;
use crate::out::quoted;
use crate::render;
use crate::session::{Authority, ServerAccess, loopback, running};
use crate::team::{Member, kept_token};

/// The folder in the data directory with a lock file for each agent that sits in a session.
const FOLDER_SESSIONS: &str = "sessions";
/// The file in the data directory with the output of a broker that a session started.
const FILE_SERVE_LOG: &str = "serve.log";
/// Most sessions of one program that get a name without `--as`.
const NAMES_MAX: usize = 32;
/// The options of launchers, none of which a program knows.
const OWN: [&str; 4] = ["--as", "--held", "--unheld", "--wake"];
/// The variables with the hosts that are reached without a proxy.
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// Time limit of the broker's start, and the pause between two checks.
const START_MAX: Duration = Duration::from_secs(30);
const START_CHECK: Duration = Duration::from_millis(50);

/// Who decides on a call that a message asks for.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Calls {
    /// A call that a message asks for waits for any human of the team, and not in the program's dialog.
    #[arg(long, conflicts_with = "unheld")]
    pub(super) held: bool,
    /// What the program's own settings allow runs unasked, also where a message asks for it.
    #[arg(long)]
    pub(super) unheld: bool,
}

/// An agent's place in the workspace for one session of its program.
pub(super) struct SessionPlace {
    program: &'static AgentProgram,
    endpoint: Endpoint,
    pub(super) name: String,
    token: String,
    data: PathBuf,
    /// Where the agent's last session is kept.
    pub(super) last: LastSession,
    /// Tells what is typed at the terminal; `None` without one (H8).
    pub(super) vouch: Option<Vouch>,
    /// Interrupts the program by its key.
    interrupt: Notify,
    /// Ends the program.
    pub(super) end: Notify,
    /// Held while the program runs, so that no other session gets the name.
    _name: File,
}

impl SessionPlace {
    /// Starts a broker if none runs, and registers the agent: `named`, or else the program's name with the first free
    /// number. Refuses options of Lastword among the program's arguments `args` before it makes anything.
    pub(super) async fn take(
        program: &'static AgentProgram,
        named: Option<&str>,
        args: &[String],
        cx: &Context,
    ) -> Result<Self, Failure> {
        let command = program.command.names[0];
        let mut before_end = args.iter().take_while(|arg| *arg != "--");
        let is_ours = |arg: &&String| OWN.contains(&arg.split('=').next().unwrap_or_default());
        if let Some(ours) = before_end.find(is_ours) {
            return Err(Failure::usage(format!("{ours} stands among the arguments for {}", program.name))
                .hint("options of Lastword stand before those of the program"));
        }
        if on_path(command).is_none() {
            return Err(Failure::unavailable(format!("{command} is not in PATH")).hint(format!("install {command}")));
        }
        check_writable(&cx.settings.data.join(FOLDER_SESSIONS))?;
        if cx.settings.url.is_none() && running(&cx.settings.data).is_none() {
            start_broker(cx).await?;
        }
        let ServerAccess { endpoint, token } = cx.access(Authority::Act)?;
        // The program, its hooks and its tools are one, and so is the next session in this place (F1).
        let endpoint = endpoint.called_by(Some(CLIENT));
        let human = Client::new(&endpoint, Some(Token::new(&token)?))?;
        let folder = cx.settings.data.join(FOLDER_SESSIONS);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let (name, lock) = match named {
            Some(name) => (name.to_owned(), lock(&folder, name)?),
            None => free_name(&folder, command)?,
        };
        if let Some(warning) = newer(Path::new(command)).await {
            eprintln!("{warning}");
        }
        let Some(lock) = lock else {
            return Err(Failure::refused(format!("{name} is in another session"))
                .hint("end that session, or choose another name with --as"));
        };
        let token = kept_token(&cx.settings.data, &Member::session(&name), &human).await?;
        let state = human.agent(&name).await?.state;
        if state != Running::Active {
            eprintln!("{name} is {}, so no message reaches it: `lastword resume --agent {name}`", render::word(&state));
        }
        let data = cx.settings.data.clone();
        let last = LastSession::of(&data, program, &name)?;
        check_writable(&last.file)?;
        let vouches = cx.settings.limits.typed_grants_per_hour_max > 0;
        let vouch = Vouch::at_terminal(&name, Some(human).filter(|_| vouches));
        let (interrupt, end) = (Notify::new(), Notify::new());
        Ok(Self { program, endpoint, name, token, data, last, vouch, interrupt, end, _name: lock })
    }

    /// Returns the program's arguments with the agent's own last session where they continue one, and its id.
    pub(super) fn resumed(&self, args: &[String]) -> Result<(Vec<String>, Option<String>), Failure> {
        let resumed = self.last.resumed(&self.data, args, self.program)?;
        // What a session goes on with by itself is no prompt.
        if let (Some(vouch), (_, None)) = (&self.vouch, &resumed) {
            vouch.given(args);
        }
        Ok(resumed)
    }

    /// Says under which name the program is known.
    pub(super) fn greet(&self, calls: Calls) {
        eprintln!("{} is an agent of the team at {}; watch it with `lastword top`", self.name, self.endpoint.url());
        eprintln!(
            "{}",
            match calls {
                Calls { held: true, .. } =>
                    "calls that messages ask for wait for a human of the team: `lastword approvals`, `lastword top`, console",
                Calls { unheld: true, .. } =>
                    "its dialogs are yours to answer, and what its own settings allow runs unasked",
                Calls { .. } =>
                    "it asks you in its dialogs before it acts, whatever its settings allow; `--held` lets any human of the team \
                     decide on calls that messages ask for, and `--unheld` lets run what the settings allow",
            }
        );
    }

    /// Returns the agent's token.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Returns what the program is given.
    pub(super) fn launch(&self, calls: Calls) -> Result<Launch, Failure> {
        Ok(Launch {
            lastword: this_program()?,
            endpoint: self.endpoint.flags(),
            mcp_url: self.mcp_url(),
            token: self.token.clone(),
            primer: PRIMER,
            held: calls.held,
            unheld: calls.unheld,
        })
    }

    /// Returns the call of the hook for a shell, with options of its own. `state` is the folder of the session's state.
    pub(super) fn hook(&self, options: &[String], state: &Path) -> Result<String, Failure> {
        let program = [this_program()?].into_iter().chain(options.iter().cloned()).map(|word| quoted(&word));
        let kept = [text(state)?.as_str(), "--keep", &text(&self.last.file)?, &self.last.folder].map(quoted);
        Ok(format!("{} hook --state {}", program.collect::<Vec<_>>().join(" "), kept.join(" ")))
    }

    /// Returns the broker's MCP endpoint, if the program's own client verifies the broker's certificate: it knows the
    /// system's authorities alone. Otherwise the program runs `lastword mcp`, with the environment of [`Self::equip`].
    fn mcp_url(&self) -> Option<String> {
        (*self.endpoint.trust() == Trust::System).then(|| format!("{}/mcp", self.endpoint.url()))
    }

    /// Returns a client of the broker with the agent's token.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&self.endpoint, Some(Token::new(&self.token)?))?)
    }

    /// Gives a process the agent's token, and the address of its broker.
    pub(super) fn equip(&self, command: &mut Command) {
        scrub(command);
        for (name, value) in self.endpoint.variables() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.env("LASTWORD_TOKEN", &self.token).env("LASTWORD_AGENT", &self.name);
        if let Some(host) = loopback(self.endpoint.url()) {
            let set = NO_PROXY.map(|name| std::env::var_os(name)?.into_string().ok().filter(|hosts| !hosts.is_empty()));
            for (name, own) in NO_PROXY.iter().zip(&set) {
                // A program reads one of the two.
                let before = own.as_ref().or_else(|| set.iter().flatten().next());
                command.env(name, before.map_or_else(|| host.to_owned(), |before| format!("{before},{host}")));
            }
        }
    }

    /// Renews the leases of what its sessions work at, for a program whose hooks keep their state in `folder`. What is
    /// stopped is interrupted, or ended where the program takes no more messages after an interrupt. Ends only if that is
    /// impossible.
    pub(super) async fn look_after(&self, folder: &Path, interrupts: bool) -> String {
        let client = match self.client() {
            Ok(client) => client,
            Err(failure) => return failure.message,
        };
        let (stopped, mut stops) = channel(1);
        let heed = async {
            while stops.recv().await.is_some() {
                if interrupts {
                    self.interrupt_work(folder).await;
                } else if is_at_work(folder) {
                    self.end.notify_one();
                }
                // One stop is told as the end of a turn, and as that of its agent.
                while stops.try_recv().is_ok() {}
            }
        };
        tokio::select! {
            never = keep_leases(&client, folder) => match never {},
            never = end_interrupted(&client, folder) => match never {},
            () = follow_ends(&client, &self.name, folder, &stopped) => {}
            () = heed => {}
        }
        "stops are no longer followed".to_owned()
    }

    /// Interrupts the program if its model works, and ends it if that doesn't stop it.
    async fn interrupt_work(&self, folder: &Path) {
        let works = || is_at_work(folder);
        if !works() {
            return;
        }
        self.interrupt.notify_one();
        let idle = async {
            while works() {
                tokio::time::sleep(START_CHECK).await;
            }
        };
        if tokio::time::timeout(PATIENCE, idle).await.is_err() {
            self.end.notify_one();
        }
    }

    /// Reports that the work on a prompt ended.
    pub(super) async fn prompt_ended(&self) {
        if let Some(vouch) = &self.vouch {
            // The next prompt ends it as well.
            let _told = vouch.ended().await;
        }
    }

    /// Runs the program in the foreground with the agent's token. While it runs, `deliver` brings messages into its
    /// session; an end of `deliver` leaves the program alone, and its reason is printed once the terminal is free.
    pub(super) async fn beside(
        &self,
        mut command: Command,
        deliver: impl Future<Output = String>,
    ) -> Result<ExitStatus, Failure> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.equip(&mut command);
        // The terminal sends Ctrl-C to this process, too; what it means is the program's to decide.
        let _interrupts = signal(SignalKind::interrupt())?;
        let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let terminal = Modes::of(std::io::stdin(), getpid());
        let mut guard = Guard::start()?;
        // Behind the guard, which knows the terminal as it was.
        let mut own = self.vouch.clone().map(OwnTerminal::open).transpose()?;
        if let Some(own) = &mut own {
            command = own.seat(&command)?;
        }
        let mut command = tokio::process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().map_err(|error| not_started(&program, &error))?;
        // It holds the program's end of a terminal of its own.
        drop(command);
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| Failure::bug("a program without a process id"))?;
        guard.watch(pid, own.is_some())?;
        let (mut deliver, mut problem, mut ending, mut stopped) = (std::pin::pin!(deliver), None, None, false);
        let mut end = || {
            ending.get_or_insert_with(|| tokio::task::spawn_blocking(move || end_tree(pid)));
        };
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                () = serve(own.as_mut()) => {}
                why = &mut deliver, if problem.is_none() => problem = Some(why),
                () = self.interrupt.notified() => if let Some(own) = &mut own {
                    own.interrupt();
                },
                () = self.end.notified() => {
                    stopped = true;
                    end();
                }
                // This process ends after the program, to clean up behind it.
                _ = terminate.recv() => end(),
                _ = hang_up.recv() => end(),
            }
        };
        if let Some(ending) = ending {
            // What the program started ends with it.
            let _killed = ending.await;
        }
        if let Some(own) = own {
            own.close();
        }
        if status.code().is_none() {
            terminal.restore(std::io::stdin());
        }
        guard.release();
        let left = format!(
            "{} has left its session; a request to it waits until its time is over, and `--as {0}` comes back to it",
            self.name
        );
        let problem = problem.map(|problem| format!("messages no longer reached this session: {problem}"));
        let stopped = stopped.then(|| {
            "its work was stopped, and its process was ended; `--continue` opens its session again".to_owned()
        });
        for line in [left].into_iter().chain(stopped).chain(problem) {
            // The terminal may be gone.
            let _gone = writeln!(std::io::stderr(), "{line}");
        }
        Ok(status)
    }
}

/// Serves the terminal of the program, if it has one of its own. Never ends.
async fn serve(own: Option<&mut OwnTerminal>) {
    match own {
        Some(own) => own.serve().await,
        None => std::future::pending().await,
    }
}

/// Returns the path of this program, for a configuration of another.
pub(super) fn this_program() -> Result<String, Failure> {
    let program = std::env::current_exe()?;
    program.to_str().map(str::to_owned).ok_or_else(|| Failure::usage("the path of this program is not UTF-8"))
}

/// Returns the failure of a program that can't be started.
pub(super) fn not_started(program: &str, error: &std::io::Error) -> Failure {
    Failure::unavailable(format!("can't start {program}: {error}"))
        .hint(format!("install {program}, so that it is found in PATH"))
}

/// Ends this process with the program's exit code.
pub(super) fn exit(status: ExitStatus) -> Result<(), Failure> {
    match status.code() {
        Some(0) => Ok(()),
        code => std::process::exit(code.unwrap_or(1)),
    }
}

/// Returns the first of `PROGRAM`, `PROGRAM-2`, … in which no session sits.
fn free_name(folder: &Path, program: &str) -> Result<(String, Option<File>), Failure> {
    for n in 1..=NAMES_MAX {
        let name = if n == 1 { program.to_owned() } else { format!("{program}-{n}") };
        if let Some(lock) = lock(folder, &name)? {
            return Ok((name, Some(lock)));
        }
    }
    Err(Failure::refused(format!("{NAMES_MAX} sessions of {program} run")).hint("choose a name with --as"))
}

/// Refuses a path to which this user may not write, or whose nearest folder is closed, by its owner.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let path = std::path::absolute(path)?;
    let found = path.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)));
    match found {
        Some((path, owned)) if access(path, Access::WRITE_OK).is_err() => Err(Failure::unavailable(format!(
            "this user may not write to {}, which belongs to user {}",
            path.display(),
            owned.uid()
        ))
        .hint("change its owner with `chown -R`, or name another data directory with --data")),
        Some(_) | None => Ok(()),
    }
}

/// Returns whether a session sits in the agent's place.
pub(super) fn is_taken(data: &Path, name: &str) -> bool {
    matches!(lock(&data.join(FOLDER_SESSIONS), name), Ok(None))
}

fn lock(folder: &Path, name: &str) -> Result<Option<File>, Failure> {
    lastword_facts::names::AgentName::new(name)
        .map_err(|error| Failure::usage(format!("the name {name:?} {error}")))?;
    let path = folder.join(name);
    check_writable(&path)?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Starts a broker that outlives this session, on the usual address or, if that is taken, on a free port.
async fn start_broker(cx: &Context) -> Result<(), Failure> {
    let data = &cx.settings.data;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    let log = data.join(FILE_SERVE_LOG);
    for listen in [None, Some("127.0.0.1:0")] {
        let mut serve = Command::new(std::env::current_exe()?);
        serve.arg("--data").arg(data).arg("serve").args(listen.iter().flat_map(|address| ["--listen", *address]));
        // It outlives this session, and its environment can be read as long.
        serve.env_remove("LASTWORD_TOKEN").env_remove("LASTWORD_TOKEN_FILE");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&log)?;
        serve.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let mut child = serve.spawn()?;
        for _ in 0..START_MAX.as_millis() / START_CHECK.as_millis() {
            if let Some(server) = running(data) {
                // Another session may have started it at the same moment.
                if server.pid == child.id() {
                    let (url, pid) = (server.url, server.pid);
                    let data = std::path::absolute(data)?;
                    let (data, log) = (data.display(), log.display());
                    eprintln!(
                        "started a broker: {url} (pid {pid}), data in {data}, log {log}; `lastword stop-server` ends it"
                    );
                }
                return Ok(());
            }
            if child.try_wait()?.is_some() {
                break;
            }
            tokio::time::sleep(START_CHECK).await;
        }
    }
    Err(Failure::unavailable("the broker did not start")
        .hint(format!("see {}, or run `lastword serve`", log.display())))
}
