//! Signing in at the command line, by a provider's device authorization.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::program::{Server, finish, lastword, run};
use crate::provider::Provider;

fn configure(dir: &Path, issuer: &str) {
    let text = format!(
        "[oidc]\nissuer = \"{issuer}\"\nclient_id = \"console\"\ncli_client_id = \"cli\"\nvalid = \"2h\"\n\n\
         [[oidc.human]]\nemail = \"ann@example.com\"\nname = \"ann\"\nrole = \"owner\"\n"
    );
    fs::write(dir.join("lastword.toml"), text).unwrap();
}

/// A server whose humans sign in at this provider.
fn server(provider: &Provider) -> Server {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), &provider.issuer);
    Server::start_in(dir)
}

/// A command of a user elsewhere, who knows the address alone.
fn elsewhere(server: &Server, home: &TempDir) -> Command {
    let mut command = lastword(home.path());
    command.env("HOME", home.path()).args(["--json", "--url", server.first_line["listening"].as_str().unwrap()]);
    command
}

#[test]
fn a_human_signs_in_on_another_device_and_the_token_is_theirs_alone() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(Provider::start());
    let (server, home) = (server(&provider), tempfile::tempdir().unwrap());
    provider.now(|script| script.polls = vec!["authorization_pending", "authorization_pending"]);
    let ended = finish(elsewhere(&server, &home).arg("sign-in"), "");
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains("/activate") && ended.stderr.contains("WDJB-MJHT"), "{ended:?}");
    let signed_in = ended.json();
    assert_eq!((&signed_in["name"], &signed_in["role"]), (&json!("ann"), &json!("owner")));
    let file = signed_in["token_file"].as_str().unwrap();
    assert!(file.starts_with(home.path().to_str().unwrap()), "{file}");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(file).unwrap();
    assert!(!ended.stdout.contains(token.trim()) && !ended.stderr.contains(token.trim()), "{ended:?}");
    let me = finish(elsewhere(&server, &home).args(["--token-file", file, "agent", "show", "me"]), "").json();
    assert_eq!((&me["name"], &me["kind"]), (&json!("ann"), &json!("human")));
    // Only a human at a terminal is that human: neither a script nor an agent.
    let script = finish(elsewhere(&server, &home).args(["agent", "list"]), "");
    assert!(script.code == 1 && script.stderr.contains("only at a terminal"), "{script:?}");
    let agent = finish(elsewhere(&server, &home).env("CLAUDECODE", "1").args(["agent", "list"]), "");
    assert!(agent.code == 1 && agent.stderr.contains("an agent is running"), "{agent:?}");
    let narrow = ["token", "--scope", "read", "--expires", "1h"];
    let refused = finish(elsewhere(&server, &home).args(["--token-file", file]).args(narrow), "");
    assert!(refused.code == 1 && refused.stderr.contains("makes no other"), "{refused:?}");
    let narrowed = server.operator(&[&["--json"], &narrow[..]].concat()).json();
    assert_eq!((&narrowed["name"], &narrowed["scopes"]), (&json!("operator"), &json!(["read"])));
    let narrowed = narrowed["token"].as_str().unwrap();
    let with = |args: &[&str]| finish(elsewhere(&server, &home).env("LASTWORD_TOKEN", narrowed).args(args), "");
    assert_eq!(with(&["agent", "list"]).code, 0);
    let refused = with(&["pause", "--workspace"]);
    assert!(refused.code == 1 && refused.stderr.contains("was narrowed to read"), "{refused:?}");
    let kept = fs::read_to_string(file).unwrap();
    assert_eq!(finish(elsewhere(&server, &home).arg("sign-out"), "").code, 0);
    assert!(!Path::new(file).exists());
    let over = finish(elsewhere(&server, &home).env("LASTWORD_TOKEN", kept.trim()).args(["agent", "list"]), "");
    assert!(over.code == 1 && over.stderr.contains("token"), "{over:?}");
    let twice = finish(elsewhere(&server, &home).arg("sign-out"), "");
    assert!(twice.code == 1 && twice.stderr.contains("nobody is signed in"), "{twice:?}");
    let agent = finish(elsewhere(&server, &home).env("CLAUDECODE", "1").arg("sign-in"), "");
    assert!(agent.code == 1 && agent.stderr.contains("an agent is running"), "{agent:?}");
}

#[test]
fn a_sign_in_that_fails_says_why_and_leaves_no_token() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(Provider::start());
    let (server, home) = (server(&provider), tempfile::tempdir().unwrap());
    let fails = |code: i32, word: &str| {
        let ended = finish(elsewhere(&server, &home).arg("sign-in"), "");
        assert!(ended.code == code && ended.stderr.contains(word), "{word}: {ended:?}");
    };
    for (error, word) in [("access_denied", "was refused"), ("expired_token", "expired"), ("invalid_client", "refuses")]
    {
        provider.now(|script| script.polls = vec![error]);
        fails(1, word);
    }
    provider.now(|script| script.claims = json!({ "email": "eve@example.com" }));
    fails(1, "may not sign in");
    provider.now(|script| script.claims = json!({ "aud": "somebody" }));
    fails(1, "another client");
    provider.now(|script| script.down = true);
    fails(3, "500");
    assert!(!home.path().join(".config").exists(), "a token was written");
    let without = Server::start();
    let ended = finish(elsewhere(&without, &home).arg("sign-in"), "");
    assert!(ended.code == 1 && ended.stderr.contains("no provider"), "{ended:?}");
}

#[test]
fn a_wrong_table_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    configure(dir.path(), "http://id.example");
    let ended = run(dir.path(), &["serve"]);
    assert!(ended.code == 2 && ended.stderr.contains("issuer") && ended.stderr.contains("https://"), "{ended:?}");
    configure(dir.path(), "https://id.example");
    let text = fs::read_to_string(dir.path().join("lastword.toml")).unwrap();
    fs::write(dir.path().join("lastword.toml"), text.replace("email = ", "mail = ")).unwrap();
    let ended = run(dir.path(), &["serve"]);
    assert!(ended.code == 2 && ended.stderr.contains("mail"), "{ended:?}");
}
