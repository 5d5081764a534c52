//! A folder for Gemini CLI, which reads no settings below a folder to which others may write.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Returns a new folder to whose parents only their owners may write: below the folder of the build, unless the repository
/// is below /tmp.
pub(crate) fn closed_folder() -> TempDir {
    let of_user = ["HOME", "XDG_RUNTIME_DIR"].map(|name| std::env::var_os(name).map(PathBuf::from));
    let of_build = Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    let candidates = [of_build].into_iter().chain(of_user).chain([Some(PathBuf::from("/run"))]).flatten();
    // The tests of root run programs of another user, who must come through.
    let passing = if rustix::process::geteuid().is_root() { 0o001 } else { 0 };
    let is_closed = |folder: &Path| {
        let mode = std::fs::metadata(folder).map_or(0o022, |found| found.permissions().mode());
        mode & 0o022 == 0 && mode & passing == passing
    };
    let mut closed = candidates.filter_map(|folder| folder.canonicalize().ok());
    let closed =
        closed.find_map(|folder| tempfile::tempdir_in(&folder).ok().filter(|_| folder.ancestors().all(is_closed)));
    closed.expect("a folder to whose parents nobody else may write: set HOME to one")
}
