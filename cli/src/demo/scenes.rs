//! Open matters for a human on a kept stage: a question, a held call, and a latched grant.

use std::time::Duration;

use lastword_client::SendTerms;
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use serde_json::json;

use super::cast::request;
use super::stage::Stage;
use crate::failure::Failure;

/// REF, recipient and text of each scene's request.
const SCENES: [(&str, &str, &str); 3] = [
    ("ASK-1", "hive", "Set up the new database"),
    ("DEPLOY-1", "ops", "Bring the new login service into production"),
    ("BUDGET-1", "kilo", "Make sure that nothing at all can break"),
];
/// Most checks whether the scenes are set, and the pause between two.
const LOOKS_MAX: usize = 400;
const PAUSE: Duration = Duration::from_millis(50);

/// Starts all scenes and waits until they are set.
pub(crate) async fn set(stage: &Stage) -> Result<(), Failure> {
    let human = &stage.human;
    for (reference, to, body) in SCENES {
        human.send(&request(&json!(to), Some(reference.to_owned()), body), &SendTerms::default()).await?;
    }
    for _ in 0..LOOKS_MAX {
        let asked = human.escalations().await?.items.iter().any(|e| e.state == EscalationState::Open);
        let held = human.approvals().await?.items.iter().any(|a| a.state == ApprovalState::Pending);
        let latched = human.incidents().await?.items.iter().any(|i| i.scope == "grant" && i.lifted_at.is_none());
        if asked && held && latched {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Failure::unavailable("the demo's agents did not come to their questions within 20 s"))
}
