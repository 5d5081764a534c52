//! Agent cards: what an agent of the workspace is to others, signed by the workspace's key.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lastword_broker::Live;
use lastword_broker::identity::hex;
use lastword_facts::Time;
use lastword_server::{ApiError, Context};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::Published;
use crate::causality::URI;

/// The version of the protocol, as `Major.Minor`.
pub(crate) const VERSION: &str = "1.0";
/// The path of the public key, below the edge's.
pub(crate) const KEYS: &str = "/.lastword/jwks.json";

/// Returns an agent's card at an address; `None` if no agent has the name. It is signed if the address is `named` as one of
/// this server's: a stranger may ask under any other, and the key states nothing about that. Only the extended one, which needs a
/// token, has the agent's groups.
pub(crate) async fn card(
    ctx: &Context,
    agent: &Published,
    base: &str,
    keys: &str,
    extended: bool,
    named: bool,
) -> Result<Option<Value>, ApiError> {
    let name = agent.name.clone();
    let look = move |live: &Live<'_>| {
        let known = live.state.agent(live.state.live(&name)?).filter(|known| !known.is_human())?;
        let texts = |labels: &[lastword_facts::names::Label]| labels.iter().map(ToString::to_string).collect();
        let (actions, groups): (Vec<String>, Vec<String>) =
            (texts(&known.profile.actions), known.profile.groups.iter().map(ToString::to_string).collect());
        Some((actions, groups))
    };
    let Some((actions, groups)) = ctx.handle.query(look).await? else { return Ok(None) };
    let groups = if extended { groups } else { Vec::new() };
    let mut card = unsigned(agent, base, &actions, &groups);
    if named {
        let signature = signature(ctx, keys, &card);
        card["signatures"] = json!([signature]);
    }
    Ok(Some(card))
}

fn unsigned(agent: &Published, base: &str, actions: &[String], groups: &[String]) -> Value {
    let described = match agent.description.as_str() {
        "" => format!("The agent {} of a Lastword workspace.", agent.name),
        text => text.to_owned(),
    };
    let skill = |action: &String| {
        let tags: Vec<&String> = [action].into_iter().chain(groups).collect();
        json!({ "id": action, "name": action, "description": format!("Serves the action {action}."), "tags": tags })
    };
    let mut skills: Vec<Value> = actions.iter().map(skill).collect();
    if skills.is_empty() {
        let tags: Vec<&str> = ["request"].into_iter().chain(groups.iter().map(String::as_str)).collect();
        skills.push(json!({ "id": "request", "name": "Request", "description": described, "tags": tags }));
    }
    let modes = ["text/plain", "application/json"];
    let interface = |binding: &str| json!({ "url": base, "protocolBinding": binding, "protocolVersion": VERSION });
    let extension = json!({
        "uri": URI,
        "description": "Names the messages that caused a request, so that a circle of workspaces ends.",
    });
    json!({
        "name": agent.name,
        "description": described,
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [interface("JSONRPC"), interface("HTTP+JSON")],
        "capabilities": {
            "streaming": true, "pushNotifications": true, "extendedAgentCard": true, "extensions": [extension],
        },
        "securitySchemes": { "token": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } },
        // The role, which says who is let in, is no empty list: SDKs leave empty members out of what is signed.
        "securityRequirements": [{ "schemes": { "token": { "list": ["agent"] } } }],
        "defaultInputModes": modes,
        "defaultOutputModes": modes,
        "skills": skills,
    })
}

/// Returns the signature of a card (RFC 7515) over its canonical form (RFC 8785). No member of a card is empty or has the
/// default of its type, so none is left out.
fn signature(ctx: &Context, keys: &str, card: &Value) -> Value {
    let header = json!({ "alg": "EdDSA", "typ": "JOSE", "kid": ctx.signer.public().name(), "jku": keys });
    let protected = URL_SAFE_NO_PAD.encode(canonical(&header));
    let signed = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(canonical(card)));
    json!({ "protected": protected, "signature": URL_SAFE_NO_PAD.encode(ctx.signer.sign_bytes(signed.as_bytes())) })
}

/// Returns the public key of the workspace as a set of keys (RFC 7517).
pub(crate) fn keys(ctx: &Context) -> Value {
    let key = ctx.signer.public();
    json!({ "keys": [{
        "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
        "kid": key.name(), "x": URL_SAFE_NO_PAD.encode(key.bytes()),
    }] })
}

/// Returns the tag of a card, by its content.
pub(crate) fn tag(card: &Value) -> String {
    format!("\"{}\"", hex(&Sha256::digest(canonical(card))[..16]))
}

/// When the cards last changed, as far as this process knows.
#[derive(Debug)]
pub(crate) struct Changes {
    /// When it began to serve cards.
    begin: Time,
    /// The content of the public and of the extended card of each agent, and since when it is this.
    seen: Mutex<BTreeMap<(String, bool), CardContent>>,
}

/// The content of a card, and since when a card has had it.
#[derive(Debug)]
struct CardContent {
    tag: String,
    since: Time,
}

impl Changes {
    /// Begins at a time. A card that was changed before has this time: what a client kept from an earlier process is older.
    pub(crate) const fn since(begin: Time) -> Self {
        Self { begin, seen: Mutex::new(BTreeMap::new()) }
    }

    /// Returns when a card last changed. Its addresses are those that the caller asked at, so they are no change.
    pub(crate) fn last(&self, card: &Value, extended: bool, now: Time) -> Time {
        let mut content = card.clone();
        if let Some(members) = content.as_object_mut() {
            members.retain(|name, _| name != "supportedInterfaces" && name != "signatures");
        }
        let (name, tag) = (card["name"].as_str().unwrap_or_default().to_owned(), tag(&content));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.entry((name, extended)).or_insert_with(|| CardContent { tag: tag.clone(), since: self.begin });
        if known.tag != tag {
            *known = CardContent { tag, since: now };
        }
        // The clock may have been set back: never a future time.
        known.since.min(now)
    }
}

/// Returns a time as HTTP writes it, in whole seconds (RFC 9110, 5.6.7).
pub(crate) fn http_date(time: Time) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(time.0))
}

/// Returns JSON in its canonical form. Cards have no numbers, and the names of their members are ASCII.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<_, _> = Map::iter(members).collect();
            let members =
                sorted.into_iter().map(|(name, value)| format!("{}:{}", Value::String(name.clone()), canonical(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_changes_with_its_content_and_not_with_the_address_it_is_asked_at() {
        let changes = Changes::since(Time(5_000));
        let card = |skill: &str, url: &str| json!({ "name": "coder", "skills": [skill], "supportedInterfaces": [url] });
        assert_eq!(changes.last(&card("review", "http://a/"), false, Time(7_000)), Time(5_000));
        assert_eq!(changes.last(&card("review", "http://b/"), false, Time(8_000)), Time(5_000));
        assert_eq!(changes.last(&card("write", "http://b/"), false, Time(9_000)), Time(9_000));
        assert_eq!(changes.last(&card("write", "http://a/"), false, Time(9_500)), Time(9_000));
        assert_eq!(
            changes.last(&card("write", "http://a/"), true, Time(9_900)),
            Time(5_000),
            "the extended one is another"
        );
        assert_eq!(
            changes.last(&card("write", "http://a/"), false, Time(8_500)),
            Time(8_500),
            "the clock was set back"
        );
        assert_eq!(changes.seen.lock().unwrap().len(), 2, "a flood of addresses fills nothing");
        assert_eq!(http_date(Time(784_111_777_999)), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn the_canonical_form_is_sorted_and_without_space() {
        let value = json!({ "b": [true, "é\u{1}\n\""], "a": { "d": {}, "c": "" } });
        assert_eq!(canonical(&value), "{\"a\":{\"c\":\"\",\"d\":{}},\"b\":[true,\"é\\u0001\\n\\\"\"]}");
    }
}
