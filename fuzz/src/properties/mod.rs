//! The properties whose subject is public in its crate.

pub mod entries;
pub mod envelope;
pub mod header;
pub mod names;
pub mod quote;
pub mod state;

/// Splits bytes into texts at `0xff`, which occurs in no UTF-8. Invalid UTF-8 becomes the replacement character.
pub(crate) fn texts(data: &[u8]) -> impl Iterator<Item = String> {
    data.split(|byte| *byte == 0xff).map(|part| String::from_utf8_lossy(part).into_owned())
}
