//! TLS: given certificates and their renewal, a certificate of the server's own, pins, and callers that misuse the port.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lastword_client::{Endpoint, Pin, Trust};
use serde_json::json;
use tempfile::TempDir;

use crate::exhaustion::scarce;
use crate::program::{PATH, Server, finish, lastword, run};
use crate::running::{Running, ask, wait_for};

/// Bounds a test that fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Writes a certificate for this machine and its key.
fn certify(dir: &Path) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let pair = rcgen::generate_simple_self_signed(names).unwrap();
    fs::write(dir.join("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(dir.join("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(dir.join("cert.pem"), pair.cert.pem()).unwrap();
}

/// Starts a server with a certificate of its own.
fn auto() -> Server {
    Server::start_with(tempfile::tempdir().unwrap(), &["--listen", "127.0.0.1:0", "--tls", "auto"])
}

fn url(server: &Server) -> String {
    let url = server.first_line["listening"].as_str().unwrap();
    assert!(url.starts_with("https://"), "{url}");
    url.to_owned()
}

fn fingerprint(server: &Server) -> String {
    server.first_line["fingerprint"].as_str().unwrap().to_owned()
}

/// The fingerprints that clients on this machine accept.
fn pins(server: &Server) -> Vec<String> {
    let text = fs::read_to_string(server.path().join(".lastword/tls.pin")).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// A folder elsewhere, with the operator's token.
fn elsewhere(server: &Server) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(server.path().join(".lastword/operator.token"), dir.path().join("me.token")).unwrap();
    dir
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(url(server).trim_start_matches("https://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_certificate_is_renewed_under_an_open_connection_and_a_bad_one_is_not_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path());
    let log = dir.path().join("server.log");
    let mut command = lastword(dir.path());
    command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    command.stderr(File::create(&log).unwrap());
    let server = Server::start_by(dir, command);
    let first = fingerprint(&server);
    server.agent("kilo");
    // By the system's authorities, by a named one, and by none.
    let (away, url) = (elsewhere(&server), url(&server));
    let ca = server.path().join("cert.pem").display().to_string();
    let list = ["--url", url.as_str(), "--token-file", "me.token", "agent", "list"];
    run(away.path(), &[&["--tls-ca", ca.as_str()], &list[..]].concat()).ok();
    finish(lastword(away.path()).args(list).env("SSL_CERT_FILE", &ca), "").ok();
    finish(lastword(away.path()).args(list).env("LASTWORD_TLS_CA", &ca), "").ok();
    let other = tempfile::tempdir().unwrap();
    certify(other.path());
    let refused = finish(lastword(away.path()).args(list).env("SSL_CERT_FILE", other.path().join("cert.pem")), "");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("isn't issued by an authority") && refused.stderr.contains("--tls-pin"),
        "{refused:?}"
    );

    let mut waits = lastword(server.path());
    waits.args(["--token-file", "kilo.token", "--json", "inbox", "--wait", "60s"]);
    let waits = waits.spawn().unwrap();
    let connected = || server.operator(&["--json", "agent", "list"]).stdout.contains("\"connected\":true");
    wait_for("the agent", connected);
    certify(server.path());
    wait_for("the new certificate", || pins(&server)[0] != first);
    let second = pins(&server)[0].clone();
    assert_eq!(pins(&server)[1], first, "clients that connect during the change know either");
    let meets = |pin: &str| run(away.path(), &[&["--tls-pin", pin], &list[..]].concat());
    wait_for("the new certificate on connections", || meets(&second).code == 0);
    let refused = meets(&first);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains(&first) && refused.stderr.contains(&second), "{refused:?}");
    server.operator(&["ask", "kilo", "Are you there?", "--wait", "0s"]).ok();
    let taken = waits.wait_with_output().unwrap();
    assert!(taken.status.success(), "the connection from before the change was dropped");
    assert!(String::from_utf8(taken.stdout).unwrap().contains("Are you there?"));

    fs::write(server.path().join("cert.pem"), "half a certificate").unwrap();
    wait_for("an error in the log", || fs::read_to_string(&log).unwrap().contains("no certificate in PEM"));
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("cert.pem") && said.contains("keeps the one it has"), "{said}");
    meets(&second).ok();
}

#[test]
fn an_address_beyond_this_machine_is_not_served_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7171"] {
        let refused = run(dir.path(), &["serve", "--listen", address]);
        assert!(refused.code == 2 && refused.stderr.contains("has no TLS"), "{address}: {refused:?}");
        assert!(refused.stderr.contains("--tls auto"), "{refused:?}");
    }
    assert!(!dir.path().join(".lastword").exists(), "it is refused before anything is made");
}

#[test]
fn a_bad_certificate_at_the_start_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path());
    let start = |args: &[&str]| run(dir.path(), &[&["serve", "--listen", "127.0.0.1:0"], args].concat());
    let refused = start(&["--tls-cert", "cert.pem", "--tls-key", "cert.pem"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("cert.pem: it holds no private key"), "{refused:?}");
    let refused = start(&["--tls-cert", "none.pem", "--tls-key", "key.pem"]);
    assert!(refused.code == 2 && refused.stderr.contains("none.pem: No such file"), "{refused:?}");
    assert_eq!(start(&["--tls-cert", "cert.pem"]).code, 2);
    assert_eq!(start(&["--tls-cert", "cert.pem", "--tls-key", "key.pem", "--tls", "auto"]).code, 2);
    let refused = run(dir.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert!(refused.code == 2 && refused.stderr.contains("--tls auto"), "{refused:?}");
    fs::write(dir.path().join("lastword.toml"), "tls_cert = \"cert.pem\"\n").unwrap();
    let refused = start(&[]);
    assert!(refused.code == 2 && refused.stderr.contains("tls_key is missing"), "{refused:?}");
}

#[test]
fn a_server_makes_its_certificate_once_and_a_client_elsewhere_knows_it_by_the_fingerprint() {
    let server = auto();
    let pin = fingerprint(&server);
    let mode = fs::metadata(server.path().join(".lastword/tls.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A client on the same data directory finds the server, and its fingerprint.
    server.operator(&["agent", "list"]).ok();
    let port = url(&server).rsplit(':').next().unwrap().to_owned();
    server.operator(&["--url", &format!("https://localhost:{port}"), "agent", "list"]).ok();
    let (away, address) = (elsewhere(&server), url(&server));
    let list = ["--url", address.as_str(), "--token-file", "me.token", "agent", "list"];
    run(away.path(), &[&["--tls-pin", pin.as_str()], &list[..]].concat()).ok();
    finish(lastword(away.path()).args(list).env("LASTWORD_TLS_PIN", &pin), "").ok();
    fs::write(away.path().join("lastword.toml"), format!("url = {address:?}\ntls_pin = {pin:?}\n")).unwrap();
    run(away.path(), &["--token-file", "me.token", "agent", "list"]).ok();
    let wrong = format!("sha256:{}", "0".repeat(64));
    let refused = run(away.path(), &[&["--tls-pin", wrong.as_str()], &list[..]].concat());
    assert_eq!(refused.code, 1, "{refused:?}");
    for said in [wrong.as_str(), &pin, "--tls-pin"] {
        assert!(refused.stderr.contains(said), "{said}: {refused:?}");
    }
    let http = address.replace("https", "http");
    let refused = run(away.path(), &["--url", &http, "--token-file", "me.token", "--tls-pin", &pin, "agent", "list"]);
    assert!(refused.code == 2 && refused.stderr.contains("use https://"), "{refused:?}");
    let (code, dir) = server.terminate();
    assert_eq!(code, 0);
    let server = Server::start_with(dir, &["--listen", "0.0.0.0:0", "--tls", "auto"]);
    assert_eq!(fingerprint(&server), pin, "the same after a restart");
    server.operator(&["agent", "list"]).ok();
}

#[test]
fn children_and_configurations_get_the_pin_with_the_address() {
    let server = auto();
    let pin = server.path().join(".lastword/tls.pin").display().to_string();
    let program = env!("CARGO_BIN_EXE_lastword");
    let script = format!("echo \"$LASTWORD_URL $LASTWORD_TLS_PIN\"; cd / && '{program}' --json agent list");
    let runner = Running::start(&server, "kilo", &["--", "sh", "-c", &script]);
    let said = ask(&server, "kilo", "who?")["body"].as_str().unwrap().to_owned();
    assert!(said.starts_with(&format!("{} ", url(&server))) && said.contains(&pin), "{said}");
    assert!(said.contains("kilo"), "its own call reached the server: {said}");
    drop(runner);
    server.agent("lima");
    let done =
        finish(lastword(server.path()).args(["--token-file", "lima.token", "init", "--claude"]).env("PATH", PATH), "");
    assert_eq!(done.code, 0, "{done:?}");
    let written = fs::read_to_string(server.path().join(".mcp.json")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&written).unwrap();
    let call: Vec<&str> =
        written["mcpServers"]["lastword"]["args"].as_array().unwrap().iter().filter_map(|word| word.as_str()).collect();
    assert_eq!(call[..4], ["--url", url(&server).as_str(), "--tls-pin", pin.as_str()]);
    // What is configured works from any folder.
    let mut mcp = lastword(Path::new("/"));
    mcp.args(&call);
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "list_agents", "arguments": {} } });
    let mut child = mcp.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(format!("{hello}\n{initialized}\n{list}\n").as_bytes()).unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let answer = lines.by_ref().map(Result::unwrap).find(|line| line.contains("\"id\":1")).unwrap();
    assert!(answer.contains("lima") && !answer.contains("\"isError\":true"), "{answer}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_caller_without_tls_is_told_and_closed() {
    let server = auto();
    let mut stream = connect(&server);
    stream.write_all(b"GET /v1/agents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer lw_x\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("https://"), "{said}");
    let http = url(&server).replace("https", "http");
    let refused = server.operator(&["--url", &http, "agent", "list"]);
    assert!(refused.code == 1 && refused.stderr.contains("https://"), "{refused:?}");
    // And the other way round.
    let plain = Server::start();
    let https = plain.first_line["listening"].as_str().unwrap().replace("http", "https");
    let pin = fingerprint(&server);
    let refused = plain.operator(&["--url", &https, "--tls-pin", &pin, "agent", "list"]);
    assert!(refused.code == 3 && refused.stderr.contains("doesn't speak TLS"), "{refused:?}");
}

#[test]
fn tls_before_1_2_is_refused() {
    let server = auto();
    for minor in [1_u8, 2, 3] {
        // A hello of TLS 1.0, 1.1 and 1.2 with the suites of their time, and for 1.2 one that is served.
        let suites = [0xc0_u8, 0x14, 0xc0, 0x0a, 0x00, 0x2f, 0xc0, 0x2b];
        let curves = [0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3];
        let mut hello = vec![3, minor];
        hello.extend([7; 32]);
        hello.extend([0, 0, 8]);
        hello.extend(suites);
        hello.extend([1, 0, 0, 16]);
        hello.extend(curves);
        let size = |n: usize| u8::try_from(n).unwrap();
        let record = [&[0x16, 3, 1, 0, size(hello.len() + 4), 1, 0, 0, size(hello.len())], &hello[..]].concat();
        let mut stream = connect(&server);
        stream.write_all(&record).unwrap();
        let mut head = [0; 7];
        stream.read_exact(&mut head).unwrap();
        if minor == 3 {
            assert_eq!((head[0], head[5]), (0x16, 2), "a ServerHello: {head:?}");
        } else {
            assert_eq!((head[0], &head[5..]), (0x15, &[2, 70][..]), "the alert protocol_version: {head:?}");
        }
    }
}

#[test]
fn a_slow_handshake_is_cut_and_keeps_no_human_out() {
    let dir = tempfile::tempdir().unwrap();
    let program = lastword(dir.path());
    let mut command = Command::new("sh");
    command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // Few descriptors, as a small machine or a service manager sets them.
    let (descriptors, many) = scarce();
    command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"]).arg(program.get_program());
    command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--tls", "auto"]);
    let server = Server::start_by(dir, command);
    let mut held = Vec::new();
    for begun in [&b""[..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]] {
        for _ in 0..many.max(128) {
            let mut stream = connect(&server);
            // A connection that the server has closed already is what this test is about.
            let _closed = stream.write_all(begun);
            held.push(stream);
        }
        server.operator(&["stop", "--workspace"]).ok();
    }
    drop(held);
    let mut slow = connect(&server);
    slow.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let cut_after = (0..40).find(|_| match slow.read(&mut [0; 16]) {
        Ok(0) => true,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            // The next byte, which renews nothing.
            slow.write_all(&[1]).is_err()
        }
        Err(_) => true,
        Ok(_) => false,
    });
    let cut_after = cut_after.expect("a byte a second keeps the connection");
    assert!((10..=20).contains(&cut_after), "{cut_after} s");
}

#[tokio::test]
async fn the_console_over_tls_binds_its_cookie_and_knows_its_origin() {
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path());
    let given =
        ["--listen", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--host", "broker.example"];
    for server in [auto(), Server::start_with(dir, &given)] {
        let trust = Trust::Pinned(Pin::parse(&fingerprint(&server)).unwrap());
        let (url, host) = (url(&server), "broker.example:7171");
        let auto = server.path().join(".lastword/tls.pem").exists();
        let http = Endpoint::new(&url).trusting(trust).http().unwrap();
        let token = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
        let sign_in = |origin: Option<&str>| {
            let mut post = http.post(format!("{url}/sign-in"));
            if let Some(origin) = origin {
                post = post.header("origin", origin);
            }
            let form = post.header("content-type", "application/x-www-form-urlencoded");
            form.body(format!("token={}", token.trim())).send()
        };
        let signed = sign_in(Some(&url)).await.unwrap();
        let cookie = |response: &reqwest::Response| {
            response.headers().get("set-cookie").map(|cookie| cookie.to_str().unwrap().to_owned())
        };
        assert_eq!(signed.status().as_u16(), 303, "{signed:?}");
        let set = cookie(&signed).unwrap();
        assert!(set.contains("; Secure") && set.contains("HttpOnly"), "{set}");
        // No page of a program says where it is from; the cookie is bound to TLS all the same.
        let set = cookie(&sign_in(None).await.unwrap()).unwrap();
        assert!(set.contains("; Secure"), "{set}");
        let plain = sign_in(Some(&url.replace("https", "http"))).await.unwrap();
        assert_eq!((plain.status().as_u16(), cookie(&plain)), (403, None), "a page without TLS is another site");
        let strict = signed.headers().get("strict-transport-security");
        assert_eq!(strict, None, "an address is not a name");
        if !auto {
            let page = http.get(format!("{url}/sign-in")).header("host", host).send().await.unwrap();
            let strict = page.headers().get("strict-transport-security").map(|value| value.to_str().unwrap());
            assert_eq!(strict, Some("max-age=31536000"));
        }
    }
}

#[test]
fn a_path_behind_a_proxy_is_in_what_serve_prints_and_clients_need_it_only_beyond_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    for (path, why) in [("lw", "isn't a path such as /lw"), ("/v1", "is a path of the server itself")] {
        let refused = run(dir.path(), &["serve", "--path", path]);
        assert!(refused.code == 2 && refused.stderr.contains(why), "{refused:?}");
    }
    fs::write(dir.path().join("lastword.toml"), "path = \"/file\"\n").unwrap();
    // The command line's path replaces the file's.
    let server = Server::start_with(dir, &["--listen", "127.0.0.1:0", "--path", "/lw/"]);
    let url = server.first_line["listening"].as_str().unwrap();
    let local = url.strip_suffix("/lw").unwrap();
    let note = fs::read_to_string(server.path().join(".lastword/server.json")).unwrap();
    assert!(note.contains(&format!("{local}\"")), "{note}");
    server.agent("kilo");
    let away = elsewhere(&server);
    for at in [url, local] {
        let list = run(away.path(), &["--url", at, "--token-file", "me.token", "agent", "list"]).ok();
        assert!(list.contains("kilo"), "{list}");
        let console = run(away.path(), &["--url", at, "--token-file", "me.token", "console", "--print"]).ok();
        assert!(console.contains(&format!("{at}/sign-in#")), "{console}");
    }
}
