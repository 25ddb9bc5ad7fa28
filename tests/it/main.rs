//! Every integration test, in one binary. A file's name says what it is about.

mod agent;
mod cassettes;
mod cli;
mod clients;
mod eval;
mod faults;
mod fields;
mod fuzz;
mod load;
mod mcp;
mod provider;
mod sandbox;
mod tidy;
mod typed;
mod workers;
