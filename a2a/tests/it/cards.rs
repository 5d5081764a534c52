//! Agent cards: what they name, how they are kept, and that their signature is the workspace's.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::world::World;

/// Returns JSON whose objects are written in the order of their members' names.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<String, Value> = members.into_iter().map(|(name, one)| (name, sorted(one))).collect();
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[tokio::test]
async fn a_card_names_its_address_is_kept_by_its_tag_and_signed_by_the_workspace() {
    let mut world = World::new().await;
    let action = json!({ "name": "absent", "actions": ["review"], "groups": ["core"] });
    world.register(action).await;
    let at = world.url("/a2a/coder/.well-known/agent-card.json");
    let response = world.http.get(&at).send().await.unwrap();
    let (tag, kept) = (response.headers()["etag"].clone(), response.headers()["cache-control"].clone());
    let changed = response.headers()["last-modified"].clone();
    assert_eq!((response.status().as_u16(), &kept), (200, &"public, max-age=300".parse().unwrap()));
    let card: Value = response.json().await.unwrap();
    let base = world.url("/a2a/coder/");
    let bindings: Vec<(&str, &str, &str)> = card["supportedInterfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| ["url", "protocolBinding", "protocolVersion"].map(|name| one[name].as_str().unwrap()).into())
        .collect();
    assert_eq!(bindings, [(base.as_str(), "JSONRPC", "1.0"), (base.as_str(), "HTTP+JSON", "1.0")]);
    let parsed: a2a::AgentCard = serde_json::from_value(card.clone()).unwrap();
    assert_eq!((parsed.name.as_str(), parsed.skills.len()), ("coder", 1));
    let same = world.http.get(&at).header("if-none-match", tag.clone()).send().await.unwrap();
    assert_eq!((same.status().as_u16(), &same.headers()["etag"]), (304, &tag));
    assert_eq!((&same.headers()["last-modified"], changed.as_bytes().last()), (&changed, Some(&b'T')));
    let keys: Value = world.http.get(world.url("/a2a/.lastword/jwks.json")).send().await.unwrap().json().await.unwrap();
    let decoded = |value: &Value| URL_SAFE_NO_PAD.decode(value.as_str().unwrap()).unwrap();
    let signature = &card["signatures"][0];
    let header: Value = serde_json::from_slice(&decoded(&signature["protected"])).unwrap();
    assert_eq!((&header["alg"], &header["kid"]), (&json!("EdDSA"), &keys["keys"][0]["kid"]));
    assert_eq!(header["jku"], world.url("/a2a/.lastword/jwks.json"));
    let mut unsigned = card.clone();
    unsigned.as_object_mut().unwrap().remove("signatures");
    let payload = URL_SAFE_NO_PAD.encode(sorted(unsigned).to_string());
    let signed = format!("{}.{payload}", signature["protected"].as_str().unwrap());
    let key = UnparsedPublicKey::new(&ED25519, decoded(&keys["keys"][0]["x"]));
    key.verify(signed.as_bytes(), &decoded(&signature["signature"])).unwrap();
    assert!(key.verify(signed.replace('a', "b").as_bytes(), &decoded(&signature["signature"])).is_err());
    // The extended card needs a token, and has the groups.
    let other = world.url("/a2a/absent/extendedAgentCard");
    assert_eq!(world.http.get(&other).header("a2a-version", "1.0").send().await.unwrap().status(), 401);
    let request = world.request("caller", Method::GET, "/a2a/absent/extendedAgentCard").header("a2a-version", "1.0");
    let extended: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(extended["skills"][0]["tags"], json!(["review", "core"]));
    let public = world.http.get(world.url("/a2a/absent/.well-known/agent-card.json")).send().await.unwrap();
    let public: Value = public.json().await.unwrap();
    assert_eq!(public["skills"][0]["tags"], json!(["review"]));
}

#[tokio::test]
async fn nothing_is_published_unless_it_is_named() {
    let world =
        World::with(|config| config.mounts = vec![lastword_a2a::mount(lastword_a2a::A2aSettings::default())]).await;
    for path in ["/a2a/coder/.well-known/agent-card.json", "/a2a/coder/tasks", "/a2a/.lastword/jwks.json"] {
        assert_eq!(world.request("caller", Method::GET, path).send().await.unwrap().status(), 404, "{path}");
    }
}

#[tokio::test]
async fn a_host_that_isnt_ours_gets_no_card() {
    let world = World::new().await;
    let at = world.url("/a2a/coder/.well-known/agent-card.json");
    let response = world.http.get(&at).header("host", "evil.example").send().await.unwrap();
    assert!(response.status().is_client_error(), "{}", response.status());
}

#[tokio::test]
async fn the_key_signs_no_address_that_a_stranger_names() {
    let world = World::new().await;
    let at = world.url("/a2a/coder/.well-known/agent-card.json");
    let response = world.http.get(&at).header("host", "203.0.113.9:666").send().await.unwrap();
    assert_eq!(response.headers()["vary"], "Host, X-Forwarded-Proto");
    let card: Value = response.json().await.unwrap();
    assert_eq!(
        (card["supportedInterfaces"][0]["url"].as_str().unwrap().contains("203.0.113.9"), card.get("signatures")),
        (true, None)
    );
}

#[tokio::test]
async fn a_proxy_says_that_it_speaks_tls_and_nothing_else_of_the_address() {
    let world = World::new().await;
    let at = world.url("/a2a/coder/.well-known/agent-card.json");
    for (name, value, base) in [
        ("x-forwarded-proto", "https", "https://localhost/a2a/coder/"),
        ("x-forwarded-proto", "ftp", "http://localhost/a2a/coder/"),
        ("x-forwarded-host", "evil.example", "http://localhost/a2a/coder/"),
        ("forwarded", "host=evil.example;proto=https", "http://localhost/a2a/coder/"),
    ] {
        let response = world.http.get(&at).header("host", "localhost").header(name, value).send().await.unwrap();
        let card: Value = response.json().await.unwrap();
        assert_eq!(card["supportedInterfaces"][0]["url"], base, "{name}: {value}");
    }
}
