//! Work of a session that goes on behind the model's last message.

use serde::Deserialize;

/// What works with a model of its own, and ends.
const MODELS: [&str; 2] = ["subagent", "workflow"];

/// Work of a session in the background.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Background {
    /// What works, such as `subagent`, `workflow` or `shell`.
    #[serde(rename = "type")]
    kind: String,
}

impl Background {
    /// Whether it is a part of the turn that began it, which ends after it.
    pub(super) fn is_of_turn(&self) -> bool {
        MODELS.contains(&self.kind.as_str())
    }
}
