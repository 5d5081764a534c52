//! Discord: its gateway, its calls and its objects, and what they are to the bridge.

mod check;
mod commands;
mod dialect;
mod explore;
mod gateway;
mod interactions;
mod invite;
mod model;
mod platform;
#[cfg(any(test, feature = "properties"))]
pub mod properties;
mod rest;
mod settings;
mod sights;
mod text;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use lastword_bridge::event::EventSink;
use lastword_bridge::{Bridge, BridgeError};

pub use crate::check::{Finding, Report, Sight, check};
pub use crate::explore::{ExploreError, Explorer, Named};
pub use crate::settings::{BROKER, DiscordSettings};
pub use lastword_bridge as bridge;

/// Connects to the broker and to Discord, and registers or checks each bot's agent.
///
/// # Errors
/// The settings are invalid, or the broker or Discord refuses or doesn't answer.
pub fn start(settings: DiscordSettings, report: EventSink) -> BoxFuture<'static, Result<Bridge, BridgeError>> {
    Box::pin(async move {
        settings.broker_token().map_err(BridgeError::Settings)?;
        let discord = platform::Discord::new(&settings, report.clone());
        Bridge::start(settings.bridge, Arc::new(discord), report).await
    })
}
