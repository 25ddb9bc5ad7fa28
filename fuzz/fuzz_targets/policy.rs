//! A policy file.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::policy::fuzz_policy(data));
