//! The commands that a line of a shell's language runs, each in the spellings that a rule's pattern may have (H2).
//!
//! This reads what well-meaning agents write, through wrappers, nesting and quotes. It is no sandbox: a program that was
//! written to a file before runs whatever is in it. What it can't read is [`UNREAD`], and a rule that denies asks then.

use std::rc::Rc;

use lastword_facts::fact::Digest;
use lastword_facts::policy::{Subjects, UNREAD};
use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

use self::programs::{SCRIPTED, SHELLS, WRAPPERS};
use self::words::{Names, Source, Word, has_unread};

pub(super) mod databases;
mod heredocs;
mod passed;
mod programs;
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
    possible: Vec<Box<str>>,
    passed: Vec<Box<str>>,
    statements: Vec<Box<str>>,
    /// Whether the commands that are read now only may be some.
    only_possible: bool,
    /// The names in the scripts that are read now, each in the one before.
    named: Vec<Rc<Names>>,
    bytes: usize,
}

impl Commands {
    /// Returns the subjects of a call with these arguments, as they were written.
    pub(super) fn into_subjects(self, arguments: Digest, written: Vec<Box<str>>) -> Subjects {
        let [mut spelled, mut possible, mut passed, mut statements] =
            [self.spelled, self.possible, self.passed, self.statements];
        for texts in [&mut spelled, &mut possible, &mut passed, &mut statements] {
            texts.sort_unstable();
            texts.dedup();
        }
        Subjects { arguments, written, spelled, possible, passed, statements }
    }

    /// Adds what can't be read.
    pub(super) fn add_unread(&mut self) {
        if !self.only_possible {
            self.add(&UNREAD.to_string());
        }
    }

    fn add(&mut self, spelling: &str) {
        if !self.counts(spelling) {
            return;
        }
        let spelling = words::replaced(spelling, &UNREAD.to_string()).into();
        if self.only_possible { self.possible.push(spelling) } else { self.spelled.push(spelling) }
    }

    fn add_passed(&mut self, words: &[String]) {
        // A pattern begins at a word of the list, and not within one.
        let word = |word: &String| words::replaced(word, &UNREAD.to_string()).replace(char::is_whitespace, "\u{1}");
        let text = words.iter().map(word).collect::<Vec<_>>().join(" ");
        if self.counts(&text) {
            self.passed.push(text.into());
        }
    }

    /// Counts the bytes of a spelling. When they become too many, nothing of the call can be read.
    fn counts(&mut self, spelling: &str) -> bool {
        if self.is_full() {
            return false;
        }
        self.bytes = self.bytes.saturating_add(spelling.len().max(1));
        if self.is_full() {
            self.spelled.push(UNREAD.to_string().into());
        }
        !self.is_full()
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
        if words::has_unread_commands(text) {
            self.add_unread();
        }
        let filled = has_unread(text).then(|| words::replaced(text, "$_"));
        self.filled_script(filled.as_deref().unwrap_or(text), nesting);
    }

    fn filled_script(&mut self, text: &str, nesting: usize) {
        let tree = if text.matches("<<").nth(HERE_DOCUMENTS_MAX).is_some() { None } else { parsed(text) };
        let Some(tree) = tree else { return self.add_unread() };
        if !tree.root_node().has_error() {
            return self.tree(&tree, text, nesting);
        }
        let rewritten = heredocs::rewritten(text);
        let again = rewritten.and_then(|script| Some((parsed(&script.script)?, script)));
        let Some((again, script)) = again.filter(|(tree, _)| !tree.root_node().has_error()) else {
            self.add_unread();
            return self.tree(&tree, text, nesting);
        };
        self.tree(&again, &script.script, nesting);
        for document in &script.documents {
            // In case that it isn't what it seems.
            self.possible_script(&document.body, nesting + 1);
            if let Some(filled) = &document.filled {
                self.script(filled, nesting + 1);
            }
        }
    }

    fn tree(&mut self, tree: &Tree, text: &str, nesting: usize) {
        let script = Source::new(text, &mut self.named);
        let mut left = vec![(tree.root_node(), None)];
        while let Some((node, around)) = left.pop().filter(|_| !self.is_full()) {
            match node.kind() {
                "command" => self.simple(node, around, &script, nesting),
                "variable_assignment" => self.assignment(&text[node.byte_range()]),
                "declaration_command" => {
                    for word in node.named_children(&mut node.walk()) {
                        self.assignment(&words::read(word, &script).text);
                    }
                    self.values(node, &script, nesting);
                }
                _ => {}
            }
            let around = Some(node).filter(|node| node.kind() == "redirected_statement");
            left.extend(node.children(&mut node.walk()).map(|child| (child, around)));
        }
        self.named.pop();
    }

    /// Reads a script that an unknown program may run.
    fn possible_script(&mut self, text: &str, nesting: usize) {
        let outer = std::mem::replace(&mut self.only_possible, true);
        self.script(text, nesting);
        self.only_possible = outer;
    }

    /// Reads an assignment to a variable that may give git commands other names.
    fn assignment(&mut self, word: &str) {
        let Some((name, value)) = word.split_once('=').filter(|(name, _)| name.starts_with("GIT_CONFIG")) else {
            return;
        };
        if name != "GIT_CONFIG_NOSYSTEM" && value != "/dev/null" {
            self.add(&format!("git {UNREAD}"));
        }
    }

    /// Reads the values of a command's variables, which the command may run.
    fn values(&mut self, node: Node<'_>, script: &Source<'_>, nesting: usize) {
        for child in node.named_children(&mut node.walk()).filter(|child| child.kind() == "variable_assignment") {
            if let Some(value) = child.child_by_field_name("value") {
                self.strings(&words::read(value, script).text, nesting);
            }
        }
    }

    /// Reads one command with its redirections, which may be of the statement around it.
    fn simple(&mut self, node: Node<'_>, around: Option<Node<'_>>, script: &Source<'_>, nesting: usize) {
        let mut found: Vec<Word> = Vec::new();
        let mut redirects: Vec<Node<'_>> = Vec::new();
        let mut walk = node.walk();
        let mut more = walk.goto_first_child();
        while more {
            match walk.field_name() {
                Some("name" | "argument") => found.push(words::read(walk.node(), script)),
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
            found.extend(more.concat().into_iter().map(|node| words::read(node, script)));
            input = words::input(redirect, script).or(input);
        }
        self.values(node, script, nesting);
        let Some((name, rest)) = found.split_first() else { return };
        let words: Vec<String> =
            std::iter::once(name.as_name()).chain(rest.iter().map(|word| word.text.clone())).collect();
        if words[0] != name.text && !has_unread(&words[0]) {
            // Rules may be about a folder, too.
            let outer = std::mem::replace(&mut self.only_possible, true);
            self.add(&format!("/{UNREAD}/{}", words.join(" ")));
            self.only_possible = outer;
        }
        self.command(&words, input.as_deref().map_or(Input::Other, Input::Text), nesting);
    }

    /// Adds a command's spellings, and reads the commands that it runs itself.
    fn command(&mut self, words: &[String], input: Input<'_>, nesting: usize) {
        let Some((first, rest)) = words.split_first() else { return };
        if nesting > NESTING_MAX || self.is_full() {
            return self.add_unread();
        }
        let name = first.rsplit('/').next().unwrap_or_default();
        self.add(&words.join(" "));
        self.statements.extend(databases::statements(words, input));
        let starts = inner(words, 0);
        if starts.len() == STARTS_MAX {
            self.add_unread();
        }
        for start in starts.iter().copied().chain([1]) {
            let spelled = std::iter::once(name).chain(words.iter().skip(start).map(String::as_str));
            self.add(&spelled.collect::<Vec<_>>().join(" "));
        }
        if let Some(subcommand) = name.strip_prefix("git-") {
            let words: Vec<String> = ["git", subcommand].map(str::to_owned).into_iter().chain(rest.to_vec()).collect();
            return self.command(&words, input, nesting + 1);
        }
        if let Some((_, own)) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name) {
            for start in inner(words, *own) {
                self.command(&words[start..], input, nesting + 1);
                // The other machine's shell, or `watch`'s, reads the words as one line.
                if matches!(name, "ssh" | "watch") {
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
        self.special(name, words, &starts, nesting);
        let subcommands: Vec<(usize, &str)> = starts.iter().map(|at| (*at, words[*at].as_str())).collect();
        if let Some(passed) = programs::first_passed(name, &subcommands).and_then(|from| words.get(from..)) {
            self.passed(passed, nesting);
        }
    }

    /// Reads the commands among the arguments of programs that have a way of their own.
    fn special(&mut self, name: &str, words: &[String], starts: &[usize], nesting: usize) {
        let rest = &words[1..];
        match name {
            "env" => self.env(rest, nesting),
            "eval" => self.script(&operands(rest).join(" "), nesting + 1),
            "trap" => self.script(operands(rest).first().map_or("", String::as_str), nesting + 1),
            "alias" => {
                for (_, value) in rest.iter().filter_map(|word| word.split_once('=')) {
                    self.script(value, nesting + 1);
                }
            }
            "source" | "." if rest.first().is_some_and(|file| is_unread_file(file)) => self.add_unread(),
            "xargs" => {
                for start in inner(words, 0) {
                    let mut inside = filled(&words[start..], replaced(rest));
                    inside.push(UNREAD.to_string());
                    self.command(&inside, Input::Other, nesting + 1);
                }
            }
            "parallel" => self.parallel(words, nesting),
            "find" | "fd" | "fdfind" => self.executed(rest, nesting),
            "git" => {
                // A name that git itself gives to another command.
                if gives_alias(rest) {
                    self.add(&format!("git {UNREAD}"));
                }
                // Settings may be commands.
                for word in &words[1..starts.last().copied().unwrap_or(words.len())] {
                    self.strings(word, nesting);
                }
            }
            _ => {}
        }
    }

    /// Reads the variables of `env`, and an argument that it splits into words.
    fn env(&mut self, rest: &[String], nesting: usize) {
        for (at, word) in rest.iter().enumerate() {
            let short = Some(word).filter(|word| word.starts_with('-') && !word.starts_with("--"));
            let attached = short.and_then(|word| Some(word.split_once('S')?.1));
            let split =
                attached.or_else(|| word.strip_prefix("--split-string=")).or((word == "--split-string").then_some(""));
            if let Some(text) = split {
                let next = rest.get(at + 1).map_or("", String::as_str);
                self.script(if text.is_empty() { next } else { text }, nesting + 1);
            } else if is_assignment(word) {
                self.assignment(word);
                self.strings(word, nesting);
            }
        }
    }

    /// Reads the command that `parallel` runs for each of its inputs, or the inputs if they are the commands.
    fn parallel(&mut self, words: &[String], nesting: usize) {
        let separator = words.iter().position(|word| word.starts_with(":::")).unwrap_or(words.len());
        let (before, inputs) = words.split_at(separator);
        let starts = inner(before, 0);
        for start in &starts {
            // A place for an input is `{}`, `{.}`, `{2}` and such.
            let place =
                |word: &String| word.split_once('{').map_or(word.clone(), |(read, _)| format!("{read}{UNREAD}"));
            let mut inside: Vec<String> = before[*start..].iter().map(place).collect();
            inside.push(UNREAD.to_string());
            self.filled_script(&words::replaced(&inside.join(" "), "$_"), nesting + 1);
        }
        if starts.is_empty() {
            for input in inputs.iter().skip(1) {
                self.script(input, nesting + 1);
            }
            if inputs.is_empty() || inputs[0].starts_with("::::") {
                self.add_unread();
            }
        }
    }

    /// Reads the words that a program gets which isn't known: it may run them.
    fn passed(&mut self, words: &[String], nesting: usize) {
        let database = words.iter().position(|word| databases::is_database(word));
        self.statements.extend(databases::statements(&words[database.unwrap_or(words.len())..], Input::Other));
        for spelling in passed::spellings(words) {
            self.add_passed(&spelling);
        }
        for word in words {
            self.strings(word, nesting);
        }
    }

    /// Reads one argument, or the value in it, as a script that the program may run.
    fn strings(&mut self, word: &str, nesting: usize) {
        let is_script = |text: &&str| text.contains(|c: char| c.is_whitespace() || ";&|{".contains(c));
        let attached = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.get(1..));
        let value = word.split_once('=').map(|(_, value)| value);
        // Editors and pagers run what stands behind `!`.
        let behind_mark = Some(word.trim_start_matches(['+', ':', '!'])).filter(|text| *text != word);
        for text in [Some(word), attached, value, behind_mark].into_iter().flatten().filter(is_script) {
            self.possible_script(text, nesting + 1);
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
            if let Some((_, script)) =
                word.split_once('c').filter(|(_, script)| short && script.contains(char::is_whitespace))
            {
                return self.script(script, nesting + 1);
            }
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
            (Some(file), _) if is_unread_file(file) => self.add_unread(),
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

/// Whether a script's file is no file that exists before. Where only its folder can't be read, it is one.
fn is_unread_file(file: &str) -> bool {
    let (folder, name) = file.rsplit_once('/').unwrap_or((file, file));
    let is_device = name == "stdin" || name.bytes().all(|byte| byte.is_ascii_digit());
    let is_elsewhere = file == "-" || file.starts_with("/dev/") || file.starts_with("/proc/");
    // What isn't quoted may be several words.
    is_elsewhere || file.contains(UNREAD) || has_unread(name) || has_unread(folder) && is_device
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
    use lastword_facts::policy::{ApprovalRule, CallPattern, Policy, Ruling};
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
            ("parallel ".repeat(20_000), true),
            ("<<E ".repeat(5_000), true),
            ("{ ".repeat(20_000), true),
            ("a;".repeat(20_000), false),
            ("x 'a b' ".repeat(5_000), false),
            ("x git -C y ".repeat(5_000), false),
            ("x -a b ".repeat(5_000), false),
            ("rm a1b2c3d4e5f6g7h8.rs ".repeat(10_000), false),
            ("x git-push ".repeat(5_000), false),
            (format!("x {}", "$A ".repeat(10_000)), false),
            (format!("x {}", "'y ".repeat(4_000)), false),
            ("x 'y {a; b -c d' ".repeat(3_000), false),
            ("cat <<A <<B; ".repeat(3_000), true),
            (format!("cat > x <<E\n{}E\n", "some text\n".repeat(20_000)), false),
        ] {
            let mut commands = super::Commands::default();
            commands.read_script(&text);
            assert_eq!(
                commands.into_subjects([0; 32], Vec::new()).spelled.contains(&"\0".into()),
                unread,
                "{}",
                &text[..20]
            );
        }
    }
}
