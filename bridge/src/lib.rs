//! The bridge to a chat platform: a client with ordinary tokens that shows conversations in threads and reads the posts
//! there.
//!
//! What a post means (`inbound`) and how a message is posted (`outbound`) is decided without I/O; the other modules
//! carry it out. What differs from platform to platform is behind [`platform::Platform`]. Nothing is counted here: each
//! bot's post becomes one call to the broker, which counts it.

mod actors;
mod backfill;
mod book;
mod bots;
mod bridge;
mod by_channel;
mod calls;
pub mod cards;
mod channels;
pub mod commands;
#[cfg(test)]
mod den_tests;
pub mod dialect;
mod early;
pub mod event;
mod follow;
mod foreign_bots;
mod heard;
pub mod ids;
mod inbound;
mod intake;
pub mod interactions;
mod kept;
mod names;
mod outbound;
pub mod outbox;
mod people;
#[cfg(test)]
mod ping_pong_tests;
pub mod platform;
pub mod post;
#[cfg(feature = "properties")]
pub mod properties;
mod runs;
pub mod settings;
mod signs;
pub mod text;
mod threads;
#[cfg(test)]
mod trail_tests;
mod unserved;
mod wording;

pub use crate::bridge::{Bridge, BridgeError};
pub use crate::by_channel::{ByChannel, ChannelSettings};
