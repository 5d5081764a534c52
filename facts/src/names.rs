//! Validated names: a value of these types can only be made by passing the check of its grammar.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::{SmolStr, format_smolstr};

pub use crate::name_error::NameError;
pub use crate::resource::Resource;
use crate::visible::steers;

/// The longest agent name, action or group, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// The longest REF or request id, in bytes.
pub const REF_BYTES_MAX: usize = 128;
/// The longest name of a model, in characters.
pub const MODEL_CHARACTERS_MAX: usize = 64;
/// The longest display name, in characters.
pub const DISPLAY_NAME_CHARACTERS_MAX: usize = 64;
/// The name by which callers refer to themselves.
pub const OWN_NAME: &str = "me";
/// The name of the broker as a sender.
pub const SYSTEM_NAME: &str = "system";
/// Names with a meaning of their own, which can't be registered.
pub const RESERVED: [&str; 6] = ["all", "user", "human", SYSTEM_NAME, OWN_NAME, "policy"];

/// What an agent's name, an action or a group may hold.
const FORM_NAME: &str = "use a-z, 0-9 and, inside, `_` `.` `-`";
/// What a REF may hold.
const FORM_REF: &str = "use A-Z, a-z, 0-9 and, after the first, `.` `_` `/` `#` `:` `-`";
/// What a request id may hold.
const FORM_REQUEST_ID: &str = "use visible ASCII without spaces, `[` and `]`";
/// What a display name may hold.
const FORM_DISPLAY_NAME: &str =
    "use one line with a letter or digit, without spaces at its ends and invisible characters";
/// What the name of a model may hold.
const FORM_MODEL: &str = "use one line without spaces at its ends";

/// Deserializes a string and checks it.
struct Checked<T>(fn(&str) -> Result<T, NameError>);

impl<T> serde::de::Visitor<'_> for Checked<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(SmolStr);

        impl $name {
            /// Checks `text` against the grammar.
            ///
            /// # Errors
            /// Returns the first problem of the text.
            pub fn new(text: &str) -> Result<Self, NameError> {
                $check(text).map(|()| Self(text.into()))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl core::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(Checked(Self::new))
            }
        }
    };
}

name!(
    /// The name of an agent or a human: `[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?`, not reserved (§1).
    AgentName, check_agent
);
name!(
    /// An action that agents serve, or a group of agents; has the grammar of an agent's name (§1).
    Label, check_label
);
name!(
    /// A REF, the name of a work item: `[A-Za-z0-9][A-Za-z0-9._/#:-]{0,127}` (§1).
    Ref, check_ref
);
name!(
    /// A request id: minted (`req-0042`) or a client's idempotency key; 1 to 128 visible ASCII characters without `[`
    /// and `]` (Q1).
    RequestId, check_request_id
);
name!(
    /// The name that humans and models read beside an agent's own: 1 to 64 characters of any script on one line, none of
    /// which steers a terminal, changes the reading direction or is invisible; not reserved (§1).
    DisplayName, check_display_name
);
name!(
    /// The name of a model, as its vendor writes it: 1 to 64 characters, of which none is a control character, and the
    /// first and the last are no spaces (B1).
    ModelName, check_model
);

impl Ref {
    /// Returns the REF of the `n`th child for which the sender gave no REF; `None` if it would be too long.
    #[must_use]
    pub fn child(&self, n: u32) -> Option<Self> {
        Self::new(&format_smolstr!("{self}/{n}")).ok()
    }
}

fn check_agent(text: &str) -> Result<(), NameError> {
    check_label(text)?;
    if RESERVED.contains(&text) { Err(NameError::Reserved) } else { Ok(()) }
}

fn check_label(text: &str) -> Result<(), NameError> {
    check_bytes(text, NAME_BYTES_MAX, FORM_NAME, |offset, byte| {
        let edge = offset == 0 || offset + 1 == text.len();
        matches!(byte, b'a'..=b'z' | b'0'..=b'9') || (!edge && matches!(byte, b'_' | b'.' | b'-'))
    })
}

fn check_ref(text: &str) -> Result<(), NameError> {
    check_bytes(text, REF_BYTES_MAX, FORM_REF, |offset, byte| {
        byte.is_ascii_alphanumeric() || (offset > 0 && matches!(byte, b'.' | b'_' | b'/' | b'#' | b':' | b'-'))
    })
}

fn check_request_id(text: &str) -> Result<(), NameError> {
    check_bytes(text, REF_BYTES_MAX, FORM_REQUEST_ID, |_, byte| byte.is_ascii_graphic() && byte != b'[' && byte != b']')
}

fn check_model(text: &str) -> Result<(), NameError> {
    check_line(text, MODEL_CHARACTERS_MAX, FORM_MODEL, char::is_control)
}

fn check_display_name(text: &str) -> Result<(), NameError> {
    let form = FORM_DISPLAY_NAME;
    // A blank of another width, and a letter that is drawn as nothing, pass for a space.
    let unseen =
        |c: char| matches!(c, '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{fe00}'..='\u{fe0f}');
    check_line(text, DISPLAY_NAME_CHARACTERS_MAX, form, |c| {
        c != ' ' && (c.is_control() || c.is_whitespace() || steers(c) || unseen(c))
    })?;
    if !text.contains(char::is_alphanumeric) {
        return Err(NameError::Character { offset: 0, form });
    }
    if RESERVED.contains(&text.to_lowercase().as_str()) { Err(NameError::Reserved) } else { Ok(()) }
}

fn check_line(text: &str, max: usize, form: &'static str, refused: impl Fn(char) -> bool) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.chars().count() > max {
        return Err(NameError::TooManyCharacters { max });
    }
    let (first, last) = (text.len() - text.trim_start().len(), text.trim_end().len());
    let edge = |offset: usize| offset < first || offset >= last;
    match text.char_indices().find(|&(offset, c)| refused(c) || edge(offset)) {
        Some((offset, _)) => Err(NameError::Character { offset, form }),
        None => Ok(()),
    }
}

fn check_bytes(
    text: &str,
    max: usize,
    form: &'static str,
    allowed: impl Fn(usize, u8) -> bool,
) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > max {
        return Err(NameError::TooLong { max });
    }
    match text.bytes().enumerate().find(|&(offset, byte)| !allowed(offset, byte)) {
        Some((offset, _)) => Err(NameError::Character { offset, form }),
        None => Ok(()),
    }
}

/// Returns names that may have been meant by a text that isn't one: other characters replaced by `-`, and the same in lower
/// case. What is left of a word of another script is no name that anyone meant.
#[must_use]
pub fn corrected(text: &str) -> [String; 2] {
    if text.chars().any(|c| !c.is_ascii() && c.is_alphanumeric()) {
        return [String::new(), String::new()];
    }
    let keep = |c: char| if c.is_ascii_alphanumeric() || "._/#:-".contains(c) { c } else { '-' };
    let kept: String = text.chars().map(keep).collect();
    let cut = kept.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    [cut.into(), cut.to_ascii_lowercase()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_names_are_lower_case_ascii_and_not_reserved() {
        for good in ["a", "kilo", "a.b-c_d", "7up"] {
            assert!(AgentName::new(good).is_ok(), "{good}");
        }
        for (bad, error) in [
            ("", NameError::Empty),
            ("Kilo", NameError::Character { offset: 0, form: FORM_NAME }),
            ("a-", NameError::Character { offset: 1, form: FORM_NAME }),
            ("раул", NameError::Character { offset: 0, form: FORM_NAME }),
            ("system", NameError::Reserved),
        ] {
            assert_eq!(AgentName::new(bad), Err(error), "{bad}");
        }
        assert!(AgentName::new(&"a".repeat(64)).is_ok());
        assert_eq!(AgentName::new(&"a".repeat(65)), Err(NameError::TooLong { max: 64 }));
    }

    #[test]
    fn refs_hold_no_brackets_and_start_with_a_letter_or_digit() {
        for good in ["EDGA-1450", "EDGA-1450/1", "a#7:x.y_z"] {
            assert!(Ref::new(good).is_ok(), "{good}");
        }
        for bad in ["", "/x", "x]", "x\n", "x y", "é"] {
            assert!(Ref::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_models_name_is_what_its_vendor_writes_on_one_line() {
        let longest = "é".repeat(64);
        for good in ["claude-sonnet-4-5", "anthropic/claude 4", "<synthetic>", "模型", longest.as_str()] {
            assert!(ModelName::new(good).is_ok(), "{good}");
        }
        for (bad, error) in [
            ("", NameError::Empty),
            (" gpt-5", NameError::Character { offset: 0, form: FORM_MODEL }),
            ("gpt-5 ", NameError::Character { offset: 5, form: FORM_MODEL }),
            ("gpt\n5", NameError::Character { offset: 3, form: FORM_MODEL }),
            ("gpt\u{85}5", NameError::Character { offset: 3, form: FORM_MODEL }),
            ("  ", NameError::Character { offset: 0, form: FORM_MODEL }),
        ] {
            assert_eq!(ModelName::new(bad), Err(error), "{bad:?}");
        }
        assert_eq!(ModelName::new(&"é".repeat(65)), Err(NameError::TooManyCharacters { max: 64 }));
    }

    #[test]
    fn a_display_name_is_of_any_script_and_hides_nothing() {
        let longest = "é".repeat(64);
        for good in ["研究员", "Прüfer", "Code Reviewer", "باحث", "R2-D2 🤖", longest.as_str()] {
            assert!(DisplayName::new(good).is_ok(), "{good}");
        }
        for (bad, offset) in [
            (" Otto", 0),
            ("Otto ", 4),
            ("Ot\nto", 2),
            ("Ot\u{2028}to", 2),
            ("Ot\u{202e}to", 2),
            ("Ot\u{200b}to", 2),
            ("Ot\u{a0}to", 2),
            ("Ot\u{3164}to", 2),
            ("Ot\u{1b}[1mto", 2),
            ("---", 0),
        ] {
            assert_eq!(DisplayName::new(bad), Err(NameError::Character { offset, form: FORM_DISPLAY_NAME }), "{bad:?}");
        }
        assert_eq!(DisplayName::new(&"é".repeat(65)), Err(NameError::TooManyCharacters { max: 64 }));
        assert_eq!(DisplayName::new("System"), Err(NameError::Reserved));
    }
}
