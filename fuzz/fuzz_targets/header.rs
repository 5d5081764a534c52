//! See `lastword_fuzz::header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_fuzz::header::check(data));
