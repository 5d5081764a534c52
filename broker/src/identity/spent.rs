//! Secrets that count no more although they haven't expired: sessions and tokens that were ended, and ID tokens that were
//! used.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use lastword_facts::Time;
use lastword_facts::fact::Credential;

use super::{credential, hex, unhex};
use crate::files::Files;

/// The hashes of secrets, each kept until it would have expired.
#[derive(Default)]
pub struct Spent {
    file: Option<(Files, &'static str)>,
    held: Mutex<BTreeMap<Credential, Time>>,
    /// Held over a write of the file, which may take long. Nobody who only asks waits for it.
    writing: Mutex<()>,
}

impl Spent {
    /// Reads the list: one secret per line, its expiry in ms and the hash.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn open(files: &Files, name: &'static str) -> io::Result<Self> {
        let text = match fs::read_to_string(files.path(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let read = |line: &str| {
            let (expires_at, hash) = line.split_once(' ')?;
            Some((unhex(hash)?, Time(expires_at.parse().ok()?)))
        };
        let held = Mutex::new(text.lines().filter_map(read).collect());
        Ok(Self { file: Some((files.clone(), name)), held, writing: Mutex::default() })
    }

    /// Returns whether this secret is on the list.
    #[must_use]
    pub fn has(&self, secret: &str) -> bool {
        self.holds(&credential(secret))
    }

    /// Returns whether the secret with this hash is on the list.
    pub(crate) fn holds(&self, secret: &Credential) -> bool {
        self.lock().contains_key(secret)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Credential, Time>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a secret, and writes the list; `false` if it is on it already, or if `max` others are.
    ///
    /// # Errors
    /// The list can't be written. The secret is still on it until the server restarts.
    pub fn add(&self, secret: &str, expires_at: Time, now: Time, max: usize) -> io::Result<bool> {
        {
            let mut held = self.lock();
            // An expired secret is refused anyway; this bounds the list.
            held.retain(|_, until| now < *until);
            let key = credential(secret);
            if held.contains_key(&key) || held.len() >= max {
                return Ok(false);
            }
            held.insert(key, expires_at);
        }
        let Some((files, name)) = &self.file else { return Ok(true) };
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // As it is now: a later write holds what an earlier one did.
        let lines: String = self.lock().iter().map(|(hash, until)| format!("{} {}\n", until.0, hex(hash))).collect();
        files.write(name, lines.as_bytes()).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::Copies;

    /// Asks for a secret while a file is written, as a registry far away would let others do.
    struct Slow(Mutex<Option<Arc<Spent>>>);

    impl Copies for Slow {
        fn put(&self, _name: &str, _bytes: &[u8]) -> io::Result<()> {
            let spent = self.0.lock().unwrap().clone().unwrap();
            std::thread::spawn(move || assert!(spent.has("a"))).join().unwrap();
            Ok(())
        }
    }

    #[test]
    fn nobody_who_asks_waits_for_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let slow = Arc::new(Slow(Mutex::default()));
        let spent = Arc::new(Spent::open(&Files::copied(dir.path(), Arc::<Slow>::clone(&slow)), "list").unwrap());
        *slow.0.lock().unwrap() = Some(Arc::clone(&spent));
        assert!(spent.add("a", Time(900), Time(0), 9).unwrap());
        assert!(Spent::open(&Files::local(dir.path()), "list").unwrap().has("a"));
    }

    #[test]
    fn what_was_spent_stays_so_over_a_restart_until_it_would_have_expired() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Spent::open(&Files::local(dir.path()), "list").unwrap();
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
