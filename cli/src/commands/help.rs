//! The help: the commands grouped by purpose, and each command's examples.

mod examples;
#[cfg(test)]
mod vocabulary_tests;

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::builder::styling::{Style, Styles};
use clap::{Command, CommandFactory as _};

use self::examples::examples_of;
use super::Cli;

/// The commands by purpose, in the order of the help. A test checks that each command is in exactly one group.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Set up",
        &[
            "init",
            "serve",
            "stop-server",
            "agent",
            "human",
            "sign-in",
            "sign-out",
            "token",
            "notify",
            "doctor",
            "completions",
            "man",
        ],
    ),
    ("Run agents", &["claude", "codex", "opencode", "gemini", "run", "prompt", "mcp", "hook", "discord"]),
    ("Ask and answer", &["ask", "send", "inbox", "finish"]),
    ("Decide", &["approvals", "approve", "reject", "escalations", "answer"]),
    ("Watch", &["console", "top", "ls", "tail", "tree", "audit", "incidents", "claims"]),
    (
        "Control",
        &["pause", "resume", "stop", "grant", "claim", "release", "guard", "schedule", "limits", "bound", "clock"],
    ),
    (
        "Verify and debug",
        &["explain", "verify", "checkpoint", "backup", "restore", "archive", "cluster", "reindex", "replay", "demo"],
    ),
];

/// Returns the definition of the command line, with groups and examples.
pub(crate) fn command() -> Command {
    let mut root = Cli::command();
    let names: Vec<String> = root.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    for name in names {
        root = root.mut_subcommand(name, |sub| with_examples(sub, ""));
    }
    let header = *Styles::default().get_header();
    let mut after = examples_of("").fold(heading(header, "Examples"), |text, line| text + "\n  " + line);
    if let Some(exit) = root.get_after_help() {
        let _infallible = write!(after, "\n\n{exit}");
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}\n{{options}}{{after-help}}",
        groups(&root),
        heading(header, "Options"),
    );
    root.help_template(StyledStr::from(template)).after_help(StyledStr::from(after))
}

/// Adds the examples to a command and the verbs below it.
fn with_examples(mut command: Command, above: &str) -> Command {
    let path = format!("{above} {}", command.get_name()).trim_start().to_owned();
    let verbs: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let mut text = heading(*Styles::default().get_header(), "Examples");
    for line in examples_of(&path) {
        let _infallible = write!(text, "\n  {line}");
    }
    for verb in verbs {
        if let Some(line) = examples_of(&format!("{path} {verb}")).next() {
            let _infallible = write!(text, "\n  {line}");
        }
        command = command.mut_subcommand(verb, |sub| with_examples(sub, &path));
    }
    if let Some(kept) = command.get_after_help() {
        let _infallible = write!(text, "\n\n{kept}");
    }
    command.after_help(StyledStr::from(text))
}

/// Returns the list of commands, with a heading for each group.
fn groups(root: &Command) -> String {
    let styles = Styles::default();
    let (header, literal) = (*styles.get_header(), *styles.get_literal());
    let mut text = String::new();
    for (name, commands) in GROUPS {
        text += &heading(header, name);
        for name in commands {
            let about = root.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let _infallible = write!(text, "\n  {literal}{name:<12}{literal:#} {}", about.unwrap_or_default());
        }
        text += "\n\n";
    }
    text
}

fn heading(style: Style, name: &str) -> String {
    format!("{style}{name}:{style:#}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use clap::error::ErrorKind;

    use super::examples::EXAMPLES;
    use super::*;

    /// Splits an example like a shell; a redirection's target isn't an argument.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![];
        let mut word: Option<String> = None;
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (Some(open), _) if open == c => quote = None,
                (None, '"' | '\'') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None, ' ') => words.extend(word.take()),
                (None, '<' | '>') => break,
                _ => word.get_or_insert_default().push(c),
            }
        }
        assert!(quote.is_none(), "an open quote: {line}");
        words.extend(word);
        words
    }

    /// Collects every command and verb that the help shows, with its path.
    pub(super) fn shown(command: &Command, above: &str, into: &mut Vec<(String, Command)>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let path = format!("{above} {}", sub.get_name()).trim_start().to_owned();
            into.push((path.clone(), sub.clone()));
            shown(sub, &path, into);
        }
    }

    #[test]
    fn every_command_has_two_examples_that_parse() {
        let root = command();
        let mut all = vec![];
        shown(&root, "", &mut all);
        assert!(all.len() > 50, "{}", all.len());
        for (path, command) in &all {
            let help = command.clone().render_long_help().to_string();
            let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{path} has no examples"));
            let examples: Vec<&str> = examples.lines().map_while(|line| line.strip_prefix("  ")).collect();
            assert!(examples.len() >= 2, "{path}: {examples:?}");
            for line in examples {
                let matches = root.clone().try_get_matches_from(words(line)).unwrap_or_else(|e| panic!("{line}: {e}"));
                let mut named = vec![];
                let mut at = matches.subcommand();
                while let Some((name, below)) = at {
                    named.push(name);
                    at = below.subcommand();
                }
                assert!(named.join(" ").starts_with(path), "{line} is not an example of {path}");
            }
        }
        let known: BTreeSet<&str> = all.iter().map(|(path, _)| path.as_str()).collect();
        for (path, _) in EXAMPLES.iter().filter(|(path, _)| !path.is_empty()) {
            assert!(known.contains(path), "there is no command {path}");
        }
        for line in examples_of("") {
            assert!(root.clone().try_get_matches_from(words(line)).is_ok(), "{line}");
        }
    }

    /// Collects the commands in the code blocks of a document, or of all in a folder, each without its comment.
    fn documented(path: &Path, into: &mut Vec<(String, String)>) {
        if path.is_dir() {
            let below = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            return below.for_each(|path| documented(&path, into));
        }
        if path.extension().is_none_or(|extension| extension != "md") {
            return;
        }
        let text = fs::read_to_string(path).unwrap();
        let blocks = text.split("```").skip(1).step_by(2).flat_map(str::lines);
        // Skips commands that continue on the next line.
        let whole = |line: &&str| !line.ends_with('\\') && line.matches('\'').count().is_multiple_of(2);
        let commands = blocks.filter(|line| line.starts_with("lastword ")).filter(whole);
        let plain = |line: &str| {
            let ends = [" #", " | ", " && ", " & ", ";"].iter();
            let alone = ends.fold(line, |line, end| line.split(end).next().unwrap());
            alone.trim_end_matches([' ', '&']).to_owned()
        };
        into.extend(commands.map(|line| (path.display().to_string(), plain(line))));
    }

    #[test]
    fn every_command_in_the_documents_parses() {
        let mut all = vec![];
        for name in ["docs", "README.md"] {
            documented(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name), &mut all);
        }
        assert!(all.len() > 100, "{}", all.len());
        let root = command();
        let parse = |(path, line): &(String, String)| {
            let error = root.clone().try_get_matches_from(words(line)).err()?;
            (!matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion))
                .then(|| format!("{path}: {line}\n{error}"))
        };
        let wrong: Vec<String> = all.iter().filter_map(parse).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn each_program_has_a_launcher() {
        let root = command();
        for program in lastword_programs::ALL {
            let name = program.command.names[0];
            assert!(root.find_subcommand(name).is_some(), "no `lastword {name}` starts {}", program.name);
        }
    }

    #[test]
    fn every_command_is_in_exactly_one_group_and_begins_with_a_verb_in_one_line() {
        let root = command();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
        let distinct: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(grouped.len(), distinct.len(), "a command is in two groups");
        let there = root.get_subcommands().filter(|sub| !sub.is_hide_set());
        let there: BTreeSet<&str> = there.map(Command::get_name).collect();
        assert_eq!(distinct, there);
        let mut all = vec![];
        shown(&root, "", &mut all);
        for (path, command) in all {
            let about = command.get_about().unwrap_or_else(|| panic!("{path} has no description")).to_string();
            assert!(about.len() <= 85 && !about.contains('\n') && !about.ends_with('.'), "{path}: {about}");
            let verb = about.split_whitespace().next().unwrap_or_default();
            assert!(verb.starts_with(char::is_uppercase) && !verb.ends_with('s'), "{path}: {about}");
        }
    }
}
