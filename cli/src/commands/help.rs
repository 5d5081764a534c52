//! The help: the commands grouped by purpose, and each command's examples.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::builder::styling::{Style, Styles};
use clap::{Command, CommandFactory as _};

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

/// Examples by command, at least two each. A command with verbs also shows the first example of each verb.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "lastword demo",
            "lastword serve",
            "lastword agent add coder > coder.token",
            "lastword ask coder \"Fix the login form\" --ref LOGIN-1",
            "lastword top",
        ],
    ),
    (
        "init",
        &[
            "lastword init",
            "lastword --token-file coder.token init --claude --dry-run",
            "lastword init --codex --from-env",
            "lastword init --claude --check",
        ],
    ),
    ("serve", &["lastword serve", "lastword serve --listen 127.0.0.1:8080 --host lastword.example --with-agents"]),
    ("demo", &["lastword demo", "lastword demo --keep"]),
    ("agent", &[]),
    (
        "agent add",
        &[
            "lastword agent add reviewer --action review_code > reviewer.token",
            "lastword agent add tester --group qa --turns-max 2 --ack 1d > tester.token",
        ],
    ),
    (
        "agent set",
        &[
            "lastword agent set coder --roots-per-hour 20",
            "lastword agent set coder --day-tokens 500000 --day-cost 0 --yes",
        ],
    ),
    ("agent list", &["lastword agent list", "lastword agent list --json"]),
    ("agent show", &["lastword agent show coder", "lastword agent show coder --json"]),
    ("agent remove", &["lastword agent remove reviewer", "lastword --url http://127.0.0.1:8080 agent remove reviewer"]),
    (
        "agent token",
        &[
            "lastword agent token coder > coder.token",
            "lastword agent token coder --expires 30d --overlap 1h > coder.token",
        ],
    ),
    ("human", &[]),
    (
        "human add",
        &[
            "lastword human add anna --role approver > anna.token",
            "lastword human add alice-at-coder --role operator > alice.token",
        ],
    ),
    ("human list", &["lastword human list", "lastword human list --json"]),
    ("human role", &["lastword human role anna operator", "lastword human role anna viewer --yes"]),
    ("sign-out", &["lastword sign-out", "lastword --url https://broker.example:7171 sign-out"]),
    (
        "token",
        &[
            "lastword --token-file kilo.token token --scope read --scope ask --expires 8h",
            "lastword token --scope read --expires 30d",
        ],
    ),
    ("sign-in", &["lastword sign-in", "lastword --url https://broker.example:7171 sign-in"]),
    (
        "send",
        &[
            "lastword send reviewer \"Please review the diff\" --action review_code",
            "lastword send \"#review_code\" \"Please review\" --ref LOGIN-1 --request-id review-1 --wait 60s",
            "lastword send user \"Deploy to eu or us?\"",
        ],
    ),
    ("inbox", &["lastword inbox --wait 30s", "lastword --token-file coder.token inbox --json"]),
    (
        "finish",
        &[
            "lastword finish turn-3 \"Fixed, and reviewed.\"",
            "lastword finish turn-3 --status partial --completed api --failed docs \"The API is done.\"",
        ],
    ),
    (
        "ask",
        &[
            "lastword ask coder \"Fix the login form\" --ref LOGIN-1",
            "lastword ask \"#review_code\" --wait 0s < request.txt",
        ],
    ),
    (
        "run",
        &[
            "lastword run --as shout -- tr a-z A-Z",
            "lastword run --as coder --input prompt --cwd work/coder -- claude -p",
            "lastword run --driver acp --as coder --allow \"mcp__lastword__*\" -- claude-agent-acp",
        ],
    ),
    ("discord", &["lastword discord", "lastword --token-file anna.token discord"]),
    (
        "discord init",
        &[
            "lastword discord init",
            "lastword discord init --bot-token-file b.token --channel den --human ann --agent kilo=k.token",
        ],
    ),
    ("discord check", &["lastword discord check", "lastword discord check --config team.toml"]),
    ("top", &["lastword top", "lastword --url http://127.0.0.1:8080 --token-file anna.token top"]),
    (
        "tail",
        &[
            "lastword tail -f",
            "lastword tail -n 20 --type request",
            "lastword tail -f --ref LOGIN-1 --from coder --json",
        ],
    ),
    ("ls", &["lastword ls", "lastword ls --open --all -n 200"]),
    ("console", &["lastword console", "lastword console --print"]),
    ("tree", &["lastword tree LOGIN-1", "lastword tree LOGIN-1/1 --json"]),
    (
        "audit",
        &[
            "lastword audit login form --since 2026-01-31",
            "lastword audit --ref LOGIN-1 --from coder --type request --all",
        ],
    ),
    ("escalations", &["lastword escalations", "lastword escalations --all"]),
    ("answer", &["lastword answer esc-1 \"eu\"", "lastword answer esc-2 --lift lift-1 --yes"]),
    ("approvals", &["lastword approvals", "lastword approvals --all --json"]),
    (
        "approve",
        &[
            "lastword approve apr-1",
            "lastword approve apr-1 --digest 81bed82d --yes",
            "lastword approve apr-1 --edit '{\"command\":\"ls\"}'",
        ],
    ),
    (
        "reject",
        &[
            "lastword reject apr-2 --comment \"not on a Friday\"",
            "lastword reject apr-2 --respond \"Which region? Ask again with one.\"",
        ],
    ),
    ("pause", &["lastword pause LOGIN-1", "lastword pause --agent coder"]),
    ("resume", &["lastword resume LOGIN-1", "lastword resume --workspace --yes"]),
    ("stop", &["lastword stop LOGIN-1", "lastword stop --workspace"]),
    ("stop-server", &["lastword stop-server", "lastword --data team/.lastword stop-server"]),
    (
        "grant",
        &[
            "lastword grant LOGIN-1 --rounds 2",
            "lastword grant LOGIN-1 --messages 20 --time 2h",
            "lastword grant --agent coder --tokens 50000",
        ],
    ),
    ("schedule", &[]),
    (
        "schedule add",
        &[
            "lastword schedule add nightly \"Run all tests.\" --to tester --cron \"0 2 * * *\" --zone Europe/Berlin",
            "lastword schedule add triage \"Sort new issues.\" --to \"#triage\" --cron \"0 9 * * 1-5\"",
        ],
    ),
    ("schedule list", &["lastword schedule list", "lastword schedule list --json"]),
    ("schedule remove", &["lastword schedule remove nightly", "lastword schedule remove nightly --yes"]),
    ("schedule run", &["lastword schedule run nightly", "lastword schedule run nightly --yes"]),
    ("incidents", &["lastword incidents", "lastword incidents --all"]),
    ("claims", &["lastword claims", "lastword claims src/auth.rs"]),
    ("claim", &["lastword claim src/auth.rs --wait 5m", "lastword claim \"repo:src/auth/*\" --for 30m"]),
    ("release", &["lastword release clm-7", "lastword release src/auth.rs"]),
    ("guard", &["lastword guard install", "lastword guard remove"]),
    ("guard install", &["lastword guard install", "lastword guard install --json"]),
    ("guard remove", &["lastword guard remove", "lastword guard remove --json"]),
    ("limits", &["lastword limits", "lastword limits --offline --config team.toml"]),
    ("limits diff", &["lastword limits diff", "lastword limits diff --offline --config team.toml"]),
    ("clock", &["lastword clock", "lastword clock --json"]),
    ("clock accept", &["lastword clock accept", "lastword clock accept --yes"]),
    ("bound", &["lastword bound", "lastword bound --config team.toml"]),
    (
        "replay",
        &["lastword replay recorded.jsonl", "lastword replay --config long.toml --list monday.jsonl tuesday.jsonl"],
    ),
    ("reindex", &["lastword reindex", "lastword --data copy reindex"]),
    (
        "verify",
        &[
            "lastword verify",
            "lastword --data copy verify",
            "lastword verify --key log.pub --checkpoint monday.checkpoint",
        ],
    ),
    (
        "checkpoint",
        &[
            "lastword checkpoint > /mnt/elsewhere/monday.checkpoint",
            "lastword checkpoint --key > log.pub",
            "lastword --url http://10.0.0.5:7171 checkpoint --cosign mine.key --log-key log.pub",
        ],
    ),
    ("cluster", &[]),
    (
        "cluster status",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 status",
            "lastword cluster --cluster nats://127.0.0.1:4222 status --json",
        ],
    ),
    (
        "cluster configure",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 configure team-b team-b.toml",
            "lastword cluster --cluster nats://127.0.0.1:4222 configure team-b --default",
        ],
    ),
    (
        "cluster set-aside",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 set-aside team-b 1204",
            "lastword cluster --cluster nats://127.0.0.1:4222 set-aside team-b 1204 --yes",
        ],
    ),
    (
        "cluster remove",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 remove team-b",
            "lastword cluster --cluster nats://127.0.0.1:4222 remove team-b --with-log",
        ],
    ),
    (
        "cluster add",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 add team-b",
            "lastword cluster --cluster nats://127.0.0.1:4222 --replicas 1 add team-b",
        ],
    ),
    (
        "cluster move-in",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 move-in main",
            "lastword --data /srv/team cluster --cluster nats://127.0.0.1:4222 move-in team",
        ],
    ),
    (
        "cluster move-out",
        &[
            "lastword cluster --cluster nats://127.0.0.1:4222 move-out main --to .lastword",
            "lastword cluster --cluster nats://127.0.0.1:4222 move-out team --to /srv/team",
        ],
    ),
    ("backup", &["lastword backup monday.lastword", "lastword --url http://10.0.0.5:7171 backup monday.lastword"]),
    ("restore", &["lastword restore monday.lastword", "lastword --data copy restore monday.lastword"]),
    ("archive", &["lastword archive", "lastword --url http://10.0.0.5:7171 archive"]),
    ("archive now", &["lastword archive now --after 90d", "lastword archive now --above 4000000000 --yes"]),
    ("archive restore", &["lastword archive restore", "lastword archive restore --last 1"]),
    ("archive compact", &["lastword archive compact", "lastword --data copy archive compact"]),
    ("notify", &["lastword notify test pager", "lastword notify failed"]),
    ("notify test", &["lastword notify test", "lastword notify test pager"]),
    ("notify failed", &["lastword notify failed", "lastword notify failed pager --json"]),
    ("notify resend", &["lastword notify resend ntf-5f0c", "lastword notify resend --all pager --yes"]),
    ("notify replay", &["lastword notify replay pager --after 1200", "lastword notify replay pager --after 0 --yes"]),
    ("doctor", &["lastword doctor", "lastword doctor --ready", "lastword doctor --cluster nats://10.0.0.1:4222"]),
    ("explain", &["lastword explain refused-12", "lastword explain depth_cap", "lastword explain apr-1"]),
    ("hook", &["lastword --token-file coder.token hook", "lastword --token-file coder.token hook wait"]),
    ("claude", &["lastword claude", "lastword claude --as reviewer --continue"]),
    ("codex", &["lastword codex", "lastword codex --as reviewer resume --last"]),
    ("opencode", &["lastword opencode", "lastword opencode --as reviewer --continue"]),
    ("gemini", &["lastword gemini", "lastword gemini --as reviewer --wake"]),
    ("mcp", &["lastword --token-file coder.token mcp", "lastword --token-file alice.token mcp --as-human"]),
    ("prompt", &["lastword prompt", "lastword prompt > primer.md"]),
    ("completions", &["lastword completions bash > lastword.bash", "lastword completions zsh > _lastword"]),
    ("man", &["lastword man > lastword.1", "lastword man verify", "lastword man --to /usr/share/man/man1"]),
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

/// The examples of the command at `path`, such as `agent add`; of the program itself for the empty path.
fn examples_of(path: &str) -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().filter(move |(of, _)| *of == path).flat_map(|(_, lines)| lines.iter().copied())
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
    fn shown(command: &Command, above: &str, into: &mut Vec<(String, Command)>) {
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

    /// A row of `docs/words.md`.
    struct Term {
        names: Vec<String>,
        shown: bool,
        not: Vec<String>,
    }

    fn document(name: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    fn terms() -> Vec<Term> {
        let text = document("words.md");
        let list = |cell: &str| cell.split(", ").map(|word| word.trim().to_lowercase()).collect();
        let rows = text.lines().filter(|line| line.starts_with("| "));
        let rows = rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
        rows.filter(|cells| cells[0] != "term")
            .map(|cells| {
                assert!(cells.len() == 4 && matches!(cells[2], "yes" | "no"), "{cells:?}");
                Term { names: list(cells[0]), shown: cells[2] == "yes", not: list(cells[3]) }
            })
            .collect()
    }

    /// Returns the words of a text outside its code spans, each between spaces.
    fn plain(text: &str) -> String {
        let outside: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        let words = outside.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
        words.fold(" ".to_owned(), |text, word| text + &word.to_lowercase() + " ")
    }

    fn uses(text: &str, word: &str) -> bool {
        ["", "s", "es"].iter().any(|end| text.contains(&format!(" {word}{end} ")))
    }

    /// Collects the summaries and descriptions of the OpenAPI document, with their places.
    fn described(value: &serde_json::Value, at: &str, into: &mut Vec<(String, String)>) {
        match value {
            serde_json::Value::Object(members) => {
                for (name, member) in members {
                    match member.as_str() {
                        Some(text) if name == "summary" || name == "description" => {
                            into.push((at.to_owned(), plain(text)));
                        }
                        _ => described(member, &format!("{at}/{name}"), into),
                    }
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| described(item, at, into)),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => {}
        }
    }

    #[test]
    fn the_help_and_the_openapi_document_use_the_words_of_the_vocabulary() {
        let root = command();
        let mut commands = vec![(String::new(), root.clone())];
        shown(&root, "", &mut commands);
        let mut texts: Vec<(String, String)> = commands
            .into_iter()
            .map(|(path, mut command)| {
                let help = command.render_long_help().to_string();
                // Examples are commands, not prose.
                let prose = help.lines().filter(|line| !line.starts_with("  lastword ")).collect::<Vec<_>>().join("\n");
                (format!("lastword {path} --help"), plain(&prose))
            })
            .collect();
        let openapi = serde_json::from_str(&document("openapi.json")).unwrap();
        described(&openapi, "docs/openapi.json", &mut texts);
        let terms = terms();
        assert!(terms.len() > 50 && texts.len() > 500, "{} terms, {} texts", terms.len(), texts.len());
        let mut wrong = vec![];
        for word in terms.iter().flat_map(|term| &term.not) {
            wrong.extend(texts.iter().filter(|(_, text)| uses(text, word)).map(|(at, _)| format!("{at}: {word}")));
        }
        for name in terms.iter().filter(|term| term.shown).flat_map(|term| &term.names) {
            if !texts.iter().any(|(_, text)| uses(text, name)) {
                wrong.push(format!("{name} is in no help and no description"));
            }
        }
        assert!(wrong.is_empty(), "docs/words.md has other words:\n{}", wrong.join("\n"));
        assert!(uses(&plain("The asker's queries."), "asker") && !uses(&plain("`asker`, in_reply_to"), "reply"));
    }

    #[test]
    fn the_vocabulary_has_each_term_once_and_no_term_is_a_word_to_avoid() {
        let terms = terms();
        let mut seen = BTreeSet::new();
        for name in terms.iter().flat_map(|term| &term.names) {
            assert!(seen.insert(name), "{name} is there twice");
        }
        for word in terms.iter().flat_map(|term| &term.not) {
            assert!(seen.insert(word), "{word} is there twice");
        }
    }
}
