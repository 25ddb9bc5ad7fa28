//! The section in which a plugin says what it would like to be granted.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::policy::fuzz_requests(data));
