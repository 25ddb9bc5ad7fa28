//! The bytes of a component, before anything compiles them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::sandbox::fuzz::fuzz_component(data));
