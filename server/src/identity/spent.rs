//! Secrets that count no more although they haven't expired: sessions and tokens that were ended, and ID tokens that were
//! used.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use lastword_proto::Time;
use lastword_proto::fact::Credential;

use super::{credential, hex, unhex, write_private};

/// The hashes of secrets, each kept until it would have expired.
#[derive(Default)]
pub(crate) struct Spent {
    path: Option<PathBuf>,
    held: Mutex<BTreeMap<Credential, Time>>,
}

impl Spent {
    /// Reads the list: one secret per line, its expiry in ms and the hash.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let read = |line: &str| {
            let (expires_at, hash) = line.split_once(' ')?;
            Some((unhex(hash)?, Time(expires_at.parse().ok()?)))
        };
        Ok(Self { path: Some(path), held: Mutex::new(text.lines().filter_map(read).collect()) })
    }

    /// Returns whether this secret is on the list.
    pub(crate) fn has(&self, secret: &str) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&credential(secret))
    }

    /// Adds a secret, and writes the list; `false` if it is on it already, or if `max` others are.
    ///
    /// # Errors
    /// The list can't be written. The secret is still on it until the server restarts.
    pub(crate) fn add(&self, secret: &str, expires_at: Time, now: Time, max: usize) -> io::Result<bool> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // An expired secret is refused anyway; this bounds the list.
        held.retain(|_, until| now < *until);
        let key = credential(secret);
        if held.contains_key(&key) || held.len() >= max {
            return Ok(false);
        }
        held.insert(key, expires_at);
        let Some(path) = &self.path else { return Ok(true) };
        let lines: String = held.iter().map(|(hash, until)| format!("{} {}\n", until.0, hex(hash))).collect();
        write_private(path, lines.as_bytes()).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_stays_so_over_a_restart_until_it_would_have_expired() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Spent::open(dir.path().join("list")).unwrap();
        let spent = open();
        assert!(spent.add("1.900.aa", Time(900), Time(0), 2).unwrap());
        assert!(!spent.add("1.900.aa", Time(900), Time(0), 2).unwrap());
        let spent = open();
        assert!(spent.has("1.900.aa"));
        assert!(!spent.has("1.900.ab"));
        assert!(spent.add("1.2000.bb", Time(2_000), Time(900), 1).unwrap(), "the first has expired");
        assert!(!spent.add("1.2000.cc", Time(2_000), Time(900), 1).unwrap(), "the list is full");
        assert!(!open().has("1.900.aa"), "it was forgotten");
        assert!(open().has("1.2000.bb"));
    }
}
