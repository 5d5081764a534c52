//! End-to-end tests: a server on a free port and a real HTTP client.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
#[cfg(test)]
mod answers;
mod archive;
mod attendance;
mod audit;
mod base_path;
#[path = "../../../console/tests/it/browser.rs"]
#[expect(dead_code, reason = "the tests of the console use more of it")]
mod browser;
mod byte_pages;
mod bytes;
mod clock;
mod desk;
mod display_names;
mod documents;
mod every_lift;
mod exact_calls;
mod exchange;
mod first_day;
mod holders;
mod human_edges;
mod lifts;
mod machine;
mod mcp;
mod mcp_elicit;
mod mcp_human;
mod mcp_wire;
mod narrowed;
mod no_progress;
mod notices;
mod people;
mod permit;
mod provider;
mod remedies;
mod roles;
mod schedules;
mod session;
mod session_clock;
mod session_order;
mod session_receipts;
mod sign_in;
mod spending;
mod stored_once;
mod tokens;
mod watching;
mod world;
