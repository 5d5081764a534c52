//! Edits claim the files that they change, before the program makes them (C1).
//!
//! A program asks by the means that it has: a hook before a tool, a permission request, an approval. What its call would
//! change is claimed for the task at hand, so that no two tasks change one file without knowing of each other. A conflict is an
//! answer for the model: who holds the file, and how to go on.

mod collision;
mod shell;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword_client::wire::{ClaimView, NewClaim};
use lastword_client::{Client, ClientError, is_transient};
use lastword_facts::Code;
use lastword_facts::fact::ClaimMode;
use lastword_facts::resource::{Resource, TREE_LEASE_MS_MAX};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::collision::collision;
use self::shell::Writes;
pub use self::tree::WorkTree;

/// The lease of a file that is edited, in ms. The work at its task renews it.
const LEASE_MS: u64 = 600_000;
/// The longest lease of a call that changes files all over a tree.
pub(crate) const CALL_LEASE: Duration = Duration::from_millis(TREE_LEASE_MS_MAX);
/// The most holders in a tree that a model is told of.
const LISTED_MAX: usize = 8;
/// The files of one directory from which on the directory itself is claimed.
const FILES_MAX: usize = 16;
/// The most bytes of a file whose contents are compared.
const COMPARED_BYTES_MAX: u64 = 16 << 20;

/// Members of a shell's call that name the folder in which it runs, by the programs' tools.
const FOLDERS: [&str; 4] = ["cwd", "workdir", "dir_path", "directory"];
/// Tools that run a line of a shell's language.
const SHELLS: [&str; 6] = ["Bash", "bash", "commandExecution", "execute", "run_shell_command", "shell"];
/// Tools that change the files that their arguments name.
const EDITS: [&str; 14] = [
    "Edit",
    "MultiEdit",
    "NotebookEdit",
    "Write",
    "apply_patch",
    "delete",
    "edit",
    "fileChange",
    "move",
    "multiedit",
    "patch",
    "replace",
    "write",
    "write_file",
];
/// Members that name a file to change.
const PATHS: [&str; 7] = ["absolute_path", "filePath", "file_path", "filepath", "movePath", "notebook_path", "path"];
/// Members of a call that hold others with such members.
const HOLDERS: [&str; 6] = ["changes", "content", "edits", "input", "locations", "metadata"];
/// What begins a line of a patch that names a file.
const PATCHED: [&str; 4] = ["*** Add File: ", "*** Delete File: ", "*** Move to: ", "*** Update File: "];

/// What a call may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolCall<'a> {
    /// The name or the kind of its tool.
    pub tool: &'a str,
    /// Its arguments.
    pub arguments: Option<&'a Value>,
}

/// Whether an edit may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What it changes is claimed, by these claims.
    Free(Vec<Claimed>),
    /// Another task holds what it would change.
    Held(Held),
}

/// A file that is claimed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Claimed {
    /// The file.
    pub path: PathBuf,
    /// The claim.
    pub claim: String,
    /// What ends it.
    pub lasts: ClaimLasts,
}

/// How long a claim of an edit is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum ClaimLasts {
    /// As long as its call.
    Call,
    /// As long as the user's prompt: it is held for no task.
    Prompt,
    /// As long as its task.
    Task,
}

/// What an edit can't have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The file.
    pub path: PathBuf,
    /// What the model is told.
    pub told: String,
}

/// Claims what a call would change when it is made in `cwd`.
///
/// # Errors
/// The broker is away, or refuses for another reason than a holder.
pub async fn claim(client: &Client, cwd: &Path, call: ToolCall<'_>) -> Result<Verdict, ClientError> {
    let found = writes(call, cwd);
    let mut claimed = Vec::new();
    if let Some(root) = &found.tree {
        match take_tree(client, root).await? {
            Verdict::Free(all) => claimed = all,
            held @ Verdict::Held(_) => return Ok(held),
        }
    }
    let mut tree: Option<WorkTree> = None;
    for path in together(&found.files) {
        let own = match tree.take().filter(|tree| tree.name(&path).is_some()) {
            Some(tree) => tree,
            None => WorkTree::of(&path),
        };
        let name = own.name(&path);
        tree = Some(own);
        // A root as a whole, and what has no name: an agent can't claim it.
        let Some(name) = name.filter(|name| !name.is_wide()) else { continue };
        match take(client, exclusive(&name)).await {
            Ok(view) => {
                let lasts = if view.request_id.is_none() { ClaimLasts::Prompt } else { ClaimLasts::Task };
                claimed.push(Claimed { path, claim: view.id, lasts });
            }
            Err(error) if is_held(&error) => {
                give_back(client, &claimed).await;
                let all = client.claims().await?.items;
                let told = conflict(&name, holder(&all, &name, &error), &error);
                return Ok(Verdict::Held(Held { path, told }));
            }
            // The agent holds all that it may, and no directory takes their place: better unclaimed than not at all.
            Err(error) if is_full(&error) => {}
            Err(error) => {
                give_back(client, &claimed).await;
                return Err(error);
            }
        }
    }
    Ok(Verdict::Free(claimed))
}

/// Ends the claims of a call that has ended, or isn't made.
pub async fn give_back(client: &Client, claimed: &[Claimed]) {
    for one in claimed.iter().filter(|one| one.lasts == ClaimLasts::Call) {
        // One that can't be released now ends by its lease.
        let _released = client.release(&one.claim).await;
    }
}

fn exclusive(name: &Resource) -> NewClaim {
    NewClaim {
        resource: name.to_string(),
        mode: ClaimMode::Exclusive,
        ttl_ms: Some(LEASE_MS),
        wait_ms: None,
        key: None,
    }
}

/// Claims a file; the directory above it, and so on, where the agent holds as many claims as it may: that one takes the place
/// of those in it.
async fn take(client: &Client, mut new: NewClaim) -> Result<ClaimView, ClientError> {
    loop {
        let error = match client.claim(&new).await {
            Ok(view) => return Ok(view),
            Err(error) => error,
        };
        let above = new.resource.rsplit_once('/').map(|(above, _)| above.to_owned());
        match above.filter(|above| is_full(&error) && Resource::new(above).is_ok_and(|above| !above.is_wide())) {
            Some(above) => new.resource = above,
            None => return Err(error),
        }
    }
}

fn is_held(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == Code::ClaimHeld)
}

fn is_full(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == Code::Saturated && problem.limit.is_some())
}

/// Returns what the model is told of an edit that the broker refuses.
#[must_use]
pub fn refused(error: &ClientError) -> String {
    let hint = error.problem().map(|problem| format!(". {}", problem.hint)).unwrap_or_default();
    format!("What this edit changes can't be claimed, so it was not made: {error}{hint}")
}

/// Returns why an edit goes unclaimed, for its user, where the broker couldn't be asked; `None` where its refusal stops the
/// edit.
#[must_use]
pub fn unclaimed(error: &ClientError) -> Option<String> {
    is_transient(error)
        .then(|| format!("Lastword: this edit isn't claimed, so another agent may make one as well: {error}"))
}

/// Returns a hash of a file's contents, to tell whether they changed; `None` if it isn't there or is too large.
#[must_use]
pub fn hash(path: &Path) -> Option<String> {
    let compared = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= COMPARED_BYTES_MAX);
    let bytes = if compared { fs::read(path).ok()? } else { return None };
    Some(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns what the model is told of a file that is no longer as it has read it.
#[must_use]
pub fn stale(path: &Path, now: Option<&str>) -> String {
    let hash = now.map_or("it is gone".to_owned(), |now| format!("SHA-256 now {}…", now.get(..12).unwrap_or(now)));
    format!(
        "{} was changed by its holder since you were refused it ({hash}): read it again, then make your edit on what is there.",
        path.display()
    )
}

fn writes(call: ToolCall<'_>, cwd: &Path) -> Writes {
    let Some(arguments) = call.arguments else { return Writes::default() };
    if SHELLS.contains(&call.tool) {
        let folders = [arguments, &arguments["input"]].into_iter().flat_map(|of| FOLDERS.map(|name| &of[name]));
        let cwd = folders.filter_map(Value::as_str).next().map_or_else(|| cwd.to_owned(), |folder| cwd.join(folder));
        return script(arguments).map_or_else(Writes::default, |script| shell::writes(&script, &cwd));
    }
    if !EDITS.contains(&call.tool) {
        return Writes::default();
    }
    let mut files = BTreeSet::new();
    named(arguments, &mut files);
    Writes { files: files.into_iter().map(|file| cwd.join(file)).collect(), tree: None }
}

/// Returns the script of a call, which stands alone or as words.
fn script(arguments: &Value) -> Option<String> {
    let command = [arguments, &arguments["input"]].into_iter().find_map(|of| of.get("command"));
    // Gemini CLI has no input in a request for permission: its title is the command.
    let title = || arguments.get("title").filter(|_| arguments["kind"] == "execute");
    match command.or_else(|| arguments.get("patterns")).or_else(title)? {
        Value::String(script) => Some(script.clone()),
        // opencode names each command of a script.
        Value::Array(commands) if command.is_none() => {
            Some(commands.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"))
        }
        Value::Array(words) => match words.iter().filter_map(Value::as_str).collect::<Vec<_>>()[..] {
            // The script of a shell that is started by its words.
            [_, option, script] if option.starts_with('-') && option.ends_with('c') => Some(script.to_owned()),
            ref words => Some(words.join(" ")),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Collects the files that arguments name.
fn named(arguments: &Value, files: &mut BTreeSet<String>) {
    match arguments {
        Value::Array(items) => items.iter().for_each(|item| named(item, files)),
        Value::Object(members) => {
            for (name, value) in members {
                if let Some(text) = value.as_str() {
                    if PATHS.contains(&name.as_str()) {
                        files.insert(text.to_owned());
                    } else if text.contains("*** Begin Patch") {
                        let of = |line| PATCHED.iter().find_map(|mark| str::strip_prefix(line, mark));
                        files.extend(text.lines().filter_map(of).map(|path| path.trim().to_owned()));
                    }
                } else if let Some(changes) = value.as_object().filter(|_| name == "changes") {
                    files.extend(changes.keys().cloned());
                } else if HOLDERS.contains(&name.as_str()) {
                    named(value, files);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Puts the directory in the place of many files in it.
fn together(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let beside = |dir: &Path| files.iter().filter(|file| file.parent() == Some(dir)).count();
    files
        .iter()
        .map(|file| match file.parent() {
            Some(dir) if beside(dir) > FILES_MAX => dir.to_owned(),
            _ => file.clone(),
        })
        .collect()
}

/// Claims all of a tree for the length of the call with which git changes files in it.
async fn take_tree(client: &Client, root: &Path) -> Result<Verdict, ClientError> {
    let tree = WorkTree::of_git(root);
    let named = tree.and_then(|tree| Some((tree.name(tree.root()).filter(Resource::is_tree)?, tree)));
    let Some((name, tree)) = named else { return Ok(Verdict::Free(Vec::new())) };
    let new = NewClaim { ttl_ms: Some(TREE_LEASE_MS_MAX), ..exclusive(&name) };
    let error = match client.claim(&new).await {
        Ok(view) => {
            let path = tree.root().to_owned();
            return Ok(Verdict::Free(vec![Claimed { path, claim: view.id, lasts: ClaimLasts::Call }]));
        }
        Err(error) if is_held(&error) => error,
        Err(error) if is_full(&error) => return Ok(Verdict::Free(Vec::new())),
        Err(error) => return Err(error),
    };
    let (all, me) = (client.claims().await?.items, client.agent("me").await?);
    let overlaps = |claim: &&ClaimView| Resource::new(&claim.resource).is_ok_and(|held| held.overlaps(&name));
    let held: Vec<&ClaimView> = all.iter().filter(overlaps).filter(|claim| claim.agent != me.name).collect();
    let lines: Vec<String> =
        held.iter().take(LISTED_MAX).map(|claim| format!("- {}: {}", claim.path(), who(claim))).collect();
    let lines = if lines.is_empty() { error.to_string() } else { lines.join("\n") };
    let ask = held.first().map(|first| format!("ask {} first, ", first.agent)).unwrap_or_default();
    let told = format!(
        "This command changes files all over the work tree, and others work in it, so it was not run:\n{lines}\nName the files of your \
         own instead (`git checkout -- FILE`, `git stash push -- FILE`), {ask}or use a worktree of your own (`git worktree add`)."
    );
    Ok(Verdict::Held(Held { path: tree.root().to_owned(), told }))
}

/// Returns the claim that stands against a name: the one that the refusal names, where it is still there.
fn holder<'a>(all: &'a [ClaimView], name: &Resource, error: &ClientError) -> Option<&'a ClaimView> {
    let detail = error.problem().map(|problem| problem.detail.clone()).unwrap_or_default();
    let overlaps = |claim: &&ClaimView| Resource::new(&claim.resource).is_ok_and(|held| held.overlaps(name));
    let named = |claim: &&ClaimView| detail.split([' ', ',']).any(|word| word == claim.id);
    all.iter().find(named).or_else(|| all.iter().find(overlaps))
}

/// Words a conflict for the model: who holds the file, and three ways to go on.
fn conflict(name: &Resource, held: Option<&ClaimView>, error: &ClientError) -> String {
    let path = name.split().1;
    let Some(held) = held else { return format!("{path} is held by another task, so this edit was not made: {error}") };
    let is_tree = Resource::new(&held.resource).is_ok_and(|held| held.is_tree());
    let other = match held.path() {
        _ if held.resource == name.as_str() => String::new(),
        _ if is_tree => " with all of its tree".to_owned(),
        whole => format!(" (as {whole})"),
    };
    let work = held.reference.as_ref().map(|reference| format!(" about {reference}")).unwrap_or_default();
    format!(
        "{path} is held{other} by {}, so this edit was not made. Go on in one of three ways:\n\
         1. Wait: call check_request with request_id {:?}, which returns once the claim has ended, or after two minutes. Then read \
         the file again before you edit it.\n\
         2. Ask {}: send a request{work} that says what you want to change in {path}, and why.\n\
         3. Work on something else, and come back to {path} at the end.",
        who(held),
        held.id,
        held.agent,
    )
}

fn who(claim: &ClaimView) -> String {
    let work = claim.reference.as_ref().map(|reference| format!(", for {reference}")).unwrap_or_default();
    let request = claim.request_id.as_ref().map(|request| format!(" ({request})")).unwrap_or_default();
    let since = claim.works_since.as_ref().map(|since| format!(", at work since {since}")).unwrap_or_default();
    format!("{}{work}{request}{since}", claim.agent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(tool: &str, arguments: &Value) -> Vec<String> {
        let found = writes(ToolCall { tool, arguments: Some(arguments) }, Path::new("/w"));
        found.files.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_files_of_each_programs_edits_are_found() {
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n*** Move to: src/b.rs\n@@\n*** Add File: c d.md\n*** End Patch";
        for (tool, arguments, found) in [
            ("Edit", json!({ "file_path": "/w/a.rs", "old_string": "path", "new_string": "x" }), vec!["/w/a.rs"]),
            ("NotebookEdit", json!({ "notebook_path": "n.ipynb" }), vec!["/w/n.ipynb"]),
            ("edit", json!({ "filePath": "src/a" }), vec!["/w/src/a"]),
            ("apply_patch", json!({ "patchText": patch }), vec!["/w/c d.md", "/w/src/a.rs", "/w/src/b.rs"]),
            ("fileChange", json!({ "changes": [{ "path": "/w/x", "kind": { "type": "update" } }] }), vec!["/w/x"]),
            ("fileChange", json!({ "changes": { "x": { "type": "add" } } }), vec!["/w/x"]),
            ("Bash", json!({ "command": "echo > x" }), vec!["/w/x"]),
            ("commandExecution", json!({ "command": ["bash", "-lc", "echo > x"] }), vec!["/w/x"]),
            ("commandExecution", json!({ "command": "/bin/bash -lc 'touch x'", "cwd": "/w/sub" }), vec!["/w/sub/x"]),
            ("run_shell_command", json!({ "command": "touch x", "dir_path": "sub" }), vec!["/w/sub/x"]),
            ("execute", json!({ "kind": "execute", "title": "clean", "input": { "command": "rm x" } }), vec!["/w/x"]),
            ("execute", json!({ "kind": "execute", "title": "mv x y && make" }), vec!["/w/x", "/w/y"]),
            (
                "edit",
                json!({ "kind": "edit", "content": [{ "type": "diff", "path": "/w/a", "newText": "" }], "locations": [{ "path": "/w/a" }] }),
                vec!["/w/a"],
            ),
            ("edit", json!({ "patterns": ["a"], "metadata": { "filepath": "/w/a", "diff": "" } }), vec!["/w/a"]),
            ("bash", json!({ "patterns": ["touch a", "rm b"], "metadata": {} }), vec!["/w/a", "/w/b"]),
            ("Read", json!({ "file_path": "/w/a.rs" }), vec![]),
            ("mcp__db__query", json!({ "path": "x" }), vec![]),
        ] {
            assert_eq!(files(tool, &arguments), found, "{tool} {arguments}");
        }
    }

    #[test]
    fn many_files_of_one_directory_are_claimed_as_the_directory() {
        let files = (0..FILES_MAX + 1).map(|n| PathBuf::from(format!("/w/src/{n}"))).chain([PathBuf::from("/w/a")]);
        assert_eq!(
            together(&files.collect::<Vec<_>>()).into_iter().collect::<Vec<_>>(),
            [Path::new("/w/a"), Path::new("/w/src")]
        );
    }

    #[test]
    fn a_conflict_names_the_holder_and_three_ways_on() {
        let held = ClaimView {
            id: "clm-3".to_owned(),
            fence: 3,
            resource: "acme/app@main:src".to_owned(),
            mode: ClaimMode::Exclusive,
            agent: "builder".to_owned(),
            request_id: Some("req-0007".to_owned()),
            reference: Some("P-12".to_owned()),
            works_since: None,
            expires_at: String::new(),
        };
        let name = Resource::new("acme/app@main:src/a.rs").unwrap();
        let error = ClientError::Unreachable { url: String::new(), reason: String::new() };
        let told = conflict(&name, Some(&held), &error);
        assert!(
            told.starts_with("src/a.rs is held (as src) by builder, for P-12 (req-0007), so this edit was not made."),
            "{told}"
        );
        assert!(told.contains("request_id \"clm-3\""), "{told}");
        assert_eq!(told.lines().count(), 4);
    }
}
