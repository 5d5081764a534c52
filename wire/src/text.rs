//! Text that isn't well-formed: bytes that aren't UTF-8, and JSON escapes of half a character. U+FFFD takes its place in an
//! answer, which is never refused for it (F6).

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

const HIGH: RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: RangeInclusive<u16> = 0xdc00..=0xdfff;
/// The bytes of an escape such as `\ud83d`.
const ESCAPE_BYTES: usize = 6;
/// The first of 32 noncharacters, which Unicode keeps for use within a program. Two of them next to U+FFFD at the edge of a
/// part are the ten bits of the half that stood there.
const MARK: u32 = 0xfdd0;

/// Where bytes aren't well-formed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// This byte is no part of UTF-8.
    Byte(usize, u8),
    /// The escape of this surrogate has no other half.
    Surrogate(usize, u16),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(at, byte) => write!(f, "no UTF-8 at byte {at} (0x{byte:02x}): send text as UTF-8"),
            Self::Surrogate(at, half) => {
                write!(
                    f,
                    "half a character at byte {at} (\\u{half:04x}): send both surrogates, or the character itself"
                )
            }
        }
    }
}

/// Returns what the giver of an answer with these texts is told, if U+FFFD stands for a part of it.
pub fn warning<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let replaced = texts.into_iter().any(|text| text.contains('\u{fffd}'));
    replaced.then(|| String::from("the answer has U+FFFD in place of what wasn't text: send text as UTF-8"))
}

/// Returns the first place where bytes aren't UTF-8.
#[must_use]
pub fn no_utf8(bytes: &[u8]) -> Option<Flaw> {
    let at = std::str::from_utf8(bytes).err()?.valid_up_to();
    Some(Flaw::Byte(at, bytes.get(at).copied().unwrap_or_default()))
}

/// Returns the first place where JSON isn't well-formed text.
#[must_use]
pub fn flaw(json: &[u8]) -> Option<Flaw> {
    no_utf8(json).or_else(|| lone(json).first().map(|(at, half)| Flaw::Surrogate(*at, *half)))
}

/// Returns JSON with U+FFFD in place of what isn't well-formed text. Borrowed if all of it is.
#[must_use]
pub fn mended(json: &[u8]) -> Cow<'_, str> {
    replaced(json, |_, _, _| String::from('\u{fffd}'))
}

/// Returns JSON as [`mended`] does, for texts that are parts of one: [`append`] joins a character that was cut in two.
#[must_use]
pub fn mended_part(json: &[u8]) -> Cow<'_, str> {
    replaced(json, |json, at, half| {
        let (first, last) = (json[..at].ends_with('"'), json[at + ESCAPE_BYTES..].starts_with('"'));
        let bits = u32::from(half) & 0x3ff;
        let mark: String =
            [bits >> 5, bits & 0x1f].into_iter().filter_map(|bits| char::from_u32(MARK + bits)).collect();
        match (HIGH.contains(&half) && last, LOW.contains(&half) && first) {
            (true, _) => String::from('\u{fffd}') + &mark,
            (_, true) => mark + "\u{fffd}",
            (false, false) => String::from('\u{fffd}'),
        }
    })
}

/// Appends the next part of a text, from JSON that [`mended_part`] returned.
pub fn append(text: &mut String, part: &str) {
    let high = taken_mark(text);
    let mut rest = part.chars();
    let low = bits(rest.next(), rest.next()).filter(|_| rest.next() == Some('\u{fffd}'));
    match (high, low) {
        (Some(high), Some(low)) => {
            text.pop();
            text.extend(char::from_u32(0x1_0000 + (high << 10 | low)));
            text.push_str(rest.as_str());
        }
        (_, Some(_)) => {
            text.push('\u{fffd}');
            text.push_str(rest.as_str());
        }
        (_, None) => text.push_str(part),
    }
}

/// Ends a text of parts: the half of a character at its end stays U+FFFD.
pub fn end(text: &mut String) {
    taken_mark(text);
}

/// Takes the mark of a high surrogate from the end of a text, but for its U+FFFD.
fn taken_mark(text: &mut String) -> Option<u32> {
    let mut back = text.chars().rev();
    let (second, first) = (back.next(), back.next());
    let bits = bits(first, second).filter(|_| back.next() == Some('\u{fffd}'))?;
    text.pop();
    text.pop();
    Some(bits)
}

fn bits(first: Option<char>, second: Option<char>) -> Option<u32> {
    let five = |mark: Option<char>| u32::from(mark?).checked_sub(MARK).filter(|bits| *bits < 32);
    Some(five(first)? << 5 | five(second)?)
}

fn replaced(json: &[u8], instead: impl Fn(&str, usize, u16) -> String) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(json);
    let lone = lone(text.as_bytes());
    if lone.is_empty() {
        return text;
    }
    let (mut mended, mut from) = (String::with_capacity(text.len()), 0);
    for (at, half) in lone {
        mended.push_str(&text[from..at]);
        mended.push_str(&instead(&text, at, half));
        from = at + ESCAPE_BYTES;
    }
    mended.push_str(&text[from..]);
    Cow::Owned(mended)
}

/// Returns the surrogates in JSON that have no other half, each with the place of its escape.
fn lone(json: &[u8]) -> Vec<(usize, u16)> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(next) = json.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        let at = from + next;
        from = match (unit(json, at), unit(json, at + ESCAPE_BYTES)) {
            (Some(high), Some(low)) if HIGH.contains(&high) && LOW.contains(&low) => at + 2 * ESCAPE_BYTES,
            (Some(half), _) if HIGH.contains(&half) || LOW.contains(&half) => {
                found.push((at, half));
                at + ESCAPE_BYTES
            }
            _ => at + 2,
        };
    }
    found
}

/// Returns the code unit of the escape at this place; `None` if there is none.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE_BYTES)?.strip_prefix(b"\\u")?;
    let digits =
        std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn what_is_no_text_is_replaced_and_named_and_the_rest_stays() {
        for (json, text, named) in [
            (br#""caf\u00e9 \ud83d\ude00 \\ud83d""#.as_slice(), "café 😀 \\ud83d", None),
            (br#""a\ud83d b""#, "a\u{fffd} b", Some("byte 2 (\\ud83d)")),
            (br#""a\ude00""#, "a\u{fffd}", Some("byte 2 (\\ude00)")),
            (br#""\ude00\ud83d\ud83d\ude00""#, "\u{fffd}\u{fffd}😀", Some("byte 1 (\\ude00)")),
            (b"\"caf\xe9 au\"", "caf\u{fffd} au", Some("byte 4 (0xe9)")),
        ] {
            let mended = mended(json);
            assert_eq!(serde_json::from_str::<String>(&mended).unwrap(), text);
            assert_eq!(matches!(mended, Cow::Borrowed(_)), named.is_none(), "{text}");
            let flaw = flaw(json).map(|flaw| flaw.to_string());
            assert_eq!(flaw.is_some(), named.is_some());
            assert!(flaw.unwrap_or_default().contains(named.unwrap_or_default()), "{text}");
        }
        for cut in [r#""\ud8"#, r#""\u"#, "\"\\", r#""\ud83d\u"#, r#""\u+d83""#] {
            let _whatever = (mended(cut.as_bytes()), flaw(cut.as_bytes()));
        }
    }

    #[test]
    fn a_character_cut_between_two_parts_is_joined_and_a_half_alone_is_replaced() {
        for (parts, whole) in [
            (&[r"a \ud83d", r"\ude00 b"][..], "a 😀 b"),
            (&[r"\ud83d", r"\ude00\ud83d", r"\ude01"], "😀😁"),
            (&[r"\ud83d", "b"], "\u{fffd}b"),
            (&["a", r"\ude00"], "a\u{fffd}"),
            (&[r"\ud83d", r"\ud83d", r"\ude00", r"\ude00 \ud83d"], "\u{fffd}😀\u{fffd} \u{fffd}"),
            (&["\u{fffd}\u{fdd0}", r"\ude00"], "\u{fffd}\u{fdd0}\u{fffd}"),
        ] {
            let mut text = String::new();
            for part in parts {
                let json = format!("\"{part}\"");
                append(&mut text, &serde_json::from_str::<String>(&mended_part(json.as_bytes())).unwrap());
            }
            end(&mut text);
            assert_eq!(text, whole, "{parts:?}");
        }
    }
}
