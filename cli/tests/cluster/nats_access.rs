//! A NATS server that wants TLS, and credentials, a password, a token or a certificate.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use data_encoding::BASE64URL_NOPAD;
use lastword_store::RegistryError;
use nkeys::KeyPair;
use rcgen::CertifiedKey;
use serde_json::{Value, json};

use crate::nats_server::{One, free_port, program, runtime, until};
use crate::program::{PATH, finish, lastword};
use crate::world::World;

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
pub(crate) fn certificate(dir: &Path) -> [PathBuf; 2] {
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
    let serve = serving(&url, &listen);
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

    assert_serves(dir.path(), &serve, &url, &["--nats-creds", creds, "--nats-ca", ca]);
}

/// Runs a node that leads and answers, and asks for its cluster's status; returns what the node logged.
fn assert_serves(dir: &Path, serve: &[&str], servers: &str, access: &[&str]) -> String {
    let log = dir.join("node.err");
    let mut node = lastword(dir);
    node.args(serve).args(access).env("PATH", PATH).env("LASTWORD_LOG", "trace,hyper=off");
    let mut node = node.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let token = dir.join(".lastword/main/operator.token");
    until("the node leads", || {
        assert!(node.try_wait().unwrap().is_none(), "{}", std::fs::read_to_string(&log).unwrap());
        token.exists()
    });
    let listen = serve[serve.iter().position(|arg| *arg == "--listen").unwrap() + 1];
    let url = format!("http://{listen}");
    let args = ["--json", "--url", &url, "--token-file", token.to_str().unwrap(), "agent", "list"];
    let mut listed = None;
    until("the node answers", || {
        let ended = finish(lastword(dir).args(args), "");
        listed = (ended.code == 0).then(|| ended.json());
        listed.is_some()
    });
    assert_eq!(listed.unwrap()["items"][0]["name"], "operator");
    let status = ["--json", "cluster", "--cluster", servers];
    let status = finish(lastword(dir).args(status).args(access).arg("status"), "");
    assert_eq!(status.json()["nodes"][0]["alive"], true, "{status:?}");
    let doctor = finish(lastword(dir).args(["doctor", "--cluster", servers]).args(access), "");
    assert!(doctor.stdout.contains("a  alive"), "{doctor:?}");
    node.kill().unwrap();
    node.wait().unwrap();
    std::fs::read_to_string(&log).unwrap() + &doctor.stdout
}

/// Returns the arguments of a node on one server.
fn serving<'a>(servers: &'a str, listen: &'a str) -> [&'a str; 10] {
    ["serve", "--cluster", servers, "--listen", listen, "--node", "a", "--replicas", "1", "--not-durable"]
}

#[test]
fn a_node_proves_itself_to_nats_by_the_password_of_each_address() {
    let Some(program) = program("passwords for NATS") else { return };
    let dir = tempfile::tempdir().unwrap();
    let users = "authorization { users: [\n\
                 { user: \"no@de\", password: \"p@ss/w%rd\" }, { user: other, password: another }\n] }\n";
    let nats = One::start_with(&program, users);
    let at = |login: &str, host: &str| format!("nats://{login}@{host}:{}", nats.server.port);
    let listen = format!("127.0.0.1:{}", free_port());
    let (right, wrong) = ("no%40de:p%40ss%2Fw%25rd", "no%40de:wrongly");
    for login in [wrong, "other:p%40ss%2Fw%25rd", "justatoken"] {
        let refused = finish(lastword(dir.path()).args(serving(&at(login, "127.0.0.1"), &listen)), "");
        assert!(refused.code == 3 && refused.stderr.contains("authorization violation"), "{refused:?}");
        assert!(!refused.stderr.contains("wrongly") && !refused.stderr.contains("justatoken"), "{refused:?}");
    }
    // One that refuses and one that isn't there say nothing of the one that accepts, under a login of its own.
    let nowhere = format!("nats://elsewhere:unused@127.0.0.1:{}", free_port());
    let servers = [at(wrong, "localhost"), nowhere, at(right, "127.0.0.1")].join(",");
    for servers in [at(right, "127.0.0.1"), at("other:another", "127.0.0.1"), servers] {
        let home = tempfile::tempdir().unwrap();
        let said = assert_serves(home.path(), &serving(&servers, &listen), &servers, &[]);
        for secret in ["p@ss/w%rd", "p%40ss", "another", "wrongly", "unused"] {
            assert!(!said.contains(secret), "{secret} is in the log");
        }
    }
}

#[test]
fn the_example_of_a_nats_server_lets_in_no_client_and_no_server_without_a_password() {
    let Some(program) = program("the example of a NATS server") else { return };
    let dir = tempfile::tempdir().unwrap();
    let [port, route, monitor] = [(); 3].map(|()| free_port());
    let mut example = include_str!("../../../examples/cluster/nats.conf").to_owned();
    for (shown, here) in [("port: 4222", port), ("port: 6222", route), ("http_port: 8222", monitor)] {
        assert_eq!(example.matches(shown).count(), 1, "{shown}");
        example = example.replace(shown, &format!("{}: {here}", shown.split(':').next().unwrap()));
    }
    let config = dir.path().join("nats.conf");
    std::fs::write(&config, example.replace("/data", dir.path().to_str().unwrap())).unwrap();
    let mut server = std::process::Command::new(program);
    server.arg("-c").arg(&config).env("NAME", "n1").env("HOST", "127.0.0.1").stderr(Stdio::null());
    for (name, value) in [("NODE_PASSWORD", "node-password"), ("ROUTE_PASSWORD", "route-password")] {
        server.env(name, value);
    }
    for name in ["ROUTE1", "ROUTE2", "ROUTE3"] {
        server.env(name, "nats://route:route-password@127.0.0.1:9");
    }
    let mut server = server.spawn().unwrap();
    until("the server accepts connections", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let connect = |login: &str| {
        let options = lastword_store::NatsOptions::new([format!("nats://{login}127.0.0.1:{port}")]);
        crate::nats_server::runtime().block_on(lastword_store::Nats::connect(options))
    };
    for login in ["", "node:route-password@", "route:route-password@"] {
        assert!(connect(login).unwrap_err().to_string().contains("authorization violation"), "{login}");
    }
    drop(connect("node:node-password@").unwrap());
    for login in ["", r#""user":"node","pass":"node-password","#] {
        let mut stranger = std::net::TcpStream::connect(("127.0.0.1", route)).unwrap();
        let connect =
            format!("CONNECT {{{login}\"name\":\"x\",\"server_id\":\"x\",\"cluster\":\"lastword\"}}\r\nPING\r\n");
        stranger.write_all(connect.as_bytes()).unwrap();
        let mut answered = String::new();
        let _closed = stranger.read_to_string(&mut answered);
        assert!(answered.contains("Authorization Violation"), "{answered}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_node_proves_itself_to_nats_by_the_token_of_an_address() {
    let Some(program) = program("tokens for NATS") else { return };
    let dir = tempfile::tempdir().unwrap();
    let nats = One::start_with(&program, "authorization { token: \"t0k/n+?\" }\n");
    let at = |login: &str| format!("nats://{login}127.0.0.1:{}", nats.server.port);
    let listen = format!("127.0.0.1:{}", free_port());
    for login in ["", "t0k%2Fn@"] {
        let refused = finish(lastword(dir.path()).args(serving(&at(login), &listen)), "");
        assert!(refused.code == 3 && refused.stderr.contains("authorization violation"), "{refused:?}");
    }
    let servers = at("t0k%2Fn%2B%3F@");
    let said = assert_serves(dir.path(), &serving(&servers, &listen), &servers, &[]);
    assert!(!said.contains("t0k/n+?") && !said.contains("t0k%2Fn"), "the token is in the log");
}

/// Writes an authority, and a certificate of it for a client with its key; returns their paths.
fn issued(dir: &Path) -> [PathBuf; 3] {
    let (own, key) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&own).unwrap().pem();
    let mut client = rcgen::CertificateParams::new(vec!["node-a".to_owned()]).unwrap();
    client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let client = client.signed_by(&key, &rcgen::Issuer::new(authority, own)).unwrap();
    let paths = ["clients.crt", "node.crt", "node.key"].map(|name| dir.join(name));
    for (path, text) in paths.iter().zip([pem, client.pem(), key.serialize_pem()]) {
        std::fs::write(path, text).unwrap();
    }
    paths
}

#[test]
fn a_node_proves_itself_to_nats_by_a_certificate() {
    let Some(program) = program("certificates for NATS") else { return };
    let dir = tempfile::tempdir().unwrap();
    let ([certificate, key], [authority, own, own_key]) = (certificate(dir.path()), issued(dir.path()));
    let tls =
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {authority:?}, verify: true }}\n");
    let nats = One::start_with(&program, &tls);
    let servers = nats.server.url().replace("nats://", "tls://");
    let listen = format!("127.0.0.1:{}", free_port());
    let [ca, own, own_key] = [&certificate, &own, &own_key].map(|path| path.to_str().unwrap());
    let stranger = finish(lastword(dir.path()).args(serving(&servers, &listen)).args(["--nats-ca", ca]), "");
    assert!(stranger.code == 3 && stranger.stderr.to_lowercase().contains("certificate"), "{stranger:?}");
    let half = finish(lastword(dir.path()).args(serving(&servers, &listen)).args(["--nats-cert", own]), "");
    assert_eq!(half.code, 2, "{half:?}");
    let missing = ["--nats-ca", ca, "--nats-cert", own, "--nats-key", "nowhere.key"];
    let missing = finish(lastword(dir.path()).args(serving(&servers, &listen)).args(missing), "");
    assert!(missing.code == 3 && missing.stderr.contains("nowhere.key"), "{missing:?}");
    let access = ["--nats-ca", ca, "--nats-cert", own, "--nats-key", own_key];
    assert_serves(dir.path(), &serving(&servers, &listen), &servers, &access);
}

#[test]
fn what_is_secret_in_nats_is_sealed_once_the_nodes_have_a_key() {
    let Some(mut world) = World::start("a key of the cluster's secrets") else { return };
    let agents = world.enrol();
    let key = world.dir.path().join("cluster.key");
    write_private(&key, b"6f1d2c3b4a5968778695a4b3c2d1e0ff\n");
    let open = |name: &str| runtime().block_on(world.registry.get(name));
    let files = ["file.main.secret.key", "file.main.operator.token", "secret"];
    assert!(files.iter().all(|name| open(name).unwrap().is_some()), "they lie open");
    world.nodes.iter_mut().for_each(|node| assert_eq!(node.terminate(), 0));
    for node in &mut world.nodes {
        node.with(&["--cluster-key", key.to_str().unwrap()]);
        node.start();
    }
    world.settled("main");
    let open = |name: &str| runtime().block_on(world.registry.get(name));
    until("each is sealed", || files.iter().all(|name| matches!(open(name), Err(RegistryError::Sealed { .. }))));
    let client = world.nodes[world.led("main")].client(&agents[0]);
    assert!(runtime().block_on(client.agents()).is_ok(), "its tokens are the same");
    let servers = world.servers();
    let with_key = world.run(&["cluster", "--cluster", &servers, "--cluster-key", key.to_str().unwrap(), "status"]);
    assert_eq!(with_key.code, 0, "{with_key:?}");
    // A node that has another key, or none, says so at once.
    assert_eq!(world.nodes[2].terminate(), 0);
    write_private(&key, b"another-key-of-more-than-32-characters");
    for expected in ["is sealed with another key", "name the file with the cluster's key by --cluster-key"] {
        world.nodes[2].start();
        assert_eq!(world.nodes[2].ends(), 3);
        assert!(world.nodes[2].said().contains(expected), "{}", world.nodes[2].said());
        world.nodes[2].without_last(2);
    }
}

fn write_private(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
