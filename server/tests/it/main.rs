//! End to end: a server on a free port and a real HTTP client.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod broker;
mod console;
mod console_people;
mod desk;
mod documents;
mod exchange;
mod mcp;
mod mcp_elicit;
mod mcp_wire;
mod permit;
mod watching;
mod world;
