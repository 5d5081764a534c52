//! Sessions of the console, and the code of the one-time link that a start prints. A session is a signed cookie that
//! names a human, so it survives a restart of the server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use hmac::{Hmac, KeyInit as _, Mac as _};
use lastword_proto::fact::Credential;
use lastword_proto::ids::AgentId;
use lastword_proto::{Principal, Time};
use sha2::Sha256;

use super::{Directory, Secret, TurnSigner, credential, hex, unhex, write_private};

/// The lifetime of a session, in ms.
pub(crate) const SESSION_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// The lifetime of a one-time link, in ms.
const CODE_MS: u64 = 15 * 60 * 1000;
const MAC_BYTES: usize = 32;
/// The prefix of the tokens that humans sign in for. Those that are stored as hashes have another.
const BEARER_PREFIX: &str = "lws_";
/// The file in the data directory that lists the sessions that were ended before they expired.
pub(crate) const FILE_SIGNED_OUT: &str = "signed-out";

impl TurnSigner {
    /// Returns the value of a session's cookie, `AGENT.EXPIRY.MAC`. The MAC binds it to the human's current token, so a
    /// new token or the human's removal ends the session.
    pub(crate) fn sign_session(&self, agent: AgentId, token: &Credential, expires_at: Time) -> String {
        let mac = self.session_mac(b"lastword session", agent, token, expires_at);
        let mac = mac.map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default();
        format!("{}.{}.{mac}", agent.0, expires_at.0)
    }

    /// Returns a token that a human signed in for, `lws_AGENT.EXPIRY.MAC`. Like a session's cookie it is bound to the
    /// human's current token, and it isn't one: its MAC has another label.
    pub(crate) fn sign_bearer(&self, agent: AgentId, token: &Credential, expires_at: Time) -> String {
        let mac = self.session_mac(b"lastword sign-in", agent, token, expires_at);
        let mac = mac.map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default();
        format!("{BEARER_PREFIX}{}.{}.{mac}", agent.0, expires_at.0)
    }

    /// Returns the human whom a token from a sign-in proves, the hash of that human's own token, and when it expires,
    /// which may be over.
    pub(crate) fn verify_bearer(
        &self,
        text: &str,
        directory: &Directory,
        now: Time,
    ) -> Option<(Principal, Credential, Time)> {
        let mut parts = text.strip_prefix(BEARER_PREFIX)?.split('.');
        let (agent, expires_at, mac) = (parts.next()?, parts.next()?, parts.next()?);
        let agent = AgentId(agent.parse().ok()?);
        let (expires_at, mac) = (Time(expires_at.parse().ok()?), unhex::<MAC_BYTES>(mac)?);
        let (token, principal) = directory.proof_of(agent, now)?;
        let signed = self.session_mac(b"lastword sign-in", agent, &token, expires_at)?.verify_slice(&mac).is_ok();
        let valid = signed && parts.next().is_none() && principal.is_human();
        valid.then_some((principal, token, expires_at))
    }

    /// Derives a secret of a browser's sign-in from the cookie that began it.
    pub(crate) fn derive(&self, what: &str, cookie: &str) -> String {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key).ok().map(|mut mac| {
            mac.update(b"lastword oidc ");
            mac.update(what.as_bytes());
            mac.update(b"\0");
            mac.update(cookie.as_bytes());
            mac
        });
        mac.map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default()
    }

    /// Returns the session that `value` proves if it was signed here, for its human's current token, and has neither
    /// expired nor been ended.
    pub(crate) fn verify_session(&self, value: &str, directory: &Directory, now: Time) -> Option<Session> {
        let mut parts = value.split('.');
        let (agent, expires_at, mac) = (parts.next()?, parts.next()?, parts.next()?);
        let agent = AgentId(agent.parse().ok()?);
        let (expires_at, mac) = (Time(expires_at.parse().ok()?), unhex::<MAC_BYTES>(mac)?);
        let (token, principal) = directory.proof_of(agent, now)?;
        let signed = self.session_mac(b"lastword session", agent, &token, expires_at)?.verify_slice(&mac).is_ok();
        let valid = signed && parts.next().is_none() && now < expires_at && principal.is_human();
        // Numbers and MACs have several spellings (`+1`, upper case). Only the one that was signed counts, because an
        // ended session is remembered by its exact text.
        let canonical = value == self.sign_session(agent, &token, expires_at);
        let valid = valid && canonical && !self.ended.has(value);
        let forms = self.session_mac(b"lastword forms", agent, &token, expires_at)?;
        valid.then(|| Session { principal, token, forms: hex(&forms.finalize().into_bytes()[..16]) })
    }

    /// Ends a session before it expires. Its cookie is refused from then on, also after a restart.
    ///
    /// # Errors
    /// The list of ended sessions can't be written. The session is still ended until the server restarts.
    pub(crate) fn end_session(&self, value: &str, now: Time) -> io::Result<()> {
        let expires_at = value.split('.').nth(1).and_then(|ms| ms.parse().ok()).map_or(now, Time);
        self.ended.add(value, expires_at, now)
    }

    fn session_mac(&self, what: &[u8], agent: AgentId, token: &Credential, expires_at: Time) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(what);
        mac.update(&agent.0.to_le_bytes());
        mac.update(token);
        mac.update(&expires_at.0.to_le_bytes());
        Some(mac)
    }
}

/// The sessions whose humans signed out: the hashes of their cookies, each kept until it would have expired.
#[derive(Default)]
pub(super) struct Ended {
    path: Option<PathBuf>,
    held: Mutex<BTreeMap<Credential, Time>>,
}

impl Ended {
    /// Reads the list in `dir`: one session per line, its expiry in ms and the hash.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(FILE_SIGNED_OUT);
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

    fn has(&self, value: &str) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&credential(value))
    }

    fn add(&self, value: &str, expires_at: Time, now: Time) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // An expired cookie is refused anyway; this bounds the list.
        held.retain(|_, until| now < *until);
        held.insert(credential(value), expires_at);
        let Some(path) = &self.path else { return Ok(()) };
        let lines: String = held.iter().map(|(hash, until)| format!("{} {}\n", until.0, hex(hash))).collect();
        write_private(path, lines.as_bytes())
    }
}

/// A verified session of the console.
pub(crate) struct Session {
    /// The signed-in human.
    pub(crate) principal: Principal,
    /// The hash of the human's token, from which the cookie's MAC is computed.
    pub(crate) token: Credential,
    /// The value that each form of this session carries. Another site can't know it, so it can't forge a form.
    pub(crate) forms: String,
}

/// The code of the one-time link, until it is used or expires.
#[derive(Default)]
pub(crate) struct SignInCode(Mutex<Option<(Credential, Time)>>);

impl SignInCode {
    /// Generates a new code; an unused earlier one becomes invalid.
    pub(crate) fn mint(&self, now: Time) -> io::Result<Secret> {
        let code = Secret::code()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((code.credential(), now.plus(CODE_MS)));
        Ok(code)
    }

    /// Uses up the code; `false` if it is wrong, used or expired.
    pub(crate) fn spend(&self, code: &str, now: Time) -> bool {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Comparing hashes keeps the timing from revealing the code.
        let right = held.as_ref().is_some_and(|(hash, until)| *hash == credential(code) && now < *until);
        if right {
            *held = None;
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_ended_stays_so_over_a_restart_until_it_would_be_over_anyway() {
        let dir = tempfile::tempdir().unwrap();
        let ended = Ended::open(dir.path()).unwrap();
        ended.add("1.900.aa", Time(900), Time(0)).unwrap();
        let ended = Ended::open(dir.path()).unwrap();
        assert!(ended.has("1.900.aa"));
        assert!(!ended.has("1.900.ab"));
        ended.add("1.2000.bb", Time(2_000), Time(900)).unwrap();
        assert!(!Ended::open(dir.path()).unwrap().has("1.900.aa"), "it was forgotten");
        assert!(ended.has("1.2000.bb"));
    }

    #[test]
    fn a_code_is_good_once_and_for_a_quarter_of_an_hour() {
        let codes = SignInCode::default();
        assert!(!codes.spend("", Time(0)), "there is none yet");
        let code = codes.mint(Time(1_000)).unwrap();
        assert!(!codes.spend("another", Time(1_000)));
        assert!(codes.spend(code.reveal(), Time(1_000)));
        assert!(!codes.spend(code.reveal(), Time(1_000)), "it was used");
        let late = codes.mint(Time(1_000)).unwrap();
        assert!(!codes.spend(late.reveal(), Time(1_000 + CODE_MS)), "it is too old");
        let (first, second) = (codes.mint(Time(0)).unwrap(), codes.mint(Time(0)).unwrap());
        assert!(!codes.spend(first.reveal(), Time(0)), "a newer one replaced it");
        assert!(codes.spend(second.reveal(), Time(0)));
    }
}
