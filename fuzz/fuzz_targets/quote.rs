//! See `lastword_fuzz::quote`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_fuzz::quote::check(data));
