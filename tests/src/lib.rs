//! The test harness: the real program with real plugins, guests made to order, and servers that answer from a script.

pub mod alone;
pub mod effects;
pub mod fakellm;
pub mod guest;
pub mod host;
pub mod mcp;
pub mod news;
pub mod steps;
pub mod web;
