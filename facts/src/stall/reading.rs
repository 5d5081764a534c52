//! What the guard reads in a text: its length in tokens, its units and a hash of the whole.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Bits;

mod class;

use class::{ASCII, Class, class, plain};

/// Characters of a text whose units are read. The rest counts only as context.
const READ_CHARS: usize = 8_000;
/// Characters of a token, as everywhere else.
const TOKEN_CHARS: usize = 4;
/// The characters from which a line of code is a unit.
const LINE_CHARS: u32 = 4;
/// The most characters of a run that belongs to the run before it if it has a digit, such as `v2`.
const SUFFIX_CHARS: u32 = 3;
/// Chooses one of many equally good hashes. It decides only which units share a bit.
const UNIT_SEED: u64 = 0x9351_7228_6182_d787;
/// Stands for every number in the shape of a text.
const SHAPE_SEED: u64 = 0xd1b5_4a32_d192_ed03;

/// What one text amounts to. It costs microseconds and depends on the text alone, so it can be made on any thread before
/// the message is judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    same: u64,
    /// The different hashes of words and pairs, of numbers, and of lines of code. A number is a run that begins with a
    /// digit, or has one and is longer than [`SUFFIX_CHARS`].
    units: Box<[u16]>,
    numbers_at: u32,
    lines_at: u32,
    /// The hash of the text in which every number is the same; `None` without a number, or with nothing else.
    shape: Option<u16>,
    tokens: u32,
    words: u16,
    blank: bool,
}

impl Reading {
    /// Reads a text and the structured content beside it. All of it is lower-cased.
    #[must_use]
    pub fn of(text: &str, beside: Option<&str>) -> Self {
        let parts = [Some(text), beside];
        let count = |part: &&str| part.chars().count();
        let chars: usize = parts.iter().flatten().map(count).sum();
        let mut scan = Scan::new(chars.min(READ_CHARS));
        let mut left = READ_CHARS;
        for (i, part) in parts.into_iter().flatten().enumerate() {
            // What stands beside the text doesn't continue its last word.
            if i > 0 && left > 0 {
                scan.step('\n', Class::Space);
            }
            left = scan.read(part, left);
        }
        scan.finish(chars)
    }

    pub(super) const fn tokens(&self) -> u64 {
        self.tokens as u64
    }

    /// Returns the hash of the text, in which white space of any length is one space.
    pub(super) const fn same(&self) -> u64 {
        self.same
    }

    /// Returns the number of words and pairs, which is cut at the largest `u16`.
    pub(super) const fn words(&self) -> u16 {
        self.words
    }

    pub(super) const fn is_blank(&self) -> bool {
        self.blank
    }

    /// Whether another text is the same, where white space of any length is one space. A blank text is like no other.
    #[must_use]
    pub const fn is_same(&self, other: &Self) -> bool {
        !self.blank && self.same == other.same
    }

    /// Returns the number of different units, where a line of code counts as two.
    #[must_use]
    pub fn unit_count(&self) -> u64 {
        let (words, lines) = self.units();
        (words.len() + 2 * lines.len()) as u64
    }

    /// Returns the place of the reading with the most units of this one, and how many those are; the first of several.
    /// `None` if no reading has any.
    #[must_use]
    pub fn nearest(&self, others: &[Self]) -> Option<(usize, u64)> {
        let mut bits = Bits::new();
        let (words, lines) = self.units();
        for hash in words.iter().chain(lines) {
            bits.add(*hash);
        }
        let in_common = |other: &Self| {
            let (words, lines) = other.units();
            let shared = |hashes: &[u16]| hashes.iter().filter(|hash| bits.has(**hash)).count() as u64;
            shared(words) + 2 * shared(lines)
        };
        let mut nearest: Option<(usize, u64)> = None;
        for (place, other) in others.iter().enumerate() {
            let units = in_common(other);
            if units > nearest.map_or(0, |(_, most)| most) {
                nearest = Some((place, units));
            }
        }
        nearest
    }

    /// Returns the different hashes of words and pairs, and those of lines of code that aren't among them.
    pub(super) fn units(&self) -> (&[u16], &[u16]) {
        self.units.split_at(self.lines_at as usize)
    }

    /// Returns the number of hashes that a first text adds.
    pub(super) fn hashes(&self) -> usize {
        // Two hashes of 16 bits may be the same.
        self.units.len() + usize::from(self.shape.is_some_and(|shape| !self.units.contains(&shape)))
    }

    /// Returns the number of hashes of words and pairs; those of numbers follow.
    pub(super) const fn numbers_at(&self) -> usize {
        self.numbers_at as usize
    }

    /// Returns the hash of the text but for its counters, times and ids; `None` if it has none, or nothing else.
    pub(super) const fn shape(&self) -> Option<u16> {
        self.shape
    }
}

/// A hash of characters that multiplies once for eight bytes.
#[derive(Clone, Copy)]
struct Hash {
    mixed: u64,
    /// The last bytes, which aren't mixed in yet.
    bytes: u64,
    count: u32,
}

impl Hash {
    const WORD: Self = Self::new(0xcbf2_9ce4_8422_2325);
    const LINE: Self = Self::new(0x9ae1_6a3b_2f90_404f);

    const fn new(mixed: u64) -> Self {
        Self { mixed, bytes: 0, count: 0 }
    }

    const fn add_ascii(&mut self, byte: u8) {
        self.bytes = (self.bytes << 8) | byte as u64;
        self.count += 1;
        if self.count.is_multiple_of(8) {
            self.mixed = mix(self.mixed, self.bytes);
            self.bytes = 0;
        }
    }

    const fn add(&mut self, c: char) {
        if c.is_ascii() {
            self.add_ascii(c as u8);
            return;
        }
        let [_, a, b, c] = (c as u32).to_be_bytes();
        self.add_ascii(0x80 | a);
        self.add_ascii(b);
        self.add_ascii(c);
    }

    /// Returns the hash of what was added. The count tells apart texts that differ by their zeros.
    const fn value(self) -> u64 {
        mix(self.mixed, self.bytes ^ ((self.count as u64) << 56))
    }
}

const fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Returns the hash of a unit of 16 bits: the upper bits of the product depend on all of the lower ones.
const fn unit(hash: u64) -> u16 {
    let mixed = (hash ^ UNIT_SEED).wrapping_mul(0xff51_afd7_ed55_8ccd);
    ((mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

/// The run of characters that is being read.
#[derive(Clone, Copy)]
enum CharacterRun {
    None,
    Word {
        hash: Hash,
        chars: u32,
        starts_with_digit: bool,
        has_digit: bool,
    },
    /// A run of a script without spaces: its last character, and whether it has several.
    Pairs {
        last: char,
        several: bool,
    },
}

/// A text made of words, with white space of any length as one space.
struct Whole {
    hash: Hash,
    chars: u32,
    space: bool,
}

impl Whole {
    const fn new(hash: Hash) -> Self {
        Self { hash, chars: 0, space: false }
    }

    const fn add(&mut self, c: char, class: Class) {
        if matches!(class, Class::Space) {
            self.space = self.chars > 0;
            return;
        }
        self.end_space();
        self.hash.add(c);
        self.chars += 1;
    }

    const fn end_space(&mut self) {
        if self.space {
            self.hash.add_ascii(b' ');
            self.chars += 1;
            self.space = false;
        }
    }
}

/// One pass over a text.
struct Scan {
    bits: Bits,
    units: Vec<u16>,
    numbers: Vec<u16>,
    lines: Vec<u16>,
    shape: u64,
    words: u16,
    run: CharacterRun,
    /// The hash of the last run, to which a number belongs.
    before: u64,
    has_numbers: bool,
    whole: Whole,
    /// The line of code that is being read; `None` outside a fence.
    line: Option<Whole>,
    /// The backticks at the end of what was read, up to two: the third one is a fence.
    ticks: u32,
}

impl Scan {
    fn new(chars: usize) -> Self {
        Self {
            bits: Bits::new(),
            // Words of English text have five to six characters with their space.
            units: Vec::with_capacity(chars / 5 + 4),
            numbers: Vec::new(),
            lines: Vec::new(),
            shape: SHAPE_SEED,
            words: 0,
            run: CharacterRun::None,
            before: 0,
            has_numbers: false,
            whole: Whole::new(Hash::WORD),
            line: None,
            ticks: 0,
        }
    }

    /// Reads at most `left` characters of a part, in lower case. Returns how many more may be read.
    fn read(&mut self, mut part: &str, mut left: usize) -> usize {
        while left > 0 && !part.is_empty() {
            let bytes = part.as_bytes();
            let most = &bytes[..bytes.len().min(left)];
            let ascii = most.iter().position(|byte| !byte.is_ascii()).unwrap_or(most.len());
            self.read_ascii(&most[..ascii]);
            left -= ascii;
            let mut rest = part[ascii..].chars();
            if let Some(c) = rest.next().filter(|_| left > 0) {
                left = self.read_other(c, left);
            }
            part = rest.as_str();
        }
        left
    }

    /// Reads a character that isn't ASCII. Its lower case may be several.
    fn read_other(&mut self, c: char, mut left: usize) -> usize {
        // Most have no upper case; the tables of Unicode cost ten times as much.
        if let Some(class) = plain(c) {
            self.step(c, class);
            return left - 1;
        }
        for c in c.to_lowercase().take(left) {
            self.step(c, class(c));
            left -= 1;
        }
        left
    }

    /// Reads ASCII as [`Self::step`] does, word by word.
    fn read_ascii(&mut self, text: &[u8]) {
        let mut i = 0;
        while let Some(byte) = text.get(i) {
            let class = ASCII[usize::from(*byte)];
            let fresh = matches!(self.run, CharacterRun::None) && self.ticks == 0 && self.line.is_none();
            if !fresh || !matches!(class, Class::Letter | Class::Digit) {
                self.step(char::from(byte.to_ascii_lowercase()), class);
                i += 1;
                continue;
            }
            self.whole.end_space();
            let (mut hash, mut whole, mut digits) = (Hash::WORD, self.whole.hash, 0);
            let begin = i;
            while let Some(byte) = text.get(i) {
                let class = ASCII[usize::from(*byte)];
                if !matches!(class, Class::Letter | Class::Digit) {
                    break;
                }
                let byte = byte.to_ascii_lowercase();
                hash.add_ascii(byte);
                whole.add_ascii(byte);
                digits += u32::from(class == Class::Digit);
                i += 1;
            }
            let chars = (i - begin) as u32;
            self.whole.hash = whole;
            self.whole.chars += chars;
            let (starts_with_digit, has_digit) = (class == Class::Digit, digits > 0);
            self.run = CharacterRun::Word { hash, chars, starts_with_digit, has_digit };
        }
    }

    fn step(&mut self, c: char, class: Class) {
        self.whole.add(c, class);
        if c == '`' || self.ticks > 0 || self.line.is_some() {
            self.code(c, class);
        }
        match (class, &mut self.run) {
            (Class::Letter | Class::Digit, CharacterRun::Word { hash, chars, has_digit, .. }) => {
                hash.add(c);
                *chars += 1;
                *has_digit |= class == Class::Digit;
            }
            (Class::Letter | Class::Digit, CharacterRun::None | CharacterRun::Pairs { .. }) => {
                self.end_run();
                let (mut hash, digit) = (Hash::WORD, class == Class::Digit);
                hash.add(c);
                self.run = CharacterRun::Word { hash, chars: 1, starts_with_digit: digit, has_digit: digit };
            }
            (Class::Spaceless, CharacterRun::Pairs { last, several }) => {
                let pair = pair(*last, c);
                (*last, *several) = (c, true);
                self.unit(pair, pair, false);
            }
            (Class::Spaceless, CharacterRun::None | CharacterRun::Word { .. }) => {
                self.end_run();
                self.run = CharacterRun::Pairs { last: c, several: false };
            }
            (Class::Mark, CharacterRun::Pairs { .. })
            | (Class::Other | Class::Space | Class::Mark, CharacterRun::None) => {}
            (Class::Other | Class::Space, _) | (Class::Mark, CharacterRun::Word { .. }) => self.end_run(),
        }
    }

    fn end_run(&mut self) {
        match core::mem::replace(&mut self.run, CharacterRun::None) {
            CharacterRun::None | CharacterRun::Pairs { several: true, .. } => {}
            CharacterRun::Pairs { last, several: false } => {
                let mut hash = Hash::WORD;
                hash.add(last);
                self.unit(hash.value(), hash.value(), false);
            }
            CharacterRun::Word { hash, chars, starts_with_digit, has_digit } => {
                let suffix = starts_with_digit || (has_digit && chars <= SUFFIX_CHARS);
                let hash = hash.value();
                // A short run that begins with a letter is a name more often than a number: a version, a chess move.
                let number = starts_with_digit || (has_digit && chars > SUFFIX_CHARS);
                self.unit(if suffix { mix(self.before.rotate_left(23), hash) } else { hash }, hash, number);
            }
        }
    }

    fn unit(&mut self, hash: u64, run: u64, number: bool) {
        self.words = self.words.saturating_add(1);
        self.before = run;
        self.shape = mix(self.shape.rotate_left(23), if number { SHAPE_SEED } else { run });
        self.has_numbers |= number;
        let unit = unit(hash);
        if self.bits.add(unit) {
            if number { self.numbers.push(unit) } else { self.units.push(unit) }
        }
    }

    /// Reads a character of code, or a backtick, of which three begin or end code.
    fn code(&mut self, c: char, class: Class) {
        if c == '`' {
            self.ticks += 1;
            if self.ticks == 3 {
                self.ticks = 0;
                self.line = if self.line.is_some() {
                    self.end_line();
                    None
                } else {
                    Some(Whole::new(Hash::LINE))
                };
            }
            return;
        }
        self.put_ticks();
        if c == '\n' {
            self.end_line();
        } else if let Some(line) = &mut self.line {
            line.add(c, class);
        }
    }

    /// Adds backticks that turned out not to be a fence to the line.
    fn put_ticks(&mut self) {
        let ticks = core::mem::take(&mut self.ticks);
        if let Some(line) = &mut self.line {
            (0..ticks).for_each(|_| line.add('`', Class::Other));
        }
    }

    fn end_line(&mut self) {
        let Some(line) = &mut self.line else { return };
        let line = core::mem::replace(line, Whole::new(Hash::LINE));
        if line.chars >= LINE_CHARS {
            self.lines.push(unit(line.hash.value()));
        }
    }

    fn finish(mut self, chars: usize) -> Reading {
        self.end_run();
        self.put_ticks();
        self.end_line();
        // Of at most `READ_CHARS` characters there are fewer.
        let place = |units: &Vec<u16>| u32::try_from(units.len()).unwrap_or(u32::MAX);
        let numbers_at = place(&self.units);
        self.units.append(&mut self.numbers);
        let lines_at = place(&self.units);
        for line in self.lines {
            if self.bits.add(line) {
                self.units.push(line);
            }
        }
        let (same, blank) = (self.whole.hash.value(), self.whole.chars == 0);
        let tokens = u32::try_from((chars / TOKEN_CHARS).max(1)).unwrap_or(u32::MAX);
        // Numbers alone are all that a text says.
        let shape = (self.has_numbers && numbers_at > 0).then(|| unit(self.shape));
        Reading { same, units: self.units.into(), numbers_at, lines_at, shape, tokens, words: self.words, blank }
    }
}

const fn pair(first: char, second: char) -> u64 {
    mix(((first as u64) << 32) | second as u64, Hash::WORD.mixed)
}

#[cfg(test)]
mod tests {
    use super::class::by_tables;
    use super::*;

    #[test]
    fn the_nearest_text_is_the_one_with_the_most_units_in_common() {
        let read = |text| Reading::of(text, None);
        let said =
            [read("the tests are red"), read("please run the tests again"), read("please run the tests once more")];
        let again = read("please  run the tests again");
        assert_eq!((again.nearest(&said), again.unit_count()), (Some((1, 5)), 5));
        assert!(again.is_same(&said[1]) && !again.is_same(&said[2]));
        assert_eq!(read("quite another thing").nearest(&said), None);
        assert!(!read("  ").is_same(&read("")), "a blank text repeats nothing");
    }

    /// Reads a text character by character, with the tables of Unicode for each.
    fn slowly(text: &str) -> Reading {
        let chars = text.chars().count();
        let mut scan = Scan::new(chars);
        for c in text.chars().flat_map(char::to_lowercase).take(READ_CHARS) {
            let class = if c.is_ascii() { ASCII[c as usize] } else { by_tables(c) };
            scan.step(c, class);
        }
        scan.finish(chars)
    }

    #[test]
    fn letters_without_an_upper_case_are_what_the_tables_say() {
        for c in (0x80..=0xffff).filter_map(char::from_u32).filter(|c| plain(*c).is_some()) {
            assert!(c.to_lowercase().eq([c]), "{c}");
            assert!(plain(c) == Some(by_tables(c)), "{c}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_short_ways_read_what_the_long_one_reads(
            text in "([a-cA-C0-2_ `.\t\r\n]|```|ÄäßЖж|[一-丏ぁ-おก-๎]|İ|安|é){0,60}",
        ) {
            proptest::prop_assert_eq!(Reading::of(&text, None), slowly(&text));
        }

        #[test]
        fn ascii_is_read_alike(text in "[a-cA-C0-2_ `.\t\n]{0,80}") {
            proptest::prop_assert_eq!(Reading::of(&text, None), slowly(&text));
        }
    }
}
