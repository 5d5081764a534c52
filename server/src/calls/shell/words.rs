//! The words of a shell's command, as the command gets them.

use lastword_proto::policy::UNREAD;
use tree_sitter::Node;

/// One word.
pub(super) struct Word {
    /// The text without quotes; [`UNREAD`] stands for what the shell fills in.
    pub(super) text: String,
    /// Whether the shell replaces it by the names of files.
    is_pattern: bool,
}

impl Word {
    /// Returns it as the name of a command.
    pub(super) fn as_name(&self) -> String {
        if self.is_pattern { UNREAD.to_string() } else { self.text.clone() }
    }
}

/// Reads a word of the script.
pub(super) fn read(node: Node<'_>, script: &str) -> Word {
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
pub(super) fn input(redirect: Node<'_>, script: &str) -> Option<String> {
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
    fn read(&mut self, node: Node<'_>, script: &str) {
        let source = &script[node.byte_range()];
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
    fn around(&mut self, node: Node<'_>, range: std::ops::Range<usize>, script: &str) {
        let mut at = range.start;
        for child in node.named_children(&mut node.walk()) {
            if matches!(child.kind(), "string_content" | "heredoc_content" | "heredoc_end") {
                continue;
            }
            self.quoted(script.get(at..child.start_byte()).unwrap_or_default());
            self.text.push(UNREAD);
            at = child.end_byte();
        }
        self.quoted(script.get(at..range.end).unwrap_or_default());
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
