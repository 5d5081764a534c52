//! Sessions of the console, and the code of the one-time link that a start prints. A session is a signed cookie that
//! names a human, so it survives a restart of the server.

use std::io;
use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, Mac as _};
use lastword_core::Principal;
use lastword_facts::Time;
use lastword_facts::fact::Credential;
use lastword_facts::ids::AgentId;
use sha2::Sha256;

use super::{Directory, Handovers, Secret, TurnSigner, credential, hex, unhex};

/// The lifetime of a session, in ms.
pub const SESSION_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// The lifetime of a one-time link, in ms.
const CODE_MS: u64 = 15 * 60 * 1000;
const MAC_BYTES: usize = 32;
/// The file in the data directory that lists the sessions and sign-ins that were ended before they expired.
pub const FILE_SIGNED_OUT: &str = "signed-out";

impl TurnSigner {
    /// Returns the value of a session's cookie, `AGENT.EXPIRY.MAC`. The MAC binds it to the human's current token, so a
    /// new token or the human's removal ends the session.
    #[must_use]
    pub fn sign_session(&self, agent: AgentId, token: &Credential, expires_at: Time) -> String {
        let mac = self.session_mac("session", agent, token, expires_at);
        format!("{}.{}.{}", agent.0, expires_at.0, hex(&mac.finalize().into_bytes()))
    }

    /// Derives a secret of a browser's sign-in from the cookie that began it.
    #[must_use]
    pub fn derive(&self, what: &str, cookie: &str) -> String {
        hex(&self.labelled("oidc ", &[what.as_bytes(), b"\0", cookie.as_bytes()]).finalize().into_bytes())
    }

    /// Returns the session that `value` proves if it was signed here, for its human's current token, and has neither
    /// expired nor been ended.
    pub(crate) fn verify_session(&self, value: &str, directory: &Directory, now: Time) -> Option<ConsoleSession> {
        let mut parts = value.split('.');
        let (agent, expires_at, mac) = (parts.next()?, parts.next()?, parts.next()?);
        let agent = AgentId(agent.parse().ok()?);
        let (expires_at, mac) = (Time(expires_at.parse().ok()?), unhex::<MAC_BYTES>(mac)?);
        let (token, principal) = directory.proof_of(agent, now)?;
        let signed = self.session_mac("session", agent, &token, expires_at).verify_slice(&mac).is_ok();
        let valid = signed && parts.next().is_none() && now < expires_at && principal.is_human();
        // Numbers and MACs have several spellings (`+1`, upper case). Only the one that was signed counts, because an
        // ended session is remembered by its exact text.
        let canonical = value == self.sign_session(agent, &token, expires_at);
        let valid = valid && canonical && !self.ended.has(value);
        let forms = self.session_mac("forms", agent, &token, expires_at);
        let forms = || hex(&forms.finalize().into_bytes()[..16]);
        valid.then(|| ConsoleSession { principal, token, until: expires_at, forms: forms() })
    }

    /// Ends a session before it expires. Its cookie is refused from then on, also after a restart.
    ///
    /// # Errors
    /// The list of what was ended can't be written. It is still ended until the server restarts.
    pub fn end_session(&self, value: &str, now: Time) -> io::Result<()> {
        let expires_at = value.split('.').nth(1).and_then(|ms| ms.parse().ok()).map_or(now, Time);
        self.end(value, expires_at, now)
    }

    /// Ends a session or a sign-in before it expires. It is refused from then on, also after a restart.
    ///
    /// # Errors
    /// The list of what was ended can't be written. It is still ended until the server restarts.
    pub fn end(&self, value: &str, expires_at: Time, now: Time) -> io::Result<()> {
        self.ended.add(value, expires_at, now, usize::MAX).map(|_| ())
    }

    /// Returns whether the session or token with this hash was ended.
    #[must_use]
    pub fn has_ended(&self, secret: &Credential) -> bool {
        self.ended.holds(secret)
    }

    pub(super) fn session_mac(
        &self,
        label: &str,
        agent: AgentId,
        token: &Credential,
        expires_at: Time,
    ) -> Hmac<Sha256> {
        self.labelled(label, &[&agent.0.to_le_bytes(), token, &expires_at.0.to_le_bytes()])
    }
}

/// A verified session of the console.
pub struct ConsoleSession {
    /// The signed-in human.
    pub principal: Principal,
    /// The hash of the human's token, from which the cookie's MAC is computed.
    pub token: Credential,
    /// When it expires.
    pub until: Time,
    /// The value that each form of this session carries. Another site can't know it, so it can't forge a form.
    pub forms: String,
}

/// The most codes that wait to be used; the oldest gives way.
const CODES_MAX: usize = 64;

/// The human whom a one-time link signs in, with the hash of their token; `None` for the workspace's first human.
pub(crate) type SignInFor = Option<(Credential, AgentId)>;

/// A code that wasn't used yet.
struct Code {
    hash: Credential,
    until: Time,
    human: SignInFor,
}

/// The codes of one-time links, each until it is used or expires.
#[derive(Default)]
pub struct SignInCode {
    held: Mutex<Vec<Code>>,
    /// The codes that hand sessions over to other devices.
    pub handovers: Handovers,
}

impl SignInCode {
    /// Generates a new code for a human; an unused earlier one for the same human becomes invalid. Returns the code, and
    /// when it expires.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn mint(&self, now: Time, human: SignInFor) -> io::Result<(Secret, Time)> {
        let (code, until) = (Secret::code()?, now.plus(CODE_MS));
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|code| now < code.until && code.human.map(|human| human.1) != human.map(|human| human.1));
        if held.len() >= CODES_MAX {
            held.remove(0);
        }
        held.push(Code { hash: code.credential(), until, human });
        Ok((code, until))
    }

    /// Uses up a code and returns the human whom it signs in; `None` if it is wrong, used or expired.
    pub fn spend(&self, code: &str, now: Time) -> Option<SignInFor> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = credential(code);
        // Comparing hashes keeps the timing from revealing the code.
        let at = held.iter().position(|code| code.hash == hash && now < code.until)?;
        Some(held.remove(at).human)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_good_once_and_for_a_quarter_of_an_hour() {
        let codes = SignInCode::default();
        let mint = |at, human| codes.mint(Time(at), human).unwrap().0;
        let is_good = |code: &str, at| codes.spend(code, Time(at)).is_some();
        assert!(!is_good("", 0), "there is none yet");
        let code = mint(1_000, None);
        assert!(!is_good("another", 1_000));
        assert!(is_good(code.reveal(), 1_000));
        assert!(!is_good(code.reveal(), 1_000), "it was used");
        let late = mint(1_000, None);
        assert!(!is_good(late.reveal(), 1_000 + CODE_MS), "it is too old");
        let (first, second) = (mint(0, None), mint(0, None));
        assert!(!is_good(first.reveal(), 0), "a newer one replaced it");
        let anna = Some((credential("anna's token"), AgentId(7)));
        let hers = mint(0, anna);
        assert_eq!(codes.spend(hers.reveal(), Time(0)), Some(anna), "each human has a code of their own");
        assert!(is_good(second.reveal(), 0));
        let many: Vec<Secret> = (0..=64).map(|n| mint(0, Some((credential("x"), AgentId(n))))).collect();
        assert!(!is_good(many[0].reveal(), 0), "the oldest gave way");
        assert!(is_good(many[1].reveal(), 0));
    }
}
