//! What a character is to a text that R5 reads: part of a word, of a number, of a script without spaces, or an end.

/// What a character is to a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Ends every run.
    Other,
    /// Ends every run, and is a space in the whole text.
    Space,
    Letter,
    Digit,
    /// A letter of a script that writes no spaces.
    Spaceless,
    /// A mark on such a letter: part of its run, but no character of a pair.
    Mark,
}

pub(super) const ASCII: [Class; 128] = {
    let mut table = [Class::Other; 128];
    let mut c = 0_u8;
    while c < 128 {
        table[c as usize] = match c {
            b'0'..=b'9' => Class::Digit,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Class::Letter,
            b' ' | 9..=13 | 28..=31 => Class::Space,
            _ => Class::Other,
        };
        c += 1;
    }
    table
};

const fn in_ranges(c: char, ranges: &[(u32, u32)]) -> bool {
    let (c, mut i) = (c as u32, 0);
    while i < ranges.len() {
        if ranges[i].0 <= c && c <= ranges[i].1 {
            return true;
        }
        i += 1;
    }
    false
}

/// Han, Hiragana, Katakana, Thai, Lao, Myanmar and Khmer.
const SPACELESS: &[(u32, u32)] = &[
    (0x3041, 0x30ff),
    (0x4e00, 0x9fff),
    (0x3005, 0x3007),
    (0x3400, 0x4dbf),
    (0x0e01, 0x0eff),
    (0x1000, 0x109f),
    (0x1780, 0x17ff),
    (0x31f0, 0x31ff),
    (0xa9e0, 0xa9ff),
    (0xaa60, 0xaa7f),
    (0xf900, 0xfaff),
    (0xff66, 0xff9f),
    (0x1_b000, 0x1_b16f),
    (0x2_0000, 0x3_ffff),
];

/// Tone and vowel marks of those scripts that `char::is_alphanumeric` leaves out.
const MARKS: &[(u32, u32)] =
    &[(0x0e47, 0x0e4e), (0x0ec8, 0x0ece), (0x1037, 0x1037), (0x1039, 0x103a), (0x17c9, 0x17d3), (0x3099, 0x309a)];

/// Returns the class of a letter that has no upper case; `None` if the tables have to be asked.
pub(super) const fn plain(c: char) -> Option<Class> {
    match c {
        '\u{4e00}'..='\u{9fff}'
        | '\u{3041}'..='\u{3096}'
        | '\u{30a1}'..='\u{30fa}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{0e01}'..='\u{0e30}' => Some(Class::Spaceless),
        '\u{00df}'..='\u{00f6}' | '\u{00f8}'..='\u{00ff}' | '\u{0430}'..='\u{045f}' | '\u{ac00}'..='\u{d7a3}' => {
            Some(Class::Letter)
        }
        _ => None,
    }
}

pub(super) fn class(c: char) -> Class {
    if let Some(class) = ASCII.get(c as usize) {
        return *class;
    }
    by_tables(c)
}

pub(super) fn by_tables(c: char) -> Class {
    if !c.is_alphanumeric() {
        return match c {
            c if c.is_whitespace() => Class::Space,
            c if in_ranges(c, MARKS) => Class::Mark,
            _ => Class::Other,
        };
    }
    match c {
        c if c.is_numeric() => Class::Digit,
        c if in_ranges(c, SPACELESS) => Class::Spaceless,
        _ => Class::Letter,
    }
}
