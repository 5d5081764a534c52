//! The properties of the core, over all short histories and over long random ones.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a step that fails is a failed test, and campaigns print their figures"
)]

mod found;
mod histories;
mod sixty_days;
mod surfaces;
mod tidy;
