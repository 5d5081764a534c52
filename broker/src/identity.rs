//! Identity: bearer tokens, which are stored only as hashes, and turn tokens, which are signed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::{PoisonError, RwLock};

use hmac::{Hmac, KeyInit as _, Mac as _};
use lastword_core::state::Agent;
use lastword_core::{Principal, State};
use lastword_facts::Fact;
use lastword_facts::fact::{Credential, Registered, TokenRotated};
use lastword_facts::ids::{AgentId, EscalationId, Time, TurnId};
use rand::TryRng as _;
use rand::rngs::SysRng;
use sha2::{Digest as _, Sha256};

use crate::files::Files;

mod bearer;
mod handover;
#[cfg(test)]
mod proof_tests;
mod session;
mod spent;

pub use self::bearer::{Bearer, Scopes, is_of_sign_in};
pub use self::handover::{HANDOVER_MS, HandedSession, Handover, HandoverCode, Handovers};
pub use self::session::FILE_SIGNED_OUT;
pub use self::session::{ConsoleSession, SESSION_MS, SignInCode};
pub use self::spent::Spent;

/// The file in the data directory that holds the first human's token.
pub const FILE_OPERATOR_TOKEN: &str = "operator.token";
/// The file in the data directory that holds the key for turn tokens and console sessions.
pub const FILE_SECRET_KEY: &str = "secret.key";

const TOKEN_PREFIX: &str = "lw_";
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 16;

/// A text that must not reach a log. It implements neither `Debug` nor `Display`.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`, so that it can't be printed by accident.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Generates a bearer token of 256 random bits.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn token() -> io::Result<Self> {
        Ok(Self(format!("{TOKEN_PREFIX}{}", hex(&random()?))))
    }

    /// Generates the code of a one-time link, of 256 random bits.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn code() -> io::Result<Self> {
        Ok(Self(hex(&random()?)))
    }

    /// Returns the text, to hand it to its owner.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the hash that is stored instead of the text.
    #[must_use]
    pub fn credential(&self) -> Credential {
        credential(&self.0)
    }
}

/// Returns the SHA-256 hash by which a token is known.
#[must_use]
pub fn credential(token: &str) -> Credential {
    Sha256::digest(token.as_bytes()).into()
}

/// Returns random bytes for a key or a token.
///
/// # Errors
/// The system's random number generator fails.
pub fn random() -> io::Result<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    SysRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Encodes bytes in lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|n| char::from(b"0123456789abcdef"[usize::from(n)])).collect()
}

/// Decodes `N` bytes from hexadecimal of either case; `None` for any other text.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    if text.len() != N * 2 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(out)
}

/// The principals by credential, kept beside the core so that authenticating a request doesn't wait for the broker. The
/// lookup compares hashes of tokens, so its timing reveals nothing about a token.
#[derive(Debug, Default)]
pub struct Directory {
    known: RwLock<BTreeMap<Credential, TokenOwner>>,
}

/// The owner of a token, and how long it is valid.
#[derive(Clone, Copy, Debug)]
struct TokenOwner {
    principal: Principal,
    /// The time from which it is refused; `None` if it doesn't expire.
    until: Option<Time>,
    /// Whether it is the owner's current token, and not the one before it.
    current: bool,
}

/// What a token proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It is this principal's.
    Valid(Principal),
    /// It was valid up to this time.
    Expired(Time),
    /// It is unknown or revoked.
    Unknown,
}

impl Directory {
    /// Collects the valid credentials of all agents and humans in `state`.
    #[must_use]
    pub fn of(state: &State) -> Self {
        let owners: BTreeSet<AgentId> = state.credentials.values().copied().collect();
        Self { known: RwLock::new(owners.into_iter().flat_map(|owner| tokens(state, owner)).collect()) }
    }

    /// Returns what the token with this hash proves. `now` is asked only of a token that expires.
    pub(crate) fn prove(&self, credential: &Credential, now: impl FnOnce() -> Time) -> Proof {
        let found = self.known.read().unwrap_or_else(PoisonError::into_inner).get(credential).copied();
        match found {
            None => Proof::Unknown,
            Some(TokenOwner { until: Some(until), .. }) if now() >= until => Proof::Expired(until),
            Some(TokenOwner { principal, .. }) => Proof::Valid(principal),
        }
    }

    /// Returns the hash of `agent`'s current token, and the principal that it proves, unless it has expired.
    pub(crate) fn proof_of(&self, agent: AgentId, now: Time) -> Option<(Credential, Principal)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (token, found) = known.iter().find(|(_, found)| found.current && found.principal.agent() == agent)?;
        found.until.is_none_or(|until| now < until).then_some((*token, found.principal))
    }

    /// Returns the hashes of all tokens, in order.
    pub(crate) fn credentials(&self) -> Vec<Credential> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Returns the number of agents and humans with a valid token.
    pub(crate) fn len(&self) -> usize {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().filter(|known| known.current).count()
    }

    /// Applies a change that has become durable.
    pub(crate) fn make(&self, Change { agent, tokens }: Change) {
        // In one step: an old and a new token are valid at the same time only if a human said so, and never neither.
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, found| found.principal.agent() != agent);
        known.extend(tokens);
    }
}

/// Returns the tokens of a live agent or human.
fn tokens(state: &State, owner: AgentId) -> Vec<(Credential, TokenOwner)> {
    let all = state.agent(owner).into_iter().flat_map(Agent::tokens).enumerate();
    let known = all.filter_map(|(n, (credential, until))| {
        let principal = state.prove(&credential)?;
        Some((credential, TokenOwner { principal, until, current: n == 0 }))
    });
    known.collect()
}

/// The tokens that an agent or human has from some fact on.
pub(crate) struct Change {
    agent: AgentId,
    tokens: Vec<(Credential, TokenOwner)>,
}

impl Change {
    /// Returns the change that `fact` makes to the directory, if any; `state` is the state after the fact.
    pub(crate) fn of(fact: &Fact, state: &State) -> Option<Self> {
        if let Fact::Registered(Registered { agent, .. })
        | Fact::Rekeyed { agent, .. }
        | Fact::TokenRotated(TokenRotated { agent, .. }) = fact
        {
            Some(Self { agent: *agent, tokens: tokens(state, *agent) })
        } else if let Fact::Removed { agent } = fact {
            Some(Self { agent: *agent, tokens: Vec::new() })
        } else {
            None
        }
    }
}

/// Signs turn tokens, `turn-3.MAC`, whose MAC binds the turn to its agent, and likewise escalations and console
/// sessions.
pub struct TurnSigner {
    /// A MAC that has read the key.
    keyed: Hmac<Sha256>,
    ended: Spent,
}

impl TurnSigner {
    /// Opens the signer whose key is among `files`; generates the key if the file doesn't exist.
    ///
    /// # Errors
    /// The key can't be read or written, or it has the wrong length.
    pub fn open(files: &Files) -> io::Result<Self> {
        let path = files.path(FILE_SECRET_KEY);
        let key: [u8; KEY_BYTES] = match fs::read(&path) {
            Ok(bytes) => bytes.as_slice().try_into().map_err(|_| {
                io::Error::other(format!("{} is damaged: delete it, open turns lose their tokens", path.display()))
            })?,
            // Only a missing file gets a new key: replacing an unreadable one would end all open turns' tokens.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = random()?;
                files.write(FILE_SECRET_KEY, &key)?;
                key
            }
            Err(error) => return Err(error),
        };
        Self::of(key, Spent::open(files, FILE_SIGNED_OUT)?)
    }

    /// Creates a signer with a random key that is never stored, for a server without a directory.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn ephemeral() -> io::Result<Self> {
        Self::of(random()?, Spent::default())
    }

    fn of(key: [u8; KEY_BYTES], ended: Spent) -> io::Result<Self> {
        Ok(Self { keyed: Hmac::new_from_slice(&key).map_err(io::Error::other)?, ended })
    }

    /// Signs the token of a turn for its agent.
    #[must_use]
    pub fn sign(&self, turn: TurnId, agent: AgentId) -> String {
        let mac = self.mac(turn, agent).finalize().into_bytes();
        format!("{turn}.{}", hex(&mac[..MAC_BYTES]))
    }

    /// Returns the turn that `token` names if it was signed for `agent`.
    #[must_use]
    pub fn verify(&self, token: &str, agent: AgentId) -> Option<TurnId> {
        let (turn, mac) = token.split_once('.')?;
        let (turn, mac) = (TurnId::parse(turn)?, unhex::<MAC_BYTES>(mac)?);
        // Compares in constant time.
        self.mac(turn, agent).verify_truncated_left(&mac).ok().map(|()| turn)
    }

    /// Signs the state that an MCP client carries from an agent's escalation to the answer: `esc-3.MAC`.
    #[must_use]
    pub fn sign_escalation(&self, id: EscalationId, agent: AgentId) -> String {
        let mac = self.escalation_mac(id, agent).finalize().into_bytes();
        format!("{id}.{}", hex(&mac[..MAC_BYTES]))
    }

    /// Returns the escalation that `state` names if it was signed for `agent`.
    #[must_use]
    pub fn verify_escalation(&self, state: &str, agent: AgentId) -> Option<EscalationId> {
        let (id, mac) = state.split_once('.')?;
        let (id, mac) = (EscalationId::parse(id)?, unhex::<MAC_BYTES>(mac)?);
        self.escalation_mac(id, agent).verify_truncated_left(&mac).ok().map(|()| id)
    }

    /// Returns the MAC of bytes that an edge names by its own label.
    #[must_use]
    pub fn mac_of(&self, label: &str, bytes: &[u8]) -> [u8; 32] {
        self.labelled(label, &[b"\0", bytes]).finalize().into_bytes().into()
    }

    /// Returns whether a MAC, or the begin of it, is that of bytes under a label.
    #[must_use]
    pub fn is_mac_of(&self, label: &str, bytes: &[u8], mac: &[u8]) -> bool {
        // Compares in constant time.
        self.labelled(label, &[b"\0", bytes]).verify_truncated_left(mac).is_ok()
    }

    fn mac(&self, turn: TurnId, agent: AgentId) -> Hmac<Sha256> {
        self.labelled("turn", &[&turn.0.to_le_bytes(), &agent.0.to_le_bytes()])
    }

    fn escalation_mac(&self, id: EscalationId, agent: AgentId) -> Hmac<Sha256> {
        self.labelled("escalation", &[&id.0.to_le_bytes(), &agent.0.to_le_bytes()])
    }

    /// The label keeps a MAC of one kind from passing as another: all kinds share the key.
    fn labelled(&self, label: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        mac.update(b"lastword ");
        mac.update(label.as_bytes());
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_token_is_bound_to_its_turn_and_agent() {
        let signer = TurnSigner::ephemeral().unwrap();
        let token = signer.sign(TurnId(3), AgentId(1));
        assert_eq!(signer.verify(&token, AgentId(1)), Some(TurnId(3)));
        assert_eq!(signer.verify(&token, AgentId(2)), None);
        assert_eq!(signer.verify(&token.replace("turn-3", "turn-4"), AgentId(1)), None);
        assert_eq!(TurnSigner::ephemeral().unwrap().verify(&token, AgentId(1)), None);
        for bad in ["", "turn-3", "turn-3.", "turn-3.zz"] {
            assert_eq!(signer.verify(bad, AgentId(1)), None, "{bad}");
        }
    }

    #[test]
    fn an_escalations_state_is_bound_to_its_agent_and_is_no_turn_token() {
        let signer = TurnSigner::ephemeral().unwrap();
        let state = signer.sign_escalation(EscalationId(3), AgentId(1));
        assert_eq!(signer.verify_escalation(&state, AgentId(1)), Some(EscalationId(3)));
        assert_eq!(signer.verify_escalation(&state, AgentId(2)), None);
        let mac = state.trim_start_matches("esc-3");
        assert_eq!(signer.verify(&format!("turn-3{mac}"), AgentId(1)), None);
        for bad in ["", "esc-3", "esc-3.", &format!("esc-4{mac}"), &format!("{state}-TAMPERED")] {
            assert_eq!(signer.verify_escalation(bad, AgentId(1)), None, "{bad}");
        }
    }

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let (a, b) = (Secret::token().unwrap(), Secret::token().unwrap());
        assert_eq!(a.reveal().len(), TOKEN_PREFIX.len() + 64);
        assert_ne!(a.credential(), b.credential());
    }
}
