//! URLs, hosts and paths, as a plugin spells them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::policy::fuzz_url(data));
