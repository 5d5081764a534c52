//! See `lastword_fuzz::state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_fuzz::state::check(data));
