//! The edge over real sockets: agents of other systems ask those of a workspace.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod cards;
mod circle;
mod driver;
mod loops;
mod partner;
mod push;
mod streams;
mod tasks;
mod unread;
mod world;
