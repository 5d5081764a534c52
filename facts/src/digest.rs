//! Digests that facts hold in place of what they are of.

use alloc::string::String;

/// The SHA-256 of a bearer token. The token itself is never stored.
pub type Credential = [u8; 32];

/// The SHA-256 of a held call: tool, canonical arguments, agent and task (H2).
pub type Digest = [u8; 32];

/// Formats a digest or credential in lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut out, byte| {
        for nibble in [byte >> 4, byte & 15] {
            out.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
        out
    })
}
