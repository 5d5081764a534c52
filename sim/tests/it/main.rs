//! The properties of the core, over all short histories and over long random ones.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a step that fails is a failed test, and campaigns print their figures"
)]

mod brokers;
mod decisions;
mod dependencies;
mod found;
mod fuzzed;
mod histories;
mod laboratory;
mod model;
mod no_progress;
mod queries;
mod remedies;
mod sixty_days;
mod surfaces;
mod template;
mod tidy;
