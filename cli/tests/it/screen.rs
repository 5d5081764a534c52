//! The program at a pseudo-terminal whose other end is read as a screen.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::program::lastword;
use crate::running::{comes, wait_for};

pub(crate) const ROWS: u16 = 24;
pub(crate) const COLUMNS: u16 = 80;

/// The program at its own terminal; killed when the test ends.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    ours: File,
    theirs: File,
    pub(crate) screen: Arc<Mutex<vt100::Parser>>,
    /// Everything that was written to the terminal.
    written: Arc<Mutex<Vec<u8>>>,
    /// How much of it [`Terminal::asks`] has read.
    read: usize,
}

impl Terminal {
    pub(crate) fn run(dir: &Path, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let ours = File::from(ours);
        let theirs = File::options().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&theirs, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || theirs.try_clone().unwrap();
        let mut command = lastword(dir);
        command.args(args).env("TERM", "xterm-256color").envs(variables.iter().copied());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let written = Arc::new(Mutex::new(Vec::new()));
        let (shown, kept, mut reader) = (Arc::clone(&screen), Arc::clone(&written), ours.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self { child, ours, theirs, screen, written, read: 0 }
    }

    /// Waits until the screen shows all parts.
    pub(crate) fn shows(&self, parts: &[&str]) {
        let all = || parts.iter().all(|part| self.text().contains(part));
        wait_for(&format!("{parts:?} on the screen"), all);
    }

    /// Waits for a question, behind the one that this waited for last.
    pub(crate) fn asks(&mut self, question: &str) {
        let mut found = None;
        let place = |written: &str| written[self.read..].find(question).map(|at| self.read + at + question.len());
        let asked = || {
            found = place(&self.written());
            found.is_some()
        };
        if !comes(asked) {
            panic!("{question:?} never came at the terminal: {}", self.written());
        }
        self.read = found.unwrap_or_default();
    }

    pub(crate) fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Returns everything that was written to the terminal so far.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end; returns the exit code, and checks that the terminal is restored.
    pub(crate) fn ended(mut self) -> i32 {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        wait_for("the first screen", || !self.screen.lock().unwrap().screen().alternate_screen());
        let modes = tcgetattr(&self.theirs).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "it reads lines again");
        assert!(!self.screen.lock().unwrap().screen().hide_cursor());
        code
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may already have ended.
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}
