//! Project tasks that are more than one cargo command: `cargo xtask TASK`.

mod bench;
mod clients;
mod demo;
mod guests;
mod languages;
mod mcp;
mod process;
mod test;
mod weather;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask TASK

  demo      run a real task through the real binary: sandboxed tools, a denied call, a runaway tool
  test      build the plugins and run every test
  languages build the components in tests/typed by other people's compilers, as far as this machine can
  clients   install the official Python clients that the tests' model server must please, as far as this machine can
  mcp       install the official MCP conformance suite and clients that the MCP server must please, as far as this machine can
  plugins   build the plugins into target/plugins, installing the wasm target if it is missing
  bench     measure a tool call against a raw wasmtime loop, in one run
  ci        what a change must pass: formatting, lints, documentation, test";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["demo"] => demo::demo(&root),
        ["test", filters @ ..] => test::test(&root, filters),
        ["languages"] => languages::build(&root).map(|_| ()),
        ["clients"] => clients::install(&root),
        ["mcp"] => mcp::install(&root),
        ["plugins"] => guests::build_plugins(&root),
        ["bench", rest @ ..] => bench::bench(&root, rest),
        ["ci"] => test::ci(&root),
        ["help" | "--help" | "-h"] => {
            process::say(USAGE);
            return ExitCode::SUCCESS;
        }
        _ => {
            process::say(USAGE);
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            process::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The top of the workspace.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
