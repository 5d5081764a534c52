//! A surface without tools, for a client that may not act as its token's owner.

use rmcp::handler::server::ServerHandler;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};

/// Completes the handshake, so that the client shows the reason instead of a broken server, and offers nothing.
pub(super) struct Closed {
    /// The instructions for the model: why there are no tools.
    reason: String,
}

impl Closed {
    pub(super) const fn new(reason: String) -> Self {
        Self { reason }
    }
}

impl ServerHandler for Closed {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("lastword", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.reason.clone())
    }
}
