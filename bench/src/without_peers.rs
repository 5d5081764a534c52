//! Replaces `peers` in a build without the clients of other systems.

use std::convert::Infallible;

use lastword_server::Server;

use crate::failure::Failure;
use crate::load::Load;
use crate::program::Served;
use crate::systems::{PeerRow, Peers};

/// Can't be constructed: there are no connections without the feature.
pub(crate) struct Connected(Infallible);

impl Connected {
    #[expect(clippy::unused_async, reason = "the same signature as with the feature")]
    pub(crate) async fn to(_: &Peers) -> Result<Self, Failure> {
        let built = "cargo build --release -p lastword-bench --features peers";
        Err(Failure::usage("this program was built without others to measure")
            .hint(format!("`{built}` makes one that measures Redis and NATS")))
    }

    #[expect(clippy::unused_async, reason = "the same signature as with the feature")]
    pub(crate) async fn rows(&self, _: &Server, _: &Served, _: Load, _: f64) -> Result<Vec<PeerRow>, Failure> {
        match self.0 {}
    }
}
