//! Colours for the arguments of a held call: each as the shell, SQL, JSON, path or diff that it is. Nothing of a text is
//! left out or changed, and what was escaped stands out.

use lastword_server::calls::risk::is_destructive;
use lastword_wire::call::{Argument, ArgumentKind};
use maud::{Markup, html};

/// The longest text that is coloured, in bytes; the elements of a longer one would be most of its page.
const COLOURED_BYTES_MAX: usize = 32_768;

/// What a byte of a text belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// Nothing of the below.
    #[default]
    Plain,
    /// A command's name, a keyword, or the last part of a path.
    Word,
    /// An option of a command.
    Flag,
    /// A quoted text.
    Text,
    /// A number.
    Number,
    /// What joins, redirects or nests commands.
    Sign,
    /// A comment, or the folders of a path.
    Note,
    /// A variable, or a member of JSON.
    Name,
    /// A character that was written as an escape, and a step to the folder above.
    Odd,
    /// A command that destroys or publishes something.
    Danger,
    /// A line that a diff adds.
    Added,
    /// A line that a diff removes.
    Removed,
}

impl Tone {
    const fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Word => "t-word",
            Self::Flag => "t-flag",
            Self::Text => "t-text",
            Self::Number => "t-number",
            Self::Sign => "t-sign",
            Self::Note => "t-note",
            Self::Name => "t-name",
            Self::Odd => "t-odd",
            Self::Danger => "t-danger",
            Self::Added => "t-added",
            Self::Removed => "t-removed",
        }
    }
}

/// Returns the tone of each byte of an argument's text; empty for a text that isn't coloured.
pub(super) fn tones(part: &Argument) -> Vec<Tone> {
    let text = part.text.as_str();
    if text.len() > COLOURED_BYTES_MAX {
        return Vec::new();
    }
    let mut paint = Paint { text, at: 0, tones: vec![Tone::Plain; text.len()] };
    match part.kind {
        // A command that isn't a text is shown as JSON.
        ArgumentKind::Command if text.starts_with(['[', '{']) => paint.json(),
        ArgumentKind::Command => paint.shell(),
        ArgumentKind::Path => paint.path(),
        ArgumentKind::Query if is_sql(text) => paint.sql(),
        ArgumentKind::Change => paint.diff(false),
        ArgumentKind::Text if is_diff(text) => paint.diff(true),
        ArgumentKind::Rest => paint.json(),
        ArgumentKind::Query | ArgumentKind::Text | ArgumentKind::Address => {}
    }
    paint.hosts(part.kind == ArgumentKind::Address);
    paint.escapes();
    paint.tones
}

/// Shows a part of a text that begins at `from`, with the tones of the whole.
pub(super) fn coloured(part: &str, from: usize, tones: &[Tone]) -> Markup {
    let Some(tones) = tones.get(from..from + part.len()) else { return html! { (part) } };
    let mut runs: Vec<(Tone, &str)> = Vec::new();
    let mut begin = 0;
    for run in tones.chunk_by(PartialEq::eq) {
        // Tones change between characters only.
        runs.push((run[0], part.get(begin..begin + run.len()).unwrap_or_default()));
        begin += run.len();
    }
    html! { @for (tone, text) in runs { @if tone == Tone::Plain { (text) } @else { span class=(tone.class()) { (text) } } } }
}

const KEYWORDS: &[&str] = &[
    "ALL", "ALTER", "AND", "AS", "BEGIN", "BY", "CASCADE", "COMMIT", "CREATE", "DELETE", "DESC", "DISTINCT", "DROP",
    "EXISTS", "FROM", "GRANT", "GROUP", "HAVING", "IF", "IN", "INDEX", "INNER", "INSERT", "INTO", "IS", "JOIN", "LEFT",
    "LIKE", "LIMIT", "NOT", "NULL", "ON", "OR", "ORDER", "OUTER", "REVOKE", "ROLLBACK", "SELECT", "SET", "TABLE",
    "TRUNCATE", "UNION", "UPDATE", "VALUES", "VIEW", "WHERE", "WITH",
];

fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word.to_ascii_uppercase().as_str()).is_ok()
}

fn is_sql(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(is_keyword)
}

fn is_diff(text: &str) -> bool {
    let begins = ["diff --git ", "@@ ", "*** Begin Patch"];
    begins.iter().any(|begin| text.starts_with(begin)) || (text.starts_with("--- ") && text.contains("\n+++ "))
}

/// A walk over a text that paints what it passes.
struct Paint<'a> {
    text: &'a str,
    at: usize,
    tones: Vec<Tone>,
}

impl<'a> Paint<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Passes this many bytes, which must end between two characters.
    fn pass(&mut self, bytes: usize, tone: Tone) {
        let end = (self.at + bytes).min(self.text.len());
        self.tones[self.at..end].fill(tone);
        self.at = end;
    }

    /// Passes the next characters as long as `wanted`, and at least one.
    fn pass_while(&mut self, tone: Tone, wanted: impl Fn(char) -> bool) {
        let first = self.peek().map_or(0, char::len_utf8);
        let after = &self.rest()[first..];
        let more = after.find(|c| !wanted(c)).unwrap_or(after.len());
        self.pass(first + more, tone);
    }

    /// Passes a quoted text with its quotes; an open one goes to the end.
    fn pass_quoted(&mut self, quote: char, tone: Tone) {
        let mut escaped = false;
        let end = self.rest().char_indices().skip(1).find(|(_, c)| {
            let ends = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped && quote != '\'';
            ends
        });
        self.pass(end.map_or(self.rest().len(), |(at, _)| at + 1), tone);
    }

    fn pass_line(&mut self, tone: Tone) {
        self.pass(self.rest().find('\n').unwrap_or(self.rest().len()), tone);
    }

    fn shell(&mut self) {
        // Whether the next word is a command's name, and where the command began.
        let (mut begins, mut command) = (true, 0);
        while let Some(c) = self.peek() {
            if matches!(c, '\n' | ';' | '&' | '|') {
                self.warn(command);
                command = self.at + 1;
            }
            match c {
                '\n' => {
                    self.pass(1, Tone::Plain);
                    begins = true;
                }
                _ if c.is_whitespace() => self.pass(c.len_utf8(), Tone::Plain),
                '#' => {
                    self.warn(command);
                    self.pass_line(Tone::Note);
                    command = self.at;
                }
                '\'' | '"' => {
                    self.pass_quoted(c, Tone::Text);
                    begins = false;
                }
                ';' | '&' | '|' | '(' | ')' | '`' | '{' | '}' => {
                    self.pass(1, Tone::Sign);
                    begins = true;
                }
                '<' | '>' => self.pass(1, Tone::Sign),
                '$' if self.rest().starts_with("$(") => {
                    self.pass(2, Tone::Sign);
                    begins = true;
                }
                '$' => self.pass_while(Tone::Name, |c| c.is_alphanumeric() || matches!(c, '_' | '{' | '}')),
                _ => {
                    let word = self.rest().split(ends_word).next().unwrap_or_default();
                    let tone = if begins && !word.contains('=') {
                        begins = false;
                        Tone::Word
                    } else if word.starts_with('-') {
                        Tone::Flag
                    } else {
                        Tone::Plain
                    };
                    self.pass(word.len().max(c.len_utf8()), tone);
                }
            }
        }
        self.warn(command);
    }

    /// Marks the command between `from` and here, if it destroys or publishes something.
    fn warn(&mut self, from: usize) {
        let text = self.text.get(from..self.at).unwrap_or_default();
        if is_destructive(text) {
            let begin = from + text.len() - text.trim_start().len();
            let tones = self.tones[begin..from + text.trim_end().len()].iter_mut();
            // What was escaped still stands out.
            tones.filter(|tone| **tone != Tone::Odd).for_each(|tone| *tone = Tone::Danger);
        }
    }

    fn sql(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                '\'' => self.pass_quoted('\'', Tone::Text),
                '"' => self.pass_quoted('"', Tone::Name),
                '-' if self.rest().starts_with("--") => self.pass_line(Tone::Note),
                '/' if self.rest().starts_with("/*") => {
                    self.pass(self.rest().find("*/").map_or(self.rest().len(), |at| at + 2), Tone::Note);
                }
                ';' => self.pass(1, Tone::Sign),
                _ if c.is_ascii_digit() => self.pass_while(Tone::Number, |c| c.is_ascii_digit() || c == '.'),
                _ if c.is_alphabetic() || c == '_' => {
                    let word = self.rest().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                    let tone = if is_keyword(word) { Tone::Word } else { Tone::Plain };
                    self.pass(word.len(), tone);
                }
                _ => self.pass(c.len_utf8(), Tone::Plain),
            }
        }
    }

    fn json(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                '"' => {
                    let from = self.at;
                    self.pass_quoted('"', Tone::Text);
                    if self.rest().trim_start().starts_with(':') {
                        self.tones[from..self.at].fill(Tone::Name);
                    }
                }
                '-' | '0'..='9' => {
                    self.pass_while(Tone::Number, |c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'))
                }
                _ if c.is_alphabetic() => self.pass_while(Tone::Word, char::is_alphabetic),
                _ => self.pass(c.len_utf8(), Tone::Plain),
            }
        }
    }

    fn path(&mut self) {
        let folders = self.text.trim_end_matches('/').rfind('/').map_or(0, |at| at + 1);
        self.pass(folders, Tone::Note);
        self.pass(self.text.len(), Tone::Word);
        for (at, step) in self.text.match_indices("..") {
            self.tones[at..at + step.len()].fill(Tone::Odd);
        }
    }

    /// Paints the lines of a diff, which may have heads that name files.
    fn diff(&mut self, has_heads: bool) {
        while let Some(c) = self.peek() {
            let line = self.rest();
            match c {
                '+' if !(has_heads && line.starts_with("+++ ")) => self.pass_line(Tone::Added),
                '-' if !(has_heads && line.starts_with("--- ")) => self.pass_line(Tone::Removed),
                '@' => self.pass_line(Tone::Name),
                ' ' => self.pass_line(Tone::Plain),
                _ => self.pass_line(Tone::Note),
            }
            self.pass(1, Tone::Plain);
        }
    }

    /// Marks what stands before the host of an address and passes for it, and in an address the host.
    fn hosts(&mut self, is_address: bool) {
        for (at, sign) in self.text.match_indices("://") {
            let from = at + sign.len();
            let ends =
                |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '`' | '<' | '>' | '\\');
            let end = self.text[from..].find(ends).map_or(self.text.len(), |length| from + length);
            let host = self.text[from..end].rfind('@').map_or(from, |user| from + user + 1);
            // Over SSH, a user is the usual case.
            if self.text[..at].ends_with("http")
                || self.text[..at].ends_with("https")
                || self.text[from..host].contains('.')
            {
                self.tones[from..host].fill(Tone::Odd);
            }
            if is_address {
                self.tones[host..end].fill(Tone::Word);
            }
        }
    }

    /// Marks what stands for a character that steers, hides, or passes for another.
    fn escapes(&mut self) {
        for (at, _) in self.text.match_indices("\\u") {
            let after = &self.text[at + 2..];
            let hex = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
            let length = match after.strip_prefix('{') {
                Some(inner) => Some(hex(inner)).filter(|n| *n > 0 && inner[*n..].starts_with('}')).map(|n| n + 2),
                None => Some(4).filter(|_| hex(after) >= 4),
            };
            if let Some(length) = length {
                self.tones[at..at + 2 + length].fill(Tone::Odd);
            }
        }
    }
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')' | '`' | '\'' | '"' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ArgumentKind, text: &str) -> Vec<(Tone, String)> {
        let part = Argument { name: "part".into(), kind, text: text.into() };
        let tones = tones(&part);
        let mut runs = Vec::new();
        let mut begin = 0;
        for run in tones.chunk_by(PartialEq::eq) {
            runs.push((run[0], text[begin..begin + run.len()].to_owned()));
            begin += run.len();
        }
        runs.retain(|(tone, text)| *tone != Tone::Plain || !text.trim().is_empty());
        runs
    }

    fn check(kind: ArgumentKind, text: &str, wanted: &[(Tone, &str)]) {
        let wanted: Vec<(Tone, String)> = wanted.iter().map(|(tone, text)| (*tone, (*text).to_owned())).collect();
        assert_eq!(of(kind, text), wanted, "{text}");
    }

    #[test]
    fn each_argument_has_the_colours_of_its_language() {
        use Tone::{Added, Danger, Flag, Name, Note, Number, Odd, Plain, Removed, Sign, Text, Word};
        check(
            ArgumentKind::Command,
            "A=1 git log -f 'x y' && ls $HOME # so",
            &[
                (Plain, "A=1 "),
                (Word, "git"),
                (Plain, " log "),
                (Flag, "-f"),
                (Text, "'x y'"),
                (Sign, "&&"),
                (Word, "ls"),
                (Name, "$HOME"),
                (Note, "# so"),
            ],
        );
        check(
            ArgumentKind::Command,
            "cd x &&  rm -rf \"${X:-/}\"/* > log; ls # rm y",
            &[
                (Word, "cd"),
                (Plain, " x "),
                (Sign, "&&"),
                (Danger, "rm -rf \"${X:-/}\"/* > log"),
                (Sign, ";"),
                (Word, "ls"),
                (Note, "# rm y"),
            ],
        );
        check(ArgumentKind::Command, "rm p\\u{430}y", &[(Danger, "rm p"), (Odd, "\\u{430}"), (Danger, "y")]);
        check(
            ArgumentKind::Path,
            "/etc/../p\\u{430}",
            &[(Note, "/etc/"), (Odd, ".."), (Note, "/"), (Word, "p"), (Odd, "\\u{430}")],
        );
        check(
            ArgumentKind::Query,
            "DROP TABLE t; -- 'x'",
            &[(Word, "DROP"), (Word, "TABLE"), (Plain, " t"), (Sign, ";"), (Note, "-- 'x'")],
        );
        check(
            ArgumentKind::Address,
            "https://api.example@203.0.113.7:8443/v1?a=b@c",
            &[(Plain, "https://"), (Odd, "api.example@"), (Word, "203.0.113.7:8443"), (Plain, "/v1?a=b@c")],
        );
        check(
            ArgumentKind::Command,
            "curl http://a@b/c",
            &[(Word, "curl"), (Plain, " http://"), (Odd, "a@"), (Plain, "b/c")],
        );
        check(ArgumentKind::Command, "ssh://git@h", &[(Word, "ssh://git@h")]);
        check(ArgumentKind::Query, "how to drop a table", &[(Plain, "how to drop a table")]);
        check(
            ArgumentKind::Rest,
            r#"{"a": [1, true, "b"]}"#,
            &[
                (Plain, "{"),
                (Name, "\"a\""),
                (Plain, ": ["),
                (Number, "1"),
                (Plain, ", "),
                (Word, "true"),
                (Plain, ", "),
                (Text, "\"b\""),
                (Plain, "]}"),
            ],
        );
        check(
            ArgumentKind::Text,
            "@@ -1 +1 @@\n-a\n+b\n c",
            &[(Name, "@@ -1 +1 @@"), (Removed, "-a"), (Added, "+b"), (Plain, "\n c")],
        );
        // A line that goes is no head of a file.
        check(ArgumentKind::Change, "--- a\n+b\n", &[(Removed, "--- a"), (Added, "+b")]);
    }

    #[test]
    fn no_text_stops_the_walk_and_nothing_of_it_is_lost() {
        let texts = ["", "'", "\"\\", "$(", "ä$ö'ü", "\\u{", "\\u12", "/*", "-", "@", "世界 \"", "a\n\n\u{1f389}#"];
        for kind in [
            ArgumentKind::Command,
            ArgumentKind::Path,
            ArgumentKind::Query,
            ArgumentKind::Change,
            ArgumentKind::Text,
            ArgumentKind::Rest,
        ] {
            for text in texts.map(str::to_owned).into_iter().chain(texts.map(|text| format!("SELECT {text}"))) {
                let part = Argument { name: "part".into(), kind, text: text.clone() };
                let shown = coloured(&text, 0, &tones(&part)).into_string();
                let mut plain = String::new();
                let mut inside = false;
                for c in shown.chars() {
                    match c {
                        '<' => inside = true,
                        '>' => inside = false,
                        _ if !inside => plain.push(c),
                        _ => {}
                    }
                }
                assert_eq!(plain, html! { (text) }.into_string(), "{kind:?}");
            }
        }
        assert!(KEYWORDS.is_sorted());
    }
}
