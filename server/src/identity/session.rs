//! Sessions of the console, and the code of the one-time link that a start prints. A session is a signed cookie that
//! names a human, so it survives a restart of the server.

use std::io;
use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, KeyInit as _, Mac as _};
use lastword_proto::fact::Credential;
use lastword_proto::ids::AgentId;
use lastword_proto::{Principal, Time};
use sha2::Sha256;

use super::{Directory, Secret, TurnSigner, credential, hex, unhex};

/// The lifetime of a session, in ms.
pub(crate) const SESSION_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// The lifetime of a one-time link, in ms.
const CODE_MS: u64 = 15 * 60 * 1000;
const MAC_BYTES: usize = 32;
/// The file in the data directory that lists the sessions and sign-ins that were ended before they expired.
pub(crate) const FILE_SIGNED_OUT: &str = "signed-out";

impl TurnSigner {
    /// Returns the value of a session's cookie, `AGENT.EXPIRY.MAC`. The MAC binds it to the human's current token, so a
    /// new token or the human's removal ends the session.
    pub(crate) fn sign_session(&self, agent: AgentId, token: &Credential, expires_at: Time) -> String {
        let mac = self.session_mac(b"lastword session", agent, token, expires_at);
        let mac = mac.map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default();
        format!("{}.{}.{mac}", agent.0, expires_at.0)
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
    /// The list of what was ended can't be written. It is still ended until the server restarts.
    pub(crate) fn end_session(&self, value: &str, now: Time) -> io::Result<()> {
        let expires_at = value.split('.').nth(1).and_then(|ms| ms.parse().ok()).map_or(now, Time);
        self.end(value, expires_at, now)
    }

    /// Ends a session or a sign-in before it expires. It is refused from then on, also after a restart.
    ///
    /// # Errors
    /// The list of what was ended can't be written. It is still ended until the server restarts.
    pub(crate) fn end(&self, value: &str, expires_at: Time, now: Time) -> io::Result<()> {
        self.ended.add(value, expires_at, now, usize::MAX).map(|_| ())
    }

    /// Returns whether the session or token with this hash was ended.
    pub(crate) fn has_ended(&self, secret: &Credential) -> bool {
        self.ended.holds(secret)
    }

    pub(super) fn session_mac(
        &self,
        what: &[u8],
        agent: AgentId,
        token: &Credential,
        expires_at: Time,
    ) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(what);
        mac.update(&agent.0.to_le_bytes());
        mac.update(token);
        mac.update(&expires_at.0.to_le_bytes());
        Some(mac)
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
