//! The routes of a node: finds the workspace of a call, and serves it here or passes it on to its leader.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::body::Body as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use lastword_facts::Code;
use lastword_server::edges::http::Peer;
use lastword_server::{ApiError, set_path};

use crate::detour::Way;
use crate::forward::{
    EPOCH, FROM, NODE, NotForwarded, ONCE, OVER, PROOF, Tunnel, WORKSPACE, asks_for_session, host, is_events, strip,
};
use crate::members::Leader;
use crate::open::{InProgress, Using};
use crate::reach::PROOF_ROUTE;
use crate::waking::Admission;
use crate::{RETRY_MS, Shared, WORKSPACE_MAIN, cut_off};

/// How long a call waits for its workspace to have a leader.
const LEADER_WAIT_MAX: Duration = Duration::from_secs(6);
/// The pause before a node that can't be reached is tried again.
const UNREACHED_PAUSE: Duration = Duration::from_millis(100);
/// When a caller should come back of whose kind too many came in this minute, in ms.
const UNKNOWN_RETRY_MS: u64 = 10_000;
/// The longest body of which a copy is kept, to send it again.
const COPIED_BYTES_MAX: u64 = 16 << 10;
/// The prefix of paths that name a workspace.
const PREFIX: &str = "/w/";
/// The header with a call's idempotency key.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// What the paths of a human's stop and pause end with.
const CONTROLS: [&str; 2] = ["/stop", "/pause"];
/// The header by which a client asks for the leader's address instead of being passed on.
const REDIRECT: HeaderName = HeaderName::from_static("lastword-redirect");

pub(crate) fn routes(shared: Arc<Shared>) -> Router {
    let path = shared.path.clone();
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/cluster/metrics", get(crate::metrics::show))
        .route(PROOF_ROUTE, get(crate::reach::prove))
        .fallback(dispatch)
        .with_state(shared);
    path.around(routes)
}

/// What a call is about, before anything is done for it.
struct RoutedCall {
    workspace: String,
    /// The address that it came from, if another node passed it on.
    from: Option<IpAddr>,
    by_node: bool,
    /// The epoch for which another node passed it on; no earlier version says so.
    epoch: Option<u64>,
    /// Whether that node can't send it again.
    once: bool,
    /// Whether it may wake its workspace, which was at rest as it came.
    wakes: bool,
}

async fn dispatch(State(shared): State<Arc<Shared>>, mut request: Request) -> Response {
    match prepare(&shared, &mut request) {
        // It would break off within a second.
        Ok(call) if *shared.ending.borrow() && !call.by_node && asks_for_session(request.uri(), request.headers()) => {
            let text = "This node is about to end, and begins no session: connect to another node";
            let mut fault = ApiError::new(Code::Saturated, text);
            fault.0.retry_after_ms = Some(RETRY_MS);
            fault.into_response()
        }
        Ok(call) => {
            let mut response = serve(&shared, call, request).await;
            if *shared.ending.borrow() {
                // Its client opens its next connection to another node, instead of meeting a closed one.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
        Err(fault) => fault.into_response(),
    }
}

fn prepare(shared: &Shared, request: &mut Request) -> Result<RoutedCall, ApiError> {
    check_path(request.uri().path())?;
    let headers = request.headers();
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(shown) = text(&NODE) {
        // Hashed, so that the comparison tells nothing of the secret.
        if lastword_broker::identity::credential(shown) != lastword_broker::identity::credential(&shared.secret) {
            return Err(ApiError::new(Code::Forbidden, "The header Lastword-Node is for nodes of this cluster"));
        }
        let call = RoutedCall {
            workspace: text(&WORKSPACE).unwrap_or(WORKSPACE_MAIN).to_owned(),
            from: text(&FROM).and_then(|from| from.parse().ok()),
            by_node: true,
            epoch: text(&EPOCH).and_then(|epoch| epoch.parse().ok()),
            once: headers.contains_key(ONCE),
            wakes: false,
        };
        strip(request.headers_mut());
        return Ok(call);
    }
    let by_host = host(headers).and_then(|host| named(shared, host));
    let named_by_host = by_host.is_some();
    strip(request.headers_mut());
    let by_path = without_prefix(request)?;
    let workspace = match (by_host, by_path) {
        (Some(host), Some(path)) if host != path => {
            let text = format!("The host names the workspace {host} and the path {path}");
            return Err(ApiError::new(Code::Malformed, text));
        }
        (by_host, by_path) => by_path.or(by_host).unwrap_or_else(|| WORKSPACE_MAIN.to_owned()),
    };
    let call =
        |workspace, wakes| Ok(RoutedCall { workspace, from: None, by_node: false, epoch: None, once: false, wakes });
    // In one look: it may wake at any time.
    let (awake, rest) = shared.view(|view, _| (view.is_awake(&workspace), view.rest(&workspace).cloned()));
    if awake {
        return call(workspace, false);
    }
    match shared.waking.admits(rest.as_ref(), request.headers(), request.uri()) {
        Admission::Wakes => call(workspace, true),
        Admission::Stranger => {
            become_stranger(request.headers_mut(), named_by_host);
            call(WORKSPACE_MAIN.to_owned(), false)
        }
        Admission::Later => Err(later()),
    }
}

fn later() -> ApiError {
    let mut fault = ApiError::new(Code::Saturated, "Too many calls by callers who aren't known yet: try again");
    fault.0.retry_after_ms = Some(UNKNOWN_RETRY_MS);
    fault
}

/// Makes a call for a workspace that doesn't exist one of somebody whom nobody knows: it is answered as any workspace answers
/// a stranger, who thus learns of no name whether there is a workspace of it.
fn become_stranger(headers: &mut HeaderMap, named_by_host: bool) {
    headers.remove(COOKIE);
    if headers.contains_key(AUTHORIZATION) {
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer unknown"));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).and_then(|host| host.split_once('.'));
    if let Some(host) = host.filter(|_| named_by_host).and_then(|(_, host)| HeaderValue::from_str(host).ok()) {
        headers.insert(HOST, host);
    }
}

/// Refuses a path that a node and the leader could read differently.
fn check_path(path: &str) -> Result<(), ApiError> {
    let dots = |part: &str| matches!(part.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    if path.starts_with('/') && !path.contains('\\') && !path.split('/').any(dots) {
        return Ok(());
    }
    Err(ApiError::new(Code::Malformed, "The path has to begin with / and to have no segment . or .."))
}

/// Returns the workspace that a host name begins with: `NAME.localhost`, or `NAME.` and one of the hosts.
fn named(shared: &Shared, host: &str) -> Option<String> {
    let (name, rest) = host.split_once('.')?;
    let known = rest.eq_ignore_ascii_case("localhost") || shared.hosts.iter().any(|own| own.eq_ignore_ascii_case(rest));
    known.then(|| name.to_ascii_lowercase())
}

/// Takes the workspace out of a path such as `/w/NAME/v1/messages`.
fn without_prefix(request: &mut Request) -> Result<Option<String>, ApiError> {
    let Some(rest) = request.uri().path().strip_prefix(PREFIX) else { return Ok(None) };
    let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, path) = (name.to_owned(), format!("/{path}"));
    let malformed = |_| ApiError::new(Code::Malformed, "The path behind the workspace isn't one");
    set_path(request, &path).map_err(malformed)?;
    Ok(Some(name))
}

/// Returns whom a call is from, in its workspace.
fn peer_of(shared: &Shared, call: &RoutedCall, request: &Request) -> Option<Peer> {
    let number = shared.view(|view, _| view.number(&call.workspace));
    request.extensions().get::<Peer>().map(|peer| match call.from {
        Some(from) => peer.on_behalf_of(from, number),
        None if call.by_node => peer.on_behalf_of(peer.address(), number),
        None => peer.within(number),
    })
}

/// Returns whether NATS hears this node. One that has only just started is about to be heard.
async fn is_heard(shared: &Shared, deadline: tokio::time::Instant) -> bool {
    while shared.heartbeat.age().is_none() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(UNREACHED_PAUSE).await;
    }
    shared.heartbeat.is_valid()
}

async fn serve(shared: &Arc<Shared>, mut call: RoutedCall, mut request: Request) -> Response {
    let (mut changed, mut lapses) = (shared.changed.subscribe(), shared.lapses.subscribe());
    let deadline = tokio::time::Instant::now() + LEADER_WAIT_MAX;
    let peer = peer_of(shared, &call, &request);
    if let Some(peer) = &peer {
        request.extensions_mut().insert(peer.clone());
    }
    // The epoch of which its leader said that it is over, perhaps before the registry does.
    let mut over = None;
    loop {
        // It would learn of a new leader only once it is heard again.
        if !is_heard(shared, deadline).await {
            let known = peer.as_ref().is_some_and(Peer::is_proven);
            return cut_off::refuse(shared, &call.workspace, known, request.headers(), request.uri());
        }
        if let Some(in_progress) = shared.enter(&call.workspace) {
            return here(shared, in_progress, &call, peer, request).await;
        }
        if let Some(rest) = shared.view(|view, _| view.rest(&call.workspace).cloned()) {
            // It may have begun to rest since the call came, or since another node passed it on.
            call.wakes =
                call.wakes || shared.waking.admits(Some(&rest), request.headers(), request.uri()) == Admission::Wakes;
            if !call.wakes {
                return no_leader();
            }
            shared.wake(&call.workspace).await;
        }
        // One hop: a node that was taken for the leader waits until it is, or says that it isn't any more. What can't be sent
        // again goes on from here.
        let is_over = call.epoch.is_some_and(|epoch| shared.lost(&call.workspace, epoch));
        if is_over && !call.once {
            return (StatusCode::SERVICE_UNAVAILABLE, [(OVER, "1")]).into_response();
        }
        let goes_on = !call.by_node || is_over;
        let remote = shared.leader(&call.workspace).filter(|leader| leader.node != shared.name && goes_on);
        if let Some(leader) = remote.filter(|leader| over.is_none_or(|over| over < leader.epoch)) {
            if request.headers().contains_key(REDIRECT) {
                return redirected(shared, &leader, &call, peer.as_ref(), request.headers(), request.uri()).await;
            }
            let repeats = is_repeatable(&request);
            let (mut sent, again) = twice(request).await;
            if again.is_none() && !call.once {
                sent.headers_mut().insert(ONCE, HeaderValue::from_static("1"));
            }
            let sent = RepeatableRequest { request: sent, repeats: repeats && again.is_some() };
            match there(shared, &leader, &call, peer.clone(), sent).await {
                Ok(response) => return response,
                Err(error @ NotForwarded::Unanswered { .. }) => return unanswered(&error),
                Err(NotForwarded::Over { .. }) => {
                    let Some(again) = again else { return no_leader() };
                    (request, over) = (again, Some(leader.epoch));
                    continue;
                }
                // Another node is about to lead it, or its leader is about to be back.
                Err(error @ NotForwarded::Unreached { .. }) => {
                    tracing::debug!(%error, "a call was not passed on");
                    match again.filter(|_| tokio::time::Instant::now() < deadline) {
                        Some(again) => request = again,
                        None => return no_leader(),
                    }
                    tokio::time::sleep(UNREACHED_PAUSE).await;
                    continue;
                }
            }
        }
        tokio::select! {
            waited = tokio::time::timeout_at(deadline, changed.changed()) => if waited.is_err() { return no_leader() },
            // It says that NATS doesn't hear it.
            _ = lapses.changed() => {}
        }
    }
}

/// Serves a call by the workspace's own routes.
async fn here(
    shared: &Shared,
    in_progress: InProgress,
    call: &RoutedCall,
    peer: Option<Peer>,
    request: Request,
) -> Response {
    let open = in_progress.open();
    let mut lapses = shared.lapses.subscribe();
    let (control, (headers, uri)) = (is_control(request.uri()), (request.headers().clone(), request.uri().clone()));
    let mut response = tokio::select! {
        Ok(response) = TowerToHyperService::new(open.routes.clone()).call(request) => response,
        // Its facts may be on their way to the log.
        _ = lapses.changed() => return cut_off::unanswered(shared, &call.workspace, peer.as_ref(), &headers, &uri),
        () = cut_off::unheard(shared), if control => {
            return cut_off::unanswered(shared, &call.workspace, peer.as_ref(), &headers, &uri);
        }
    };
    let using = Using::of(&open, peer.as_ref().is_some_and(Peer::is_proven));
    drop(in_progress);
    // A leader that was cut off meanwhile may have answered from an old state.
    if !shared.holds(&open) {
        return cut_off::unanswered(shared, &call.workspace, peer.as_ref(), &headers, &uri);
    }
    if response.body().size_hint().exact().is_none() {
        // An event stream is a use of the workspace as long as it is open.
        response = response.map(|body| {
            let body = body.into_data_stream();
            Body::from_stream(stream::unfold((body, using), |(mut body, using)| async move {
                body.next().await.map(|part| (part, (body, using)))
            }))
        });
    }
    let proof = peer.filter(|_| call.by_node).and_then(|peer| HeaderValue::from_str(&peer.proof()?).ok());
    if let Some(proof) = proof {
        response.headers_mut().insert(PROOF, proof);
    }
    response
}

/// Returns a call that asks whose a token is, and nothing else.
fn probe(token: HeaderValue, headers: &HeaderMap) -> Request {
    let mut probe = Request::new(Body::empty());
    *probe.uri_mut() = Uri::from_static("/v1/clock");
    probe.headers_mut().insert(AUTHORIZATION, token);
    for name in [HOST, ONCE] {
        if let Some(value) = headers.get(&name) {
            probe.headers_mut().insert(name, value.clone());
        }
    }
    probe
}

/// Asks the leader whether it knows the caller; returns its refusal if it doesn't.
async fn known_there(
    shared: &Shared,
    leader: &Leader,
    call: &RoutedCall,
    peer: Option<&Peer>,
    headers: &HeaderMap,
) -> Result<Option<Response>, NotForwarded> {
    let Some(token) = headers.get(AUTHORIZATION) else {
        return Ok(Some(
            ApiError::new(Code::Unauthenticated, "The leader's address is told to a valid token").into_response(),
        ));
    };
    let from = peer.map(Peer::address);
    let probe = probe(token.clone(), headers);
    let asked = Way::to(shared, leader).forward(&call.workspace, from, probe).await?;
    Ok(Some(asked).filter(|asked| !asked.headers().contains_key(PROOF)))
}

/// Returns a call, and a copy of it to send if the leader isn't reached; a long one is sent once.
async fn twice(request: Request) -> (Request, Option<Request>) {
    let length = match request.body().size_hint().exact() {
        Some(length) if length <= COPIED_BYTES_MAX => length,
        Some(_) | None => return (request, None),
    };
    let (parts, body) = request.into_parts();
    let bytes = usize::try_from(length).map(|length| axum::body::to_bytes(body, length));
    match bytes {
        Ok(bytes) => match bytes.await {
            Ok(bytes) => {
                let copy = Request::from_parts(parts.clone(), Body::from(bytes.clone()));
                (Request::from_parts(parts, Body::from(bytes)), Some(copy))
            }
            // The caller broke off, so nobody waits for an answer.
            Err(_) => (Request::from_parts(parts, Body::empty()), None),
        },
        Err(_) => (Request::from_parts(parts, Body::empty()), None),
    }
}

/// A call to pass on.
struct RepeatableRequest {
    request: Request,
    /// Whether it may be made once more if it isn't known whether it was carried out.
    repeats: bool,
}

/// Returns whether a call that may have been carried out may be made once more.
fn is_repeatable(request: &Request) -> bool {
    request.method().is_safe() || request.headers().contains_key(KEY) || is_control(request.uri())
}

/// Returns whether a call is a human's stop or pause.
pub(crate) fn is_control(uri: &Uri) -> bool {
    CONTROLS.iter().any(|control| uri.path().ends_with(control))
}

/// Passes a call on to the leader of its workspace: at the leader's address, or through NATS while that isn't reached.
async fn there(
    shared: &Arc<Shared>,
    leader: &Leader,
    call: &RoutedCall,
    peer: Option<Peer>,
    RepeatableRequest { mut request, repeats }: RepeatableRequest,
) -> Result<Response, NotForwarded> {
    let session = asks_for_session(request.uri(), request.headers()).then(|| hyper::upgrade::on(&mut request));
    let from = peer.as_ref().map(Peer::address);
    let way = Way::to(shared, leader);
    let answered = async {
        // A call may take longer than an unproven connection has: whose it is, is asked first, once a connection.
        if let Some(peer) = peer.as_ref().filter(|peer| !peer.is_proven())
            && let Some(token) = request.headers().get(AUTHORIZATION)
        {
            let probe = probe(token.clone(), request.headers());
            let asked = way.forward(&call.workspace, from, probe).await?;
            match asked.headers().get(PROOF).and_then(|proof| proof.to_str().ok()) {
                Some(proof) => peer.prove_by(proof),
                None => return Ok(asked),
            }
        }
        way.forward(&call.workspace, from, request).await
    };
    let forwarded = tokio::select! {
        forwarded = answered => forwarded,
        () = way.is_lost(repeats) => {
            let (node, reason) = (leader.node.clone(), "it isn't reached at its address".to_owned());
            if repeats { Err(NotForwarded::Unreached { node, reason }) } else { Err(NotForwarded::Unanswered { node, reason }) }
        }
        () = shared.given_up(&call.workspace, leader) => {
            let (node, reason) = (leader.node.clone(), "it leads the workspace no longer".to_owned());
            Err(NotForwarded::Unanswered { node, reason })
        }
    };
    if matches!(forwarded, Err(NotForwarded::Unreached { .. })) && !way.detour {
        shared.miss(&leader.node);
    }
    let forwarded = forwarded?;
    let tunnel = forwarded.extensions().get::<Tunnel>().cloned();
    let mut response = match tunnel {
        Some(_) => forwarded,
        None => while_led(Arc::clone(shared), call.workspace.clone(), leader.clone(), forwarded),
    };
    // A node that passed the call on gets the proof as well.
    let proof =
        if call.by_node { response.headers().get(PROOF).cloned() } else { response.headers_mut().remove(PROOF) };
    if let (Some(peer), Some(proof)) = (&peer, proof.as_ref().and_then(|proof| proof.to_str().ok())) {
        peer.prove_by(proof);
    }
    if let (Some(tunnel), Some(near), Some(peer)) = (tunnel, session, peer) {
        let (shared, workspace, leader, owner) =
            (Arc::clone(shared), call.workspace.clone(), leader.clone(), peer.clone());
        owner.own(async move {
            tokio::select! {
                () = tunnel.run(near) => {}
                () = shared.given_up(&workspace, &leader) => {}
                // Until the session has authenticated, to the leader alone, it makes room as any other connection.
                () = peer.evicted() => {}
            }
        });
    }
    Ok(response)
}

/// Returns an answer whose body ends early when its leader does: a leader that hangs would leave an event stream open for
/// good. Any other body breaks off, so that nobody takes it for whole.
fn while_led(shared: Arc<Shared>, workspace: String, leader: Leader, response: Response) -> Response {
    if response.headers().contains_key(CONTENT_LENGTH) {
        return response;
    }
    let events = is_events(response.headers());
    response.map(|body| {
        let superseded = Box::pin(async move { shared.given_up(&workspace, &leader).await });
        let body = body.into_data_stream().map_err(io::Error::other);
        if events {
            return Body::from_stream(body.take_until(superseded));
        }
        let parts = stream::unfold(Some((body, superseded)), |state| async move {
            let (mut body, mut superseded) = state?;
            tokio::select! {
                part = body.next() => part.map(|part| (part, Some((body, superseded)))),
                () = &mut superseded => Some((Err(io::Error::other("the leader changed")), None)),
            }
        });
        Body::from_stream(parts)
    })
}

/// Tells a caller the leader's address, if the leader knows the caller.
async fn redirected(
    shared: &Shared,
    leader: &Leader,
    call: &RoutedCall,
    peer: Option<&Peer>,
    headers: &HeaderMap,
    uri: &Uri,
) -> Response {
    match known_there(shared, leader, call, peer, headers).await {
        Ok(None) => {}
        Ok(Some(refused)) => return refused,
        Err(error) => {
            tracing::debug!(%error, "a call was not redirected");
            return no_leader();
        }
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let place = format!("{}{PREFIX}{}{path}", leader.info.url, call.workspace);
    match HeaderValue::from_str(&place) {
        Ok(place) => (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, place)]).into_response(),
        Err(_) => ApiError::internal("the leader's address can't be shown").into_response(),
    }
}

fn no_leader() -> Response {
    let text = "No node leads the workspace at the moment, and nothing was done: try again";
    let mut fault = ApiError::new(Code::Saturated, text);
    fault.0.retry_after_ms = Some(RETRY_MS);
    fault.into_response()
}

fn unanswered(error: &NotForwarded) -> Response {
    // Without the node's name and address: anyone may call.
    tracing::warn!(%error, "a call was not answered");
    let mut fault = ApiError::new(
        Code::Saturated,
        "The workspace's leader gave no answer. Whether the call was carried out isn't known: repeat it with the same \
         Idempotency-Key",
    );
    fault.0.status = 502;
    fault.0.retry_after_ms = Some(RETRY_MS);
    fault.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_two_readers_could_read_differently_is_refused() {
        for good in ["/", "/v1/agents", "/w/team-b/v1/agents", "/v1/rooms/a..b", "/v1/x%2fy"] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        for bad in ["", "*", "v1", "/v1/../agents", "/v1/.", "/v1/%2E%2e/x", "/v1/.%2e", "/v1\\x"] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
    }
}
