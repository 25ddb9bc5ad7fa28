//! Every integration test, in one binary. A file's name says what it is about.

mod agent;
mod cassettes;
mod cli;
mod eval;
mod fuzz;
mod load;
mod provider;
mod sandbox;
mod tidy;
mod typed;
mod workers;
