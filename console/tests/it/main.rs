//! End-to-end tests of the console: a server on a free port, and a client that does what a browser does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod channels;
mod console;
mod counts;
mod decisions;
mod devices;
mod finding;
mod history_pages;
mod links;
#[path = "../../../server/tests/it/machine.rs"]
#[expect(dead_code, reason = "the tests of the server use more of it")]
mod machine;
mod outcomes;
mod people;
mod readers;
mod risk;
mod roles;
mod schedules;
mod team;
mod templates;
mod tree;
mod work;
#[path = "../../../server/tests/it/world.rs"]
#[expect(dead_code, reason = "the tests of the server use more of it")]
mod world;
mod wrong;
