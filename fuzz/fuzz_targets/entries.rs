//! See `lastword_fuzz::entries`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_fuzz::entries::check(data));
