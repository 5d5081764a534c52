//! The log on JetStream from outside: the suite of every store, its archive, and faults of NATS.

#[cfg(test)]
mod archive;
#[cfg(test)]
#[path = "../it/conformance.rs"]
mod conformance;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod nats_server;
#[cfg(test)]
#[path = "../it/sample.rs"]
#[expect(dead_code, reason = "the tests of the other stores use more of it")]
mod sample;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod stream;
