//! See `lastword_mcp::properties::check`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastword_mcp::properties::check(data));
