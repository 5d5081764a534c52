//! R5: the price of a new word. Tells from the texts alone when two agents read their context again and again and say
//! almost nothing new.
//!
//! [`Reading`] is what one text amounts to: its tokens, the hashes of its units, and a hash of the whole. [`Stall`]
//! folds the readings of one exchange, in order, and returns a [`Due`] on each. Both are deterministic and use
//! integers only. No text is kept.
//!
//! ```
//! use lastword_facts::stall::{Due, Reading, Stall, StallCause};
//!
//! let mut exchange = Stall::default();
//! let thanks = Reading::of("Thank you so much for the quick help!", None);
//! // 0 and 1 speak in turn.
//! let due: Vec<Due> = (0..5).map(|n| exchange.message(n % 2, Some(1 - n % 2), &thanks)).collect();
//! assert_eq!(due[4], Due::Hold(StallCause::Stuck));
//! ```

use alloc::boxed::Box;
use alloc::vec;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use thin_vec::ThinVec;

mod reading;
#[cfg(test)]
mod tests;

pub use reading::Reading;

/// The tokens read again that one new unit pays for.
const PRICE_TOKENS: u64 = 200;
/// What a message without a new unit adds to `dry`, in thousandths of a message.
const MESSAGE: i64 = 1_000;
/// The most that one message takes from `dry`.
const RELIEF: i64 = 2_000;
/// The `dry` at which a warning is due.
pub const WARN_DRY: u64 = 3_000;
/// The `dry` at which the exchange is held.
pub const HOLD_DRY: u64 = 5_000;
/// Messages before the first one that can be warned of or held for its `dry`.
const FREE_MESSAGES: u32 = 5;
/// How often in a row a speaker says the same before the exchange is stuck.
pub const SAME_MAX: u32 = 3;
/// The words of a text below which repeating it means nothing, such as "yes" or "ok, done".
const SAME_WORDS: u16 = 3;
/// The new units since the first of those messages above which the exchange isn't stuck.
const SAME_NEW_UNITS: u64 = 45;
/// The number of different hashes of a unit.
const HASHES: u32 = 1 << 16;
/// The hashes that a list holds before a bitmap takes less memory.
const LIST_MAX: usize = 4_096;
/// The bytes of a bitmap.
const MAP_BYTES: usize = HASHES as usize / 8;
/// The bytes that an exchange is counted with besides its hashes, on every machine alike.
const FIXED_BYTES: u64 = 192;

/// What is due after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Due {
    /// Nothing: the exchange makes progress, or it is too early to say.
    Nothing,
    /// The speakers should be warned, once.
    Warning,
    /// The exchange should be held.
    Hold(StallCause),
}

crate::words! {
    /// Why an exchange is warned of or held.
    StallCause {
        /// The context is read again and again for few new units.
        Dry = "dry",
        /// A speaker sends the same message again and again.
        Stuck = "stuck",
    }
}

/// The numbers of an exchange after its last message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Curve {
    /// The messages so far.
    pub messages: u32,
    /// The thousandths of messages that brought nothing, less what new units made up for.
    pub dry: u64,
    /// The new units so far.
    pub units: u64,
    /// The tokens of all messages together, which each message makes its reader read again.
    pub context: u64,
    /// The tokens read again: the sum of the contexts of all messages after the first.
    pub read_again: u64,
}

/// The state of one exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    curve: Curve,
    warned: bool,
    last: Option<(u64, u32)>,
    speakers: SmallVec<[Speaker; 2]>,
    seen: Seen,
}

/// What one speaker last said, and how often in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Speaker {
    id: u32,
    same: u64,
    times: u32,
    /// The new units of the exchange when the speaker first said it.
    units: u64,
}

/// The hashes of the units said so far: a list, and a bitmap once that is smaller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Seen {
    List(ThinVec<u16>),
    Map { bits: Box<[u8]>, set: u32 },
}

impl Default for Seen {
    fn default() -> Self {
        Self::List(ThinVec::new())
    }
}

/// A bitmap over all hashes, on the stack.
struct Bits([u64; HASHES as usize / 64]);

impl Bits {
    const fn new() -> Self {
        Self([0; HASHES as usize / 64])
    }

    /// Adds a hash. Returns whether it is new.
    const fn add(&mut self, hash: u16) -> bool {
        let (word, bit) = (&mut self.0[hash as usize / 64], 1 << (hash % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    const fn has(&self, hash: u16) -> bool {
        self.0[hash as usize / 64] & (1 << (hash % 64)) != 0
    }
}

impl Seen {
    fn set(&self) -> u32 {
        match self {
            // A list holds at most `LIST_MAX` hashes and those of one text.
            #[expect(clippy::cast_possible_truncation, reason = "a list is shorter than the number of hashes")]
            Self::List(list) => list.len() as u32,
            Self::Map { set, .. } => *set,
        }
    }

    /// Adds the units of a text, which its speaker may send in a row. Returns the number of new ones, where a line of code
    /// counts as two.
    fn add(&mut self, reading: &Reading, in_a_row: bool) -> u64 {
        // A text that was said before but for its counters, times and ids says nothing new by these. A speaker who says it
        // in a row hands out parts of a work.
        let said = !in_a_row && reading.shape().is_some_and(|shape| self.has(shape));
        let new = match self {
            Self::List(list) => {
                let mut bits = Bits::new();
                for hash in list.iter() {
                    bits.add(*hash);
                }
                if list.is_empty() {
                    list.reserve_exact(reading.hashes());
                }
                add_to(reading, said, |hash| {
                    let new = bits.add(hash);
                    if new {
                        list.push(hash);
                    }
                    new
                })
            }
            Self::Map { bits, set } => add_to(reading, said, |hash| {
                let (byte, bit) = (&mut bits[usize::from(hash) / 8], 1 << (hash % 8));
                let new = *byte & bit == 0;
                *byte |= bit;
                *set += u32::from(new);
                new
            }),
        };
        self.turn_into_map();
        new
    }

    fn has(&self, hash: u16) -> bool {
        match self {
            Self::List(list) => list.contains(&hash),
            Self::Map { bits, .. } => bits[usize::from(hash) / 8] & (1 << (hash % 8)) != 0,
        }
    }

    fn turn_into_map(&mut self) {
        let Self::List(list) = self else { return };
        if list.len() <= LIST_MAX {
            return;
        }
        let mut bits = vec![0_u8; MAP_BYTES].into_boxed_slice();
        for hash in list.iter() {
            bits[usize::from(*hash) / 8] |= 1 << (hash % 8);
        }
        *self = Self::Map { bits, set: self.set() };
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::List(list) => 2 * list.len() as u64,
            Self::Map { .. } => MAP_BYTES as u64,
        }
    }
}

fn add_to(reading: &Reading, said: bool, mut add: impl FnMut(u16) -> bool) -> u64 {
    let (words, lines) = reading.units();
    let words = if said { &words[..reading.numbers_at()] } else { words };
    let mut new = 0;
    for hash in words {
        new += u64::from(add(*hash));
    }
    for hash in lines {
        new += 2 * u64::from(add(*hash));
    }
    // Last, so that it takes the bit of no unit.
    let _added = reading.shape().map(add);
    new
}

/// Words the warning of an exchange for the model that asks in it: one sentence.
#[must_use]
pub fn warning(delegate: &str, curve: Curve, held: bool) -> Box<str> {
    let Curve { messages, units, read_again, .. } = curve;
    let next = if held {
        "no further request to it in this task is admitted until a human says so: answer with what you have, or ask the human"
    } else {
        "answer with what you have, or ask the human"
    };
    alloc::format!(
        "Your {messages} messages with {delegate} in this task made both of you read {read_again} tokens again for {units} \
         new words; {next}."
    )
    .into()
}

impl Stall {
    /// Folds a message from one speaker to another, or to no one in particular. Returns what is due after it.
    pub fn message(&mut self, from: u32, to: Option<u32>, reading: &Reading) -> Due {
        self.curve.context = self.curve.context.saturating_add(reading.tokens());
        let same = reading.same();
        if self.is_relayed(from, to, reading) {
            self.last = Some((same, from));
            return Due::Nothing;
        }
        let free = u64::from(HASHES - self.seen.set());
        // Of the units that are really new, only this share finds its bit free.
        let in_a_row = self.last.is_some_and(|(_, speaker)| speaker == from);
        let new = self.seen.add(reading, in_a_row) * u64::from(HASHES) / free.max(1);
        let curve = &mut self.curve;
        curve.units = curve.units.saturating_add(new);
        if self.seen.set() > HASHES / 4 * 3 {
            self.seen = Seen::default();
        }
        if curve.messages > 0 {
            let paid = (new * PRICE_TOKENS).saturating_mul(1_000) / curve.context.max(1);
            let change = (MESSAGE - i64::try_from(paid).unwrap_or(i64::MAX)).max(-RELIEF);
            curve.dry = curve.dry.saturating_add_signed(change);
            curve.read_again = curve.read_again.saturating_add(curve.context);
        }
        let index = curve.messages;
        curve.messages = curve.messages.saturating_add(1);
        let dry = curve.dry;
        let stuck = self.repeats(from, reading);
        self.last = Some((same, from));
        if stuck {
            return Due::Hold(StallCause::Stuck);
        }
        if index < FREE_MESSAGES || dry < WARN_DRY {
            return Due::Nothing;
        }
        if dry >= HOLD_DRY {
            return Due::Hold(StallCause::Dry);
        }
        if core::mem::replace(&mut self.warned, true) { Due::Nothing } else { Due::Warning }
    }

    /// Whether the text is the one before it, passed on to a third party. This can't happen between two.
    fn is_relayed(&self, from: u32, to: Option<u32>, reading: &Reading) -> bool {
        let passed = |(same, speaker)| same == reading.same() && speaker != from && to.is_some_and(|to| to != speaker);
        !reading.is_blank() && self.last.is_some_and(passed)
    }

    /// Counts what a speaker says again in a row. Returns whether the exchange is stuck.
    fn repeats(&mut self, from: u32, reading: &Reading) -> bool {
        let (same, units, long) = (reading.same(), self.curve.units, reading.words() >= SAME_WORDS);
        let said = Speaker { id: from, same, times: 1, units };
        let Some(speaker) = self.speakers.iter_mut().find(|speaker| speaker.id == from) else {
            self.speakers.push(said);
            return false;
        };
        if long && speaker.same == same {
            speaker.times = speaker.times.saturating_add(1);
        } else {
            *speaker = said;
        }
        long && speaker.times >= SAME_MAX && units - speaker.units <= SAME_NEW_UNITS
    }

    /// Returns the numbers after the last message.
    #[must_use]
    pub const fn curve(&self) -> Curve {
        self.curve
    }

    /// Returns the bytes that the state after a first message is counted with.
    #[must_use]
    pub fn bytes_of(first: &Reading) -> u64 {
        FIXED_BYTES + 2 * first.hashes() as u64
    }

    /// Returns the bytes that the state is counted with, the same on every machine.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        FIXED_BYTES + self.seen.bytes()
    }
}
