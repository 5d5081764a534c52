//! The runner: a client with an agent's token that makes each delivery one run of an agent.
//!
//! A [`Runner`] takes deliveries, has a [`Driver`] run the agent for each of them, keeps the turn's lease
//! alive meanwhile, and finishes the turn with what the agent said last. It sees the broker over HTTP alone,
//! so nothing in it can get round a guard.

mod acp;
mod command;
mod event;
mod hook;
mod process;
mod run;
mod runner;
mod settings;
mod watch;
mod wording;

pub use crate::event::{Event, EventSink};
pub use crate::hook::{HookError, Occasion, claude as hook};
pub use crate::runner::{Runner, RunnerError, Stopping};
pub use crate::settings::{Driver, Input, Restart, Settings, SettingsError};
