//! The MCP server as clients use it: over the program's pipes, and over HTTP on loopback.

mod ask;
mod clients;
mod conformance;
mod http;
mod stdio;

use honeycomb_tests::host::{Host, guests_dir};

/// A host over the test guests: everything is allowed but what is not there, and `ask` rules for `misbehave/large`.
fn host() -> Host {
    Host::new().plugins(guests_dir()).policy(
        r#"
version = 1
[limits]
timeout = "60s"     # what a plugin has cannot be more than this
[plugins.misbehave.limits]
timeout = "60s"
[[plugins.misbehave.tools]]
name = "echo"
decision = "allow"
max_calls = 3
[[plugins.misbehave.tools]]
name = "print"
decision = "allow"
[[plugins.misbehave.tools]]
name = "sleep"
decision = "allow"
[[plugins.misbehave.tools]]
name = "large"
decision = "ask"
[[plugins.conformance.tools]]
name = "*"
decision = "allow"
"#,
    )
}
