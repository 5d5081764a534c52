//! The commands that a line of a shell's language runs, each in the spellings that a rule's pattern may have (H2).
//!
//! This reads what well-meaning agents write, through wrappers, nesting and quotes. It is no sandbox: a program that was
//! written to a file before runs whatever is in it. What it can't read is [`UNREAD`], and a rule that denies asks then.

use lastword_proto::policy::UNREAD;
use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

use self::words::Word;

mod words;

/// The deepest nesting of scripts in scripts.
const NESTING_MAX: usize = 8;
/// The most bytes of all spellings together.
const SPELLED_BYTES_MAX: usize = 2 << 20;
/// The most places at which the command of a wrapper may begin.
const STARTS_MAX: usize = 32;
/// The most here-documents of one script: the grammar's scanner compares each with all others.
const HERE_DOCUMENTS_MAX: usize = 32;
/// The most times that the parser of one script reports that it works, each after a hundred steps.
const PARSER_REPORTS_MAX: u32 = 10_000;

/// Programs that run the command which their arguments are, with the number of their own arguments before it.
const WRAPPERS: [(&str, usize); 41] = [
    ("builtin", 0),
    ("busybox", 0),
    ("caffeinate", 0),
    ("chroot", 1),
    ("chrt", 1),
    ("command", 0),
    ("coproc", 0),
    ("dbus-run-session", 0),
    ("doas", 0),
    ("env", 0),
    ("exec", 0),
    ("fakeroot", 0),
    ("firejail", 0),
    ("flock", 1),
    ("gtimeout", 1),
    ("ionice", 0),
    ("ltrace", 0),
    ("nice", 0),
    ("nocorrect", 0),
    ("noglob", 0),
    ("nohup", 0),
    ("nsenter", 0),
    ("parallel", 0),
    ("prlimit", 0),
    ("proxychains", 0),
    ("rlwrap", 0),
    ("runuser", 1),
    ("setarch", 1),
    ("setsid", 0),
    ("ssh", 1),
    ("stdbuf", 0),
    ("strace", 0),
    ("sudo", 0),
    ("systemd-run", 0),
    ("taskset", 1),
    ("time", 0),
    ("timeout", 1),
    ("torsocks", 0),
    ("unbuffer", 0),
    ("unshare", 0),
    ("watch", 0),
];
const SHELLS: [&str; 13] =
    ["ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "nu", "rbash", "sh", "tcsh", "yash", "zsh"];
/// Programs that take a script after `-c`, and a name before or behind it.
const SCRIPTED: [&str; 5] = ["flock", "runuser", "script", "su", "watch"];
/// Options of git before its subcommand: those with a value, and those without.
const GIT_VALUES: [&str; 6] = ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"];
const GIT_FLAGS: [&str; 6] = ["--no-pager", "-p", "-P", "--paginate", "--bare", "--no-optional-locks"];
/// Flags after which `find` and `fd` have a command, up to `;` or `+`.
const EXECUTE: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];

/// What a command reads, as far as it is in the script.
#[derive(Clone, Copy)]
enum Input<'a> {
    Text(&'a str),
    Other,
}

/// Collects the spellings of commands.
#[derive(Debug, Default)]
pub(super) struct Commands {
    spelled: Vec<Box<str>>,
    bytes: usize,
}

impl Commands {
    /// Returns the spellings of all commands, each once.
    pub(super) fn into_spelled(mut self) -> Vec<Box<str>> {
        self.spelled.sort_unstable();
        self.spelled.dedup();
        self.spelled
    }

    /// Adds what can't be read.
    pub(super) fn add_unread(&mut self) {
        self.add(UNREAD.to_string());
    }

    fn add(&mut self, spelling: String) {
        if self.is_full() {
            return;
        }
        self.bytes = self.bytes.saturating_add(spelling.len().max(1));
        self.spelled.push(if self.is_full() { UNREAD.to_string() } else { spelling }.into());
    }

    const fn is_full(&self) -> bool {
        self.bytes > SPELLED_BYTES_MAX
    }

    /// Reads a script.
    pub(super) fn read_script(&mut self, text: &str) {
        self.script(text, 0);
    }

    /// Reads a command that is given word by word, without a shell.
    pub(super) fn read_words(&mut self, words: &[String]) {
        self.command(words, Input::Other, 0);
    }

    fn script(&mut self, text: &str, nesting: usize) {
        if nesting > NESTING_MAX || self.is_full() {
            return self.add_unread();
        }
        // What is filled in before the script is read may be further commands.
        let filled = text.contains(UNREAD).then(|| text.replace(UNREAD, "$_"));
        let text = filled.as_deref().unwrap_or(text);
        let tree = if text.matches("<<").nth(HERE_DOCUMENTS_MAX).is_some() { None } else { parsed(text) };
        if filled.is_some() || tree.as_ref().is_none_or(|tree| tree.root_node().has_error()) {
            self.add_unread();
        }
        let Some(tree) = tree else { return };
        let mut left = vec![(tree.root_node(), None)];
        while let Some((node, around)) = left.pop().filter(|_| !self.is_full()) {
            if node.kind() == "command" {
                self.simple(node, around, text, nesting);
            }
            let around = Some(node).filter(|node| node.kind() == "redirected_statement");
            left.extend(node.children(&mut node.walk()).map(|child| (child, around)));
        }
    }

    /// Reads one command with its redirections, which may be of the statement around it.
    fn simple(&mut self, node: Node<'_>, around: Option<Node<'_>>, text: &str, nesting: usize) {
        let mut found: Vec<Word> = Vec::new();
        let mut redirects: Vec<Node<'_>> = Vec::new();
        let mut walk = node.walk();
        let mut more = walk.goto_first_child();
        while more {
            match walk.field_name() {
                Some("name" | "argument") => found.push(words::read(walk.node(), text)),
                Some("redirect") => redirects.push(walk.node()),
                _ => {}
            }
            more = walk.goto_next_sibling();
        }
        if let Some(around) = around {
            redirects.extend(around.children_by_field_name("redirect", &mut around.walk()));
        }
        let mut input = None;
        for redirect in redirects {
            // The grammar counts arguments behind a redirection as its own.
            let skipped = usize::from(redirect.kind() == "file_redirect");
            let behind = redirect.children_by_field_name("destination", &mut redirect.walk()).skip(skipped).collect();
            let within = redirect.children_by_field_name("argument", &mut redirect.walk()).collect();
            let more: [Vec<Node<'_>>; 2] = [behind, within];
            found.extend(more.concat().into_iter().map(|node| words::read(node, text)));
            input = words::input(redirect, text).or(input);
        }
        let Some((name, rest)) = found.split_first() else { return };
        let words: Vec<String> =
            std::iter::once(name.as_name()).chain(rest.iter().map(|word| word.text.clone())).collect();
        self.command(&words, input.as_deref().map_or(Input::Other, Input::Text), nesting);
    }

    /// Adds a command's spellings, and reads the commands that it runs itself.
    fn command(&mut self, words: &[String], input: Input<'_>, nesting: usize) {
        let Some((first, rest)) = words.split_first() else { return };
        if nesting > NESTING_MAX || self.is_full() {
            return self.add_unread();
        }
        let name = first.rsplit('/').next().unwrap_or_default();
        self.add(words.join(" "));
        let starts = inner(words, 0);
        if starts.len() == STARTS_MAX {
            self.add_unread();
        }
        for start in starts.into_iter().chain([1]) {
            let spelled = std::iter::once(name).chain(words.iter().skip(start).map(String::as_str));
            self.add(spelled.collect::<Vec<_>>().join(" "));
        }
        if let Some((_, own)) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name) {
            for start in inner(words, *own) {
                self.command(&words[start..], input, nesting + 1);
                // The other machine's shell, or `watch`'s, reads the words as one line.
                if matches!(name, "ssh" | "watch" | "parallel") {
                    self.script(&words[start..].join(" "), nesting + 1);
                }
            }
        }
        if SHELLS.contains(&name) {
            self.shell(rest, input, nesting);
        }
        if SCRIPTED.contains(&name)
            && let Some(at) = rest.iter().position(|word| word == "--command" || is_flag(word, 'c'))
        {
            self.script(rest.get(at + 1).map_or("", String::as_str), nesting + 1);
        }
        match name {
            // One argument that is split into words.
            "env" => {
                for (at, word) in rest.iter().enumerate().filter(|(_, word)| word.starts_with("-S") || is_split(word)) {
                    let attached = word.strip_prefix("-S").or_else(|| Some(word.split_once('=')?.1));
                    let text = attached.filter(|text| !text.is_empty()).or_else(|| Some(rest.get(at + 1)?.as_str()));
                    self.script(text.unwrap_or_default(), nesting + 1);
                }
            }
            "eval" => self.script(&operands(rest).join(" "), nesting + 1),
            "trap" => self.script(operands(rest).first().map_or("", String::as_str), nesting + 1),
            "alias" => {
                for (_, value) in rest.iter().filter_map(|word| word.split_once('=')) {
                    self.script(value, nesting + 1);
                }
            }
            "source" | "." if rest.first().is_some_and(|file| file.contains(UNREAD) || file.starts_with("/dev/")) => {
                self.add_unread();
            }
            "xargs" => {
                for start in inner(words, 0) {
                    let mut inside = filled(&words[start..], replaced(rest));
                    inside.push(UNREAD.to_string());
                    self.command(&inside, Input::Other, nesting + 1);
                }
            }
            "find" | "fd" | "fdfind" => self.executed(rest, nesting),
            // A name that git itself gives to another command.
            "git" if gives_alias(rest) => self.add(format!("git {UNREAD}")),
            _ => {}
        }
    }

    /// Reads what a shell is started with: a script, a file, or what it reads.
    fn shell(&mut self, rest: &[String], input: Input<'_>, nesting: usize) {
        let (mut left, mut scripted, mut reads) = (rest.iter(), false, false);
        let first = loop {
            let Some(word) = left.next() else { break None };
            if !word.starts_with(['-', '+']) || word == "-" {
                break Some(word);
            }
            let short = !word.starts_with("--");
            scripted |= word == "--command" || short && word.contains('c');
            reads |= short && word.contains('s');
            // These take the name of an option, or a file.
            if short && word.ends_with(['o', 'O']) || matches!(word.as_str(), "--rcfile" | "--init-file") {
                left.next();
            }
        };
        match (first, input) {
            (Some(script), _) if scripted => self.script(script, nesting + 1),
            // The words behind it are the arguments of what it reads.
            (_, Input::Text(script)) if reads => self.script(script, nesting + 1),
            _ if reads => self.add_unread(),
            // A file that doesn't exist before, such as the output of a command.
            (Some(file), _) if file.contains(UNREAD) || file == "-" || file.starts_with("/dev/") => self.add_unread(),
            (Some(_), _) => {}
            (None, Input::Text(script)) => self.script(script, nesting + 1),
            (None, Input::Other) => self.add_unread(),
        }
    }

    /// Reads the commands that `find` runs for what it finds.
    fn executed(&mut self, rest: &[String], nesting: usize) {
        let starts = rest.iter().enumerate().filter(|(_, word)| EXECUTE.contains(&word.as_str()));
        for (at, _) in starts {
            let until = |word: &&String| !matches!(word.as_str(), ";" | "+");
            let inside: Vec<String> = rest[at + 1..].iter().take_while(until).cloned().collect();
            self.command(&filled(&inside, "{}"), Input::Other, nesting + 1);
        }
    }
}

/// Returns where the command of a wrapper, or the subcommand of a program, may begin: behind options, the values that they
/// may have, assignments, and this number of other arguments.
fn inner(words: &[String], mut own: usize) -> Vec<usize> {
    let (mut starts, mut at, mut may_be_value) = (Vec::new(), 1, false);
    let git = words.first().is_some_and(|name| name.rsplit('/').next() == Some("git"));
    while let Some(word) = words.get(at).filter(|_| starts.len() < STARTS_MAX) {
        if git && GIT_VALUES.contains(&word.as_str()) {
            at += 1;
            may_be_value = false;
        } else if word.starts_with('-') && word.len() > 1 {
            may_be_value = word != "--" && !word.contains('=') && !(git && GIT_FLAGS.contains(&word.as_str()));
        } else if is_assignment(word) {
            may_be_value = false;
        } else {
            starts.push(at);
            if !may_be_value && own == 0 {
                break;
            }
            own -= usize::from(!may_be_value);
            may_be_value = false;
        }
        at += 1;
    }
    starts
}

/// Whether a word of short flags ends with this one, which then has the next word as its value.
fn is_flag(word: &str, flag: char) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with(flag)
}

fn is_split(word: &str) -> bool {
    word == "--split-string" || word.starts_with("--split-string=")
}

/// Whether git's arguments give another command a name, as `-c alias.x=push` does; the part before the point has no case.
fn gives_alias(rest: &[String]) -> bool {
    let named = |word: &String| word.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case("alias."));
    let reads = |word: &String| word.starts_with("--get");
    rest.iter().any(|word| word.starts_with("--config-env")) || rest.iter().any(named) && !rest.iter().any(reads)
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

/// Fills in the places that a program fills in for each of its inputs.
fn filled(words: &[String], place: &str) -> Vec<String> {
    words.iter().map(|word| word.replace(place, &UNREAD.to_string())).collect()
}

/// Returns the text that `xargs` replaces by each of its inputs.
fn replaced(rest: &[String]) -> &str {
    let at = rest.iter().position(|word| word.starts_with("-I"));
    let named = at.and_then(|at| {
        let attached = rest[at].strip_prefix("-I").filter(|place| !place.is_empty());
        attached.or_else(|| Some(rest.get(at + 1)?.as_str()))
    });
    named.unwrap_or("{}")
}

/// Returns what stands behind `--`, or everything.
fn operands(rest: &[String]) -> &[String] {
    if rest.first().is_some_and(|word| word == "--") { &rest[1..] } else { rest }
}

/// Parses a script; `None` if that takes too long.
fn parsed(text: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let mut reports = 0;
    let mut stops = |_: &ParseState| {
        reports += 1;
        reports > PARSER_REPORTS_MAX
    };
    let options = ParseOptions::new().progress_callback(&mut stops);
    let bytes = text.as_bytes();
    parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options))
}

#[cfg(test)]
mod tests {
    use lastword_proto::policy::{ApprovalRule, CallPattern, Policy, Ruling};
    use serde_json::Value;

    use super::super::canonical::subjects;

    /// `ruling | tool | rules | arguments`; the rules are denied, and what they leave is allowed.
    const SPELLINGS: &str = include_str!("../../testdata/spellings.txt");

    fn ruling(denied: &str, arguments: &str) -> Ruling {
        let rule = |pattern: &str, ruling| ApprovalRule {
            call: CallPattern::parse(pattern).unwrap(),
            agents: Vec::new(),
            ruling,
            tier: None,
            who: None,
            timeout_ms: None,
        };
        let mut rules: Vec<ApprovalRule> = denied.split(", ").map(|pattern| rule(pattern, Ruling::Deny)).collect();
        rules.push(rule("Bash", Ruling::Allow));
        let value: Value = if arguments.starts_with("{\"") || arguments == "{}" {
            serde_json::from_str(arguments).unwrap()
        } else {
            serde_json::json!({ "command": arguments.replace("⏎", "\n").replace('⇥', "\t") })
        };
        Policy { rules }.first("a", "Bash", &subjects(&value.into())).unwrap().ruling
    }

    #[test]
    fn a_deny_rule_sees_the_command_however_it_is_spelled_and_leaves_what_is_another_one() {
        let (mut denied, mut wrong) = (String::new(), Vec::new());
        for line in SPELLINGS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(rules) = line.strip_prefix("rules ") {
                rules.clone_into(&mut denied);
                continue;
            }
            let (wanted, call) = line.split_once(' ').unwrap();
            let found = ruling(&denied, call).to_string();
            if found != wanted {
                wrong.push(format!("{wanted}, but {found}: {call}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_script_of_any_shape_is_read_to_its_end() {
        for (text, unread) in [
            ("eval ".repeat(40), true),
            ("(".repeat(20_000), true),
            ("$(".repeat(5_000), true),
            ("`".repeat(20_001), true),
            (format!("x {}", "-a b ".repeat(10_000)), true),
            ("sudo ".repeat(20_000), true),
            ("<<E ".repeat(5_000), true),
            ("{ ".repeat(20_000), true),
            ("a;".repeat(20_000), false),
            (format!("cat > x <<E\n{}E\n", "some text\n".repeat(20_000)), false),
        ] {
            let mut commands = super::Commands::default();
            commands.read_script(&text);
            assert_eq!(commands.into_spelled().contains(&"\0".into()), unread, "{}", &text[..20]);
        }
    }
}
