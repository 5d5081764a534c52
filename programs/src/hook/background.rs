//! Work of a session that continues after the model's last message.

use serde::Deserialize;

/// The kinds that run a model and end. A shell command, such as a server, may never end.
const MODELS: [&str; 2] = ["subagent", "workflow"];

/// Work of a session in the background.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Background {
    /// The kind, such as `subagent`, `workflow` or `shell`.
    #[serde(rename = "type")]
    kind: String,
}

impl Background {
    /// Returns whether the turn that started it stays open until it ends.
    pub(super) fn is_of_turn(&self) -> bool {
        MODELS.contains(&self.kind.as_str())
    }
}
