//! Text of others, as it may be shown to a human: what would steer a terminal, turn the reading direction or hide
//! something is written out.

use alloc::string::String;
use core::fmt::Write as _;

/// The text with every such character as an escape, but for line ends and tabs.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !matches!(c, '\n' | '\t') && steers(c) {
            // Writing to a String can't fail.
            let _ok = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// JSON text with every such character as JSON writes it, which leaves its meaning: only strings can hold them. Line ends
/// and tabs between its parts stay.
#[must_use]
pub fn escape_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !matches!(c, '\n' | '\t') && steers(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String can't fail.
                let _ok = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a character steers a terminal, turns the reading direction, or can't be seen.
#[must_use]
pub const fn steers(c: char) -> bool {
    c.is_ascii_control()
        || matches!(c,
            '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_or_hides() {
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\u{202e}d\re\u{7}f\u{200b}g\nh\u{e0041}\u{ad}";
        assert_eq!(escape(hostile), "a\\u{1b}[2Jb\\u{9b}31mc\\u{202e}d\\u{d}e\\u{7}f\\u{200b}g\nh\\u{e0041}\\u{ad}");
        assert_eq!(escape_json("{\n\"a\":\"\u{202e}\u{e0041}\"}"), "{\n\"a\":\"\\u202e\\udb40\\udc41\"}");
        assert_eq!(escape("Grüße, 世界 🎉\tok"), "Grüße, 世界 🎉\tok");
    }
}
