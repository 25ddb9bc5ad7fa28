//! A file of the cache: artifact, trailer, tag.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::sandbox::fuzz::fuzz_cache_entry(data));
