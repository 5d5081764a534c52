//! Makes the text of agents safe to show to a human: characters that steer a terminal, change the reading direction or
//! hide something are written as escapes. What joins two pictures to one, in an emoji, does none of that.

use alloc::string::String;
use core::fmt::Write as _;

/// Returns the text with every such character as an escape, except for line ends and tabs.
#[must_use]
pub fn escape(text: &str) -> String {
    escaped(text, |out, c| {
        // Writing to a String can't fail.
        let _ok = write!(out, "{}", c.escape_unicode());
    })
}

fn escaped(text: &str, put: impl Fn(&mut String, char)) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut before, mut rest) = (None, text.chars());
    while let Some(c) = rest.next() {
        let joins = || c == '\u{200d}' && before.is_some_and(is_picture) && rest.clone().next().is_some_and(is_picture);
        if !matches!(c, '\n' | '\t') && steers(c) && !joins() {
            put(&mut out, c);
        } else {
            out.push(c);
        }
        before = Some(c);
    }
    out
}

/// Whether a character is a picture, or says that the one before it is.
const fn is_picture(c: char) -> bool {
    matches!(c, '\u{fe0f}' | '\u{2190}'..='\u{21ff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// Like [`escape`], and also escapes letters that look like Latin ones in a word with Latin letters: in a command, a
/// path or an address, the Cyrillic `\u{430}` reads as an `a`.
#[must_use]
pub fn escape_mixed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len()));
        let (between, next) = after.split_at(after.find(char::is_alphanumeric).unwrap_or(after.len()));
        let mixed = word.contains(|c: char| c.is_ascii_alphabetic());
        for c in word.chars() {
            if steers(c) || (mixed && passes_for_latin(c)) {
                // Writing to a String can't fail.
                let _ok = write!(out, "{}", c.escape_unicode());
            } else {
                out.push(c);
            }
        }
        out.push_str(&escape(between));
        rest = next;
    }
    out
}

/// Letters of the scripts that share some of Latin's shapes: Greek, Cyrillic, Armenian, Cherokee, Coptic, Lisu, and the
/// letters that are Latin ones in another style.
const fn passes_for_latin(c: char) -> bool {
    matches!(c,
        '\u{370}'..='\u{58f}' | '\u{13a0}'..='\u{13ff}' | '\u{1c80}'..='\u{1c8f}' | '\u{1f00}'..='\u{1fff}'
        | '\u{2100}'..='\u{214f}' | '\u{2c80}'..='\u{2cff}' | '\u{2de0}'..='\u{2dff}' | '\u{a4d0}'..='\u{a4ff}'
        | '\u{a640}'..='\u{a69f}' | '\u{ab70}'..='\u{abbf}' | '\u{ff10}'..='\u{ff5a}' | '\u{1d400}'..='\u{1d7ff}')
}

/// Returns JSON text with every such character as a JSON escape, which keeps its meaning: only strings can hold them.
/// Line ends and tabs between its parts stay. For models: nothing is joined.
#[must_use]
pub fn escape_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !matches!(c, '\n' | '\t') && steers(c) { put_json(&mut out, c) } else { out.push(c) }
    }
    out
}

/// Like [`escape_json`], for humans: what joins two pictures stays.
#[must_use]
pub fn escape_json_shown(text: &str) -> String {
    escaped(text, put_json)
}

fn put_json(out: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a String can't fail.
        let _ok = write!(out, "\\u{unit:04x}");
    }
}

/// Whether a character steers a terminal, changes the reading direction, or is invisible.
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
    fn letters_that_pass_for_latin_ones_among_them_are_written_out() {
        assert_eq!(escape_mixed("curl p\u{430}ypal.com\u{202e}"), "curl p\\u{430}ypal.com\\u{202e}");
        assert_eq!(escape_mixed("\u{ff41}bc \u{3bf}k"), "\\u{ff41}bc \\u{3bf}k");
        for plain in ["cat /home/Иван/Übung", "naïve Grüße, 世界 🎉\tok", "Đỗ 12x\n", "修正bug", ""] {
            assert_eq!(escape_mixed(plain), plain);
        }
    }

    #[test]
    fn nothing_steers_or_hides() {
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\u{202e}d\re\u{7}f\u{200b}g\nh\u{e0041}\u{ad}";
        assert_eq!(escape(hostile), "a\\u{1b}[2Jb\\u{9b}31mc\\u{202e}d\\u{d}e\\u{7}f\\u{200b}g\nh\\u{e0041}\\u{ad}");
        assert_eq!(escape_json("{\n\"a\":\"\u{202e}\u{e0041}\"}"), "{\n\"a\":\"\\u202e\\udb40\\udc41\"}");
        assert_eq!(escape("Grüße, 世界 🎉\tok"), "Grüße, 世界 🎉\tok");
    }

    #[test]
    fn what_joins_two_pictures_is_no_attack() {
        let family = "\u{1f469}\u{200d}\u{1f4bb} \u{2764}\u{fe0f}\u{200d}\u{1f525}";
        assert_eq!(escape(family), family);
        assert_eq!(escape_mixed(&alloc::format!("ok {family}")), alloc::format!("ok {family}"));
        assert_eq!(escape_json_shown(family), family);
        for hidden in ["a\u{200d}b", "a\u{200d}\u{1f4bb}", "\u{1f469}\u{200d}", "\u{1f469}\u{200d}\u{200d}\u{1f4bb}"] {
            assert!(
                escape(hidden).contains("\\u{200d}") && escape_json_shown(hidden).contains("\\u200d"),
                "{hidden:?}"
            );
        }
        assert!(escape_json(family).contains("\\u200d"));
    }
}
