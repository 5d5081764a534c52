//! A terminal of its own for a program that a launcher starts: the launcher passes keys on from the person's, and so can
//! vouch for what was typed there (H8).

use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Write as _, stdin, stdout};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use lastword_client::Client;
use lastword_programs::PrivateFolder;
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::launch::not_started;
use crate::failure::Failure;

/// The variable that names the launcher's socket to the hooks of its program.
const SOCKET: &str = "LASTWORD_LAUNCHER";
/// What a hook reports: a prompt began, or the work on it ended.
const BEGAN: &str = "prompt";
const ENDED: &str = "end";
/// What the launcher answers before its problem, if there is one: whether the prompt was typed.
const TYPED: &str = "typed";
const UNTYPED: &str = "untyped";
/// Interrupts a program.
const ESCAPE: u8 = 0x1b;
/// Ctrl-Z, as a byte and in a keyboard protocol that names keys.
const SUSPEND: &[u8] = b"\x1a";
const SUSPEND_NAMED: &[u8] = b"\x1b[122;5u";
/// Opening a terminal must not make it this process's own.
const NOCTTY: i32 = OpenptFlags::NOCTTY.bits() as i32;
/// Variables by which a program can type into the terminal around this one.
const MULTIPLEXERS: [&str; 8] = [
    "TMUX",
    "TMUX_PANE",
    "STY",
    "ZELLIJ",
    "ZELLIJ_SESSION_NAME",
    "KITTY_LISTEN_ON",
    "WEZTERM_UNIX_SOCKET",
    "ITERM_SESSION_ID",
];

/// Tells typed prompts from others, and vouches for them at the broker (H8).
#[derive(Clone)]
pub(super) struct Vouch {
    agent: String,
    /// The human at the terminal; `None` where typed prompts open no grants.
    human: Option<Client>,
    /// Whether a prompt was submitted that the program has not reported yet.
    entered: Arc<AtomicBool>,
}

impl Vouch {
    /// Returns `None` if this process has no terminal, where nobody can be seen to type.
    pub(super) fn at_terminal(agent: &str, human: Option<Client>) -> Option<Self> {
        let entered = Arc::new(AtomicBool::new(false));
        (stdin().is_terminal() && stdout().is_terminal()).then(|| Self { agent: agent.to_owned(), human, entered })
    }

    /// Takes note of the arguments of a new session, which were typed, too, and may end with its first prompt.
    pub(super) fn given(&self, args: &[String]) {
        self.entered.store(ends_with_prompt(args), Ordering::SeqCst);
    }

    /// Takes note that a prompt began, or a part of one if the model `works` already. Returns whether it was typed, and why
    /// the broker doesn't know.
    pub(super) async fn began(&self, works: bool) -> (bool, Option<String>) {
        let typed = self.entered.swap(false, Ordering::SeqCst);
        let problem = if typed || !works { self.tell(typed).await } else { None };
        (typed, problem)
    }

    /// Takes note that the work on a prompt ended.
    pub(super) async fn ended(&self) -> Option<String> {
        self.tell(false).await
    }

    async fn tell(&self, typed: bool) -> Option<String> {
        let told = self.human.as_ref()?.prompt(&self.agent, typed).await;
        told.err().map(|error| error.to_string().replace('\n', " "))
    }
}

/// Whether a program's arguments end with a prompt. The word behind an option may be the option's value.
fn ends_with_prompt(args: &[String]) -> bool {
    let is_word = |arg: &String| !arg.starts_with('-');
    match args {
        [only] => is_word(only),
        [.., before, last] => is_word(before) && is_word(last),
        [] => false,
    }
}

/// The terminal of a program, and the person's around it, which is raw until this is dropped.
pub(super) struct OwnTerminal {
    ours: File,
    theirs: Option<File>,
    listener: UnixListener,
    folder: PrivateFolder,
    vouch: Vouch,
    /// The reports that are being handled.
    reports: JoinSet<()>,
    resized: Signal,
    shown: Option<JoinHandle<()>>,
    before: Termios,
}

impl OwnTerminal {
    /// Opens it for a session at a terminal.
    pub(super) fn open(vouch: Vouch) -> Result<Self, Failure> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let name = name.to_str().map_err(|_| Failure::refused("the terminal's name is not UTF-8"))?;
        let theirs = File::options().read(true).write(true).custom_flags(NOCTTY).open(name)?;
        let before = tcgetattr(stdin())?;
        tcsetattr(&theirs, OptionalActions::Now, &before)?;
        tcsetwinsize(&theirs, tcgetwinsize(stdout())?)?;
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-terminal-")?;
        let listener = UnixListener::bind(folder.path().join("socket"))?;
        let resized = signal(SignalKind::window_change())?;
        let (ours, theirs) = (File::from(ours), Some(theirs));
        let reports = JoinSet::new();
        Ok(Self { ours, theirs, listener, folder, vouch, reports, resized, shown: None, before })
    }

    /// Returns the call that starts `command` in this terminal, and from here on passes keys on and shows its output.
    pub(super) fn seat(&mut self, command: &Command) -> Result<Command, Failure> {
        let mut seated = Command::new(std::env::current_exe()?);
        seated.args(["in-terminal", "--"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => seated.env(name, value),
                None => seated.env_remove(name),
            };
        }
        without_multiplexers(&mut seated);
        seated.env(SOCKET, self.folder.path().join("socket"));
        if let Some(theirs) = self.theirs.take() {
            seated.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
        }
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        let (mut keys, entered) = (self.ours.try_clone()?, Arc::clone(&self.vouch.entered));
        std::thread::spawn(move || {
            let (mut bytes, mut typed) = ([0; 4096], Keys::default());
            while let Ok(count @ 1..) = stdin().read(&mut bytes) {
                if typed.enter(&bytes[..count]) {
                    entered.store(true, Ordering::SeqCst);
                }
                if keys.write_all(&without_suspension(&bytes[..count])).is_err() {
                    break;
                }
            }
        });
        let mut screen = self.ours.try_clone()?;
        self.shown = Some(std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends with an error once no program has the terminal.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let mut out = stdout().lock();
                if out.write_all(&bytes[..count]).and_then(|()| out.flush()).is_err() {
                    break;
                }
            }
        }));
        Ok(seated)
    }

    /// Presses the key that interrupts the program.
    pub(super) fn interrupt(&mut self) {
        // A program that is gone works no more.
        let _pressed = self.ours.write_all(&[ESCAPE]);
    }

    /// Follows the size of the person's terminal, and vouches for prompts that were typed there. Never ends.
    pub(super) async fn serve(&mut self) {
        loop {
            tokio::select! {
                Some(_) = self.reports.join_next() => {}
                _ = self.resized.recv() => {
                    // A terminal that is gone has no size; the program is told to end on its own.
                    let _size = tcgetwinsize(stdout()).and_then(|size| tcsetwinsize(&self.ours, size));
                }
                hook = self.listener.accept() => if let Ok((hook, _)) = hook {
                    let vouch = self.vouch.clone();
                    self.reports.spawn(async move { reported(hook, &vouch).await });
                },
            }
        }
    }

    /// Shows the rest of what the program wrote, and gives the person's terminal back.
    pub(super) fn close(mut self) {
        if let Some(shown) = self.shown.take() {
            // It has failed only if the person's terminal is gone.
            let _shown = shown.join();
        }
    }
}

impl Drop for OwnTerminal {
    fn drop(&mut self) {
        let _gone = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Leaves Ctrl-Z out: no shell is around the program that could continue it, and it would wait for one forever.
fn without_suspension(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [byte, behind @ ..] = rest {
        match [SUSPEND, SUSPEND_NAMED].into_iter().find_map(|key| rest.strip_prefix(key)) {
            Some(behind_key) => rest = behind_key,
            None => {
                kept.push(*byte);
                rest = behind;
            }
        }
    }
    kept
}

/// Takes the variables of multiplexers from a process.
fn without_multiplexers(command: &mut Command) {
    for name in MULTIPLEXERS {
        command.env_remove(name);
    }
}

/// Returns the call that starts a server of a program in a session of its own, which has no terminal.
pub(super) fn apart(program: &str) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["in-terminal", "--", program]);
    without_multiplexers(&mut command);
    Ok(command)
}

/// Handles the report of a hook, and answers once the broker knows.
async fn reported(hook: UnixStream, vouch: &Vouch) {
    let mut hook = BufReader::new(hook);
    let mut line = String::new();
    if hook.read_line(&mut line).await.is_err() {
        return;
    }
    let (typed, problem) = match line.trim() {
        BEGAN => vouch.began(false).await,
        ENDED => (false, vouch.ended().await),
        _ => return,
    };
    let (typed, problem) = (if typed { TYPED } else { UNTYPED }, problem.unwrap_or_default());
    // The hook may be gone: Esc ends it.
    let _told = hook.write_all(format!("{typed} {problem}\n").as_bytes()).await;
}

/// Reports the beginning of a prompt, or its end, to the launcher of this session if there is one. Returns whether it was
/// typed, and why the launcher could not vouch for it.
pub(super) async fn report(began: bool) -> Option<(bool, Option<String>)> {
    let mut launcher = UnixStream::connect(std::env::var_os(SOCKET)?).await.ok()?;
    let word = if began { BEGAN } else { ENDED };
    launcher.write_all(format!("{word}\n").as_bytes()).await.ok()?;
    let mut said = String::new();
    BufReader::new(launcher).read_line(&mut said).await.ok()?;
    let (typed, problem) = said.trim().split_once(' ').unwrap_or((said.trim(), ""));
    // A launcher that is about to end says nothing.
    let typed = [TYPED, UNTYPED].contains(&typed).then_some(typed == TYPED)?;
    Some((typed, Some(problem.to_owned()).filter(|problem| !problem.is_empty())))
}

/// Tells whether a prompt was submitted: by Enter, or by Tab, with which Codex queues one. A terminal sends its answers to
/// queries and its reports of mouse and focus on the same line, and a pasted line end submits nothing.
#[derive(Debug, Default)]
struct Keys {
    /// What has come of an escape sequence.
    sequence: Vec<u8>,
    pasted: bool,
}

impl Keys {
    /// Returns whether Enter was among these bytes.
    fn enter(&mut self, bytes: &[u8]) -> bool {
        // What a key began ends with it: Esc alone, or Alt with a key that begins a text of the terminal.
        if self.sequence.len() <= 2 {
            self.sequence.clear();
        }
        // Each byte counts, also behind an Enter.
        bytes.iter().filter(|byte| self.next(**byte)).count() > 0
    }

    fn next(&mut self, byte: u8) -> bool {
        match (self.sequence.as_slice(), byte) {
            ([], ESCAPE) => self.sequence.push(byte),
            ([], b'\r' | b'\n' | b'\t') => return !self.pasted,
            ([], _) => {}
            // Alt with Enter is a new line, and Alt with another key no more than that key.
            ([_], b'[' | b']' | b'P' | b'_' | b'^' | b'O') => self.sequence.push(byte),
            ([_], _) => self.sequence.clear(),
            ([_, b'[', ..], 0x40..=0x7e) => {
                let ended = std::mem::take(&mut self.sequence);
                return self.control(&ended[2..], byte);
            }
            ([_, b'O'], _) => {
                self.sequence.clear();
                // Enter of the keypad.
                return byte == b'M' && !self.pasted;
            }
            // Texts of the terminal end with BEL, or with ESC and a backslash.
            ([_, b']' | b'P' | b'_' | b'^', ..], 0x07) => self.sequence.clear(),
            ([_, b']' | b'P' | b'_' | b'^', .., ESCAPE], b'\\') => self.sequence.clear(),
            (known, _) => {
                // A sequence that never ends hides no key for long.
                if known.len() > 4096 {
                    self.sequence.clear();
                } else {
                    self.sequence.push(byte);
                }
            }
        }
        false
    }

    /// Handles a control sequence: a paste begins or ends, or Enter is pressed in a keyboard protocol that names keys.
    fn control(&mut self, parameters: &[u8], end: u8) -> bool {
        match (parameters, end) {
            (b"200", b'~') => self.pasted = true,
            (b"201", b'~') => self.pasted = false,
            (b"13" | b"13;1" | b"13;1:1" | b"27;1;13" | b"57414", b'u' | b'~') => return !self.pasted,
            _ => {}
        }
        false
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<std::ffi::OsString>,
}

/// `lastword in-terminal`: makes the terminal that it has as standard input its own, and becomes the program. Not for users.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let [program, rest @ ..] = args.command.as_slice() else { return Err(Failure::usage("no program is named")) };
    setsid()?;
    if stdin().is_terminal() {
        ioctl_tiocsctty(stdin())?;
    }
    let error = Command::new(program).args(rest).exec();
    Err(not_started(&program.to_string_lossy(), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_is_told_from_what_a_terminal_says_itself() {
        let entered = |bytes: &[u8]| Keys::default().enter(bytes);
        for typed in
            [&b"go on\r"[..], b"\x1b[A\r", b"\x1b[13u", b"\x1b[200~two\nlines\x1b[201~\r", b"\x1bOP\r", b"\xc3\xa9\r"]
        {
            assert!(entered(typed), "{typed:?}");
        }
        let others: [&[u8]; 9] = [
            b"half a line",
            b"\x1b[I\x1b[O",
            b"\x1b[<0;10;13M\x1b[<0;10;13m",
            b"\x1b[?62;22c\x1b[13;10R",
            b"\x1b]11;rgb:0d/0d/0d\x1b\\",
            b"\x1bP>|a\rterminal\x1b\\",
            b"\x1b[200~two\r\nlines\r\x1b[201~",
            b"\x1b\r",
            b"\x1b[13;2u",
        ];
        for other in others {
            assert!(!entered(other), "{other:?}");
        }
        for keys in [&[&b"\x1b"[..], b"Please go on\r"][..], &[b"\x1bP", b"go on\r"], &[b"\x1b[", b"\r"], &[b"\x1bOM"]]
        {
            let mut typed = Keys::default();
            assert!(keys.iter().filter(|read| typed.enter(read)).count() == 1, "{keys:?}");
        }
        let prompts = |line: &str| ends_with_prompt(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(["fix", "-c a=b now fix"].into_iter().all(prompts));
        assert!(!["", "--continue", "--model opus", "fix --model opus"].into_iter().any(prompts));
        assert_eq!(without_suspension(b"a\x1ab\x1b[122;5uc\x1b[122;2u"), b"abc\x1b[122;2u");
        let mut parts = Keys::default();
        assert!(!parts.enter(b"\x1b[20") && !parts.enter(b"0~a\r") && !parts.enter(b"\x1b[201~") && parts.enter(b"\r"));
    }
}
