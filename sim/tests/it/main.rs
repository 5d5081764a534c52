//! The properties of the core, over all short histories and over long random ones.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what failed, and campaigns report their figures"
)]

mod found;
mod histories;
mod sixty_days;
mod surfaces;
mod tidy;
