//! See `lastword_discord::properties::post`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_discord::properties::post(data));
