//! In place of the others, where the program was built without what speaks to them.

use std::convert::Infallible;

use lastword_server::Server;

use crate::failure::Failure;
use crate::load::Load;
use crate::systems::{PeerRow, Peers};

/// No connection: there is none.
pub(crate) struct Connected(Infallible);

impl Connected {
    #[expect(clippy::unused_async, reason = "as where there are others")]
    pub(crate) async fn to(_: &Peers) -> Result<Self, Failure> {
        let built = "cargo build --release -p lastword-bench --features peers";
        Err(Failure::usage("this program was built without others to measure")
            .hint(format!("`{built}` makes one that measures Redis and NATS")))
    }

    #[expect(clippy::unused_async, reason = "as where there are others")]
    pub(crate) async fn rows(&self, _: &Server, _: Load, _: f64) -> Result<Vec<PeerRow>, Failure> {
        match self.0 {}
    }
}
