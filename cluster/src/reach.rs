//! Whether the nodes reach each other at the addresses that they name, and whether it is a node that answers there.
//!
//! An address may be another program's. Before a node sends a call there, with its caller's token and the nodes' secret,
//! whoever answers has to know the secret: it is asked for a code of a challenge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::uri::{Scheme, Uri};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use hmac::{Hmac, KeyInit as _, Mac as _};
use lastword_broker::identity::{hex, random, unhex};
use lastword_client::{Endpoint, Pin, Trust};
use lastword_server::Transport;
use sha2::Sha256;

use crate::members::{NodeInfo, RENEW_EVERY};
use crate::{NodeError, Shared};

/// Where a node proves that it is one.
pub(crate) const PROOF_ROUTE: &str = "/cluster/proof/{challenge}";
/// The wait for a proof.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The attempts in a row in which a node isn't reached, after which this one says so.
const MISSED_MAX: u32 = 3;
/// The pause between them.
const AGAIN: Duration = Duration::from_millis(300);
/// The header of a proof by a node that NATS hears.
const HEARD: HeaderName = HeaderName::from_static("lastword-heard");
/// What a code is of, so that it is of no use elsewhere.
const LABEL: &[u8] = b"lastword node\n";
/// The failure of somebody else at a node's address.
const ANOTHER: &str = "what answers there isn't this node";
/// The bytes of a challenge.
type Challenge = [u8; 32];

fn code(secret: &str, session: &str, challenge: &Challenge) -> Option<Hmac<Sha256>> {
    let mut code = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
    for part in [LABEL, session.as_bytes(), challenge] {
        code.update(part);
    }
    Some(code)
}

/// How another node is reached at its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The attempts in a row in which it wasn't reached.
    pub(crate) misses: u32,
    /// Whether it is reached, and NATS hears it.
    pub(crate) is_heard: bool,
}

/// The other nodes, as far as they were tried.
pub(crate) type ReachTable = BTreeMap<String, Reach>;

impl Shared {
    /// Returns the attempts in a row in which a node wasn't reached.
    pub(crate) fn misses(&self, node: &str) -> u32 {
        self.reached.borrow().get(node).map_or(0, |reach| reach.misses)
    }

    /// Notes that a node wasn't reached.
    pub(crate) fn miss(&self, node: &str) {
        self.reached.send_modify(|reached| {
            let reach = reached.entry(node.to_owned()).or_default();
            *reach = Reach { misses: reach.misses.max(1), is_heard: false };
        });
    }

    /// Waits until a node wasn't reached in this many attempts.
    pub(crate) async fn missed(&self, node: &str, times: u32) {
        let mut reached = self.reached.subscribe();
        let missed = |reached: &ReachTable| reached.get(node).is_some_and(|reach| reach.misses >= times);
        // The sender lives as long as this node.
        let _missed = reached.wait_for(missed).await;
    }

    /// Returns the nodes that this one doesn't reach at their addresses.
    pub(crate) fn unreached(&self) -> Vec<String> {
        let reached = self.reached.borrow();
        reached.iter().filter(|(_, reach)| reach.misses >= MISSED_MAX).map(|(node, _)| node.clone()).collect()
    }
}

/// `GET /cluster/proof/{challenge}`: the code of a challenge, which only a node of this cluster knows, in this run of it.
pub(crate) async fn prove(State(shared): State<Arc<Shared>>, Path(challenge): Path<String>) -> Response {
    let code = unhex(&challenge).and_then(|challenge| code(&shared.secret, &shared.session, &challenge));
    let Some(code) = code else { return StatusCode::BAD_REQUEST.into_response() };
    let heard = shared.heartbeat.is_valid().then_some([(HEARD, "1")]);
    (heard, hex(&code.finalize().into_bytes())).into_response()
}

/// Checks that the node of this record answers at its address; returns whether it says that NATS hears it.
///
/// # Errors
/// Nobody answers there, or somebody else.
pub(crate) async fn check(client: &reqwest::Client, info: &NodeInfo, secret: &str) -> Result<bool, String> {
    let challenge = random().map_err(|error| error.to_string())?;
    let asked = async {
        let answer = client.get(format!("{}/cluster/proof/{}", info.url, hex(&challenge))).send().await?;
        let heard = answer.headers().contains_key(HEARD);
        Ok::<_, reqwest::Error>((heard, answer.text().await?))
    };
    let answer = tokio::time::timeout(ANSWER_MAX, asked).await.map_err(|_| "nobody answers".to_owned())?;
    let (heard, answer) = answer.map_err(|error| error.without_url().to_string())?;
    let shown = unhex::<32>(answer.trim()).unwrap_or_default();
    let knows = code(secret, &info.session, &challenge).is_some_and(|code| code.verify_slice(&shown).is_ok());
    if knows { Ok(heard) } else { Err(ANOTHER.to_owned()) }
}

/// Returns the client for a node.
pub(crate) fn client(info: &NodeInfo) -> Result<reqwest::Client, lastword_client::ClientError> {
    let endpoint = Endpoint::new(&info.url);
    match &info.pin {
        Some(pin) => endpoint.trusting(Trust::Pinned(Pin::parse(pin)?)).http(),
        None => endpoint.http(),
    }
}

/// How a node listens.
pub(crate) struct Listening<'a> {
    /// The address that it listens on.
    pub(crate) url: &'a str,
    pub(crate) transport: Transport,
    /// Whether it listens on all addresses of its machine.
    pub(crate) everywhere: bool,
}

/// Returns this node's address for the others: the one that is advertised, else the one that it listens on.
///
/// # Errors
/// [`NodeError::Advertise`]: it isn't an address, or one at which tokens shouldn't be sent.
pub(crate) fn address(
    advertised: Option<String>,
    listening: &Listening<'_>,
    insecure: bool,
) -> Result<String, NodeError> {
    let Some(url) = advertised else {
        if listening.everywhere {
            let reason = "it listens on all addresses, and the other nodes need one: name it with --advertise";
            return Err(NodeError::Advertise { url: listening.url.to_owned(), reason: reason.to_owned() });
        }
        return Ok(listening.url.to_owned());
    };
    let url = url.trim_end_matches('/').to_owned();
    let refuse = |reason: &str| Err(NodeError::Advertise { url: url.clone(), reason: reason.to_owned() });
    let Ok(parsed) = url.parse::<Uri>() else { return refuse("it isn't an address such as https://10.0.0.1:7171") };
    let host = parsed.host().unwrap_or_default().trim_matches(['[', ']']);
    let near = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let is = |scheme: &Scheme| parsed.scheme() == Some(scheme);
    if host.is_empty() || !(is(&Scheme::HTTP) || is(&Scheme::HTTPS)) || parsed.query().is_some() || url.contains('@') {
        return refuse("it isn't an address such as https://10.0.0.1:7171");
    }
    if is(&Scheme::HTTP) && listening.transport != Transport::Plain {
        return refuse("this node serves TLS: the address begins with https://");
    }
    if is(&Scheme::HTTP) && !near && !insecure {
        return refuse(
            "without TLS, tokens and the nodes' secret could be read on the way: serve with --tls auto or a \
                       certificate and advertise https://, or accept the risk with --insecure-http",
        );
    }
    Ok(url)
}

/// Finds out how the others verify this node at its address: by the system's roots, or by its fingerprint. Says so if it
/// isn't reached there, as behind a router that sends nothing back.
///
/// # Errors
/// [`NodeError::Advertise`]: somebody else answers at its address.
pub(crate) async fn own(
    info: NodeInfo,
    transport: Transport,
    fingerprint: Option<String>,
    secret: &str,
) -> Result<NodeInfo, NodeError> {
    let pinned = NodeInfo { pin: fingerprint, ..info.clone() };
    let ways = match transport {
        Transport::Plain => vec![info],
        Transport::SelfSigned => vec![pinned],
        // An authority of one's own isn't among the system's.
        Transport::Certified => vec![info, pinned],
    };
    let mut failure = String::new();
    for way in &ways {
        let reached = match client(way) {
            Ok(client) => check(&client, way, secret).await,
            Err(error) => Err(error.to_string()),
        };
        match reached {
            Ok(_) => return Ok(way.clone()),
            Err(reason) if reason == ANOTHER => {
                return Err(NodeError::Advertise { url: way.url.clone(), reason });
            }
            Err(reason) => failure = reason,
        }
    }
    let first = ways.into_iter().next().unwrap_or_default();
    tracing::warn!(url = first.url, reason = failure, "this node doesn't reach itself at its address for the others");
    Ok(first)
}

/// Looks all the time which of the other nodes are reached, for the record of this one and for calls.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut pause = RENEW_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        // A node that NATS doesn't hear takes all others for dead, and has to name one.
        let deaf = !shared.heartbeat.is_valid();
        let others = |(node, info, alive): (&str, &NodeInfo, bool)| {
            ((alive || deaf) && node != shared.name && !info.leaving).then(|| (node.to_owned(), info.clone()))
        };
        let others: Vec<_> = shared.view(|view, now| view.nodes(now).filter_map(others).collect());
        let looked = others.iter().map(async |(node, info)| {
            let reached = match shared.forwarder.client(info) {
                // A node of an earlier version can't prove itself.
                Ok(_) if !info.proves => Ok(false),
                Ok(client) => check(&client, info, &shared.secret).await,
                Err(error) => Err(error.to_string()),
            };
            (node.clone(), reached)
        });
        let looked = join_all(looked).await;
        let before = shared.unreached();
        shared.reached.send_modify(|reached| {
            let earlier = std::mem::take(reached);
            for (node, found) in looked {
                let misses = earlier.get(&node).map_or(0, |reach| reach.misses);
                let reach = match found {
                    Ok(is_heard) => Reach { misses: 0, is_heard },
                    Err(reason) => {
                        if misses + 1 == MISSED_MAX {
                            tracing::warn!(node, reason, "a node isn't reached at its address; it should not lead");
                        }
                        Reach { misses: misses.saturating_add(1), is_heard: false }
                    }
                };
                reached.insert(node, reach);
            }
        });
        if shared.unreached() != before {
            shared.renew();
        }
        let doubtful = shared.reached.borrow().values().any(|reach| (1..MISSED_MAX).contains(&reach.misses));
        pause = if doubtful { AGAIN } else { RENEW_EVERY };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_the_others_is_one_at_which_tokens_may_be_sent() {
        let (plain, tls) = (Transport::Plain, Transport::SelfSigned);
        let named = |url: &str, transport, insecure| {
            let listening = Listening { url: "http://127.0.0.1:1", transport, everywhere: false };
            address(Some(url.to_owned()), &listening, insecure).ok()
        };
        for (url, transport, insecure, taken) in [
            ("http://127.0.0.1:7171", plain, false, true),
            ("http://[::1]:7171/", plain, false, true),
            ("http://localhost:7171", plain, false, true),
            ("http://10.0.0.1:7171", plain, false, false),
            ("http://10.0.0.1:7171", plain, true, true),
            ("http://a:7171", plain, false, false),
            ("http://203.0.113.9", plain, false, false),
            ("https://lastword.example", plain, false, true),
            ("https://10.0.0.1:7171", tls, false, true),
            ("http://10.0.0.1:7171", tls, true, false),
            ("https://u:p@10.0.0.1:7171", tls, false, false),
            ("https://10.0.0.1/?x", tls, false, false),
            ("10.0.0.1:7171", tls, true, false),
            ("ftp://10.0.0.1", tls, true, false),
            ("https://", tls, true, false),
        ] {
            let found = named(url, transport, insecure);
            assert_eq!(found.is_some(), taken, "{url}");
            assert!(found.is_none_or(|found| found == url.trim_end_matches('/')));
        }
        let listening = |everywhere| Listening { url: "http://127.0.0.1:7171", transport: plain, everywhere };
        assert!(address(None, &listening(true), true).is_err(), "0.0.0.0 is nobody's address");
        assert_eq!(address(None, &listening(false), false).unwrap(), listening(false).url);
    }

    #[test]
    fn a_code_is_of_one_run_of_one_clusters_node() {
        let of = |secret, session, challenge| code(secret, session, &challenge).unwrap().finalize().into_bytes();
        let own = of("secret", "s1", [1; 32]);
        assert_eq!(own, of("secret", "s1", [1; 32]));
        for other in [of("other", "s1", [1; 32]), of("secret", "s2", [1; 32]), of("secret", "s1", [2; 32])] {
            assert_ne!(own, other);
        }
    }
}
