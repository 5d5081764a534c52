//! A2A 1.0: agents of other systems ask those of a workspace, by JSON-RPC and HTTP+JSON. A task is a request, a context a
//! conversation, and a caller a registered agent with its token, whose roots the broker bounds.
//!
//! Nothing is published unless the configuration names an agent.

mod answer;
mod binding;
mod card;
mod causality;
mod collect;
mod door;
mod fault;
mod fold;
mod model;
#[cfg(feature = "properties")]
pub mod properties;
mod push;
mod send;
mod stream;
mod tasks;

pub use self::door::mount;

/// The agents that other systems may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct A2aSettings {
    /// The published agents.
    pub publish: Vec<Published>,
    /// Whether push notifications may go to addresses of this machine and its network, and by HTTP.
    pub allow_private: bool,
}

/// An agent with an address of its own, `/a2a/NAME/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Its name in the workspace.
    pub name: String,
    /// What its card says of it; empty says only whose agent it is.
    pub description: String,
}
