//! Passkeys (WebAuthn): what a human confirms beyond the cookie of a session. `passkeys.json` in the data directory.
//!
//! A form is confirmed for exactly what it says: the challenge that is signed is a hash of a nonce, of its path and of its
//! fields, among them the digest of a held call. A key is stated by the browser without an attestation, so the one that
//! its interface returns is as good as the one within the attestation, and no CBOR has to be read.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lastword_broker::files::Files;
use lastword_broker::identity::{hex, random};
use lastword_facts::fact::Credential;
use lastword_facts::ids::AgentId;
use lastword_facts::{Code, Refusal, Time};
use reqwest::Url;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::backup::FILE_PASSKEYS;
use crate::error::ApiError;
use crate::kept;

const VERSION: u32 = 1;
/// The most passkeys of a human.
const OF_HUMAN_MAX: usize = 8;
const NAME_CHARS_MAX: usize = 64;
/// The time in which a challenge has to be signed, in ms, and the most that wait.
const ASKED_MS: u64 = 2 * 60 * 1000;
const ASKED_MAX: usize = 64;
/// The time after signing in in which a human adds the first passkey, in ms, and the most sign-ins that are remembered.
pub const FRESH_MS: u64 = 10 * 60 * 1000;
const FRESH_MAX: usize = 256;
/// What stands before a public key, by its algorithm: ECDSA on P-256, Ed25519, and RSA of 2,048 bits, which Windows has.
const ES256: i64 = -7;
const EDDSA: i64 = -8;
const RS256: i64 = -257;
const POINT_HEAD: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
const ED25519_HEAD: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
const RSA_HEAD: &[u8] =
    b"\x30\x82\x01\x22\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00\x03\x82\x01\x0f\x00";
/// Flags of an authenticator: a human was there, was verified, and a key comes with it.
const PRESENT: u8 = 1;
const VERIFIED: u8 = 4;
const WITH_KEY: u8 = 64;

/// Where a workspace asks for a passkey before something is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PasskeyUse {
    /// Nowhere.
    #[default]
    Off,
    /// In the console. The tokens of humans decide as before.
    Console,
    /// In the console, and no token of a human approves a held call.
    Always,
}

/// The site for which passkeys are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    origin: String,
    host: String,
}

impl Site {
    /// Returns the site of the console's address.
    ///
    /// # Errors
    /// Browsers make no passkeys for it; the text says why.
    pub fn of(address: &str) -> Result<Self, String> {
        let url = Url::parse(address).map_err(|error| format!("{address:?}: {error}"))?;
        let host = url.domain().ok_or_else(|| format!("{address:?} has no name, and a passkey is for one"))?.to_owned();
        if url.scheme() != "https" && host != "localhost" {
            return Err(format!("{address:?} isn't https, and browsers make passkeys for that alone"));
        }
        Ok(Self { origin: url.origin().ascii_serialization(), host })
    }
}

/// A passkey, as its human sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasskeyView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// When it was added.
    pub since: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Passkey {
    /// The id that the authenticator gave it, in base64 for URLs.
    id: String,
    human: u32,
    name: String,
    since: Time,
    algorithm: i64,
    /// The public key, in base64 for URLs.
    key: String,
    /// What the authenticator counted last; 0 if it counts nothing.
    counter: u32,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct StoredPasskeys {
    kept: Vec<Passkey>,
}

/// What a challenge is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Confirm,
    Add,
}

struct Challenge {
    nonce: String,
    human: AgentId,
    purpose: Purpose,
    until: Time,
}

/// What a browser states of a signature or of a new key, each in base64 for URLs.
#[derive(Debug, Deserialize)]
pub struct Stated {
    nonce: String,
    id: String,
    client_data: String,
    authenticator_data: String,
    #[serde(default)]
    signature: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    algorithm: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    r#type: String,
    challenge: String,
    origin: String,
    #[serde(default)]
    cross_origin: bool,
}

/// The passkeys of a workspace.
pub struct Passkeys {
    site: Site,
    files: Files,
    asked: Mutex<Vec<Challenge>>,
    /// The hashes of the cookies of sessions that began lately.
    fresh: Mutex<Vec<(Credential, Time)>>,
    /// Held over a write of the file.
    book: tokio::sync::Mutex<StoredPasskeys>,
}

impl fmt::Debug for Passkeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passkeys").field("site", &self.site).finish_non_exhaustive()
    }
}

impl Passkeys {
    /// Reads the passkeys of a workspace.
    pub(crate) fn open(site: Site, files: Files) -> io::Result<Self> {
        let book: StoredPasskeys = kept::read(&files, FILE_PASSKEYS, VERSION)?;
        let (asked, fresh) = (Mutex::default(), Mutex::default());
        Ok(Self { site, files, asked, fresh, book: tokio::sync::Mutex::new(book) })
    }

    /// Remembers that a session began, by the hash of its cookie.
    pub fn began(&self, cookie: Credential, now: Time) {
        let mut fresh = locked(&self.fresh);
        fresh.retain(|(_, at)| now.since(*at) < FRESH_MS);
        if fresh.len() >= FRESH_MAX {
            fresh.remove(0);
        }
        fresh.push((cookie, now));
    }

    /// Remembers that a session began from another one: it is as old as that.
    pub fn began_from(&self, from: &Credential, cookie: Credential) {
        let mut fresh = locked(&self.fresh);
        let at = fresh.iter().find(|(known, _)| known == from).map(|(_, at)| *at);
        fresh.extend(at.map(|at| (cookie, at)));
    }

    /// Lists the passkeys of a human.
    pub async fn list(&self, human: AgentId) -> Vec<PasskeyView> {
        let view = |key: &Passkey| PasskeyView { id: key.id.clone(), name: key.name.clone(), since: key.since };
        self.book.lock().await.kept.iter().filter(|key| key.human == human.0).map(view).collect()
    }

    /// Returns what a browser needs to confirm this content by a passkey of this human.
    ///
    /// # Errors
    /// The human has none.
    pub async fn ask(&self, human: AgentId, content: &str, now: Time) -> Result<Value, ApiError> {
        let allow: Vec<String> = self.list(human).await.into_iter().map(|key| key.id).collect();
        if allow.is_empty() {
            let text = "This workspace asks for a passkey here, and you have none yet: add one under Devices";
            return Err(ApiError::new(Code::Forbidden, text));
        }
        let nonce = self.noted(human, Purpose::Confirm, now)?;
        let challenge = URL_SAFE_NO_PAD.encode(challenge(&nonce, content));
        Ok(json!({ "get": { "nonce": nonce, "challenge": challenge, "site": self.site.host, "allow": allow } }))
    }

    /// Checks that a passkey of this human has signed for this content, within two minutes of being asked, once.
    ///
    /// # Errors
    /// It has not.
    pub async fn confirm(&self, human: AgentId, content: &str, stated: &Stated, now: Time) -> Result<(), ApiError> {
        let signed = self.taken(human, Purpose::Confirm, content, stated, now)?;
        let mut book = self.book.lock().await;
        let known = book.kept.iter().position(|key| key.human == human.0 && key.id == stated.id);
        let place = known.ok_or_else(|| refused("the passkey isn't one of yours"))?;
        let Signed { counter, bytes, .. } = signed;
        let key = &book.kept[place];
        let public = decoded(&key.key)?;
        let signature = decoded(&stated.signature)?;
        let proven = match key.algorithm {
            ES256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public).verify(&bytes, &signature),
            RS256 => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public).verify(&bytes, &signature),
            _ => UnparsedPublicKey::new(&ED25519, public).verify(&bytes, &signature),
        };
        proven.map_err(|_| refused("the signature isn't that of the passkey"))?;
        match (key.counter, counter) {
            (0, 0) => return Ok(()),
            (before, counter) if counter > before => {}
            // Two have the key.
            _ => return Err(refused("its counter went back, so the passkey was copied: remove it")),
        }
        let mut next = book.clone();
        next.kept[place].counter = counter;
        self.write(&mut book, next).await
    }

    /// Returns what a browser needs to make a passkey for this human. The first one is made soon after signing in, because
    /// whoever has only the cookie could make it, too; another one is `confirmed` by one that there is.
    ///
    /// # Errors
    /// It is neither, or there is no room.
    pub async fn ask_new(
        &self,
        human: AgentId,
        name: &str,
        cookie: &Credential,
        confirmed: bool,
        now: Time,
    ) -> Result<Value, ApiError> {
        let exclude: Vec<String> = self.list(human).await.into_iter().map(|key| key.id).collect();
        if exclude.len() >= OF_HUMAN_MAX {
            let refusal = Refusal::new(Code::Saturated).about("passkeys");
            return Err(refusal.numbers(OF_HUMAN_MAX as u64, exclude.len() as u64 + 1).into());
        }
        let is_fresh = locked(&self.fresh).iter().any(|(known, at)| known == cookie && now.since(*at) < FRESH_MS);
        if !(confirmed || exclude.is_empty() && is_fresh) {
            let text = "The first passkey is added within 10 minutes of signing in: sign out, and in again";
            return Err(ApiError::new(Code::Forbidden, text));
        }
        let nonce = self.noted(human, Purpose::Add, now)?;
        let challenge = URL_SAFE_NO_PAD.encode(challenge(&nonce, ""));
        let user =
            json!({ "id": URL_SAFE_NO_PAD.encode(format!("human-{}", human.0)), "name": name, "displayName": name });
        let made =
            json!({ "nonce": nonce, "challenge": challenge, "site": self.site.host, "user": user, "exclude": exclude });
        Ok(json!({ "create": made }))
    }

    /// Adds the passkey that a browser has made for this human.
    ///
    /// # Errors
    /// It is none that was asked for.
    pub async fn add(&self, human: AgentId, name: &str, stated: &Stated, now: Time) -> Result<(), ApiError> {
        let Signed { counter, flags, id, .. } = self.taken(human, Purpose::Add, "", stated, now)?;
        if flags & WITH_KEY == 0 || id.is_none_or(|id| id != stated.id) {
            return Err(refused("the key that was made is another one"));
        }
        let spki = decoded(&stated.key)?;
        let (head, length) = match stated.algorithm {
            ES256 => (POINT_HEAD, 65),
            EDDSA => (ED25519_HEAD, 32),
            RS256 => (RSA_HEAD, 270),
            _ => return Err(refused("its algorithm is none of ES256, EdDSA and RS256")),
        };
        let key = spki.strip_prefix(head).filter(|key| key.len() == length);
        let key = URL_SAFE_NO_PAD.encode(key.ok_or_else(|| refused("its key isn't one of its algorithm"))?);
        let (id, algorithm) = (stated.id.clone(), stated.algorithm);
        let name = name.trim().chars().take(NAME_CHARS_MAX).collect();
        let mut book = self.book.lock().await;
        let mut next = book.clone();
        next.kept.retain(|known| known.id != id);
        next.kept.push(Passkey { id, human: human.0, name, since: now, algorithm, key, counter });
        self.write(&mut book, next).await
    }

    /// Removes a passkey of a human, or all of them.
    ///
    /// # Errors
    /// The file can't be written.
    pub async fn remove(&self, human: AgentId, id: Option<&str>) -> Result<(), ApiError> {
        let mut book = self.book.lock().await;
        let mut next = book.clone();
        next.kept.retain(|key| key.human != human.0 || id.is_some_and(|id| key.id != id));
        self.write(&mut book, next).await
    }

    fn noted(&self, human: AgentId, purpose: Purpose, now: Time) -> Result<String, ApiError> {
        let nonce = hex(&random().map_err(|error| ApiError::internal(&error.to_string()))?);
        let mut asked = locked(&self.asked);
        asked.retain(|asked| now < asked.until);
        if asked.len() >= ASKED_MAX {
            asked.remove(0);
        }
        asked.push(Challenge { nonce: nonce.clone(), human, purpose, until: now.plus(ASKED_MS) });
        Ok(nonce)
    }

    /// Takes a challenge that was given out, and checks what the browser and the authenticator say of it.
    fn taken(
        &self,
        human: AgentId,
        purpose: Purpose,
        content: &str,
        stated: &Stated,
        now: Time,
    ) -> Result<Signed, ApiError> {
        let known = {
            let mut asked = locked(&self.asked);
            let of =
                |asked: &Challenge| asked.nonce == stated.nonce && asked.human == human && asked.purpose == purpose;
            let place = asked.iter().position(of);
            place.map(|place| asked.remove(place)).filter(|asked| now < asked.until)
        };
        known.ok_or_else(|| refused("it was asked for more than two minutes ago, or was used"))?;
        let client = decoded(&stated.client_data)?;
        let said: ClientData = serde_json::from_slice(&client).map_err(|error| refused(&error.to_string()))?;
        let wanted = if purpose == Purpose::Add { "webauthn.create" } else { "webauthn.get" };
        if said.r#type != wanted || said.cross_origin {
            return Err(refused("it was made for something else"));
        }
        if said.challenge != URL_SAFE_NO_PAD.encode(challenge(&stated.nonce, content)) {
            return Err(refused("what was confirmed isn't what the form says"));
        }
        if said.origin != self.site.origin {
            return Err(refused(&format!(
                "it was made at {:?}: open the console at {}",
                said.origin, self.site.origin
            )));
        }
        let data = decoded(&stated.authenticator_data)?;
        let signed =
            Signed::parse(&data, &client).ok_or_else(|| refused("what the authenticator says is too short"))?;
        if data.get(..32) != Some(&Sha256::digest(self.site.host.as_bytes())[..]) {
            return Err(refused("it is for another site"));
        }
        if signed.flags & (PRESENT | VERIFIED) != PRESENT | VERIFIED {
            return Err(refused("the device didn't verify who you are: set a PIN, a fingerprint or a face on it"));
        }
        Ok(signed)
    }

    async fn write(&self, book: &mut StoredPasskeys, next: StoredPasskeys) -> Result<(), ApiError> {
        kept::write(&self.files, FILE_PASSKEYS, VERSION, &next).await?;
        *book = next;
        Ok(())
    }
}

/// What an authenticator said, and what it signs.
struct Signed {
    flags: u8,
    counter: u32,
    /// The id of the key that comes with it.
    id: Option<String>,
    bytes: Vec<u8>,
}

impl Signed {
    /// Reads 32 bytes for the site, the flags and the counter; then, with a new key, 16 bytes for the make of the
    /// authenticator, and the length and bytes of the key's id.
    fn parse(data: &[u8], client: &[u8]) -> Option<Self> {
        let (head, rest) = data.split_at_checked(37)?;
        let id = || {
            let (length, id) = rest.get(16..)?.split_first_chunk::<2>()?;
            id.get(..usize::from(u16::from_be_bytes(*length))).map(|id| URL_SAFE_NO_PAD.encode(id))
        };
        let counter = u32::from_be_bytes(head.get(33..)?.try_into().ok()?);
        Some(Self { flags: head[32], counter, id: id(), bytes: [data, &Sha256::digest(client)].concat() })
    }
}

fn challenge(nonce: &str, content: &str) -> [u8; 32] {
    Sha256::digest(format!("lastword passkey\0{nonce}\0{content}")).into()
}

fn decoded(text: &str) -> Result<Vec<u8>, ApiError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|error| refused(&error.to_string()))
}

fn refused(why: &str) -> ApiError {
    ApiError::new(Code::Forbidden, format!("The passkey doesn't confirm it: {why}"))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "passkeys_tests.rs"]
mod tests;
