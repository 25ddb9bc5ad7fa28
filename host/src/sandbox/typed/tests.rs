mod components;
mod mapping;
mod roundtrip;
