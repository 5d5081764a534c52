//! Output as JSON or text, without anything that could control a terminal.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};
pub(crate) use lastword_facts::visible::escape;
use lastword_facts::visible::escape_json;
use serde::Serialize;
use serde_json::json;

use crate::environment::Environment;
use crate::failure::{Exit, Failure};

/// The format of a command's output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    json: bool,
    color: bool,
}

/// The meaning of a piece of text, which sets its color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Ordinary text, without a color.
    #[default]
    Plain,
    /// A name or heading.
    Strong,
    /// Text of less importance.
    Faint,
    /// A state that needs no attention.
    Good,
    /// A state that needs attention soon.
    Warn,
    /// A state that needs attention now.
    Bad,
    /// A message that asks for work.
    Ask,
    /// A message to everyone.
    All,
}

/// Blanks before and after the cells of a table.
const PADDING: (u16, u16) = (0, 2);

/// A line in pieces, each with its tone. Foreign text in it is escaped.
pub(crate) type StyledLine = Vec<(Tone, String)>;

impl Out {
    /// Chooses the format from the flag and the environment.
    pub(crate) fn new(json: bool, environment: &Environment) -> Self {
        Self { json, color: !json && !environment.no_color && io::stdout().is_terminal() }
    }

    /// Returns whether output has colors.
    pub(crate) const fn has_color(&self) -> bool {
        self.color
    }

    /// Returns the terminal's columns; `None` if the output isn't a terminal, and nothing is cut.
    pub(crate) fn columns(&self) -> Option<usize> {
        let there = io::stdout().is_terminal();
        crossterm::terminal::size().ok().filter(|_| there).map(|(columns, _)| columns.into())
    }

    /// Formats lines in their tones, cut to the terminal's width.
    pub(crate) fn lines(&self, lines: Vec<StyledLine>) -> String {
        self.within(lines, self.columns().unwrap_or(usize::MAX))
    }

    /// Formats lines in their tones, uncut.
    pub(crate) fn whole(&self, lines: Vec<StyledLine>) -> String {
        self.within(lines, usize::MAX)
    }

    fn within(&self, lines: Vec<StyledLine>, columns: usize) -> String {
        let line = |line: StyledLine| -> String {
            cut(line, columns).iter().map(|(tone, text)| self.tone(*tone, text)).collect()
        };
        lines.into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Writes one line to standard error, for a command whose standard output belongs to a protocol.
    pub(crate) fn note(text: &str) -> Result<(), Failure> {
        Ok(writeln!(io::stderr().lock(), "lastword: {}", escape(text))?)
    }

    /// Returns whether the output is JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Prints `value` as JSON, or the text that `words` makes of it.
    pub(crate) fn show<T: Serialize>(&self, value: &T, words: impl FnOnce(&T, &Self) -> String) -> Result<(), Failure> {
        if self.json { self.json(value) } else { self.text(&words(value, self)) }
    }

    /// Prints JSON on one line.
    pub(crate) fn json<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(Failure::bug)?;
        self.text(&escape_json(&text))
    }

    /// Prints text unchanged: foreign parts must have passed through [`escape`].
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let ends = text.is_empty() || text.ends_with('\n');
        let mut stdout = io::stdout().lock();
        // In one write, so that a reader gets the whole text or nothing.
        stdout.write_all(if ends { text.to_owned() } else { format!("{text}\n") }.as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// Returns the text in its tone's color, if there are colors.
    pub(crate) fn tone(&self, tone: Tone, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => 1,
            Tone::Faint => 2,
            Tone::Good => 32,
            Tone::Warn => 33,
            Tone::Bad => 31,
            Tone::Ask => 36,
            Tone::All => 35,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Prints a failure and its hint on standard error.
    pub(crate) fn failure(&self, failure: &Failure) -> io::Result<()> {
        if failure.exit == Exit::Done {
            return Ok(());
        }
        if !self.json {
            return complain(&escape(&failure.message), failure.hint.as_deref().map(escape).as_deref());
        }
        let error = match &failure.problem {
            Some(problem) => json!({ "error": problem }),
            None => json!({ "error": { "detail": failure.message, "hint": failure.hint } }),
        };
        writeln!(io::stderr().lock(), "{}", escape_json(&error.to_string()))
    }
}

/// Prints an error and a hint on standard error.
pub(crate) fn complain(message: &str, hint: Option<&str>) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    writeln!(stderr, "error: {message}")?;
    match hint {
        Some(hint) => writeln!(stderr, "hint: {hint}"),
        None => Ok(()),
    }
}

/// Returns a word in quotes for a shell.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns a word for a command that a person copies into a shell, in quotes if it needs them.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) { word.to_owned() } else { quoted(word) }
}

/// Escapes foreign text and puts it on one line.
pub(crate) fn escape_line(text: &str) -> String {
    escape(text).replace('\n', "\\n").replace('\t', " ")
}

/// Cuts a line to this many columns; `…` marks the cut.
pub(crate) fn cut(line: StyledLine, columns: usize) -> StyledLine {
    let width = |text: &str| ratatui::text::Span::raw(text).width();
    if line.iter().map(|(_, text)| width(text)).sum::<usize>() <= columns {
        return line;
    }
    let mut left = columns.saturating_sub(1);
    let mut kept = StyledLine::new();
    for (tone, text) in line {
        let mut part = String::new();
        for c in text.chars() {
            let wide = width(c.encode_utf8(&mut [0; 4]));
            if wide > left {
                part.push('…');
                kept.push((tone, part));
                return kept;
            }
            left -= wide;
            part.push(c);
        }
        kept.push((tone, part));
    }
    kept
}

/// The characters of a name in a table that is wider than the terminal.
const NAME_CHARS: usize = 22;

/// Leaves out the middle of a name, and nothing of a text with spaces, which breaks between its words.
fn elided(cell: &str) -> String {
    let count = cell.chars().count();
    if count <= NAME_CHARS || cell.contains(' ') {
        return cell.to_owned();
    }
    let end = NAME_CHARS / 2;
    let begin: String = cell.chars().take(NAME_CHARS - end - 1).collect();
    let rest: String = cell.chars().skip(count - end).collect();
    format!("{begin}…{rest}")
}

/// Formats rows of cells in aligned columns; cells are escaped. A table wider than the terminal leaves out the middle of
/// names and wraps its cells.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>], out: &Out) -> String {
    let columns = out.columns().map(|columns| u16::try_from(columns).unwrap_or(u16::MAX));
    let text = arranged(head, rows, columns);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let first = out.tone(Tone::Faint, first);
    if rest.is_empty() { first } else { format!("{first}\n{rest}") }
}

/// Formats the table within this many columns, or as wide as its cells.
fn arranged(head: &[&str], rows: &[Vec<String>], columns: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head);
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| escape_line(cell)).collect()).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let natural = |(column, name): (usize, &&str)| width(column).unwrap_or(0).max(name.len()) + usize::from(PADDING.1);
    let is_wider = columns.is_some_and(|columns| {
        head.iter().enumerate().map(natural).sum::<usize>() > usize::from(columns) + usize::from(PADDING.1)
    });
    let shown = |cell: &String| if is_wider { elided(cell) } else { cell.clone() };
    table.add_rows(rows.iter().map(|row| row.iter().map(shown).collect::<Vec<_>>()));
    if let Some(columns) = columns {
        // The padding of the last column is cut off again.
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns.saturating_add(PADDING.1));
    }
    for (column, name) in table.column_iter_mut().zip(head) {
        let least = u16::try_from(name.len()).unwrap_or(u16::MAX).saturating_add(PADDING.1);
        column.set_padding(PADDING).set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use lastword_facts::visible::steers;

    use super::*;

    #[test]
    fn nothing_in_a_body_steers_the_terminal() {
        let hostile = "a\x1b[2Jb\u{9b}31mc\u{202e}d\re\x07f\u{200b}g\nh";
        assert_eq!(escape(hostile), "a\\u{1b}[2Jb\\u{9b}31mc\\u{202e}d\\u{d}e\\u{7}f\\u{200b}g\nh");
        assert!(!escape_line(hostile).contains('\n'));
        let json = serde_json::to_string(hostile).unwrap();
        let printed = escape_json(&json);
        assert!(!printed.chars().any(steers));
        assert_eq!(serde_json::from_str::<String>(&printed).unwrap(), hostile, "it is still the same JSON");
    }

    #[test]
    fn a_line_is_cut_to_its_columns_wide_characters_too() {
        let line = || vec![(Tone::Bad, "a漢字".to_owned()), (Tone::Plain, "bcd".to_owned())];
        let text = |columns| cut(line(), columns).into_iter().map(|(_, text)| text).collect::<String>();
        assert_eq!(text(8), "a漢字bcd");
        assert_eq!(text(7), "a漢字b…");
        assert_eq!(text(5), "a漢…", "the next one takes two columns, and one is left");
        assert_eq!(text(1), "…");
    }

    #[test]
    fn columns_are_aligned_and_cells_stay_on_their_line() {
        let out = Out { json: false, color: false };
        let rows = [vec!["a\nb".to_owned(), "1".to_owned()], vec!["é".to_owned(), "22".to_owned()]];
        assert_eq!(table(&["name", "n"], &rows, &out), "name  n\na\\nb  1\né     22");
    }

    #[test]
    fn a_table_wider_than_the_terminal_leaves_out_the_middle_of_names() {
        let name = format!("{}-reviewer", "a".repeat(55));
        let rows = [vec![name, "agent".to_owned(), "connected".to_owned(), "3m02s ago".to_owned()]];
        let text = arranged(&["name", "kind", "link", "last"], &rows, Some(80));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("aaaaaaaaaa…aa-reviewer  agent  connected  3m02s ago"), "{text}");
        assert!(arranged(&["name"], &rows, None).contains(&"a".repeat(55)), "nothing is cut without a terminal");
    }

    #[test]
    fn a_table_wider_than_the_terminal_wraps_its_cells() {
        let rows = [vec!["inc-1".to_owned(), "grant grant-1 of the operator".to_owned(), "req-0001".to_owned()]];
        let text = arranged(&["id", "holds", "parked"], &rows, Some(30));
        assert_eq!(
            text,
            "id     holds          parked\ninc-1  grant grant-1  req-0001\n       of the\n       operator"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 30));
    }
}
