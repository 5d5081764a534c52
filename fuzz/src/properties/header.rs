//! The text header (E1): a text that is parsed is printed as it was, and a fault points into the text.

use lastword_facts::header::{HeaderError, parse};

/// Checks one message.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse(text) {
        Ok((header, body)) => {
            let printed = header.to_string();
            assert_eq!(format!("{printed}{body}"), text, "print after parse is the identity");
            // A body that begins with an ID field can't follow a header without one: it would have been parsed.
            assert!(header.id.is_some() || !body.starts_with("[ID:"), "an ID field is no body");
            let again = parse(&printed).expect("a printed header is a header");
            assert_eq!(again, (header, ""), "parse after print is the identity");
            assert_eq!(printed.matches('[').count(), printed.matches(']').count());
            assert!((5..=6).contains(&printed.matches('[').count()), "no value holds a bracket");
            assert!(printed.bytes().all(|byte| byte.is_ascii_graphic()), "no value holds a space or a control");
        }
        Err(error) => fault(text, &error),
    }
}

fn fault(text: &str, error: &HeaderError) {
    assert!(error.offset <= text.len(), "the fault is in the text");
    assert!(text.is_char_boundary(error.offset), "and not inside a character");
    assert!(["FROM", "TO", "TYPE", "REF", "DEPTH", "ID"].contains(&error.field));
    let worded = error.to_string();
    assert!(worded.contains(error.field) && worded.contains(&error.offset.to_string()));
    if let Some(suggestion) = &error.suggestion {
        let (header, rest) = parse(suggestion).expect("a suggestion is a header");
        assert_eq!((header.to_string(), rest), (suggestion.clone(), ""), "and canonical");
    }
}
