//! The agent programs that Lastword knows, one file or folder each, and the runner: a client with an agent's token that turns
//! each delivery into one run of an agent.
//!
//! [`ALL`] lists the programs. A [`Runner`] takes deliveries, has a [`Driver`] run the agent for each of them, renews the
//! turn's lease meanwhile, and finishes the turn with the agent's final output. It talks to the broker only over HTTP, so it
//! can't bypass a guard.

mod a2a;
mod acp;
pub mod claude;
pub mod codex;
mod command;
mod configuration;
pub mod edits;
mod event;
mod files;
pub mod gemini;
mod guard;
mod hook;
mod in_line;
mod launch;
pub mod opencode;
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

pub use crate::configuration::{File, Identity, Invocation, Step};
pub use crate::event::{Event, EventSink};
pub use crate::files::main_worktree;
pub use crate::guard::guard_groups;
pub use crate::hook::{
    HookError, Occasion, claude as hook, end_interrupted, follow_ends, is_at_work, keep_leases, wait as hook_wait,
    woke as hook_woke,
};
pub use crate::launch::{Asked, Attendant, CLIENT, Happened, Keep, Launch, LaunchError, Order, Session, connection};
pub use crate::output::Requests;
pub use crate::private::PrivateFolder;
pub use crate::process::scrub;
pub use crate::program::{ALL, AgentProgram, Command, Resume};
pub use crate::runner::{Runner, RunnerError, Stopping};
pub use crate::settings::{Driver, Input, Restart, Settings, SettingsError, UsageSource};
pub use crate::usage::{PRICES_DATE, Price, Prices};
pub use crate::wording::CONDUCT;
