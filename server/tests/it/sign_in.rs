//! Signing in by a provider: what lets a human in, what doesn't, and how often may be tried.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lastword_facts::fact::Role;
use lastword_facts::names::AgentName;
use lastword_server::{BasePath, KnownAs, Oidc, Person};
use reqwest::header::{LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};

use crate::provider::{Provider, Signs};
use crate::world::{Answer, World, http_builder};

fn oidc(provider: &Provider) -> Oidc {
    let person = |email: &str, name: &str, role| Person {
        known_as: KnownAs::Email(email.into()),
        name: AgentName::new(name).unwrap(),
        role,
    };
    Oidc {
        issuer: provider.issuer.clone(),
        client_id: "console".into(),
        client_secret: None,
        cli_client_id: "cli".into(),
        console: None,
        valid_ms: 3_600_000,
        people: vec![
            person("ann@example.com", "ann", Role::Operator),
            person("bob@example.com", "bob", Role::Viewer),
            person("kilo@example.com", "kilo", Role::Viewer),
        ],
    }
}

async fn world(provider: &Provider) -> World {
    let oidc = oidc(provider);
    World::set(&["kilo"], |config| config.settings.oidc = Some(oidc)).await
}

/// A browser that follows no redirect, so that a test sees each step.
struct Browser<'a> {
    world: &'a World,
    http: Client,
}

/// A step of a sign-in.
struct Step {
    status: u16,
    location: String,
    cookies: Vec<String>,
    text: String,
}

impl Step {
    async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned();
        let location = headers.get(LOCATION).map(text).unwrap_or_default();
        let cookies = headers.get_all(SET_COOKIE).iter().map(text).collect();
        Self { status, location, cookies, text: response.text().await.unwrap() }
    }

    fn cookie(&self, name: &str) -> Option<&str> {
        let found = self.cookies.iter().find(|cookie| cookie.starts_with(name))?;
        found.split(';').next()
    }

    #[track_caller]
    fn refused(&self, status: u16, word: &str) {
        assert_eq!(self.status, status, "{}", self.text);
        assert!(self.text.contains(word), "{word:?} isn't in {}", self.text);
        assert_eq!(self.cookie("lastword_session"), None);
    }
}

impl<'a> Browser<'a> {
    fn of(world: &'a World) -> Self {
        Self { world, http: http_builder().redirect(Policy::none()).build().unwrap() }
    }

    async fn get(&self, url: &str, cookie: &str) -> Step {
        let request = self.http.get(url).header("cookie", cookie).header("accept", "text/html");
        Step::of(request.send().await.unwrap()).await
    }

    /// Goes to the provider; returns the cookie, and where the provider sends it back.
    async fn begin(&self, next: &str) -> (String, String) {
        let step = self.get(&self.world.url(&format!("/sign-in/provider?next={next}")), "").await;
        assert_eq!(step.status, 303, "{}", step.text);
        let cookie = step.cookie("lastword_oidc").unwrap().to_owned();
        let whole = &step.cookies[0];
        assert!(whole.contains("; HttpOnly; SameSite=Lax; ") && whole.contains("; Path=/sign-in;"), "{whole}");
        (cookie, self.get(&step.location, "").await.location)
    }

    async fn sign_in(&self) -> Step {
        let (cookie, back) = self.begin("/agents").await;
        self.get(&back, &cookie).await
    }
}

async fn present(world: &World, id_token: &str) -> Answer {
    let body = json!({ "id_token": id_token });
    Answer::of(world.http.post(world.url("/v1/sign-in")).json(&body).send().await.unwrap()).await
}

async fn ask(world: &World, token: &str, path: &str) -> Answer {
    Answer::of(world.http.request(Method::GET, world.url(path)).bearer_auth(token).send().await.unwrap()).await
}

#[tokio::test]
async fn a_listed_human_signs_in_with_the_browser_and_is_registered_with_the_role() {
    let provider = Provider::start().await;
    let world = world(&provider).await;
    let browser = Browser::of(&world);
    let page = browser.get(&world.url("/sign-in?next=/agents"), "").await;
    assert!(page.text.contains("/sign-in/provider?next=%2Fagents"), "{}", page.text);
    for signs in [Signs::Es256, Signs::Rs256] {
        provider.now(|script| (script.signs, script.key_id) = (signs, format!("{signs:?}")));
        let world = self::world(&provider).await;
        let browser = Browser::of(&world);
        let signed_in = browser.sign_in().await;
        assert_eq!(signed_in.status, 200, "{}", signed_in.text);
        // A redirect would come without the session's cookie, because the provider's site began the request.
        assert!(signed_in.text.contains("0;url=/agents"), "{}", signed_in.text);
        let session = signed_in.cookie("lastword_session").unwrap();
        let whole = signed_in.cookies.iter().find(|cookie| cookie.starts_with("lastword_session")).unwrap();
        assert!(whole.contains("; HttpOnly; SameSite=Lax; Max-Age=3600"), "{whole}");
        assert_eq!(browser.get(&world.url("/agents"), session).await.status, 200);
        let humans = world.get("operator", "/v1/humans").await.is(200);
        let ann = humans["items"].as_array().unwrap().iter().find(|human| human["name"] == "ann").unwrap().clone();
        assert_eq!(ann["role"], "operator");
        // The role of the configuration is for the first time; after that it is the owner's to change.
        let amended = world.request("operator", Method::PATCH, "/v1/humans/ann").json(&json!({ "role": "viewer" }));
        assert_eq!(amended.send().await.unwrap().status(), 200);
        assert_eq!(browser.sign_in().await.status, 200);
        let humans = world.get("operator", "/v1/humans").await.is(200);
        assert!(humans.to_string().contains("viewer"), "{humans}");
        // The human's own token ends every session that hangs on it.
        world.post("operator", "/v1/agents/ann/token", json!({})).await.is(201);
        assert_eq!(browser.get(&world.url("/agents"), session).await.status, 303);
    }
}

#[tokio::test]
async fn under_a_path_the_provider_leads_back_below_it() {
    let provider = Provider::start().await;
    let oidc = oidc(&provider);
    let lw = BasePath::try_from("/lw".to_owned()).unwrap();
    let world = World::set(&[], |config| (config.settings.oidc, config.settings.path) = (Some(oidc), lw)).await;
    let browser = Browser::of(&world);
    let page = browser.get(&world.url("/lw/sign-in?next=/agents"), "").await;
    assert!(page.text.contains("href=\"/lw/sign-in/provider?next=%2Fagents\""), "{}", page.text);
    let begun = browser.get(&world.url("/lw/sign-in/provider?next=/agents"), "").await;
    assert!(begun.cookies[0].contains("; Path=/lw/sign-in;"), "{}", begun.cookies[0]);
    let back = browser.get(&begun.location, "").await.location;
    assert!(back.starts_with(&world.url("/lw/sign-in/callback?")), "{back}");
    let signed_in = browser.get(&back, begun.cookie("lastword_oidc").unwrap()).await;
    assert!(signed_in.text.contains("0;url=/lw/agents\""), "{}", signed_in.text);
    browser.get(&back, begun.cookie("lastword_oidc").unwrap()).await.refused(401, "begin again at /lw/sign-in");
}

#[tokio::test]
async fn a_sign_in_is_for_one_browser_and_for_once() {
    let provider = Provider::start().await;
    let world = world(&provider).await;
    let browser = Browser::of(&world);
    let (cookie, back) = browser.begin("/").await;
    browser.get(&back, "").await.refused(401, "another browser");
    let (other, _) = browser.begin("/").await;
    browser.get(&back, &other).await.refused(401, "another browser");
    let forged = back.replace("state=", "state=0");
    browser.get(&forged, &cookie).await.refused(401, "another browser");
    assert_eq!(browser.get(&back, &cookie).await.status, 200);
    browser.get(&back, &cookie).await.refused(401, "used already");
    // A code that was used, with a state of its own.
    let code = back.split("code=").nth(1).unwrap().split('&').next().unwrap();
    let (cookie, back) = browser.begin("/").await;
    let fresh = back.split("code=").nth(1).unwrap().split('&').next().unwrap();
    browser.get(&back.replace(fresh, code), &cookie).await.refused(401, "refuses the code");
    let (cookie, back) = browser.begin("/").await;
    let denied = back.replace("code=", "error=access_denied&x=");
    browser.get(&denied, &cookie).await.refused(401, "access_denied");
    // Elsewhere is nowhere.
    for next in ["//evil.example", "https://evil.example", "/%5Cevil.example"] {
        let (cookie, back) = browser.begin(next).await;
        let page = browser.get(&back, &cookie).await;
        assert!(page.status == 200 && page.text.contains("0;url=/\""), "{}", page.text);
    }
}

/// Claims, or a way to sign, that let nobody in; the status, and a word of the reason.
fn bad() -> Vec<(Value, Signs, u16, &'static str)> {
    let es = Signs::Es256;
    vec![
        (json!({ "aud": "somebody" }), es, 401, "another client"),
        (json!({ "aud": ["console", "cli", "somebody"] }), es, 401, "another client"),
        (json!({ "azp": "somebody" }), es, 401, "another client"),
        (json!({ "aud": null }), es, 401, "`aud`"),
        (json!({ "iss": "https://evil.example" }), es, 401, "issuer"),
        (json!({ "expired_for": 120 }), es, 401, "expired"),
        (json!({ "exp": null }), es, 401, "`exp`"),
        (json!({ "nbf": 4_000_000_000_u64 }), es, 401, "yet"),
        (json!({ "sub": null }), es, 401, "not valid"),
        (json!({ "sub": "" }), es, 401, "no subject"),
        (json!({}), Signs::Nothing, 401, "RS256 or ES256"),
        (json!({}), Signs::Hs256, 401, "RS256 or ES256"),
        (json!({}), Signs::Stranger, 401, "signature"),
        (json!({ "email": "eve@example.com" }), es, 403, "may not sign in"),
        (json!({ "email": null }), es, 403, "may not sign in"),
        (json!({ "email_verified": false }), es, 403, "verified"),
        (json!({ "email_verified": null }), es, 403, "verified"),
        (json!({ "email_verified": "false" }), es, 403, "verified"),
        (json!({ "email": "kilo@example.com" }), es, 403, "is an agent"),
    ]
}

#[tokio::test]
async fn a_bad_id_token_lets_nobody_in_by_either_flow() {
    let provider = Provider::start().await;
    let world = world(&provider).await;
    let browser = Browser::of(&world);
    let before = world.get("operator", "/v1/humans").await.is(200);
    for (claims, signs, status, word) in bad().into_iter().take(14) {
        provider.now(|script| (script.claims, script.signs) = (claims.clone(), signs));
        browser.sign_in().await.refused(status, word);
    }
    // Each flow has its own world, as an address may fail thirty times a minute.
    let other = self::world(&provider).await;
    for (claims, signs, status, word) in bad() {
        provider.now(|script| (script.claims, script.signs) = (claims.clone(), signs));
        let refused = present(&other, &provider.id_token("cli")).await;
        assert_eq!(refused.status, status, "{claims} {}", refused.body);
        assert!(refused.body["detail"].as_str().unwrap().contains(word), "{word}: {}", refused.body);
    }
    provider.now(|script| (script.claims, script.signs) = (json!({ "nonce": "0" }), Signs::Es256));
    browser.sign_in().await.refused(401, "nonce");
    provider.now(|script| script.claims = json!({ "nonce": null }));
    browser.sign_in().await.refused(401, "nonce");
    // The two clients are not each other.
    provider.now(|script| script.claims = json!({}));
    present(&other, &provider.id_token("console")).await.refused(401, "unauthenticated");
    assert_eq!(world.get("operator", "/v1/humans").await.is(200), before, "nobody was registered");
    present(&other, &provider.id_token("cli")).await.is(201);
}

#[tokio::test]
async fn an_id_token_signs_in_once_and_its_token_expires() {
    let machine = crate::machine::Machine::new();
    let provider = Provider::start().await;
    let oidc = oidc(&provider);
    let again = oidc.clone();
    let world = machine.world_with(&[], |config| config.settings.oidc = Some(oidc)).await;
    let shown = Answer::of(world.http.get(world.url("/v1/sign-in")).send().await.unwrap()).await.is(200);
    assert_eq!(shown, json!({ "issuer": provider.issuer, "client_id": "cli" }));
    let id_token = provider.id_token("cli");
    let signed_in = present(&world, &id_token).await.is(201);
    assert_eq!((&signed_in["name"], &signed_in["role"]), (&json!("ann"), &json!("operator")));
    let twice = present(&world, &id_token).await.refused(401, "unauthenticated");
    assert!(twice["detail"].as_str().unwrap().contains("used already"), "{twice}");
    let token = signed_in["token"].as_str().unwrap();
    assert_eq!(ask(&world, token, "/v1/agents/me").await.is(200)["name"], "ann");
    // It isn't a session, nor is a session it, and neither can be made to last.
    let (head, mac) = token.rsplit_once('.').unwrap();
    let (agent, until) = head.trim_start_matches("lws_").split_once('.').unwrap();
    for forged in [
        format!("lws_{agent}.{}.{mac}", until.parse::<u64>().unwrap() + 1),
        format!("lws_0.{until}.{mac}"),
        format!("{token}.0"),
        head.to_owned(),
        "lws_".to_owned(),
    ] {
        ask(&world, &forged, "/v1/agents/me").await.refused(401, "unauthenticated");
    }
    let browser = Browser::of(&world);
    let port = world.server.addr().port();
    let as_session = format!("lastword_session_{port}={}", token.trim_start_matches("lws_"));
    assert_eq!(browser.get(&world.url("/agents"), &as_session).await.status, 303);
    // A sign-out is for good, and so is the use of an ID token.
    let end = world.http.delete(world.url("/v1/token")).bearer_auth(token);
    Answer::of(end.send().await.unwrap()).await.is(204);
    let world = machine.restart_with(world, |config| config.settings.oidc = Some(again)).await;
    ask(&world, token, "/v1/agents/me").await.refused(401, "unauthenticated");
    present(&world, &id_token).await.refused(401, "unauthenticated");
    machine.run(1);
    let signed_in = present(&world, &provider.id_token("cli")).await.is(201);
    let token = signed_in["token"].as_str().unwrap();
    // A second machine's sign-in ends nothing of the first.
    present(&world, &provider.id_token("cli")).await.is(201);
    ask(&world, token, "/v1/agents/me").await.is(200);
    machine.run(3_600_001);
    let expired = ask(&world, token, "/v1/agents/me").await.refused(401, "unauthenticated");
    assert!(expired["detail"].as_str().unwrap().contains("lastword sign-in"), "{expired}");
}

#[tokio::test]
async fn an_account_that_gets_anothers_address_does_not_get_in() {
    let provider = Provider::start().await;
    let world = world(&provider).await;
    present(&world, &provider.id_token("cli")).await.is(201);
    provider.now(|script| script.claims = json!({ "sub": "somebody-2" }));
    let refused = present(&world, &provider.id_token("cli")).await.refused(403, "forbidden");
    assert!(refused["detail"].as_str().unwrap().contains("another account"), "{refused}");
}

#[tokio::test]
async fn keys_are_fetched_once_and_again_for_a_key_that_is_not_known() {
    let machine = crate::machine::Machine::new();
    let provider = Provider::start().await;
    let oidc = oidc(&provider);
    let world = machine.world_with(&[], |config| config.settings.oidc = Some(oidc)).await;
    for _ in 0..3 {
        present(&world, &provider.id_token("cli")).await.is(201);
    }
    assert_eq!(provider.script.lock().unwrap().key_fetches, 1);
    // Anybody can name a key that doesn't exist: it is looked for once in ten seconds.
    provider.now(|script| script.key_id = "second".into());
    present(&world, &provider.id_token("cli")).await.refused(401, "unauthenticated");
    assert_eq!(provider.script.lock().unwrap().key_fetches, 1);
    machine.run(10_001);
    present(&world, &provider.id_token("cli")).await.is(201);
    assert_eq!(provider.script.lock().unwrap().key_fetches, 2);
}

#[tokio::test]
async fn a_provider_that_is_down_lets_nobody_in_and_keeps_no_token_out() {
    let provider = Provider::start().await;
    let world = world(&provider).await;
    provider.now(|script| script.down = true);
    let refused = present(&world, &provider.id_token("cli")).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    let page = Browser::of(&world).get(&world.url("/sign-in/provider"), "").await;
    page.refused(503, "500 Internal Server Error");
    ask(&world, world.token("operator"), "/v1/agents").await.is(200);
    provider.now(|script| script.down = false);
    present(&world, &provider.id_token("cli")).await.is(201);
    // Without a provider, a token is the only way.
    let world = World::with(&[]).await;
    Answer::of(world.http.get(world.url("/v1/sign-in")).send().await.unwrap()).await.refused(404, "unknown_request");
}

#[tokio::test]
async fn an_address_that_fails_too_often_waits_and_its_valid_tokens_do_not() {
    let machine = crate::machine::Machine::new();
    let provider = Provider::start().await;
    let oidc = oidc(&provider);
    let world = machine.world_with(&["kilo"], |config| config.settings.oidc = Some(oidc)).await;
    for n in 0..30 {
        let wrong = format!("lw_{n}");
        // Either way counts.
        if n % 2 == 0 {
            ask(&world, &wrong, "/v1/agents").await.refused(401, "unauthenticated");
        } else {
            let sent = world.http.post(world.url("/sign-in")).body(format!("token={wrong}"));
            assert_eq!(sent.send().await.unwrap().status(), 401);
        }
    }
    let over = ask(&world, "lw_0", "/v1/agents").await;
    let wait: u64 = over.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(wait, 2);
    over.refused(429, "auth_rate");
    present(&world, &provider.id_token("cli")).await.refused(429, "auth_rate");
    let mcp = world.http.post(world.url("/mcp")).bearer_auth("lw_0").json(&json!({}));
    assert_eq!(mcp.send().await.unwrap().status(), 429);
    for who in ["operator", "kilo"] {
        ask(&world, world.token(who), "/v1/agents/me").await.is(200);
    }
    let form = format!("token={}", world.token("operator"));
    let signed_in = http_builder().redirect(Policy::none()).build().unwrap().post(world.url("/sign-in")).body(form);
    assert_eq!(signed_in.send().await.unwrap().status(), 303);
    machine.run(2_000);
    present(&world, &provider.id_token("cli")).await.is(201);
    // A success isn't counted.
    ask(&world, "lw_0", "/v1/agents").await.refused(401, "unauthenticated");
    ask(&world, "lw_0", "/v1/agents").await.refused(429, "auth_rate");
}

/// The order of the curve P-256.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7,
    0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// Returns the token with the other valid signature of the same claims, (r, n - s).
fn with_the_other_signature(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let mut borrow = 0_i32;
    for at in (0..32).rev() {
        let left = i32::from(ORDER[at]) - i32::from(signature[32 + at]) - borrow;
        borrow = i32::from(left < 0);
        signature[32 + at] = u8::try_from(left.rem_euclid(256)).unwrap();
    }
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn an_id_token_signs_in_once_whichever_of_its_valid_signatures_it_has() {
    let provider = Provider::start().await;
    for first_is_the_other in [false, true] {
        let world = world(&provider).await;
        let token = provider.id_token("cli");
        let other = with_the_other_signature(&token);
        assert_ne!(token, other);
        let (first, second) = if first_is_the_other { (other, token) } else { (token, other) };
        // Both are valid: a provider may use either.
        present(&world, &first).await.is(201);
        let again = present(&world, &second).await.refused(401, "unauthenticated");
        assert!(again["detail"].as_str().unwrap().contains("used already"), "{again}");
    }
}

#[tokio::test]
async fn an_id_token_that_needs_an_unknown_extension_lets_nobody_in() {
    let provider = Provider::start().await;
    let world = world(&provider).await;
    for crit in [json!(["b64"]), json!(["exp"]), json!([])] {
        provider.now(|script| script.crit = Some(crit.clone()));
        let refused = present(&world, &provider.id_token("cli")).await.refused(401, "unauthenticated");
        assert!(refused["detail"].as_str().unwrap().contains("crit"), "{crit}: {refused}");
    }
    provider.now(|script| script.crit = None);
    present(&world, &provider.id_token("cli")).await.is(201);
}
