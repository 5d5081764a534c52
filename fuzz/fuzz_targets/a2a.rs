//! See `lastword_a2a::properties::check`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_a2a::properties::check(data));
