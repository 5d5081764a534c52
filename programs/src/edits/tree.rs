//! The names of files in a work tree (C1). Two worktrees and two machines name a file alike where they share its repository
//! and its branch.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use lastword_facts::resource::{RESOURCE_BYTES_MAX, Resource};

/// The remote that names a repository.
const REMOTE: &str = "remote.origin.url";
/// The scope of files that no repository has: those of this machine's disk.
const DISK: &str = "disk";
/// The length of a commit's name in the scope of a work tree without a branch.
const COMMIT_LENGTH: usize = 12;

/// A work tree, or the disk of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkTree {
    /// The root of its files.
    root: PathBuf,
    /// What precedes the path in a file's name, such as `github.com/acme/app@main`.
    scope: String,
}

impl WorkTree {
    /// Finds the work tree that has a file or directory, which need not exist yet.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let dir = path.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("/"));
        Self::of_git(dir).unwrap_or_else(|| Self { root: PathBuf::from("/"), scope: format!("{}@{DISK}", host()) })
    }

    /// Finds the work tree of git that has a directory.
    pub(super) fn of_git(dir: &Path) -> Option<Self> {
        // Both at once: a hook waits for them.
        let found =
            git(dir, &["rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir"]).spawn().ok()?;
        let remote = git(dir, &["config", "--get", REMOTE]).spawn().ok()?;
        let found = said(found)?;
        let mut lines = found.lines();
        let (root, own, common) = (lines.next()?, lines.next()?, lines.next()?);
        let branch = branch(Path::new(own)).or_else(|| {
            let name = git(dir, &["symbolic-ref", "--short", "HEAD"]).spawn().ok()?;
            said(name).map(|name| name.trim().to_owned())
        })?;
        let repository = said(remote).and_then(|url| repository(url.trim())).unwrap_or_else(|| {
            // Its folder stands for a repository that no other machine has.
            let common = fs::canonicalize(dir.join(common)).unwrap_or_else(|_| PathBuf::from(common));
            let folder = if common.ends_with(".git") { common.parent().unwrap_or(&common) } else { &common };
            format!("{}{}", host(), folder.display())
        });
        let root = fs::canonicalize(root).ok()?;
        Some(Self { root, scope: format!("{}@{branch}", repository.replace(':', "/")) })
    }

    /// Returns the name of a file or directory in the tree; of the directory above it if that would be too long. `None` for
    /// one outside of the tree, and for one that no name can have.
    #[must_use]
    pub fn name(&self, path: &Path) -> Option<Resource> {
        let path = resolved(path).ok()?;
        let mut inside = path.strip_prefix(&self.root).ok()?;
        loop {
            let text = inside.to_str()?.replace('\\', "\\\\").replace('*', "\\*").replace('?', "\\?");
            if self.scope.len() + 1 + text.len() <= RESOURCE_BYTES_MAX {
                return Resource::new(&format!("{}:{text}", self.scope)).ok();
            }
            inside = inside.parent()?;
        }
    }

    /// Returns the root of its files.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

fn git(dir: &Path, args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    git
}

fn said(git: std::process::Child) -> Option<String> {
    let ended = git.wait_with_output().ok()?;
    ended.status.success().then(|| String::from_utf8(ended.stdout).ok()).flatten()
}

/// Returns the branch that the `HEAD` of a git directory names, or the commit.
fn branch(git_dir: &Path) -> Option<String> {
    let head = fs::read_to_string(git_dir.join("HEAD")).ok()?;
    match head.trim().strip_prefix("ref: refs/heads/") {
        // The mark of a repository that keeps its references elsewhere.
        Some(".invalid") => None,
        Some(branch) => Some(branch.to_owned()),
        None => head.get(..COMMIT_LENGTH).map(str::to_owned),
    }
}

/// Returns a repository's name without how it is reached and by whom, such as `github.com/acme/app`.
fn repository(url: &str) -> Option<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = match rest.split_once('@') {
        Some((user, rest)) if !user.contains('/') => rest,
        _ => rest,
    };
    let rest = rest.trim_end_matches('/');
    let rest = rest.strip_suffix(".git").unwrap_or(rest).trim_start_matches('/');
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// Returns the path as the disk has it, through links, where it exists; what doesn't exist yet stands below that.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            // What a link leads to has another directory above it.
            plain = fs::canonicalize(&plain).unwrap_or(plain);
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    let mut below = Vec::new();
    let mut above = plain.as_path();
    loop {
        // A link itself is what a program replaces or removes only by a command; an edit goes through it.
        match (fs::canonicalize(above), above.parent(), above.file_name()) {
            (Ok(found), ..) => return Ok(below.iter().rev().fold(found, |path, part| path.join(part))),
            (Err(_), Some(parent), Some(name)) => {
                below.push(name.to_owned());
                above = parent;
            }
            (Err(error), ..) => return Err(error),
        }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private::PrivateFolder;

    fn run(dir: &Path, args: &[&str]) {
        let mut git = git(dir, args);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        let ended = git.output().unwrap();
        assert!(ended.status.success(), "git {args:?}");
    }

    #[test]
    fn worktrees_and_clones_agree_where_they_share_a_branch() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-tree-").unwrap();
        let [one, two, linked] = ["one", "two", "linked"].map(|name| folder.path().join(name));
        for dir in [&one, &two] {
            fs::create_dir(dir).unwrap();
            run(dir, &["init", "--initial-branch=main"]);
        }
        let name = |dir: &Path, file: &str| WorkTree::of(dir).name(&dir.join(file)).unwrap().to_string();
        assert_ne!(name(&one, "a.rs"), name(&two, "a.rs"), "they have nothing in common");
        run(&one, &["remote", "add", "origin", "git@example.com:acme/app.git"]);
        run(&two, &["remote", "add", "origin", "https://me@example.com/acme/app"]);
        assert_eq!(name(&one, "src/./x/../ü b.rs"), "example.com/acme/app@main:src/ü b.rs");
        assert_eq!(name(&one, "a.rs"), name(&two, "a.rs"));
        let commit = ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "--allow-empty", "-m", "x"];
        run(&one, &commit);
        run(&one, &["worktree", "add", "-b", "next", linked.to_str().unwrap()]);
        assert_eq!(name(&linked, "a.rs"), "example.com/acme/app@next:a.rs");
        run(&two, &["checkout", "-b", "next"]);
        assert_eq!(name(&linked, "a.rs"), name(&two, "a.rs"));
        // A link names what it leads to, and a file of another tree is that one's.
        std::os::unix::fs::symlink(one.join("real"), linked.join("link")).unwrap();
        fs::create_dir(one.join("real")).unwrap();
        assert_eq!(WorkTree::of(&linked).name(&linked.join("link/x")), None);
        assert_eq!(
            WorkTree::of(&linked.join("link/x")).name(&linked.join("link/x")).unwrap().to_string(),
            "example.com/acme/app@main:real/x"
        );
        let outside = WorkTree::of(folder.path());
        let name = outside.name(&folder.path().join("[id] *.tsx")).unwrap();
        assert!(name.as_str().ends_with("/[id] \\*.tsx") && name.as_str().contains("@disk:"), "{name}");
        assert!(!name.is_wide());
    }

    #[test]
    fn a_repository_is_named_without_its_user_and_way() {
        for url in
            ["git@example.com:acme/app.git", "ssh://git@example.com/acme/app", "https://example.com/acme/app.git/"]
        {
            assert_eq!(repository(url).unwrap().replace(':', "/"), "example.com/acme/app", "{url}");
        }
        assert_eq!(repository("/srv/git/app.git").as_deref(), Some("srv/git/app"));
    }

    #[test]
    fn a_name_that_would_be_too_long_is_that_of_a_directory_above() {
        let tree = WorkTree { root: PathBuf::from("/"), scope: "x@main".to_owned() };
        let deep = format!("/none/{}/{}", "a".repeat(300), "b".repeat(300));
        assert_eq!(tree.name(Path::new(&deep)).unwrap().to_string(), format!("x@main:none/{}", "a".repeat(300)));
    }
}
