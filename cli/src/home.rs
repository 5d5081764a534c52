//! Finds the folder of a team: the one above the working directory that has its data or its configuration, also through
//! git, whose worktrees share one team.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lastword_programs::main_worktree;
use rustix::process::geteuid;

use crate::config::{CONFIG_FILE, DATA_DIR};

/// Returns the folder with the team's data and configuration as a prefix for their names; empty for the working
/// directory.
pub(crate) fn find() -> PathBuf {
    let Ok(here) = std::env::current_dir() else { return PathBuf::new() };
    let found = find_from(&here, geteuid().as_raw());
    if found == here { PathBuf::new() } else { found }
}

/// Returns the nearest folder with a team: of the ancestors in the repository, then the repository's main worktree, then of
/// the ancestors above. Without one it is the main worktree, or the folder itself outside every repository. What belongs to
/// another user counts only where the search begins: neither its team nor its repository is this user's.
fn find_from(here: &Path, user: u32) -> PathBuf {
    let has_team = |folder: &&Path| {
        let found = [DATA_DIR, CONFIG_FILE].map(|name| folder.join(name)).into_iter().filter(|path| path.exists());
        let found: Vec<PathBuf> = found.collect();
        !found.is_empty() && (*folder == here || (is_own(folder, user) && found.iter().all(|path| is_own(path, user))))
    };
    let is_repository = |folder: &&Path| is_own(folder, user) && is_own(&folder.join(".git"), user);
    let top = here.ancestors().find(|folder| folder.join(".git").exists()).filter(is_repository);
    let main = top
        .map(|top| main_worktree(top).filter(|main| is_repository(&main.as_path())).unwrap_or_else(|| top.to_owned()));
    let inside = top.map_or(0, |top| here.ancestors().take_while(|folder| *folder != top).count() + 1);
    let in_repository = here.ancestors().take(inside).find(has_team).map(Path::to_owned);
    let shared = || main.clone().filter(|main| has_team(&main.as_path()));
    let above = || here.ancestors().skip(inside).find(has_team).map(Path::to_owned);
    in_repository.or_else(shared).or_else(above).or_else(|| main.clone()).unwrap_or_else(|| here.to_owned())
}

/// Whether a path is the user's own, and no link to something else.
fn is_own(path: &Path, user: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == user && !found.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_is_found_upwards_and_through_git() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let user = geteuid().as_raw();
        let make = |path: &str| fs::create_dir_all(root.join(path)).unwrap();
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        let from = |path: &str| find_from(&root.join(path), user).strip_prefix(&root).unwrap().display().to_string();
        for path in ["repo/.git/worktrees/wt", "repo/src/deep", "wt/src", "plain/src", "modules/lib"] {
            make(path);
        }
        write("wt/.git", &format!("gitdir: {}\n", root.join("repo/.git/worktrees/wt").display()));
        write("repo/.git/worktrees/wt/commondir", "../..\n");
        write("modules/lib/.git", "gitdir: ../../repo/.git/modules/lib\n");
        assert_eq!(from("plain/src"), "plain/src", "where it is asked for, outside every repository");
        assert_eq!(["repo", "repo/src/deep", "wt", "wt/src"].map(from), ["repo"; 4], "one team for a repository");
        assert_eq!(from("modules/lib"), "modules/lib", "a submodule is a repository of its own");
        make("repo/src/.lastword");
        assert_eq!(["repo/src/deep", "wt/src"].map(from), ["repo/src", "repo"], "the nearest one");
        make("wt/.lastword");
        assert_eq!(from("wt/src"), "wt");
        write("lastword.toml", "");
        assert_eq!(["plain/src", "modules/lib", "repo"].map(from), ["", "", ""], "above the repository");
        make("repo/.lastword");
        assert_eq!(from("repo"), "repo");
        let other = user + 1;
        assert_eq!(
            find_from(&root.join("plain/src"), other),
            root.join("plain/src"),
            "another user's folder is no team's"
        );
        assert_eq!(find_from(&root, other), root, "the working directory is the caller's choice");
        assert_eq!(find_from(&root.join("wt/src"), other), root.join("wt/src"), "nor is another user's repository");
        std::os::unix::fs::symlink(root.join("repo/.lastword"), root.join("plain/.lastword")).unwrap();
        assert_eq!(from("plain/src"), "", "a link leads to no team");
    }
}
