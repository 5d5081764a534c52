use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

use super::*;

const HERE: &str = "https://lastword.example";
const HUMAN: AgentId = AgentId(1);

/// An authenticator with one key.
struct Device {
    ecdsa: Option<EcdsaKeyPair>,
    eddsa: Ed25519KeyPair,
    id: String,
    counter: u32,
    flags: u8,
    site: &'static str,
}

impl Device {
    fn new(algorithm: i64) -> Self {
        let random = SystemRandom::new();
        let ecdsa = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let ecdsa = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, ecdsa.as_ref(), &random).unwrap();
        let eddsa = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
        let id = URL_SAFE_NO_PAD.encode(b"the id of a key");
        let ecdsa = (algorithm == ES256).then_some(ecdsa);
        Self { ecdsa, eddsa, id, counter: 0, flags: PRESENT | VERIFIED, site: "lastword.example" }
    }

    fn states(&self, kind: &str, challenge: &str, nonce: &str, origin: &str, with: &[u8]) -> Stated {
        let client =
            json!({ "type": kind, "challenge": challenge, "origin": origin, "crossOrigin": false }).to_string();
        let site = Sha256::digest(self.site.as_bytes());
        let data = [&site[..], &[self.flags], &self.counter.to_be_bytes(), with].concat();
        let signed = [&data[..], &Sha256::digest(client.as_bytes())].concat();
        let signature = match &self.ecdsa {
            Some(key) => key.sign(&SystemRandom::new(), &signed).unwrap().as_ref().to_vec(),
            None => self.eddsa.sign(&signed).as_ref().to_vec(),
        };
        let (key, algorithm) = match &self.ecdsa {
            Some(key) => ([POINT_HEAD, key.public_key().as_ref()].concat(), ES256),
            None => ([ED25519_HEAD, self.eddsa.public_key().as_ref()].concat(), EDDSA),
        };
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        Stated {
            nonce: nonce.to_owned(),
            id: self.id.clone(),
            client_data: text(client.as_bytes()),
            authenticator_data: text(&data),
            signature: text(&signature),
            key: text(&key),
            algorithm,
        }
    }

    /// Makes a key as it is asked for.
    fn creates(&mut self, asked: &Value) -> Stated {
        let id = URL_SAFE_NO_PAD.decode(&self.id).unwrap();
        let length = u16::try_from(id.len()).unwrap().to_be_bytes();
        self.flags |= WITH_KEY;
        let asked = &asked["create"];
        let (challenge, nonce) = (asked["challenge"].as_str().unwrap(), asked["nonce"].as_str().unwrap());
        let made = self.states("webauthn.create", challenge, nonce, HERE, &[&[0; 16], &length[..], &id].concat());
        self.flags &= !WITH_KEY;
        made
    }

    fn signs(&self, asked: &Value, origin: &str) -> Stated {
        let asked = &asked["get"];
        let (challenge, nonce) = (asked["challenge"].as_str().unwrap(), asked["nonce"].as_str().unwrap());
        self.states("webauthn.get", challenge, nonce, origin, &[])
    }
}

fn open(dir: &tempfile::TempDir) -> Passkeys {
    Passkeys::open(Site::of(HERE).unwrap(), Files::local(dir.path())).unwrap()
}

async fn with(device: &mut Device, dir: &tempfile::TempDir) -> Passkeys {
    let passkeys = open(dir);
    passkeys.began([7; 32], Time(0));
    let asked = passkeys.ask_new(HUMAN, "anna", &[7; 32], false, Time(0)).await.unwrap();
    passkeys.add(HUMAN, "phone", &device.creates(&asked), Time(0)).await.unwrap();
    passkeys
}

fn why<T>(result: Result<T, ApiError>) -> String {
    result.err().map(|fault| fault.0.detail).unwrap_or_default()
}

#[tokio::test]
async fn a_passkey_confirms_what_a_form_says_once_and_over_a_restart() {
    for algorithm in [ES256, EDDSA] {
        let (dir, mut device) = (tempfile::tempdir().unwrap(), Device::new(algorithm));
        drop(with(&mut device, &dir).await);
        let passkeys = open(&dir);
        let asked = passkeys.ask(HUMAN, "approve apr-1", Time(0)).await.unwrap();
        assert_eq!(asked["get"]["allow"], json!([device.id]));
        let stated = device.signs(&asked, HERE);
        passkeys.confirm(HUMAN, "approve apr-1", &stated, Time(1)).await.unwrap();
        let again = why(passkeys.confirm(HUMAN, "approve apr-1", &stated, Time(1)).await);
        assert!(again.contains("was used"), "{again}");
        let other = Device::new(algorithm);
        let forged = other.signs(&passkeys.ask(HUMAN, "x", Time(0)).await.unwrap(), HERE);
        let forged = why(passkeys.confirm(HUMAN, "x", &forged, Time(1)).await);
        assert!(forged.contains("signature"), "{forged}");
    }
}

#[tokio::test]
async fn what_was_signed_for_another_form_place_time_or_human_confirms_nothing() {
    let (dir, mut device) = (tempfile::tempdir().unwrap(), Device::new(ES256));
    let passkeys = with(&mut device, &dir).await;
    let ask = async || passkeys.ask(HUMAN, "approve apr-1", Time(0)).await.unwrap();
    let refused =
        async |content: &str, stated: &Stated, human, at| why(passkeys.confirm(human, content, stated, Time(at)).await);
    let signed = device.signs(&ask().await, HERE);
    assert!(refused("approve apr-2", &signed, HUMAN, 1).await.contains("isn't what the form says"));
    let signed = device.signs(&ask().await, "https://evil.example");
    assert!(refused("approve apr-1", &signed, HUMAN, 1).await.contains("evil.example"));
    let signed = device.signs(&ask().await, HERE);
    assert!(refused("approve apr-1", &signed, HUMAN, ASKED_MS).await.contains("two minutes"));
    let signed = device.signs(&ask().await, HERE);
    assert!(refused("approve apr-1", &signed, AgentId(2), 1).await.contains("two minutes"));
    device.flags = PRESENT;
    let signed = device.signs(&ask().await, HERE);
    assert!(refused("approve apr-1", &signed, HUMAN, 1).await.contains("didn't verify"));
    (device.flags, device.site) = (PRESENT | VERIFIED, "evil.example");
    let signed = device.signs(&ask().await, HERE);
    assert!(refused("approve apr-1", &signed, HUMAN, 1).await.contains("another site"));
    device.site = "lastword.example";
    let signed = Stated { authenticator_data: String::new(), ..device.signs(&ask().await, HERE) };
    assert!(refused("approve apr-1", &signed, HUMAN, 1).await.contains("too short"));
    passkeys.remove(HUMAN, None).await.unwrap();
    assert!(why(passkeys.ask(HUMAN, "approve apr-1", Time(0)).await).contains("none yet"));
}

#[tokio::test]
async fn a_counter_that_goes_back_is_that_of_a_copy() {
    let (dir, mut device) = (tempfile::tempdir().unwrap(), Device::new(ES256));
    let passkeys = with(&mut device, &dir).await;
    for (counter, good) in [(0, true), (5, true), (6, true), (6, false), (0, false), (7, true)] {
        device.counter = counter;
        let signed = device.signs(&passkeys.ask(HUMAN, "x", Time(0)).await.unwrap(), HERE);
        assert_eq!(passkeys.confirm(HUMAN, "x", &signed, Time(0)).await.is_ok(), good, "{counter}");
    }
}

#[tokio::test]
async fn the_first_passkey_is_added_soon_after_signing_in_and_another_one_by_one_that_there_is() {
    let (dir, mut device) = (tempfile::tempdir().unwrap(), Device::new(ES256));
    let passkeys = open(&dir);
    let ask = async |cookie: u8, confirmed, at| {
        why(passkeys.ask_new(HUMAN, "anna", &[cookie; 32], confirmed, Time(at)).await)
    };
    assert!(ask(7, false, 0).await.contains("10 minutes"), "nothing is known of this session");
    passkeys.began([7; 32], Time(0));
    passkeys.began_from(&[7; 32], [8; 32]);
    passkeys.began_from(&[9; 32], [10; 32]);
    assert_eq!((ask(7, false, 1).await, ask(8, false, 1).await), (String::new(), String::new()));
    assert!(ask(10, false, 1).await.contains("10 minutes"), "it is from a session that isn't fresh");
    assert!(ask(7, false, FRESH_MS).await.contains("10 minutes"));
    let passkeys = with(&mut device, &dir).await;
    let second = passkeys.ask_new(HUMAN, "anna", &[7; 32], false, Time(0)).await;
    assert!(why(second).contains("10 minutes"), "there is one already");
    let asked = passkeys.ask_new(HUMAN, "anna", &[1; 32], true, Time(0)).await.unwrap();
    assert_eq!(asked["create"]["exclude"], json!([device.id]));
    let swapped = Stated { id: URL_SAFE_NO_PAD.encode("another"), ..device.creates(&asked) };
    assert!(why(passkeys.add(HUMAN, "x", &swapped, Time(0)).await).contains("another one"));
    let asked = passkeys.ask_new(HUMAN, "anna", &[1; 32], true, Time(0)).await.unwrap();
    let wrong = Stated { algorithm: -39, ..device.creates(&asked) };
    assert!(why(passkeys.add(HUMAN, "x", &wrong, Time(0)).await).contains("ES256"));
}

#[test]
fn a_site_is_a_name_over_https_or_this_machine() {
    for (address, host) in [
        ("https://lastword.example:7171", Some("lastword.example")),
        ("http://localhost:9", Some("localhost")),
        ("http://lastword.example", None),
        ("https://192.0.2.1", None),
    ] {
        assert_eq!(Site::of(address).ok().map(|site| site.host).as_deref(), host, "{address}");
    }
}

/// A key of 2,048 bits, and what it signed, both by the library `cryptography` of Python.
const RSA_KEY: &str = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAra2w1c0mw5oDXllc5jd6-F31kesmBk3hoQUdIC07P7VeO70SSD3sp2skUT7z8_C-LQ\
    mOmCOncB6BkKO0ZX5vF5kKKfVIKrI7hmW29oSbqY9TT2_8LRsdP40pQ729W3ZL18KZpdfFKgQ4G_fulOnJtukEs9selNKqsseXsyaP8N7hFYUU\
    8OoDYDZSsdXA3M4c-poNau7TdclmWQ_BAU63yGQNCSVXkpou6Sr0LYYapby9Zgd28MsUqqjrR2XOXzJfw83jZjh27APqswrw2lTC_OuEgNGwDM\
    CEjl_nD4cihAsBVigccoyuwcD63_BEVW3kyFtUCYMqyMgGVvFDBRya9wIDAQAB";
const RSA_SIGNED: &str = "ddGrz6vQxwj9Ukzlz1h4atgMzvhg3gZz_t4bJhSer92Nswdp3afPQaGjrl-FElkeVJ-0yETGVKpJ2bwRoFf813GSF6Os4GMRIhOWWWmVtpBJpf\
    5TS4JDFjjPmdbIjMTdoCGInLJ7ML3ntQe_g0H3Q4E3Trf1X36K0wh8gvaDyXtPe4lN8e7BSdE0mmW46VDm2aMJBRIJAXAiAMU82cyNpr7qo9B_\
    a4MX7LTxwPE0Y_Q9BpeV6Nb2bTegEMZ3p2_s2h-iV_H_KpRX_4iC6gdrM2wiLkN89qrZsyGdxaoZ7zpU07-7lb-V3Z3X_Ux5zlIN1A86b8sjh-\
    a50abat4JHHw";

#[tokio::test]
async fn a_key_of_windows_is_one_too() {
    let dir = tempfile::tempdir().unwrap();
    let spki = URL_SAFE_NO_PAD.decode(RSA_KEY).unwrap();
    let key = spki.strip_prefix(RSA_HEAD).unwrap();
    assert_eq!(key.len(), 270);
    let signature = URL_SAFE_NO_PAD.decode(RSA_SIGNED).unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key).verify(b"signed by an authenticator", &signature).unwrap();
    let mut device = Device::new(ES256);
    let passkeys = open(&dir);
    passkeys.began([7; 32], Time(0));
    let asked = passkeys.ask_new(HUMAN, "anna", &[7; 32], false, Time(0)).await.unwrap();
    let made = Stated { key: RSA_KEY.to_owned(), algorithm: RS256, ..device.creates(&asked) };
    passkeys.add(HUMAN, "windows", &made, Time(0)).await.unwrap();
    let forged = device.signs(&passkeys.ask(HUMAN, "x", Time(0)).await.unwrap(), HERE);
    assert!(why(passkeys.confirm(HUMAN, "x", &forged, Time(0)).await).contains("signature"));
}
