//! What is secret in the registry, sealed with a key that the nodes have and NATS doesn't.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use super::RegistryError;

/// What a sealed value begins with, and what the key is made with.
const MARK: &[u8] = b"lastword-sealed-1\0";
/// The fewest characters of a key's text.
pub const KEY_CHARS_MIN: usize = 32;
/// The record of the secret by which nodes know each other. It is sealed.
pub const KEY_NODES_SECRET: &str = "secret";
/// What the records of workspaces' keys and tokens begin with. They are sealed.
pub const KEY_FILES: &str = "file.";

/// The key of the registry's secrets.
#[derive(Clone)]
pub struct Sealing(LessSafeKey);

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}

impl Sealing {
    /// Makes the key from a text of at least [`KEY_CHARS_MIN`] random characters; space around it doesn't count.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.chars().count() < KEY_CHARS_MIN {
            return None;
        }
        let key = Sha256::new().chain_update(MARK).chain_update(text).finalize();
        UnboundKey::new(&AES_256_GCM, &key).ok().map(|key| Self(LessSafeKey::new(key)))
    }

    /// Seals the value of a record, under its key: no other record takes its place.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`].
    pub fn seal(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, RegistryError> {
        let failed = || RegistryError::Unavailable { reason: format!("{key} can't be sealed") };
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| failed())?;
        let mut sealed = value.to_vec();
        let of = Aad::from(key.as_bytes());
        self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), of, &mut sealed).map_err(|_| failed())?;
        Ok([MARK, &nonce, &sealed].concat())
    }

    /// Opens the value of a record; `None` if it isn't sealed with this key.
    #[must_use]
    pub fn open(&self, key: &str, value: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = value.strip_prefix(MARK)?.split_first_chunk::<NONCE_LEN>()?;
        let mut opened = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, Aad::from(key.as_bytes()), &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }
}

/// Returns whether a record is one of those that are sealed.
pub(super) fn is_secret(key: &str) -> bool {
    key == KEY_NODES_SECRET || key.starts_with(KEY_FILES)
}

pub(super) fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_value_is_opened_by_its_key_in_its_record_alone() {
        assert!(Sealing::of("too short").is_none() && is_secret("file.main.secret.key") && !is_secret("node.a"));
        let (own, other) = (Sealing::of(&format!("{KEY}\n")).unwrap(), Sealing::of(&KEY.replace('0', "1")).unwrap());
        let sealed = own.seal("secret", b"token").unwrap();
        assert!(is_sealed(&sealed) && !sealed.windows(5).any(|part| part == b"token"));
        assert_ne!(sealed, own.seal("secret", b"token").unwrap());
        assert_eq!(own.open("secret", &sealed).as_deref(), Some(&b"token"[..]));
        assert_eq!(Sealing::of(KEY).unwrap().open("secret", &sealed).as_deref(), Some(&b"token"[..]));
        let damaged = [&sealed[..sealed.len() - 1], &[sealed[sealed.len() - 1] ^ 1]].concat();
        for (key, name, value) in [
            (&own, "file.main.secret.key", &sealed[..]),
            (&other, "secret", &sealed),
            (&own, "secret", &damaged),
            (&own, "secret", &sealed[..MARK.len() + 3]),
            (&own, "secret", b"token"),
        ] {
            assert_eq!(key.open(name, value), None, "{name}");
        }
    }
}
