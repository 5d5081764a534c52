//! The NATS servers that should store what the cluster writes, and don't: their disk is full, or they are away.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lastword_store::Lagging;

use crate::Shared;

/// How often a node looks, and the looks in a row after which a server isn't one that is about to catch up.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LOOKS: u32 = 3;

impl Shared {
    /// Returns the NATS servers that don't store what they should.
    pub(crate) fn lagging(&self) -> Vec<Lagging> {
        self.lagging.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Looks all the time which NATS servers don't store what they should.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut seen = BTreeMap::<String, u32>::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // Without an answer the servers elect, or this node is cut off: it learns nothing.
        let Ok(mut lagging) = shared.registry.lagging().await else { continue };
        let earlier = std::mem::take(&mut seen);
        for found in &lagging {
            let looks = earlier.get(&found.server).map_or(1, |looks| looks.saturating_add(1));
            if looks == LOOKS {
                tracing::warn!("{found}");
            }
            seen.insert(found.server.clone(), looks);
        }
        lagging.retain(|found| seen.get(&found.server).is_some_and(|looks| *looks >= LOOKS));
        *shared.lagging.lock().unwrap_or_else(PoisonError::into_inner) = lagging;
    }
}
