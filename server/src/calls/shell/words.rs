//! The words of a shell's command, as the command gets them.

use std::collections::BTreeSet;
use std::rc::Rc;

use lastword_facts::policy::UNREAD;
use tree_sitter::Node;

/// Stands for a part that can't be read, is one word with what is around it, and may be further commands as a script.
const ONE_WORD: char = '\u{1}';
/// Stands for the value of a variable that the script leaves as it is, or sets to a plain word: never more commands.
const VALUE: char = '\u{2}';
/// Each character that stands for what can't be read.
const FILLED: [char; 3] = [UNREAD, ONE_WORD, VALUE];

/// The names in a script that may be variables with any value.
pub(super) type Names = BTreeSet<Box<str>>;

/// A script.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    /// The names in it and in the scripts around it.
    named: Vec<Rc<Names>>,
}

impl<'a> Source<'a> {
    /// Takes the names of the scripts around it, and adds its own to them.
    pub(super) fn new(text: &'a str, named: &mut Vec<Rc<Names>>) -> Self {
        named.push(Rc::new(Self::names(text)));
        Self { text, named: named.clone() }
    }

    fn names(text: &str) -> Names {
        let (mut named, mut at) = (Names::new(), 0);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        while let Some(begin) = text[at..].find(is_name).map(|found| at + found) {
            let end = text[begin..].find(|c| !is_name(c)).map_or(text.len(), |length| begin + length);
            let (before, behind) = (&text[..begin], &text[end..]);
            let is_read = before.ends_with('$') || before.ends_with("${") && behind.starts_with('}');
            if !is_read && !behind.strip_prefix('=').is_some_and(is_plain_value) {
                named.insert(text[begin..end].into());
            }
            at = end;
        }
        named
    }

    /// Whether an expansion is the value of a variable that no command of this script can be in.
    fn is_value(&self, expansion: &str) -> bool {
        let name = expansion.trim_start_matches("${").trim_start_matches('$').trim_end_matches('}');
        let is_variable = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.starts_with(|c: char| !c.is_ascii_digit());
        is_variable && !self.named.iter().any(|names| names.contains(name)) || matches!(name, "?" | "$" | "#" | "!")
    }
}

/// Whether what follows `NAME=` is a word without a meaning to a shell.
fn is_plain_value(rest: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+,-".contains(c);
    let behind = rest.trim_start_matches(plain);
    behind.is_empty() || behind.starts_with([' ', '\t', '\n', ';', '&', '|'])
}

/// Whether a part of a text can't be read.
pub(super) fn has_unread(text: &str) -> bool {
    text.contains(FILLED)
}

/// Whether a part of a script that can't be read may be further commands.
pub(super) fn has_unread_commands(script: &str) -> bool {
    script.contains([UNREAD, ONE_WORD])
}

/// Returns a text with the same character, or text, for each part that can't be read.
pub(super) fn replaced(text: &str, unread: &str) -> String {
    text.replace(FILLED, unread)
}

/// One word.
pub(super) struct Word {
    /// The text without quotes; a character stands for each part that the shell fills in.
    pub(super) text: String,
    /// Whether the shell replaces it by the names of files.
    is_pattern: bool,
}

impl Word {
    /// Returns it as the name of a command, without a folder that can't be read.
    pub(super) fn as_name(&self) -> String {
        match self.text.rsplit_once('/') {
            _ if self.is_pattern => UNREAD.to_string(),
            Some((folder, name)) if folder.contains([ONE_WORD, VALUE]) && !folder.contains(UNREAD) => {
                if has_unread(name) || name.is_empty() { UNREAD.to_string() } else { name.to_owned() }
            }
            _ => self.text.clone(),
        }
    }
}

/// Reads a word of the script.
pub(super) fn read(node: Node<'_>, script: &Source<'_>) -> Word {
    let mut word = Reading::default();
    word.read(node, script);
    let Reading { text, bare } = word;
    // `{git,push}` is several words.
    if bare.contains('{') && (bare.contains(',') || bare.contains("..")) {
        return Word { text: UNREAD.to_string(), is_pattern: true };
    }
    Word { text, is_pattern: bare.contains(['*', '?', '[']) }
}

/// Returns the text that a redirection gives a command to read; `None` if it is no such redirection.
pub(super) fn input(redirect: Node<'_>, script: &Source<'_>) -> Option<String> {
    let mut walk = redirect.walk();
    match redirect.kind() {
        "herestring_redirect" => redirect.named_children(&mut walk).last().map(|word| read(word, script).text),
        "heredoc_redirect" => {
            let body = redirect.named_children(&mut walk).find(|child| child.kind() == "heredoc_body")?;
            let mut word = Reading::default();
            word.around(body, body.start_byte()..body.end_byte(), script);
            Some(word.text)
        }
        _ => None,
    }
}

#[derive(Default)]
struct Reading {
    text: String,
    /// The part that isn't quoted.
    bare: String,
}

impl Reading {
    fn read(&mut self, node: Node<'_>, script: &Source<'_>) {
        let source = &script.text[node.byte_range()];
        match node.kind() {
            "command_name" | "concatenation" => {
                for child in node.children(&mut node.walk()) {
                    self.read(child, script);
                }
            }
            "raw_string" => self.text.push_str(source.trim_start_matches('\'').trim_end_matches('\'')),
            "ansi_c_string" => self.ansi(source.trim_start_matches("$'").trim_end_matches('\'')),
            "string" => self.around(node, node.start_byte() + 1..node.end_byte().saturating_sub(1), script),
            "translated_string" => {
                for child in node.named_children(&mut node.walk()) {
                    self.read(child, script);
                }
            }
            "word" | "number" | "extglob_pattern" | "regex" | "variable_name" => self.bare(source),
            "simple_expansion" | "expansion" if script.is_value(source) => self.text.push(VALUE),
            _ if !node.is_named() => self.bare(source),
            _ => self.text.push(UNREAD),
        }
    }

    /// Adds a text in which each backslash keeps the next character as it is.
    fn bare(&mut self, source: &str) {
        let mut left = source.chars();
        while let Some(c) = left.next() {
            match c {
                '\\' => self.text.extend(left.next().filter(|next| *next != '\n')),
                _ => {
                    self.text.push(c);
                    self.bare.push(c);
                }
            }
        }
    }

    /// Adds a text within double quotes, or of a here-document, but for what the shell fills in.
    fn around(&mut self, node: Node<'_>, range: std::ops::Range<usize>, script: &Source<'_>) {
        let mut at = range.start;
        for child in node.named_children(&mut node.walk()) {
            if matches!(child.kind(), "string_content" | "heredoc_content" | "heredoc_end") {
                continue;
            }
            self.quoted(script.text.get(at..child.start_byte()).unwrap_or_default());
            let is_value = matches!(child.kind(), "simple_expansion" | "expansion")
                && script.is_value(&script.text[child.byte_range()]);
            self.text.push(if is_value { VALUE } else { ONE_WORD });
            at = child.end_byte();
        }
        self.quoted(script.text.get(at..range.end).unwrap_or_default());
    }

    fn quoted(&mut self, source: &str) {
        let mut left = source.chars().peekable();
        while let Some(c) = left.next() {
            match left.peek() {
                Some('\n') if c == '\\' => drop(left.next()),
                Some('"' | '\\' | '$' | '`') if c == '\\' => self.text.extend(left.next()),
                _ => self.text.push(c),
            }
        }
    }

    /// Adds a text in which a backslash begins an escape of the language C.
    fn ansi(&mut self, source: &str) {
        let mut left = source.chars();
        while let Some(c) = left.next() {
            let plain = match (c, if c == '\\' { left.next() } else { None }) {
                ('\\', Some('n')) => '\n',
                ('\\', Some('t')) => '\t',
                ('\\', Some(same @ ('\\' | '\'' | '"' | '?'))) => same,
                // Numbers, mostly: any text.
                ('\\', _) => UNREAD,
                _ => c,
            };
            self.text.push(plain);
        }
    }
}
