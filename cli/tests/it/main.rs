//! The program from outside: the real binary, a real server on a free port.

#[cfg(test)]
mod archive;
#[cfg(test)]
mod backup;
#[cfg(test)]
mod bytes;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod checkpoints;
#[cfg(test)]
mod closed;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod edits;
#[cfg(test)]
mod exhaustion;
#[cfg(test)]
mod faults;
mod first_day;
#[cfg(test)]
mod held_sessions;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod imitations;
#[cfg(test)]
mod init;
#[cfg(test)]
mod launch;
#[cfg(test)]
mod lifts;
#[cfg(test)]
mod load;
#[cfg(test)]
mod mcp_stdio;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod mounted;
#[cfg(test)]
mod no_progress;
#[cfg(test)]
mod notify;
#[cfg(test)]
mod offline;
#[cfg(test)]
mod online;
#[cfg(test)]
mod preload;
#[cfg(test)]
mod program;
#[cfg(test)]
#[path = "../../../server/tests/it/provider.rs"]
#[allow(dead_code, reason = "the server's tests use the rest of it")]
mod provider;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod released;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod runner;
#[cfg(test)]
mod runner_acp;
#[cfg(test)]
mod runner_usage;
#[cfg(test)]
mod running;
#[cfg(test)]
mod schedules;
#[cfg(test)]
#[allow(dead_code, reason = "the tests of the bridge to Discord use it, too")]
mod screen;
#[cfg(test)]
mod service;
#[cfg(test)]
mod session_clients;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod shared_tree;
#[cfg(test)]
mod sign_in;
#[cfg(test)]
mod taken_away;
#[cfg(test)]
mod team_folder;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod top;
#[cfg(test)]
mod verify;
