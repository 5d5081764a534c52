//! The store from outside: one suite for every store, damage, the read model, and the stored format.

#[cfg(test)]
mod archive;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod format;
#[cfg(test)]
mod index;
#[cfg(test)]
mod power;
#[cfg(test)]
mod rot;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod spends;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod witness;
