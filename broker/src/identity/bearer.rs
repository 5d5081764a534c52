//! Signed bearer tokens, which are stored nowhere: those that humans sign in for, and narrowed ones. Each is bound to its
//! owner's current token, so a new token or the owner's removal ends them all.

use hmac::{Hmac, Mac as _};
use lastword_core::Principal;
use lastword_facts::Time;
use lastword_facts::fact::Credential;
use lastword_facts::ids::AgentId;
use lastword_wire::Scope;
use sha2::Sha256;

use super::{Directory, TurnSigner, hex, unhex};

const MAC_BYTES: usize = 32;
/// The prefix of the tokens that humans sign in for. Those that are stored as hashes have another.
const SIGN_IN_PREFIX: &str = "lws_";
/// The prefix of narrowed tokens.
const NARROWED_PREFIX: &str = "lwn_";

/// Returns whether a token is one that a human signed in for.
#[must_use]
pub fn is_of_sign_in(text: &str) -> bool {
    text.starts_with(SIGN_IN_PREFIX)
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// What a token may do that isn't narrowed.
    pub const ALL: Self = Self((1 << Scope::ALL.len()) - 1);

    /// Returns the set of these scopes.
    #[must_use]
    pub fn of(scopes: &[Scope]) -> Self {
        Self(scopes.iter().fold(0, |bits, scope| bits | 1 << *scope as u8))
    }

    /// Returns whether the set has this scope.
    #[must_use]
    pub const fn has(self, scope: Scope) -> bool {
        self.0 & 1 << scope as u8 != 0
    }

    /// Returns the scopes in the set.
    #[must_use]
    pub fn list(self) -> Vec<Scope> {
        Scope::ALL.into_iter().filter(|scope| self.has(*scope)).collect()
    }
}

/// What a signed token proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// Its owner.
    pub principal: Principal,
    /// The hash of the owner's current token.
    pub credential: Credential,
    /// When it expires, which may be over.
    pub until: Time,
    /// What it may do.
    pub scopes: Scopes,
}

impl TurnSigner {
    /// Returns a token that a human signed in for, `lws_AGENT.EXPIRY.MAC`.
    #[must_use]
    pub fn sign_bearer(&self, agent: AgentId, token: &Credential, expires_at: Time) -> String {
        let mac = self.session_mac("sign-in", agent, token, expires_at);
        format!("{SIGN_IN_PREFIX}{}.{}.{}", agent.0, expires_at.0, digits(mac))
    }

    /// Returns a narrowed token, `lwn_AGENT.SCOPES.EXPIRY.MAC`.
    #[must_use]
    pub fn sign_narrowed(&self, agent: AgentId, token: &Credential, scopes: Scopes, expires_at: Time) -> String {
        let mut mac = self.session_mac("narrowed", agent, token, expires_at);
        mac.update(&[scopes.0]);
        format!("{NARROWED_PREFIX}{}.{}.{}.{}", agent.0, scopes.0, expires_at.0, digits(mac))
    }

    /// Returns what `text` proves if it was signed here, is bound to its owner's current token, and wasn't ended.
    pub(crate) fn verify_bearer(&self, text: &str, directory: &Directory, now: Time) -> Option<Bearer> {
        let narrowed = text.strip_prefix(NARROWED_PREFIX);
        let mut parts = narrowed.or_else(|| text.strip_prefix(SIGN_IN_PREFIX))?.split('.');
        let agent = AgentId(parts.next()?.parse().ok()?);
        let scopes = if narrowed.is_some() { Scopes(parts.next()?.parse().ok()?) } else { Scopes::ALL };
        let until = Time(parts.next()?.parse().ok()?);
        let mac = unhex::<MAC_BYTES>(parts.next()?)?;
        let (credential, principal) = directory.proof_of(agent, now)?;
        let signed = if narrowed.is_some() {
            let mut made = self.session_mac("narrowed", agent, &credential, until);
            made.update(&[scopes.0]);
            made
        } else {
            self.session_mac("sign-in", agent, &credential, until)
        };
        // Compares in constant time.
        signed.verify_slice(&mac).ok()?;
        // Numbers and MACs have several spellings. Only the one that was signed counts, because a token that was ended is
        // remembered by its exact text.
        let canonical = if narrowed.is_some() {
            text == self.sign_narrowed(agent, &credential, scopes, until)
        } else {
            principal.is_human() && text == self.sign_bearer(agent, &credential, until)
        };
        (canonical && !self.ended.has(text)).then_some(Bearer { principal, credential, until, scopes })
    }
}

fn digits(mac: Hmac<Sha256>) -> String {
    hex(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scopes_of_a_set_are_those_it_was_made_of() {
        let some = Scopes::of(&[Scope::Manage, Scope::Read, Scope::Read]);
        assert_eq!(some.list(), [Scope::Read, Scope::Manage]);
        assert_eq!(Scopes::ALL.list(), Scope::ALL);
    }
}
