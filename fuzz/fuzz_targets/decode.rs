//! A model server's answer in either protocol, whole and in pieces.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::provider::decode::fuzz_decode(data));
