//! A library in C that a test compiles and preloads into the program: calls on the files of its data directory fail or
//! wait, and its wall clock is moved.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FAULTS: &str = include_str!("preload/faults.c");

/// The memory that the test shares with the library.
pub(crate) struct Control {
    file: File,
    path: PathBuf,
    library: PathBuf,
}

impl Control {
    const NUMBERS: u64 = 14;

    /// Compiles the library in `dir`, without faults. If that isn't possible here, a note goes past the test harness,
    /// which captures the output of passing tests; with `LASTWORD_CC` set the test fails instead.
    pub(crate) fn new(test: &str, dir: &Path) -> Option<Self> {
        let (source, library) = (dir.join("faults.c"), dir.join("faults.so"));
        fs::write(&source, FAULTS).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).stderr(Stdio::piped());
        let missing = match cc.output() {
            Ok(output) if output.status.success() => {
                let path = dir.join("control");
                let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
                file.set_len(Self::NUMBERS * 8).unwrap();
                return Some(Self { file, path, library });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let told = format!("\nNOT TESTED: {test}: `cc` can't compile for Linux with glibc here: {missing}\n");
        assert!(std::env::var_os("LASTWORD_CC").is_none(), "{told}");
        std::io::stderr().write_all(told.as_bytes()).unwrap();
        None
    }

    /// Has a command load the library, whose faults concern the files below `data`.
    pub(crate) fn preload(&self, command: &mut Command, data: &Path) {
        // The library compares it with the names of open files, which have no links in them.
        let data = fs::canonicalize(data.parent().unwrap()).unwrap().join(data.file_name().unwrap());
        command.env("LD_PRELOAD", &self.library).env("CHAOS_CONTROL", &self.path).env("CHAOS_DIR", data);
    }

    /// Sets the seed that decides which calls fail.
    pub(crate) fn seed(&self, seed: u64) {
        self.set(1, seed.cast_signed());
    }

    /// Sets the wall clock to this many seconds after the machine's.
    pub(crate) fn wall(&self, seconds: i64) {
        self.set(0, seconds);
    }

    pub(crate) fn set(&self, at: u64, value: i64) {
        self.file.write_all_at(&value.to_ne_bytes(), at * 8).unwrap();
    }

    pub(crate) fn get(&self, at: u64) -> i64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at * 8).unwrap();
        i64::from_ne_bytes(bytes)
    }
}
