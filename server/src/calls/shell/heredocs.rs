//! Two here-documents on one line, which the grammar can't read: a file stands for each of them instead.

/// A script without these here-documents, and their texts.
pub(super) struct Rewritten {
    pub(super) script: String,
    pub(super) documents: Vec<Document>,
}

/// A here-document.
pub(super) struct Document {
    pub(super) body: String,
    /// The same document alone, if the shell fills in parts of it.
    pub(super) filled: Option<String>,
}

/// One `<<END` on a line.
struct Start<'a> {
    at: usize,
    behind: usize,
    end: &'a str,
    is_quoted: bool,
    may_be_indented: bool,
}

/// Rewrites a script; `None` if no line has two here-documents, or if it can't be told what they are.
pub(super) fn rewritten(text: &str) -> Option<Rewritten> {
    let (mut script, mut documents, mut quote) = (String::new(), Vec::new(), None);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let starts = starts(line, &mut quote)?;
        let mut at = 0;
        let (mut here, mut below) = (String::new(), String::new());
        for start in &starts {
            let mut body = String::new();
            loop {
                let next = lines.next()?;
                let stripped = if start.may_be_indented { next.trim_start_matches('\t') } else { next };
                below.extend([next, "\n"]);
                if stripped == start.end {
                    break;
                }
                body.extend([stripped, "\n"]);
            }
            here.extend([&line[at..start.at], " < - "]);
            at = start.behind;
            let filled = (!start.is_quoted).then(|| format!("cat <<{end}\n{body}{end}\n", end = start.end));
            documents.push(Document { body, filled });
        }
        match starts.len() {
            0 | 1 => script.extend([line, "\n", &below]),
            _ => script.extend([&here, &line[at..], "\n"]),
        }
        if starts.len() == 1 {
            documents.pop();
        }
    }
    (!documents.is_empty() && quote.is_none()).then_some(Rewritten { script, documents })
}

/// Returns where here-documents begin on a line, which may begin within quotes; `None` if that can't be told.
fn starts<'a>(line: &'a str, quote: &mut Option<char>) -> Option<Vec<Start<'a>>> {
    let mut found = Vec::new();
    let mut left = line.char_indices();
    while let Some((at, c)) = left.next() {
        match (*quote, c) {
            (None | Some('"'), '\\') => drop(left.next()),
            (None, '\'' | '"') => *quote = Some(c),
            (Some(open), _) if open == c => *quote = None,
            (None, '#') if line[..at].ends_with(|c: char| c.is_whitespace()) || at == 0 => break,
            (None, '<') if line[at..].starts_with("<<<") => drop((left.next(), left.next())),
            (None, '<') if line[at..].starts_with("<<") => {
                let start = start(line, at)?;
                while left.offset() < start.behind {
                    left.next();
                }
                found.push(start);
            }
            // Arithmetic, where `<<` is another thing, and substitutions with quotes of their own.
            (None, '(') if line[at..].starts_with("((") => return None,
            (Some('"'), '`') => return None,
            (Some('"'), '$') if line[at..].starts_with("$(") => return None,
            _ => {}
        }
    }
    Some(found)
}

fn start(line: &str, at: usize) -> Option<Start<'_>> {
    let rest = &line[at + 2..];
    let may_be_indented = rest.starts_with('-');
    let rest = rest[usize::from(may_be_indented)..].trim_start_matches([' ', '\t']);
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let named = rest.trim_start_matches(['\'', '"']);
    let name_ends = named.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '.'));
    let end = &named[..name_ends.unwrap_or(named.len())];
    let behind = &named[end.len()..];
    let behind = match quote {
        Some(quote) => behind.strip_prefix(quote)?,
        None => behind,
    };
    let is_whole = behind.chars().next().is_none_or(|c| c.is_whitespace() || ";&|<>)".contains(c));
    let behind = line.len() - behind.len();
    (is_whole && !end.is_empty()).then_some(Start { at, behind, end, is_quoted: quote.is_some(), may_be_indented })
}
