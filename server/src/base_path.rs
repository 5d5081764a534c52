//! The path under which a reverse proxy serves the console and the API.
//!
//! A proxy may keep the path or strip it, so requests are served with it and without it. Pages and other answers name
//! paths by [`url`].

use std::fmt;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::uri::{InvalidUri, PathAndQuery};
use axum::middleware::{self, Next};
use axum::response::Response;
use serde::Deserialize;

/// The first segments of the server's own paths. A path that begins with one would be ambiguous.
const OWN: &str = ".well-known agents approvals assets asyncapi.json attend claims clock cluster compose \
                   conversations devices dismiss escalations graph healthz inbox incidents limits live mcp messages metrics \
                   nodes notifier.js openapi.json overview palette questions readyz rooms schedules schema settings sign-in \
                   sign-out spend standing team unread v1 w waiting workspace";

tokio::task_local! {
    static PREFIX: BasePath;
}

/// A path such as `/lw` in front of every path of the server; empty at the root of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct BasePath(String);

impl TryFrom<String> for BasePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
        let is_segment = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(plain);
        let path = text.strip_suffix('/').unwrap_or(&text);
        if path.is_empty() && !text.is_empty() {
            return Ok(Self::default());
        }
        let Some(segments) = path.strip_prefix('/').filter(|rest| rest.split('/').all(is_segment)) else {
            return Err(format!("{text:?} isn't a path such as /lw, of letters, digits and - _ . ~"));
        };
        let first = segments.split('/').next().unwrap_or_default();
        if OWN.split(' ').any(|own| own == first) {
            return Err(format!("/{first} is a path of the server itself; name another, such as /lw"));
        }
        Ok(Self(path.to_owned()))
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl BasePath {
    /// Takes the path off a request that has it.
    fn strip(&self, request: &mut Request) {
        let stripped = request.uri().path().strip_prefix(&self.0).map(|rest| if rest.is_empty() { "/" } else { rest });
        if let Some(rest) = stripped.filter(|rest| rest.starts_with('/')).map(str::to_owned) {
            // A part of a path is one.
            let _valid = set_path(request, &rest);
        }
    }

    /// Returns the routes under this path, and as they are.
    pub fn around(self, routes: Router) -> Router {
        if self == Self::default() {
            return routes;
        }
        // Of a router inside, because a layer sees a request after its router has chosen the route.
        Router::new().fallback_service(routes).layer(middleware::from_fn_with_state(self, enter))
    }
}

async fn enter(State(path): State<BasePath>, mut request: Request, next: Next) -> Response {
    path.strip(&mut request);
    PREFIX.scope(path, next.run(request)).await
}

/// Returns a path of the server as clients have to write it in answer to this request.
#[must_use]
pub fn url(path: &str) -> String {
    PREFIX.try_with(|prefix| format!("{prefix}{path}")).unwrap_or_else(|_at_the_root| path.to_owned())
}

/// Replaces the path of a request, and keeps its query.
///
/// # Errors
/// `path` isn't one.
pub fn set_path(request: &mut Request, path: &str) -> Result<(), InvalidUri> {
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{path}{query}"))?);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        BasePath::try_from(text.to_owned()).map(|path| path.0)
    }

    #[test]
    fn a_path_is_of_plain_segments_and_none_of_the_servers_own() {
        for (text, path) in [("/lw", "/lw"), ("/lw/", "/lw"), ("/tools/a-b_c.d~e", "/tools/a-b_c.d~e"), ("/", "")] {
            assert_eq!(parsed(text).as_deref(), Ok(path));
        }
        assert_eq!(parsed("/agents2").as_deref(), Ok("/agents2"));
        for text in ["", "lw", "//", "//lw", "/lw//", "/a//b", "/a/../b", "/.", "/a b", "/ä", "/a?b", "/a#b", "/%41"] {
            assert!(parsed(text).unwrap_err().contains("isn't a path such as /lw"), "{text}");
        }
        for text in ["/v1", "/agents", "/agents/lw", "/w/lw", "/.well-known"] {
            assert!(parsed(text).unwrap_err().contains("is a path of the server itself"), "{text}");
        }
    }

    #[test]
    fn every_first_segment_of_a_route_is_known() {
        let api = include_str!("edges/http.rs");
        let api = &api[api.find("pub fn app").unwrap()..api.find("/// The path prefixes").unwrap()];
        let console = [include_str!("../../console/src/lib.rs"), include_str!("../../console/src/devices.rs")].concat();
        let all = [&console, include_str!("../../cluster/src/front.rs"), api].concat();
        let routes: Vec<&str> = all.split("(\"/").skip(1).filter_map(|rest| rest.split(['"', '/']).next()).collect();
        assert!(routes.len() > 50, "{routes:?}");
        // `/session` is below `/v1`.
        for first in routes.into_iter().filter(|first| !matches!(*first, "" | "session")) {
            assert!(parsed(&format!("/{first}")).is_err(), "{first}");
        }
        let all = all + include_str!("../../mcp/src/door.rs");
        for own in OWN.split(' ') {
            assert!(all.contains(&format!("\"/{own}")), "{own} is no path of the server");
        }
    }

    #[test]
    fn only_a_whole_segment_is_taken_off() {
        let path = BasePath::try_from("/lw".to_owned()).unwrap();
        let stripped = |uri: &str| {
            let mut request = Request::builder().uri(uri).body(Body::empty()).unwrap();
            path.strip(&mut request);
            request.uri().to_string()
        };
        for (asked, served) in [
            ("/lw", "/"),
            ("/lw?a=b", "/?a=b"),
            ("/lw/", "/"),
            ("/lw/inbox?a=%2F", "/inbox?a=%2F"),
            ("/lwx", "/lwx"),
            ("/inbox", "/inbox"),
            ("/lw/lw", "/lw"),
        ] {
            assert_eq!(stripped(asked), served);
        }
    }
}
