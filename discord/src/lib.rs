//! Discord: a client with ordinary tokens that shows conversations in threads and reads the posts there.
//!
//! What a post means (`inbound`) and how a message is posted (`outbound`, `text`) is decided without I/O; the
//! other modules carry it out. Nothing is counted here: each bot's post becomes one call to the broker, which counts
//! it.

mod actors;
mod backfill;
mod book;
mod bots;
mod bridge;
mod by_channel;
mod calls;
mod cards;
mod channels;
mod check;
mod commands;
#[cfg(test)]
mod den;
mod early;
mod event;
mod explore;
mod fix;
mod follow;
mod foreign_bots;
mod gateway;
mod heard;
mod inbound;
mod intake;
mod interactions;
mod invite;
mod kept;
mod model;
#[cfg(test)]
mod naive;
mod names;
mod outbound;
mod outbox;
mod people;
#[cfg(test)]
mod ping_pong;
#[cfg(feature = "properties")]
pub mod properties;
mod rest;
mod runs;
mod settings;
mod signs;
mod text;
mod threads;
#[cfg(test)]
mod trail;
mod unserved;
mod wording;

pub use crate::bridge::{Bridge, DiscordBridgeError};
pub use crate::by_channel::{ByChannel, ChannelSettings};
pub use crate::check::{Finding, Report, Sight, check};
pub use crate::event::{Event, EventSink};
pub use crate::explore::{ExploreError, Explorer, Named};
pub use crate::settings::{BROKER, Bot, BotPolicy, HeaderStyle, Identity, Secret, Settings, Speaker};
