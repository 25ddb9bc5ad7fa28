//! A model's arguments of a call.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::agent::fuzz_arguments(data));
