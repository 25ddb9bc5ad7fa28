//! Honeycomb: AI agents whose tools run as WASI components in a sandbox, with only what a policy grants.
//!
//! # Layout
//!
//! Imports point inward, as `ARCHITECTURE.md` says, and a test keeps it so. In reading order:
//!
//! - [`message`], [`tool`]: the shared vocabulary, and the trait `Tools`: all that the agent sees of tools;
//! - [`policy`]: what a plugin may do; pure;
//! - [`sandbox`]: wasmtime, and only here;
//! - [`registry`]: the only path from a call to its effect;
//! - [`memory`]: facts that outlive a conversation, as two tools of a built-in plugin;
//! - [`provider`], [`agent`]: the model, and the loop;
//! - [`mcp`]: the MCP server;
//! - [`store`]: sessions that outlive the process;
//! - [`cli`]: the command line.

mod file;
pub mod json;
pub mod message;
pub mod text;
mod time;
pub mod tool;

pub mod approval;
pub mod audit;
pub mod policy;
pub mod secret;

pub mod sandbox;

pub mod registry;

pub mod memory;

pub mod agent;
pub mod provider;
pub mod recording;
pub mod store;

pub mod eval;

pub mod cli;
pub mod config;
pub mod mcp;
