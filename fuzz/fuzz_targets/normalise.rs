//! A conversation, and what is sent of it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::agent::fuzz_normalise(data));
