//! See `lastword_fuzz::names`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_fuzz::names::check(data));
