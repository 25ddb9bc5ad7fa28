//! A stream of server-sent events, whole and in pieces.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| honeycomb_host::provider::sse::fuzz_any_chunking(data));
