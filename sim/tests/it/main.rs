//! What holds of the core, over all short histories and over long random ones.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what failed, and campaigns report their figures"
)]

mod histories;
mod surfaces;
mod tidy;
