//! The configuration that a workspace of the cluster has of its own.

use std::fs;
use std::path::Path;

use lastword_server::Config;

use super::super::bound;
use super::super::serve::of_settings;
use crate::config::{Global, Settings};
use crate::environment::Environment;
use crate::failure::Failure;

/// The members of a workspace's own configuration.
const CONFIG_KEYS: [&str; 12] = [
    "profile",
    "limits",
    "observe",
    "enforce",
    "approvers",
    "approval",
    "tier",
    "seats",
    "claim",
    "schedule",
    "archive",
    "checkpoint_every_facts",
];

/// Reads the configuration of a workspace, and checks it.
pub(super) fn read_config(path: &Path) -> Result<String, Failure> {
    let failed = |error: String| Failure::usage(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    config_of(&text).map_err(failed)?;
    Ok(text)
}

/// Returns the configuration that a workspace's text amounts to. It comes from NATS, so it names no programs and files.
pub(super) fn config_of(text: &str) -> Result<Config, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    if let Some(other) = table.keys().find(|key| !CONFIG_KEYS.contains(&key.as_str())) {
        let all = CONFIG_KEYS.join(", ");
        return Err(format!("{other} is set in the nodes' lastword.toml; a workspace's own configuration has {all}"));
    }
    let path = Path::new("the workspace's configuration");
    let settings = Settings::of_text(path, Some(text.to_owned()), &Global::default(), &Environment::default());
    let settings = settings.map_err(|failure| failure.message)?;
    bound::check(&settings.limits).map_err(|failure| failure.message)?;
    of_settings(&settings, None).map_err(|failure| failure.message)
}
