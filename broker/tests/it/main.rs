//! The broker as other crates use it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broker;
