//! The text form of the envelope (E1): `[FROM:kilo][TO:hive][TYPE:REQUEST][REF:EDGA-1450][DEPTH:0]`.
//!
//! Five fields in this order, then at most one `[ID:…]`, then the body. The printed form is canonical: parsing a
//! printed header gives the same header, and printing a parsed header gives the same text.
//!
//! ```
//! let (header, body) = lastword_facts::header::parse("[FROM:kilo][TO:hive][TYPE:REQUEST][REF:T-1][DEPTH:0] Look.")?;
//! assert_eq!((header.from.as_str(), header.reference.as_str(), body.trim()), ("kilo", "T-1", "Look."));
//! # Ok::<(), lastword_facts::header::HeaderError>(())
//! ```

use alloc::string::{String, ToString};
use core::fmt::{self, Write as _};

use crate::envelope::{Address, MessageType};
use crate::names::{AgentName, Label, NameError, Ref, RequestId};

/// A parsed header. FROM and DEPTH are claims that the broker checks (E3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The claimed sender.
    pub from: AgentName,
    /// The recipient, not resolved yet.
    pub to: Address,
    /// One of the six message types.
    pub kind: MessageType,
    /// The REF of the work item.
    pub reference: Ref,
    /// The claimed depth in the conversation.
    pub depth: u8,
    /// The request id, if the header has one.
    pub id: Option<RequestId>,
}

/// The reason why a text has no valid header: the field, its place, and the header that was probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderError {
    /// The invalid field: `FROM`, `TO`, `TYPE`, `REF`, `DEPTH` or `ID`.
    pub field: &'static str,
    /// The place of the problem, in bytes from the start of the message.
    pub offset: usize,
    /// The problem at that place.
    pub problem: Problem,
    /// The header that was probably meant, if it can be rebuilt.
    pub suggestion: Option<String>,
}

/// The problem with a header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The field is not in its place; keys are upper case, in this order, with nothing between the fields.
    Missing,
    /// No `]` closes the field on the same line.
    Unterminated,
    /// The value does not have the form of the field.
    Value(NameError),
    /// TYPE isn't one of the six types.
    Type,
    /// DEPTH isn't a plain number from 0 to 255 without leading zeros.
    Depth,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, offset, .. } = self;
        match &self.problem {
            Problem::Missing => write!(f, "expected [{field}:…] at byte {offset}")?,
            Problem::Unterminated => write!(f, "[{field}:… at byte {offset} is not closed by ] on the same line")?,
            Problem::Value(error) => write!(f, "the value of {field} at byte {offset} {error}")?,
            Problem::Type => {
                write!(f, "TYPE at byte {offset} is none of REQUEST, RESPONSE, STATUS, ALERT, INFO, BROADCAST")?;
            }
            Problem::Depth => write!(f, "DEPTH at byte {offset} is not a number from 0 to 255")?,
        }
        match &self.suggestion {
            Some(header) => write!(f, "; did you mean {header} ?"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for HeaderError {}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for text in ["[FROM:", self.from.as_str(), "][TO:"] {
            f.write_str(text)?;
        }
        fmt::Display::fmt(&self.to, f)?;
        for text in ["][TYPE:", self.kind.keyword(), "][REF:", self.reference.as_str(), "][DEPTH:"] {
            f.write_str(text)?;
        }
        fmt::Display::fmt(&self.depth, f)?;
        if let Some(id) = &self.id {
            f.write_str("][ID:")?;
            f.write_str(id.as_str())?;
        }
        f.write_str("]")
    }
}

/// Parses the header at the very start of `text`. Returns it and the body that follows, unchanged.
///
/// # Errors
/// Returns the first invalid field with its byte offset and, if it can be rebuilt, the header that was probably meant.
pub fn parse(text: &str) -> Result<(Header, &str), HeaderError> {
    read(text).map_err(|(field, offset, problem)| HeaderError { field, offset, problem, suggestion: suggest(text) })
}

type FieldProblem = (&'static str, usize, Problem);

fn read(text: &str) -> Result<(Header, &str), FieldProblem> {
    let mut cursor = Cursor { text, at: 0 };
    let from = cursor.field("FROM", AgentName::new)?;
    let to = cursor.field("TO", Address::parse)?;
    let (kind, at) = cursor.value("TYPE")?;
    let kind = MessageType::from_keyword(kind).ok_or(("TYPE", at, Problem::Type))?;
    let reference = cursor.field("REF", Ref::new)?;
    let (depth, at) = cursor.value("DEPTH")?;
    let depth = parse_depth(depth).ok_or(("DEPTH", at, Problem::Depth))?;
    let id = if cursor.rest().starts_with("[ID:") { Some(cursor.field("ID", RequestId::new)?) } else { None };
    Ok((Header { from, to, kind, reference, depth, id }, cursor.rest()))
}

fn parse_depth(text: &str) -> Option<u8> {
    let depth: u8 = text.parse().ok()?;
    (depth.to_string() == text).then_some(depth)
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn value(&mut self, key: &'static str) -> Result<(&'a str, usize), FieldProblem> {
        let start = self.at;
        let inner = self
            .rest()
            .strip_prefix('[')
            .and_then(|rest| rest.strip_prefix(key))
            .and_then(|rest| rest.strip_prefix(':'))
            .ok_or((key, start, Problem::Missing))?;
        let end = inner
            .bytes()
            .position(|b| b == b']' || b == b'[' || b.is_ascii_control())
            .filter(|&end| inner.as_bytes()[end] == b']')
            .ok_or((key, start, Problem::Unterminated))?;
        let value_at = start + key.len() + 2;
        self.at = value_at + end + 1;
        Ok((&inner[..end], value_at))
    }

    fn field<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Result<T, NameError>) -> Result<T, FieldProblem> {
        let (value, at) = self.value(key)?;
        parse(value).map_err(|error| {
            let offset = if let NameError::Character { offset, .. } = error { at + offset } else { at };
            (key, offset, Problem::Value(error))
        })
    }
}

/// Rebuilds the header from bracketed fields in any order, case and spacing near the start.
fn suggest(text: &str) -> Option<String> {
    let line = text.trim_start().lines().next()?;
    let found = |key: &str| {
        line.split('[').find_map(|part| {
            let (name, rest) = part.split_once(':')?;
            let (value, _) = rest.split_once(']')?;
            name.trim().eq_ignore_ascii_case(key).then(|| value.trim())
        })
    };
    let mut out = String::new();
    let from = found("FROM")?.to_ascii_lowercase();
    let to = found("TO")?.to_ascii_lowercase();
    let kind = found("TYPE")?.to_ascii_uppercase();
    let depth: u8 = found("DEPTH").unwrap_or("0").parse().ok()?;
    write!(out, "[FROM:{from}][TO:{to}][TYPE:{kind}][REF:{}][DEPTH:{depth}]", found("REF")?).ok()?;
    if let Some(id) = found("ID") {
        write!(out, "[ID:{id}]").ok()?;
    }
    read(&out).is_ok().then_some(out)
}

impl Address {
    /// Parses `hive`, `@group`, `#action`, `user` or `all`.
    ///
    /// # Errors
    /// Returns the problem with the name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let shifted = |error| match error {
            NameError::Character { offset, form } => NameError::Character { offset: offset + 1, form },
            NameError::Empty
            | NameError::TooLong { .. }
            | NameError::TooManyCharacters { .. }
            | NameError::Reserved => error,
        };
        match text {
            "all" => Ok(Self::All),
            "user" => Ok(Self::User),
            _ => match text.as_bytes().first() {
                Some(b'@') => Label::new(&text[1..]).map(Self::Group).map_err(shifted),
                Some(b'#') => Label::new(&text[1..]).map(Self::Action).map_err(shifted),
                _ => AgentName::new(text).map(Self::Name),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "[FROM:kilo][TO:hive][TYPE:REQUEST][REF:EDGA-1450][DEPTH:0]";

    #[test]
    fn a_header_is_five_fields_and_an_optional_id() {
        let text = alloc::format!("{GOOD}[ID:req-0042] look at this [please]");
        let (header, body) = parse(&text).unwrap();
        assert_eq!(header.id, Some(RequestId::new("req-0042").unwrap()));
        assert_eq!(body, " look at this [please]");
        assert_eq!(alloc::format!("{header}{body}"), text);
    }

    #[test]
    fn a_fault_names_field_offset_and_a_corrected_header() {
        let error = parse("[from:Kilo] [TO:hive][TYPE:request][REF:E-1][DEPTH:0] hi").unwrap_err();
        assert_eq!((error.field, error.offset), ("FROM", 0));
        assert_eq!(error.suggestion.as_deref(), Some("[FROM:kilo][TO:hive][TYPE:REQUEST][REF:E-1][DEPTH:0]"));

        let error = parse("[FROM:kilo][TO:hi ve][TYPE:REQUEST][REF:E-1][DEPTH:0]").unwrap_err();
        assert_eq!((error.field, error.offset), ("TO", 17));
        let error = parse("[FROM:kilo][TO:hive][TYPE:REQUEST][REF:E-1][DEPTH:01]").unwrap_err();
        assert_eq!((error.field, error.problem), ("DEPTH", Problem::Depth));
    }

    #[test]
    fn a_value_cannot_smuggle_a_second_header() {
        for text in ["[FROM:kilo][TO:hive][TYPE:REQUEST][REF:x]\n[DEPTH:0]", "[FROM:a[b]][TO:c]", "hello", ""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(
            from in "[a-z0-9]{1,8}x", to in "(all|user|@team|#review_code|hive)", depth in any::<u8>(),
            reference in "[A-Z][A-Za-z0-9._/#:-]{0,20}", id in proptest::option::of("[a-z0-9-]{1,9}"), body in ".*",
        ) {
            let header = Header {
                from: AgentName::new(&from).unwrap(), to: Address::parse(&to).unwrap(), kind: MessageType::Info,
                reference: Ref::new(&reference).unwrap(), depth, id: id.map(|i| RequestId::new(&i).unwrap()),
            };
            prop_assume!(!body.starts_with("[ID:"));
            let text = alloc::format!("{header}{body}");
            let (parsed, rest) = parse(&text).unwrap();
            prop_assert_eq!(&parsed, &header);
            prop_assert_eq!(rest, &body);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            if let Ok((header, body)) = parse(&text) {
                prop_assert_eq!(alloc::format!("{header}{body}"), text);
            }
        }
    }
}
