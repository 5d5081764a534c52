//! A NATS server that wants TLS and credentials.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use rcgen::CertifiedKey;
use serde_json::{Value, json};

use crate::nats_server::{One, free_port, program, until};
use crate::program::{PATH, finish, lastword};

/// Signs claims as NATS's own tools do.
fn token(signer: &KeyPair, mut claims: Value) -> String {
    claims["iss"] = signer.public_key().into();
    claims["iat"] = 1.into();
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let [header, claims] = [header, claims].map(|part| BASE64URL_NOPAD.encode(part.to_string().as_bytes()));
    let signed = format!("{header}.{claims}");
    let signature = signer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}

/// Writes a file of credentials for a new user of the account.
fn credentials(account: &KeyPair, path: &Path) {
    let user = KeyPair::new_user();
    let nats = json!({ "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2 });
    let token = token(account, json!({ "name": "node", "sub": user.public_key(), "nats": nats }));
    let seed = user.seed().unwrap();
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    std::fs::write(path, text).unwrap();
}

/// Returns the settings of a server that knows one account besides its own, and that account's key.
fn accounts() -> (String, KeyPair) {
    let (operator, system, account) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let nats = json!({ "type": "operator", "version": 2, "system_account": system.public_key() });
    let operator_token = token(&operator, json!({ "name": "op", "sub": operator.public_key(), "nats": nats }));
    let known = [(&system, 0), (&account, -1)].map(|(key, storage)| {
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1, "mem_storage": storage, "disk_storage": storage, "streams": -1, "consumer": -1,
        });
        let nats = json!({ "limits": limits, "type": "account", "version": 2 });
        let known = token(&operator, json!({ "name": "known", "sub": key.public_key(), "nats": nats }));
        format!("{}: {known}", key.public_key())
    });
    let known = known.join(", ");
    (format!("operator: {operator_token}\nresolver: MEMORY\nresolver_preload: {{ {known} }}\n"), account)
}

/// Writes a certificate for this machine and its key.
fn certificate(dir: &Path) -> [PathBuf; 2] {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let paths = [dir.join("nats.crt"), dir.join("nats.key")];
    std::fs::write(&paths[0], cert.pem()).unwrap();
    std::fs::write(&paths[1], signing_key.serialize_pem()).unwrap();
    paths
}

#[test]
fn a_node_proves_itself_to_nats_and_verifies_it() {
    let Some(program) = program("credentials for NATS") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (settings, account) = accounts();
    let [certificate, key] = certificate(dir.path());
    let tls = format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n");
    let nats = One::start_with(&program, &format!("{settings}{tls}"));
    let creds = dir.path().join("node.creds");
    credentials(&account, &creds);
    let url = nats.server.url().replace("nats://", "tls://");
    let listen = format!("127.0.0.1:{}", free_port());
    let serve = ["serve", "--cluster", &url, "--listen", &listen, "--node", "a", "--replicas", "1", "--not-durable"];
    let [creds, ca] = [&creds, &certificate].map(|path| path.to_str().unwrap());

    let stranger = finish(lastword(dir.path()).args(serve).args(["--nats-ca", ca]), "");
    assert!(stranger.code == 3 && stranger.stderr.contains("authorization violation"), "{stranger:?}");
    let unverified = finish(lastword(dir.path()).args(serve).args(["--nats-creds", creds]), "");
    assert!(unverified.code == 3 && unverified.stderr.contains("certificate"), "{unverified:?}");
    let (other, forged) = (KeyPair::new_account(), dir.path().join("forged.creds"));
    credentials(&other, &forged);
    let access = ["--nats-creds", forged.to_str().unwrap(), "--nats-ca", ca];
    let refused = finish(lastword(dir.path()).args(serve).args(access), "");
    assert!(refused.code == 3 && refused.stderr.contains("authorization violation"), "{refused:?}");

    let access = ["--nats-creds", creds, "--nats-ca", ca];
    let mut node = lastword(dir.path());
    node.args(serve).args(access).env("PATH", PATH).stdout(Stdio::null()).stderr(Stdio::null());
    let mut node = node.spawn().unwrap();
    let token = dir.path().join(".lastword/main/operator.token");
    until("the node leads", || token.exists());
    let url = format!("http://{listen}");
    let args = ["--json", "--url", &url, "--token-file", token.to_str().unwrap(), "agent", "list"];
    let mut listed = None;
    until("the node answers", || {
        let ended = finish(lastword(dir.path()).args(args), "");
        listed = (ended.code == 0).then(|| ended.json());
        listed.is_some()
    });
    assert_eq!(listed.unwrap()["items"][0]["name"], "operator");
    let status = ["--json", "cluster", "--cluster", &nats.server.url().replace("nats://", "tls://")];
    let status = finish(lastword(dir.path()).args(status).args(access).arg("status"), "");
    assert_eq!(status.json()["nodes"][0]["alive"], true, "{status:?}");
    node.kill().unwrap();
    node.wait().unwrap();
}
