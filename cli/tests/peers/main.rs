//! `lastword bench` beside the servers of others: real ones, on free ports, for a moment.

#[cfg(test)]
mod bench;
#[cfg(test)]
#[path = "../it/program.rs"]
#[expect(dead_code, reason = "the other tests of the program use more of it")]
mod program;
