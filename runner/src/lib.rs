//! The runner: a client with an agent's token that turns each delivery into one run of an agent.
//!
//! A [`Runner`] takes deliveries, has a [`Driver`] run the agent for each of them, renews the turn's lease meanwhile,
//! and finishes the turn with the agent's final output. It talks to the broker only over HTTP, so it can't bypass a
//! guard.

mod acp;
mod command;
mod event;
mod guard;
mod held;
mod hook;
mod output;
mod private;
mod process;
mod program;
mod run;
mod runner;
mod settings;
mod usage;
mod watch;
mod wording;

pub use crate::event::{Event, EventSink};
pub use crate::guard::guard_groups;
pub use crate::held::{
    CODEX_HOME, GEMINI_SETTINGS, claude_asks, codex_asks, codex_home, codex_server, gemini_policy, gemini_system,
    gemini_trusted, main_worktree,
};
pub use crate::hook::{
    HookError, Occasion, claude as hook, end_interrupted, follow_ends, is_at_work, keep_leases, wait as hook_wait,
    woke as hook_woke,
};
pub use crate::output::Requests;
pub use crate::private::PrivateFolder;
pub use crate::process::scrub;
pub use crate::program::{CLAUDE_CHANNELS, CODEX_CHANNELS, OPENCODE_AGENTS, codex_denials, opencode_config};
pub use crate::runner::{Runner, RunnerError, Stopping};
pub use crate::settings::{Driver, Input, Restart, Settings, SettingsError, UsageSource};
pub use crate::usage::{PRICES_DATE, Price, Prices};
pub use crate::wording::CONDUCT;
