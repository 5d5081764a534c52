//! The REFs that a request names: those may each become a conversation of its own with one delegate (D3).

use alloc::borrow::Cow;
use alloc::vec::Vec;

use serde::Deserialize;
use thin_vec::ThinVec;

use crate::envelope::fnv;
use crate::fact::Message;
use crate::names::Ref;

/// The member of a payload that names REFs.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    refs: Vec<Cow<'a, str>>,
}

/// What stands for a REF among those that a request names.
#[must_use]
pub fn mark(reference: &str) -> u64 {
    fnv(reference)
}

/// The REFs that a message names, at most `max`: in `payload.refs`, or in its body as whole tokens that hold a digit.
#[must_use]
pub fn named(message: &Message, max: u64) -> ThinVec<u64> {
    let payload = message.payload.as_deref().and_then(|text| serde_json::from_str::<Named<'_>>(text).ok());
    let listed = payload.iter().flat_map(|named| &named.refs).filter(|name| Ref::new(name).is_ok()).map(|n| mark(n));
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let mut marks = ThinVec::new();
    for mark in listed.chain(tokens(&message.body).map(mark)) {
        if marks.len() >= max {
            break;
        }
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    marks
}

/// The tokens of a text that may be REFs: maximal runs of their characters, without the signs at their end that rather
/// belong to the sentence, where they hold a digit.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'#' | b':' | b'-');
    // Most texts hold no digit; to see that is cheaper than to cut them up.
    let digits = text.bytes().any(|byte| byte.is_ascii_digit());
    let text = if digits { text.as_bytes() } else { &[] };
    let runs = text.split(move |byte| !inside(*byte)).filter(|run| run.iter().any(u8::is_ascii_digit));
    // A run is ASCII, so it is a text.
    let trimmed = runs.filter_map(|run| Some(str::from_utf8(run).ok()?.trim_end_matches(['.', ':', '/', '-'])));
    trimmed.filter(|token| token.bytes().any(|byte| byte.is_ascii_digit()) && Ref::new(token).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn a_token_is_a_whole_run_that_holds_a_digit() {
        let found: Vec<&str> =
            tokens("Do A-1, A-2: then EDGA-1450/1. Not this, nor /x-3, (A-4)... see repo#7/").collect();
        assert_eq!(found, vec!["A-1", "A-2", "EDGA-1450/1", "A-4", "repo#7"]);
    }
}
