//! The W3C trace context.

/// The bytes of a trace's id.
const ID_BYTES: usize = 16;

/// Returns the id of the trace that a `traceparent` names: version, trace, parent and flags in lower-case hexadecimal,
/// with no id of zeros only. `None` if the text is none.
#[must_use]
pub fn trace_id(text: &str) -> Option<[u8; ID_BYTES]> {
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else { return None };
    let hexadecimal = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let id = |part: &str, length: usize| hexadecimal(part, length) && part.bytes().any(|b| b != b'0');
    if !hexadecimal(version, 2)
        || version == "ff"
        || !id(trace, 2 * ID_BYTES)
        || !id(parent, 16)
        || !hexadecimal(flags, 2)
    {
        return None;
    }
    let mut bytes = [0; ID_BYTES];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&trace[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}
