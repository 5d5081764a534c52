//! Stored entries: arbitrary bytes are an error or an entry, in memory that their length bounds, and an entry is read
//! back as it was written.

use lastword_store::format::{decode, encode, split};

/// The length of an entry before its bytes.
const LENGTH_BYTES: usize = 4;

/// The limits are written in full with their names, however few of them were read: a log from before a limit joined
/// has its default.
const LIMITS_BYTES: usize = 2_048;

/// Checks bytes as one entry, and as a batch of framed entries.
pub fn check(data: &[u8]) {
    one(data);
    let mut batch = data;
    let mut left = batch.len();
    while let Some(entry) = split(&mut batch) {
        assert!(batch.len() < left, "each step shortens the batch");
        left = batch.len();
        match entry {
            Ok(entry) => one(entry),
            Err(_) => assert!(batch.is_empty(), "an error ends the batch"),
        }
    }
}

fn one(bytes: &[u8]) {
    let Ok(entry) = decode(bytes) else { return };
    let mut written = Vec::new();
    encode(&mut written, &entry).expect("an entry is encoded");
    // The encoder writes each number in its shortest form, so that a decoded entry can't be larger than its bytes.
    assert!(
        written.len() - LENGTH_BYTES <= bytes.len() + LIMITS_BYTES,
        "{} bytes became {}",
        bytes.len(),
        written.len()
    );
    let mut batch = &*written;
    let framed = split(&mut batch).expect("one entry").expect("a whole one");
    assert!(batch.is_empty());
    assert_eq!(decode(framed).as_ref(), Ok(&entry), "decode after encode is the identity");
}
