//! Web Push: messages encrypted for one browser (RFC 8291), and sent in the name of one server (RFC 8292).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lastword_broker::identity::random;
use lastword_facts::Time;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::error::Unspecified;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;

/// The most bytes of a message that every push service takes, with what encryption adds.
const BODY_BYTES_MAX: usize = 4_096;
const SALT_BYTES: usize = 16;
const POINT_BYTES: usize = 65;
/// The salt, the size of a record and the server's key come before the one record, which ends with a delimiter and a tag.
const ADDED_BYTES: usize = SALT_BYTES + 4 + 1 + POINT_BYTES + 1 + 16;
/// The most bytes of a message before encryption.
pub(super) const MESSAGE_BYTES_MAX: usize = BODY_BYTES_MAX - ADDED_BYTES;
/// For how long a token counts, in seconds; services take at most a day.
const TOKEN_VALID_S: u64 = 12 * 60 * 60;

/// The keys of a browser for its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrowserKeys {
    point: [u8; POINT_BYTES],
    auth: [u8; SALT_BYTES],
}

impl BrowserKeys {
    /// Reads keys as browsers state them: `p256dh` and `auth`, in base64 for URLs.
    pub(super) fn parse(p256dh: &str, auth: &str) -> Option<Self> {
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let keys = Self { point: bytes(p256dh)?.try_into().ok()?, auth: bytes(auth)?.try_into().ok()? };
        // A point that isn't one of the curve is found here.
        keys.encrypt(b"").ok().map(|_| keys)
    }

    /// Encrypts a message that the browser alone reads.
    pub(super) fn encrypt(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let own = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new())?;
        let public = own.compute_public_key()?;
        let fresh = random().map_err(|_| Unspecified)?;
        let theirs = UnparsedPublicKey::new(&ECDH_P256, &self.point);
        agree_ephemeral(own, &theirs, |shared| self.sealed(shared, public.as_ref(), &fresh[..SALT_BYTES], message))?
    }

    fn sealed(&self, shared: &[u8], public: &[u8], salt: &[u8], message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let secret = derived(&self.auth, shared, &[b"WebPush: info\0", &self.point[..], public].concat());
        let key = derived(salt, secret.as_ref(), b"Content-Encoding: aes128gcm\0");
        let nonce = derived(salt, secret.as_ref(), b"Content-Encoding: nonce\0");
        // The delimiter of the last record.
        let mut record = [message, &[2]].concat();
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key.as_ref()[..16])?);
        let nonce = Nonce::try_assume_unique_for_key(&nonce.as_ref()[..12])?;
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut record)?;
        // 4,096 bytes a record, and 65 of the key.
        Ok([salt, &[0, 0, 16, 0, 65], public, &record].concat())
    }
}

/// Derives up to 32 bytes by HKDF with SHA-256.
fn derived(salt: &[u8], secret: &[u8], info: &[u8]) -> hmac::Tag {
    let sign = |key: &[u8], bytes: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), bytes);
    sign(sign(salt, secret).as_ref(), &[info, &[1]].concat())
}

/// The key by which push services know the server.
pub(super) struct ServerKey(EcdsaKeyPair);

impl ServerKey {
    /// Generates a key; returns the text that is kept of it.
    pub(super) fn generate() -> Result<String, Unspecified> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())?;
        Ok(URL_SAFE_NO_PAD.encode(made))
    }

    /// Reads the text that is kept of a key.
    pub(super) fn read(kept: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(kept).ok()?;
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, &SystemRandom::new()).ok().map(Self)
    }

    /// Returns the public key as browsers take it.
    pub(super) fn public(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key())
    }

    /// Returns the header `Authorization` for a push service; `subject` is where its operator asks about the server.
    pub(super) fn authorization(&self, service: &str, subject: &str, now: Time) -> Result<String, Unspecified> {
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims = json!({ "aud": service, "exp": now.0 / 1000 + TOKEN_VALID_S, "sub": subject });
        let signed = format!("{}.{}", part(json!({ "typ": "JWT", "alg": "ES256" })), part(claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes())?;
        Ok(format!("vapid t={signed}.{}, k={}", URL_SAFE_NO_PAD.encode(signature), self.public()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    #[test]
    fn a_message_is_encrypted_as_the_rfc_does_it() {
        // RFC 8291, appendix A.
        let keys = BrowserKeys::parse(
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "BTBZMqHH6r4Tts7J_aSIgg",
        );
        let public = bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        let shared = bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        let salt = bytes("DGv6ra1nlYgDCS1FRnbzlw");
        let message = b"When I grow up, I want to be a watermelon";
        let sealed = keys.unwrap().sealed(&shared, &public, &salt, message).unwrap();
        assert_eq!(
            URL_SAFE_NO_PAD.encode(sealed),
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl\
             7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
        );
    }

    #[test]
    fn keys_that_are_none_are_refused_and_the_longest_message_fits() {
        let point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
        let auth = "BTBZMqHH6r4Tts7J_aSIgg";
        let off_curve = point.replace("iw4", "iw8");
        for (p256dh, auth) in [("", auth), (point, ""), (&*off_curve, auth), (point, point), ("?", auth)] {
            assert_eq!(BrowserKeys::parse(p256dh, auth), None, "{p256dh} {auth}");
        }
        let keys = BrowserKeys::parse(point, auth).unwrap();
        assert_eq!(keys.encrypt(&[b'x'; MESSAGE_BYTES_MAX]).unwrap().len(), BODY_BYTES_MAX);
    }
}
