//! The Discord bridge from outside: the real binary between a real server and a fake Discord.

#[cfg(test)]
mod bridge;
#[cfg(test)]
mod cards;
#[cfg(test)]
mod channels;
#[cfg(test)]
mod check;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod degraded;
#[cfg(test)]
mod init;
#[cfg(test)]
mod outage;
#[cfg(test)]
#[path = "../it/program.rs"]
#[expect(dead_code, reason = "the other tests of the program use more of it")]
mod program;
#[cfg(test)]
mod roles;
#[cfg(test)]
#[path = "../it/running.rs"]
#[expect(dead_code, reason = "the other tests of the program use more of it")]
mod running;
#[cfg(test)]
#[path = "../it/screen.rs"]
#[allow(dead_code, reason = "the other tests of the program use more of it")]
mod screen;
#[cfg(test)]
mod signs;
#[cfg(test)]
mod town;
#[cfg(test)]
mod trouble;
#[cfg(test)]
mod world;
#[cfg(test)]
mod world_tests;
