//! Properties of the project's parsers and stored formats. Each takes arbitrary bytes and panics if the property is
//! broken. The fuzz targets run them on mutated bytes; `sim/tests/it/fuzzed.rs` and tests of the program run them on
//! the corpus and on a few thousand mutations of it, without a nightly toolchain.

pub mod properties;

pub use properties::*;
