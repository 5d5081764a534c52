//! The Discord bridge from outside: the real binary between a real server and a Discord of our own.

#[cfg(test)]
mod world;
#[cfg(test)]
mod world_tests;
