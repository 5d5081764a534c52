//! The core from outside: golden transcripts, the tables, and the proof that each guard is needed.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "a transcript that can't be read fails its test, and only some facts are shown"
)]

mod bounds;
mod facts;
mod hints;
mod questions;
mod script;
mod tables;
mod transcripts;
mod usage;
