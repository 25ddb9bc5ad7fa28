//! The binary `honeycomb-host`: see [`honeycomb_host::cli`].

fn main() -> std::process::ExitCode {
    honeycomb_host::cli::main()
}
