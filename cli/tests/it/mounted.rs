//! A small disk.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small file system, unmounted when the test ends.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    /// Mounts a file system of this size; `None` if that isn't allowed here, with a note past the test harness.
    pub(crate) fn over(dir: &Path, bytes: u64) -> Option<Self> {
        std::fs::create_dir_all(dir).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=700"), "none"]).arg(dir).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(dir.to_owned()));
        }
        let told = "\nNOT TESTED: a disk that is full: nothing can be mounted here (root may)\n";
        assert!(std::env::var_os("LASTWORD_MOUNT").is_none(), "{told}");
        std::io::stderr().write_all(told.as_bytes()).unwrap();
        None
    }

    /// Mounts one over a folder, with what is in there.
    #[allow(dead_code, reason = "for the tests of a cluster")]
    pub(crate) fn under(dir: &Path, bytes: u64) -> Option<Self> {
        let before = dir.with_extension("before");
        std::fs::rename(dir, &before).unwrap();
        let mounted = Self::over(dir, bytes);
        let copied = Command::new("cp").arg("-a").arg(before.join(".")).arg(dir).status();
        assert!(copied.is_ok_and(|status| status.success()));
        mounted
    }

    /// Fills it to the last byte.
    pub(crate) fn fill(&self, name: &str) {
        let mut file = std::fs::File::create(self.0.join(name)).unwrap();
        for size in [65_536, 4_096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Fills it but for this many bytes.
    #[allow(dead_code, reason = "for the tests of a cluster")]
    pub(crate) fn leave(&self, name: &str, bytes: u64) {
        let file = std::fs::File::create(self.0.join(name)).unwrap();
        let fills = || {
            let found = rustix::fs::statvfs(&self.0).unwrap();
            let free = (found.f_bavail * found.f_frsize).saturating_sub(bytes).max(1);
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free)
        };
        // Others write there meanwhile.
        while fills() == Err(rustix::io::Errno::NOSPC) {}
    }

    pub(crate) fn empty(&self, name: &str) {
        std::fs::remove_file(self.0.join(name)).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a server left behind by a failed test is killed only after this.
        let ended = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(ended.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
