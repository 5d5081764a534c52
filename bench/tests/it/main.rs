//! `lastword-bench` on the real program, and beside the servers of others with the feature `peers`.

#[cfg(all(test, feature = "peers"))]
mod peers;
#[cfg(test)]
mod program;
#[cfg(test)]
mod standing;
