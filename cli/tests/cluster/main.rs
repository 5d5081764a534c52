//! Nodes of a cluster from outside: the real binary three times, on three NATS servers that replicate. Each test starts its
//! own.
//!
//! The ordinary tests are the short form of the campaigns; `LASTWORD_FAULTS=50` repeats each fault as often.

#[cfg(test)]
mod campaign;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod handover;
#[cfg(test)]
#[path = "../it/load.rs"]
#[expect(dead_code, reason = "the other tests of the program use more of it")]
mod load;
#[cfg(test)]
mod machines;
#[cfg(test)]
#[path = "../it/mounted.rs"]
mod mounted;
#[cfg(test)]
mod nats_access;
#[cfg(test)]
#[path = "../../../store/tests/jetstream/nats_server.rs"]
#[allow(dead_code, reason = "the store's tests use more of it")]
mod nats_server;
#[cfg(test)]
#[path = "../it/preload.rs"]
#[expect(dead_code, reason = "the other tests of the program use more of it")]
mod preload;
#[cfg(test)]
#[path = "../it/program.rs"]
#[expect(dead_code, reason = "the other tests of the program use more of it")]
mod program;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod reach;
#[cfg(test)]
mod rests;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod table;
#[cfg(test)]
mod traffic;
#[cfg(test)]
mod workspaces;
#[cfg(test)]
mod world;
