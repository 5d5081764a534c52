//! The REFs that a request names. Each of them may become a separate conversation with one delegate (D3).

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

/// Returns the hash by which a task remembers a REF that its request names.
#[must_use]
pub fn mark(reference: &str) -> u64 {
    fnv(reference)
}

/// Returns the hashes of the REFs that a message names, at most `max`: those in `payload.refs`, and every whole token
/// of its body that holds a digit.
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

/// Returns the tokens of a text that may be REFs: maximal runs of REF characters that hold a digit, without trailing
/// punctuation, which rather belongs to the sentence.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'#' | b':' | b'-');
    // Most texts hold no digit, and checking for one is cheaper than splitting.
    let digits = text.bytes().any(|byte| byte.is_ascii_digit());
    let text = if digits { text.as_bytes() } else { &[] };
    let runs = text.split(move |byte| !inside(*byte)).filter(|run| run.iter().any(u8::is_ascii_digit));
    // A run is ASCII, so it is valid UTF-8.
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
