//! Never shipped, and has no code: its manifest names the features that only tests use.
//!
//! Cargo compiles a library once for each set of features, and everything above it as often. A command has the features of
//! all packages that it selects, and `cargo run` selects this one as `cargo tests` does. So `cargo tests` compiles none of the
//! libraries that `cargo run` left. `--package lastword-cli` selects the program alone, without them: so a release is built.
