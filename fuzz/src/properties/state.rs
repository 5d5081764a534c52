//! The state in a snapshot: arbitrary bytes are an error or a state, in bounded memory, and a state is read back as it
//! was written.

use lastword_core::State;

/// Checks bytes as a state. (A snapshot with another checksum isn't read at all.)
pub fn check(data: &[u8]) {
    let Ok(state) = postcard::from_bytes::<State>(data) else { return };
    let written = postcard::to_allocvec(&state).expect("a state is encoded");
    let again: State = postcard::from_bytes(&written).expect("and decoded");
    assert!(again == state, "decode after encode is the identity");
    assert!(postcard::to_allocvec(&again).expect("a state is encoded") == written, "and it is written alike");
}
