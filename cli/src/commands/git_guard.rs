//! `lastword guard`: git hooks that refuse a commit of files that another task holds (C1).

use std::fs;
use std::io::{IsTerminal as _, Read as _, stdin};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use lastword_client::is_transient;
use lastword_client::wire::ClaimView;
use lastword_facts::names::OWN_NAME;
use lastword_facts::resource::Resource;
use lastword_programs::edits::WorkTree;
use serde_json::json;

use super::Context;
use super::launch::this_program;
use crate::failure::Failure;
use crate::out::{Out, escape_line, shell_word};
use crate::session::Authority;

/// The hooks, each with the word by which `check` knows it.
const HOOKS: [&str; 2] = ["pre-commit", "pre-push"];
/// The mark of the line that is ours.
const MARK: &str = "# lastword guard";
/// The first line of a hook that is made.
const SHELL: &str = "#!/bin/sh\n";
/// What git sends in the place of a commit that isn't there.
const NOTHING: &str = "0000000000000000000000000000000000000000";
/// The most files that a refusal lists.
const LISTED_MAX: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Add the hooks to this repository; those that are there go on to run
    Install,
    /// Take them out again
    Remove,
    /// Refuse if what is about to be committed or pushed is held by another task (called by git)
    #[command(hide = true)]
    Check {
        /// Hook that calls.
        #[arg(value_parser = HOOKS)]
        hook: String,
        /// What git passes to it.
        #[arg(hide = true)]
        rest: Vec<String>,
    },
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.verb {
        Verb::Install => install(cx),
        Verb::Remove => remove(cx),
        Verb::Check { hook, .. } => check(&hook, cx).await,
    }
}

fn git(args: &[&str]) -> Result<Vec<u8>, Failure> {
    let ended =
        Command::new("git").args(args).output().map_err(|error| Failure::unavailable(format!("git: {error}")))?;
    match ended.status.success() {
        true => Ok(ended.stdout),
        false => Err(Failure::usage(String::from_utf8_lossy(&ended.stderr).trim().to_owned())
            .hint("run it in the work tree of a git repository")),
    }
}

/// Returns the repository's folder of hooks.
fn folder() -> Result<PathBuf, Failure> {
    let folder = git(&["rev-parse", "--git-path", "hooks"])?;
    Ok(PathBuf::from(String::from_utf8_lossy(&folder).trim_end().to_owned()))
}

fn install(cx: &Context) -> Result<(), Failure> {
    let folder = folder()?;
    let program = shell_word(&this_program()?);
    fs::create_dir_all(&folder)?;
    for hook in HOOKS {
        let path = folder.join(hook);
        let line = format!("{program} guard check {hook} \"$@\" || exit 1 {MARK}\n");
        // A push's references are on standard input, which a hook of the user's own may want as well.
        let line = if hook == "pre-push" {
            format!("lastword_refs=$(cat); printf '%s\\n' \"$lastword_refs\" | {line}")
        } else {
            line
        };
        let before = fs::read_to_string(&path).unwrap_or_default();
        let kept = without(&before);
        let (first, rest) = kept.split_once('\n').map_or(("", kept.as_str()), |(first, rest)| (first, rest));
        let text = match first.strip_prefix("#!") {
            None if kept.trim().is_empty() => format!("{SHELL}{line}"),
            Some(shell) if shell.contains("sh") => {
                let again = match hook {
                    "pre-push" => format!("exec <<LASTWORD_REFS {MARK}\n$lastword_refs\nLASTWORD_REFS\n"),
                    _ => String::new(),
                };
                format!("{first}\n{line}{again}{rest}")
            }
            Some(_) | None => {
                return Err(Failure::refused(format!("{} isn't a shell's script", path.display()))
                    .hint(format!("call this in it, and end with its exit code: {program} guard check {hook}")));
            }
        };
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let shown = escape_line(&folder.display().to_string());
    cx.out.show(&json!({ "folder": folder, "hooks": HOOKS }), |_, _| {
        format!("added to {} in {shown}; `git commit --no-verify` goes past them", HOOKS.join(" and "))
    })
}

/// Returns a hook without what is ours.
fn without(hook: &str) -> String {
    let mut kept = String::new();
    let mut ours = false;
    for line in hook.split_inclusive('\n') {
        if line.starts_with("exec <<LASTWORD_REFS") {
            ours = true;
        }
        if !ours && !line.contains(MARK) {
            kept.push_str(line);
        }
        if line.trim_end() == "LASTWORD_REFS" {
            ours = false;
        }
    }
    kept
}

fn remove(cx: &Context) -> Result<(), Failure> {
    let folder = folder()?;
    for hook in HOOKS {
        let path = folder.join(hook);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        match without(&text) {
            kept if kept == text => {}
            kept if kept.trim().is_empty() || kept == SHELL => fs::remove_file(&path)?,
            kept => fs::write(&path, kept)?,
        }
    }
    cx.out.show(&json!({ "folder": folder }), |_, _| "taken out".to_owned())
}

/// Fails if a file is held by another than the caller. A broker that is away stops no commit.
async fn check(hook: &str, cx: &Context) -> Result<(), Failure> {
    let files = if hook == "pre-commit" { staged()? } else { pushed()? };
    let client = cx.client(Authority::Act)?;
    let asked = match client.claims().await {
        Ok(page) if page.items.is_empty() => return Ok(()),
        Ok(page) => client.agent(OWN_NAME).await.map(|me| (page.items, me.name)),
        Err(error) => Err(error),
    };
    let (claims, me) = match asked {
        Ok(asked) => asked,
        Err(error) if is_transient(&error) => {
            return Out::note(&format!("lastword guard: nobody was asked whether another task holds a file: {error}"));
        }
        Err(error) => return Err(error.into()),
    };
    let root = PathBuf::from(String::from_utf8_lossy(&git(&["rev-parse", "--show-toplevel"])?).trim_end().to_owned());
    let tree = WorkTree::of(&root);
    let held: Vec<(&String, &ClaimView)> =
        files.iter().filter_map(|file| Some((file, holder(&tree, &root.join(file), &claims, &me)?))).collect();
    if held.is_empty() {
        return Ok(());
    }
    let lines = held.iter().take(LISTED_MAX).map(|(file, claim)| {
        let work = claim.reference.as_ref().map(|work| format!(", for {work}")).unwrap_or_default();
        format!("  {file}: {}{work}", claim.agent)
    });
    let lines = lines.map(|line| escape_line(&line)).collect::<Vec<_>>().join("\n");
    let more = held.len().saturating_sub(LISTED_MAX);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    Err(Failure::refused(format!(
        "another task works on what you {}:\n{lines}{more}",
        if hook == "pre-commit" { "commit" } else { "push" }
    ))
    .hint("leave these files out, ask their holder, or wait: lastword claim FILE --wait 5m; --no-verify is a human's"))
}

fn holder<'a>(tree: &WorkTree, file: &Path, claims: &'a [ClaimView], me: &str) -> Option<&'a ClaimView> {
    let name = tree.name(file)?;
    claims
        .iter()
        .find(|claim| claim.agent != me && Resource::new(&claim.resource).is_ok_and(|held| held.overlaps(&name)))
}

/// Returns the files of the commit that is about to be made.
fn staged() -> Result<Vec<String>, Failure> {
    Ok(names(&git(&["diff", "--cached", "--name-only", "--no-renames", "-z"])?))
}

/// Returns the files of the commits that are about to be pushed, whose ends git writes on standard input.
fn pushed() -> Result<Vec<String>, Failure> {
    let mut refs = String::new();
    if !stdin().is_terminal() {
        stdin().read_to_string(&mut refs)?;
    }
    let mut files = Vec::new();
    for line in refs.lines() {
        let [_, local, _, remote] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        if local == NOTHING {
            continue;
        }
        let mut args = vec!["log", "--format=", "--name-only", "--no-renames", "-z", local, "--not"];
        // What no remote has yet.
        args.push(if remote == NOTHING { "--remotes" } else { remote });
        files.extend(names(&git(&args)?));
    }
    files.sort();
    files.dedup();
    Ok(files)
}

fn names(listed: &[u8]) -> Vec<String> {
    let names = listed.split(|byte| matches!(byte, 0 | b'\n')).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_to_a_hook_is_taken_out_again() {
        let own = "#!/bin/sh\nread x\nmake\n";
        let added = format!(
            "#!/bin/sh\nlastword guard check pre-push || exit 1 {MARK}\nexec <<LASTWORD_REFS {MARK}\n$lastword_refs\nLASTWORD_REFS\nread x\nmake\n"
        );
        assert_eq!(without(&added), own);
        assert_eq!(without(own), own);
    }
}
