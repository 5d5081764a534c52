//! The command channel: runs a program for each notification, without a shell.

use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::time::timeout;

use super::channel::Command;
use super::words::{Kind, Notification};

/// The longest time that the program may run; then it is killed.
const RUN_MAX: Duration = Duration::from_secs(10);
/// The part of its standard error that is reported when it fails, in bytes.
const STDERR_BYTES_MAX: u64 = 512;

/// The variables that it gets from the server's environment: those that locate programs and the desktop, none that is
/// secret.
const VARIABLES: [&str; 13] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// The process group of a child. Dropping it kills all processes that are left in it.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group may have ended already.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs the program with the notification on standard input. Only its exit code counts; its output is ignored.
pub(super) async fn run(command: &Command, told: &Notification, body: &[u8]) -> Result<(), String> {
    within(RUN_MAX, command, told, body).await
}

async fn within(limit: Duration, command: &Command, told: &Notification, body: &[u8]) -> Result<(), String> {
    let kept = |(name, _): &(OsString, OsString)| VARIABLES.iter().any(|known| name == known);
    let mut started = tokio::process::Command::new(&command.program);
    started
        .args(command.args.iter().map(|arg| filled(arg, told)))
        // The server's environment may contain secrets.
        .env_clear()
        .envs(std::env::vars_os().filter(kept))
        .envs(variables(told))
        .current_dir(&command.cwd)
        // A group of its own, so that a timeout also kills the processes that the program starts.
        .process_group(0)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = started.spawn().map_err(|error| format!("can't start {}: {error}", command.program.display()))?;
    let group = Group::of(&child);
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // The program doesn't have to read its input.
            let _unread = stdin.write_all(body).await;
        }
    };
    let work = async { tokio::join!(write, head(stderr), child.wait()) };
    let ended = timeout(limit, work).await;
    // Kills processes that the program left behind, and the program after a timeout.
    drop(group);
    match ended {
        Ok(((), _, Ok(status))) if status.success() => Ok(()),
        Ok(((), said, Ok(status))) => Err(failure(status, &said)),
        Ok(((), _, Err(error))) => Err(format!("it can't be waited for: {error}")),
        Err(_) => Err(format!("it ran for more than {} s and was ended", limit.as_secs_f32())),
    }
}

/// Returns the first bytes of a stream, and reads the rest so that the program doesn't block.
async fn head(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut kept = Vec::new();
    // Without a readable error stream, the exit code has to do.
    let _read = (&mut from).take(STDERR_BYTES_MAX).read_to_end(&mut kept).await;
    let _rest = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).trim().to_owned()
}

fn failure(status: ExitStatus, said: &str) -> String {
    let said = lastword_facts::visible::escape(said);
    if said.is_empty() { status.to_string() } else { format!("{status}: {said}") }
}

/// Replaces an argument that is exactly a placeholder. Title and text start with fixed words, so that neither can be
/// taken for an option.
fn filled<'a>(arg: &'a str, told: &'a Notification) -> &'a str {
    match arg {
        "{title}" => &told.title,
        "{text}" => &told.text,
        other => other,
    }
}

fn variables(told: &Notification) -> [(&'static str, String); 7] {
    let kind = match told.kind {
        Kind::Waiting => "waiting",
        Kind::Test => "test",
    };
    [
        ("LASTWORD_NOTIFY_ID", told.id.clone()),
        ("LASTWORD_NOTIFY_KIND", kind.to_owned()),
        ("LASTWORD_NOTIFY_CHANNEL", told.channel.clone()),
        ("LASTWORD_NOTIFY_SEVERITY", told.severity.word().to_owned()),
        ("LASTWORD_NOTIFY_TITLE", told.title.clone()),
        ("LASTWORD_NOTIFY_TEXT", told.text.clone()),
        ("LASTWORD_NOTIFY_COUNT", (told.items.len() + told.more).to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use lastword_facts::Time;

    use super::*;
    use crate::notify::channel::{Means, channel};

    fn shell(dir: &std::path::Path, script: &str) -> Command {
        let args = ["-c", script, "{title}", "{text}"].map(str::to_owned).to_vec();
        Command { program: "/bin/sh".into(), args, cwd: dir.to_owned() }
    }

    async fn tried(dir: &std::path::Path, script: &str, limit: Duration) -> Result<(), String> {
        let command = shell(dir, script);
        let told = Notification::test("ntf-1".into(), &channel(Means::Command(command.clone())), Time(0));
        within(limit, &command, &told, &told.json().unwrap()).await
    }

    #[tokio::test]
    async fn a_command_gets_the_notification_and_nothing_else_of_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let script = "cat > in; env > env; printf '%s|%s' \"$0\" \"$1\" > args";
        tried(dir.path(), script, RUN_MAX).await.unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let told: serde_json::Value = serde_json::from_str(&read("in")).unwrap();
        assert_eq!((&told["id"], &told["kind"]), (&"ntf-1".into(), &"test".into()));
        let env = read("env");
        assert!(env.contains("LASTWORD_NOTIFY_TITLE=Lastword: a test\n"), "{env}");
        for line in env.lines().filter(|line| line.contains('=')) {
            let name = line.split('=').next().unwrap();
            let own = name.starts_with("LASTWORD_NOTIFY_") || ["PWD", "SHLVL", "_", "OLDPWD"].contains(&name);
            assert!(own || VARIABLES.contains(&name), "{name} reached the command");
        }
        assert!(read("args").starts_with("Lastword: a test|This is a test"), "{}", read("args"));
    }

    #[tokio::test]
    async fn a_command_that_fails_or_hangs_is_told_of_and_its_group_ends() {
        let dir = tempfile::tempdir().unwrap();
        let failed = tried(dir.path(), "echo no bus >&2; exit 3", RUN_MAX).await.unwrap_err();
        assert!(failed.contains('3') && failed.contains("no bus"), "{failed}");
        let hung = tried(dir.path(), "sleep 1000 & echo $! > child; wait", Duration::from_millis(300)).await;
        assert!(hung.unwrap_err().contains("was ended"));
        let child = std::fs::read_to_string(dir.path().join("child")).unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        let runs = || stat().rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'));
        while runs() {
            tokio::task::yield_now().await;
        }
        let command = Command { program: "/nowhere/at-all".into(), ..shell(dir.path(), "") };
        let told = Notification::test("ntf-1".into(), &channel(Means::Command(command.clone())), Time(0));
        assert!(run(&command, &told, b"").await.unwrap_err().contains("/nowhere/at-all"));
    }
}
