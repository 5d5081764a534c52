//! Loops over the border: the causality that leaves with a message of ours, and how it is recognized when it comes back.
//!
//! The standard has no hop counter. What we send out carries an extension whose tokens name the message that caused it,
//! under a MAC, and a trace whose id does the same. A request that brings one back was caused by a message of this
//! workspace, which D10 refuses. Tokens of other workspaces are kept and passed on, so that each recognizes its own.

use lastword_broker::Live;
use lastword_broker::identity::{TurnSigner, hex, unhex};
use lastword_facts::fact::Part;
use lastword_facts::ids::{GrantId, TurnId};
use lastword_facts::{Fact, Seq, Time, TraceContext};
use lastword_server::calls::Caller;
use lastword_server::trace::{self, SpanKind};
use lastword_server::{ApiError, Context};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::Metadata;
use crate::tasks::KEPT;

/// The URI of the extension.
pub(crate) const URI: &str = "urn:lastword:a2a:causality:v1";
/// The most tokens that a message carries. Past that the oldest stay, which close the circle, and the newest is ours.
const TOKENS_MAX: usize = 8;
const TOKEN_BYTES_MAX: usize = 128;
/// How long a token is recognized: no grant lives longer by default.
const LIFE_MS: u64 = 30 * 24 * 3_600_000;
const MAC_BYTES: usize = 16;
const TOKEN: &str = "a2a causality";

/// The extension's data in the metadata of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Causality {
    /// One token for each workspace that the work has passed, oldest first.
    pub(crate) tokens: Vec<String>,
}

impl Causality {
    /// Reads what a message carries. What isn't of this form is none.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let mut found: Self = metadata.get(URI).and_then(|value| Self::deserialize(value).ok()).unwrap_or_default();
        found.tokens.retain(|token| token.len() <= TOKEN_BYTES_MAX);
        found.tokens.truncate(TOKENS_MAX);
        found
    }
}

/// Returns the token that names a message of this workspace until a time.
fn token(signer: &TurnSigner, seq: Seq, until: Time) -> String {
    let named = format!("{}.{}", seq.0, until.0);
    let mac = signer.mac_of(TOKEN, named.as_bytes());
    format!("{named}.{}", hex(&mac[..MAC_BYTES]))
}

/// Returns the message that a token names, if this workspace made the token.
fn named(signer: &TurnSigner, token: &str, now: Time) -> Option<Seq> {
    let (named, mac) = token.rsplit_once('.')?;
    let mac = unhex::<MAC_BYTES>(mac)?;
    let (seq, until) = named.split_once('.')?;
    let (seq, until) = (seq.parse().ok()?, until.parse().ok()?);
    (signer.is_mac_of(TOKEN, named.as_bytes(), &mac) && now < Time(until)).then_some(Seq(seq))
}

/// Returns a message of this workspace that caused a request, by what the request brings back. A trace of ours is
/// recognized while its grant is known.
pub(crate) async fn cause(
    ctx: &Context,
    causality: &Causality,
    traceparent: Option<TraceContext>,
) -> Result<Option<Seq>, ApiError> {
    let (signer, now) = (ctx.handle.signer(), ctx.handle.now());
    if let Some(seq) = causality.tokens.iter().find_map(|token| named(signer, token, now)) {
        return Ok(Some(seq));
    }
    let Some(grant) = traceparent.and_then(|context| trace::grant_of(signer, context.trace)) else { return Ok(None) };
    let request = move |live: &Live<'_>| {
        let mut tasks = live.state.grants.get(&grant)?.tasks.iter();
        tasks.find_map(|task| Some(live.state.tasks.get(task)?.request.as_ref()?.message))
    };
    Ok(ctx.handle.query(request).await?)
}

/// Returns what leaves with a request that serves a turn: the tokens of all workspaces that its work has passed, and the
/// trace.
pub(crate) async fn leaving(ctx: &Context, caller: Caller, turn: TurnId) -> Result<Value, ApiError> {
    let agent = caller.principal.agent();
    let look = move |live: &Live<'_>| -> Option<(Vec<Seq>, GrantId, Option<TraceContext>)> {
        let own = live.state.turns.get(&turn).filter(|turn| turn.agent == agent)?;
        let grant = live.state.tasks.get(&own.task)?.grant;
        let foreign = live.state.grants.get(&grant).and_then(|grant| grant.trace.as_deref().copied());
        let mut requests = Vec::new();
        let mut next = Some(own.task);
        while let Some(task) = next.and_then(|task| live.state.tasks.get(&task)) {
            requests.extend(task.request.as_ref().map(|request| request.message));
            next = task.asker.task();
        }
        Some((requests, grant, foreign))
    };
    let known = ctx.handle.query(look).await?;
    let Some((requests, grant, foreign)) = known.filter(|(requests, ..)| !requests.is_empty()) else {
        return Err(ApiError::unknown(&turn.to_string()));
    };
    let latest = requests[0];
    let mut tokens = Vec::<String>::new();
    // The oldest request comes first: it is the one that came in.
    let mut entries = ctx.handle.entries(requests).await?;
    entries.sort_unstable_by_key(|(seq, _)| *seq);
    for (_, entry) in entries {
        let Fact::Accepted { message } = &entry.fact else { continue };
        if !matches!(message.part, Part::Request(_)) {
            continue;
        }
        let metadata = message.metadata.as_ref().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let Some(metadata) = metadata else { continue };
        let kept = metadata[KEPT]["metadata"].as_object().map(Causality::of).unwrap_or_default();
        for token in kept.tokens {
            if !tokens.contains(&token) {
                tokens.push(token);
            }
        }
    }
    tokens.truncate(TOKENS_MAX - 1);
    let signer = ctx.handle.signer();
    tokens.push(token(signer, latest, ctx.handle.now().plus(LIFE_MS)));
    // Another's trace goes on, so that it recognizes it; ours is recognized here.
    let (trace, sampled) = ctx.traces.of_grant(signer, grant, foreign);
    let parent = trace::span_of(signer, SpanKind::Process, turn.0);
    let traceparent = TraceContext { trace, parent, sampled }.to_string();
    Ok(json!({ "uri": URI, "value": Causality { tokens }, "traceparent": traceparent }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_left_from_here_is_recognized() {
        let (ours, theirs) = (TurnSigner::ephemeral().unwrap(), TurnSigner::ephemeral().unwrap());
        let (now, until) = (Time(1_000), Time(2_000));
        let made = token(&ours, Seq(41), until);
        assert_eq!(named(&ours, &made, now), Some(Seq(41)));
        assert_eq!(named(&theirs, &made, now), None, "another workspace's");
        assert_eq!(named(&ours, &made, until), None, "too old");
        assert_eq!(named(&ours, &made.replacen("41", "42", 1), now), None, "another message");
        for bad in ["", ".", "41", "41.2000.", "x.y.00", &made[..made.len() - 1], &format!("{made}0")] {
            assert_eq!(named(&ours, bad, now), None, "{bad}");
        }
    }

    #[test]
    fn what_isnt_of_the_form_is_no_causality() {
        let of = |value: Value| Causality::of(&Metadata::from_iter([(URI.to_owned(), value)])).tokens;
        assert_eq!(of(json!({ "tokens": ["a", "b"] })), ["a", "b"]);
        for bad in [json!(1), json!({ "tokens": "a" }), json!({ "tokens": [1] }), json!({}), json!([])] {
            assert!(of(bad).is_empty());
        }
        assert_eq!(of(json!({ "tokens": vec!["a"; 100] })).len(), TOKENS_MAX);
        assert!(of(json!({ "tokens": ["x".repeat(TOKEN_BYTES_MAX + 1)] })).is_empty());
    }
}
