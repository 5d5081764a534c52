//! The signatures that an ID token may have: RS256 and ES256, verified by ring, which the server has for TLS.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};

/// A key of the provider, for one algorithm.
#[derive(Clone)]
pub(super) struct ProviderKey {
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

impl ProviderKey {
    /// Reads a key of a key set; `None` if it isn't one that signs with RS256 or ES256. The key says which algorithm it
    /// is for, never the token: a token can't have a public key taken for the secret of an HMAC.
    pub(super) fn of(jwk: &Jwk) -> Option<Self> {
        install();
        let algorithm = if matches!(jwk.algorithm, AlgorithmParameters::RSA(_)) {
            Algorithm::RS256
        } else if let AlgorithmParameters::EllipticCurve(curve) = &jwk.algorithm
            && curve.curve == EllipticCurve::P256
        {
            Algorithm::ES256
        } else {
            return None;
        };
        let usable = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let named = if algorithm == Algorithm::RS256 { KeyAlgorithm::RS256 } else { KeyAlgorithm::ES256 };
        let same = jwk.common.key_algorithm.is_none_or(|algorithm| algorithm == named);
        let key = DecodingKey::from_jwk(jwk).ok().filter(|_| usable && same)?;
        Some(Self { id: jwk.common.key_id.clone(), algorithm, key })
    }
}

/// Makes ring the cryptography of `jsonwebtoken` in this process.
fn install() {
    static ONCE: Once = Once::new();
    static RING: CryptoProvider =
        CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };
    ONCE.call_once(|| {
        // Another program in this process may have installed one before: it verifies as well.
        let _before = RING.install_default();
    });
}

fn signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    match (algorithm, key.kind()) {
        (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            Ok(Box::new(Rs256(RsaPublicKeyComponents { n: n.clone(), e: e.clone() })))
        }
        (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => Ok(Box::new(Es256(point.clone()))),
        _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

struct Rs256(RsaPublicKeyComponents<Vec<u8>>);

struct Es256(Vec<u8>);

impl Verifier<Vec<u8>> for Rs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        self.0.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Rs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::RS256
    }
}

impl Verifier<Vec<u8>> for Es256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.0);
        key.verify(message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Es256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::ES256
    }
}
