//! Runs the binary.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The `PATH` for programs that tests' agents call.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The result of a run of the program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the standard output of a successful run.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }
}

/// Returns the program: the one that `LASTWORD` names, else the one that Cargo built for the tests.
pub(crate) fn path() -> PathBuf {
    std::env::var_os("LASTWORD").map_or_else(|| env!("CARGO_BIN_EXE_lastword").into(), PathBuf::from)
}

/// Returns the program's command in `dir`, with an empty environment.
pub(crate) fn lastword(dir: &Path) -> Command {
    let mut command = Command::new(path());
    command.current_dir(dir).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program in `dir` to its end.
pub(crate) fn run(dir: &Path, args: &[&str]) -> Ended {
    finish(lastword(dir).args(args), "")
}

/// Runs a command to its end with this standard input.
pub(crate) fn finish(command: &mut Command, input: &str) -> Ended {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    match child.stdin.take().unwrap().write_all(input.as_bytes()) {
        // A program that is refused ends without reading its input.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A server in its own directory; killed when the test ends.
pub(crate) struct Server {
    pub(crate) dir: TempDir,
    child: Child,
    pub(crate) first_line: Value,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    pub(crate) fn start_in(dir: TempDir) -> Self {
        Self::start_with(dir, &["--listen", "127.0.0.1:0"])
    }

    /// Like `start_in`, with these arguments.
    pub(crate) fn start_with(dir: TempDir, args: &[&str]) -> Self {
        let mut command = lastword(dir.path());
        command.args(["serve", "--json"]).args(args).env("PATH", PATH);
        Self::start_by(dir, command)
    }

    /// Like `start_in`, with a command that runs the server in this directory.
    pub(crate) fn start_by(dir: TempDir, command: Command) -> Self {
        Self::try_start_by(dir, command).unwrap_or_else(|(ended, _)| panic!("it ended instead of listening: {ended:?}"))
    }

    /// Like [`Server::start_by`], but returns the result and the directory if the server ends instead of listening.
    pub(crate) fn try_start_by(dir: TempDir, mut command: Command) -> Result<Self, (Ended, TempDir)> {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        match serde_json::from_str(&line) {
            Ok(first_line) => Ok(Self { dir, child, first_line }),
            Err(_) => {
                // Without a line the server is about to end, and says why.
                if !line.is_empty() {
                    child.kill().unwrap();
                }
                let mut server = Self { dir, child, first_line: Value::Null };
                Err((Ended { stdout: line, ..server.wait() }, server.take_dir()))
            }
        }
    }

    /// Waits until the server ends. Its standard error is empty if the command sends it elsewhere.
    pub(crate) fn wait(&mut self) -> Ended {
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).unwrap();
        }
        Ended { code: self.child.wait().unwrap().code().unwrap_or(-1), stdout: String::new(), stderr }
    }

    /// Returns whether the server has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Returns the server's process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks the server to end, like a service manager.
    pub(crate) fn ask_to_end(&self) {
        let pid = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Takes the directory of a server that has ended.
    pub(crate) fn take_dir(&mut self) -> TempDir {
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs the program with the operator's token, named explicitly.
    pub(crate) fn operator(&self, args: &[&str]) -> Ended {
        self.with("--token-file", ".lastword/operator.token", args)
    }

    /// Runs the program with the token of an agent that [`Server::agent`] registered.
    pub(crate) fn as_agent(&self, name: &str, args: &[&str]) -> Ended {
        self.with("--token-file", &format!("{name}.token"), args)
    }

    fn with(&self, flag: &str, value: &str, args: &[&str]) -> Ended {
        finish(lastword(self.path()).args([flag, value]).args(args), "")
    }

    /// Registers an agent; its token is in `NAME.token`.
    pub(crate) fn agent(&self, name: &str) -> PathBuf {
        let token = self.operator(&["agent", "add", name]).ok();
        let path = self.path().join(format!("{name}.token"));
        std::fs::write(&path, token).unwrap();
        path
    }

    /// Kills the server without a chance to clean up; returns the directory.
    pub(crate) fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.take_dir()
    }

    /// Ends the server like a service manager; returns its exit code and the directory.
    pub(crate) fn terminate(mut self) -> (i32, TempDir) {
        self.ask_to_end();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (code, self.take_dir())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may already have ended.
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}
