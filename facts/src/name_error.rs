//! Why a text isn't a name.

use core::fmt;

/// The reason why a text isn't a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The text has no characters.
    Empty,
    /// The text is longer than `max` bytes.
    TooLong {
        /// The longest valid length, in bytes.
        max: usize,
    },
    /// The text is longer than `max` characters.
    TooManyCharacters {
        /// The longest valid length, in characters.
        max: usize,
    },
    /// The text has a byte that the grammar doesn't allow.
    Character {
        /// The place of the byte, from the start of the value.
        offset: usize,
        /// What the grammar allows.
        form: &'static str,
    },
    /// The text is a reserved name.
    Reserved,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::TooLong { max } => write!(f, "is longer than {max} bytes"),
            Self::TooManyCharacters { max } => write!(f, "is longer than {max} characters"),
            Self::Character { offset, form } => {
                write!(f, "has a character that is not allowed at byte {offset}: {form}")
            }
            Self::Reserved => f.write_str("is a reserved name"),
        }
    }
}

impl core::error::Error for NameError {}
