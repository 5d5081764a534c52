//! The program from outside: the real binary, a real server on a free port.

#[cfg(test)]
mod crash;
#[cfg(test)]
mod offline;
#[cfg(test)]
mod online;
#[cfg(test)]
mod program;
