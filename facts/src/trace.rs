//! The W3C trace context: the place of work in a trace that begins elsewhere.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The flag of a `traceparent` by which a trace is sampled.
const SAMPLED: u8 = 1;

/// A place in a trace, as a `traceparent` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of the span that whatever follows is a child of.
    pub parent: [u8; 8],
    /// Whether the trace is recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// Parses a `traceparent`: version, trace, parent and flags in lower-case hexadecimal, with no id of zeros only. A later
    /// version than the first may have more parts. `None` if the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = || parts.next().map(str::as_bytes);
        let [version] = bytes(part()?)?;
        let (trace, parent) = (bytes(part()?)?, bytes(part()?)?);
        let [flags] = bytes(part()?)?;
        let known = version != u8::MAX && (version > 0 || parts.next().is_none());
        (known && trace != [0; 16] && parent != [0; 8]).then_some(Self { trace, parent, sampled: flags & SAMPLED != 0 })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.parent.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", u8::from(self.sampled))
    }
}

/// Returns the bytes that a text of lower-case hexadecimal has.
fn bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_and_what_is_none_is_not() {
        let context = TraceContext::parse(GOOD).unwrap();
        assert_eq!((context.trace[0], context.parent[7], context.sampled), (0x0a, 0xb7, true));
        assert_eq!(context.to_string(), GOOD);
        assert!(TraceContext::parse(&GOOD.replace("-01", "-02")).is_some_and(|context| !context.sampled));
        let later = GOOD.replacen("00-", "01-", 1) + "-more";
        assert_eq!(TraceContext::parse(&later), Some(context));
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-more",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }
}
