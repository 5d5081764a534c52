//! An edge of another crate, mounted beside the API.

use std::fmt;
use std::sync::Arc;

use axum::Router;

use crate::calls::Context;

/// An edge of another crate, such as MCP. No two edges of a server have a route in common.
#[derive(Clone)]
pub struct Mount {
    /// The prefix of its paths, such as `/mcp`. Below it a missing path is answered with a problem, even to a browser.
    pub prefix: &'static str,
    /// The query parameters that its routes know. A request with any other is refused.
    pub parameters: &'static [&'static str],
    /// Whether callers without a token reach it. A server with such an edge starts on the loopback interface only, and a
    /// node of a cluster leaves it out.
    pub anonymous: bool,
    /// Returns its routes in a workspace. Hosts and origins are checked before them. A closure: an edge may have a state.
    pub routes: Arc<RoutesOf>,
}

/// Returns routes in a workspace.
type RoutesOf = dyn Fn(&Context) -> Router<Context> + Send + Sync;

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
