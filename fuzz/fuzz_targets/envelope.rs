//! See `lastword_fuzz::envelope`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_fuzz::envelope::check(data));
