//! What holds of the core, over all short histories and over long random ones.

mod histories;
mod tidy;
