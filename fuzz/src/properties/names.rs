//! Names, ids and moments: each type accepts exactly its grammar, and prints what it parsed.

use lastword_facts::envelope::Address;
use lastword_facts::ids::{AgentId, ApprovalId, ClaimId, EscalationId, RoomId, Seq, TurnId};
use lastword_facts::names::{AgentName, Label, ModelName, RESERVED, Ref, RequestId};
use lastword_facts::resource::{RESOURCE_BYTES_MAX, Resource};
use lastword_wire::{parse_rfc3339, rfc3339};

/// The first moment that RFC 3339 can't express: the year 10000.
const YEAR_10000_MS: u64 = 253_402_300_800_000;

/// Checks one text as a value of each type.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    grammars(text);
    if let Ok(address) = Address::parse(text) {
        assert_eq!(address.to_string(), text);
        assert_eq!(Address::parse(&address.to_string()), Ok(address));
    }
    if let Ok(reference) = Ref::new(text)
        && let Some(child) = reference.child(u32::try_from(text.len()).unwrap_or_default())
    {
        assert!(child.as_str().strip_prefix(text).is_some_and(|rest| rest.starts_with('/')));
    }
    ids(text);
    moments(text);
}

/// Compares each type with its grammar in the documentation, written a second time.
fn grammars(text: &str) {
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = (1..=64).contains(&text.len())
        && text.chars().all(|c| lower(c) || "_.-".contains(c))
        && text.starts_with(lower)
        && text.ends_with(lower);
    let reference = (1..=128).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._/#:-".contains(c));
    let visible = (1..=128).contains(&text.len()) && text.chars().all(|c| ('!'..='~').contains(&c));
    let request = visible && !text.contains(['[', ']']);
    assert_eq!(Label::new(text).is_ok(), label, "{text:?}");
    assert_eq!(AgentName::new(text).is_ok(), label && !RESERVED.contains(&text), "{text:?}");
    assert_eq!(Ref::new(text).is_ok(), reference, "{text:?}");
    assert_eq!(RequestId::new(text).is_ok(), request, "{text:?}");
    resource(text);
    let model = (1..=64).contains(&text.chars().count()) && text.trim() == text && !text.contains(char::is_control);
    assert_eq!(ModelName::new(text).is_ok(), model, "{text:?}");
    let json = serde_json::Value::from(text);
    let read = serde_json::from_value::<Ref>(json).ok();
    assert_eq!(read.as_ref().map(Ref::as_str), reference.then_some(text), "JSON is checked like text");
    assert!(Ref::new(text).is_ok_and(|name| name.as_str() == text) || !reference);
}

/// Checks the name of a resource. What Unicode composes is left to the library that composes it.
fn resource(text: &str) {
    let read = Resource::new(text);
    if text.is_ascii() {
        let path = text.split_once(':').map_or(text, |(_, path)| path);
        let mut depth = 0_i32;
        let stays = path.split('/').all(|part| {
            depth += match part {
                "" | "." => 0,
                ".." => -1,
                // Two of these are one.
                _ => 1,
            };
            depth >= 0
        });
        let fits = (1..=RESOURCE_BYTES_MAX).contains(&text.len()) && !text.contains(|c: char| c.is_control());
        assert!(read.is_err() || (fits && stays), "{text:?}");
        let room = text.len() + "**".len() <= RESOURCE_BYTES_MAX && !path.contains("**");
        assert!(read.is_ok() || !(fits && stays && room), "{text:?}");
    }
    if let Ok(name) = read {
        assert_eq!(Resource::new(name.as_str()).as_ref(), Ok(&name), "{text:?} is normalized at once");
        assert!(name.overlaps(&name), "{text:?}");
    }
}

macro_rules! id {
    ($text:ident, $($name:ident),*) => {$(
        let read = $name::parse($text);
        if let Some(id) = read {
            let digits = $text.strip_prefix($name::PREFIX).and_then(|rest| rest.strip_prefix('-'));
            assert!(digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())), "{}", $text);
            assert_eq!($name::parse(&id.to_string()), Some(id));
        }
    )*};
}

fn ids(text: &str) {
    id!(text, Seq, AgentId, ApprovalId, ClaimId, EscalationId, RoomId, TurnId);
}

fn moments(text: &str) {
    if let Some(time) = parse_rfc3339(text)
        && time.0 < YEAR_10000_MS
    {
        assert_eq!(parse_rfc3339(&rfc3339(time)), Some(time), "{text:?}");
    }
    // Any eight bytes are a moment, too.
    if let Some(bytes) = text.as_bytes().first_chunk::<8>() {
        let time = lastword_facts::Time(u64::from_le_bytes(*bytes) % YEAR_10000_MS);
        assert_eq!(parse_rfc3339(&rfc3339(time)), Some(time));
    }
}
