//! See `lastword_server::properties::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_server::properties::session(data));
