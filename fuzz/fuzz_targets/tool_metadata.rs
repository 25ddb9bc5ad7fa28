//! What a plugin says about its tools: names, descriptions, schemas.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::sandbox::fuzz::fuzz_tool_metadata(data));
