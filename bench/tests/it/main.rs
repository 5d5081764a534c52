//! `lastword-bench` with the real program, and beside other systems' servers with the feature `peers`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(test)]
mod crowd;
#[cfg(all(test, feature = "peers"))]
mod peers;
#[cfg(test)]
mod program;
#[cfg(test)]
mod standing;
