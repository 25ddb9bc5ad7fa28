//! What a guest may import: one file for each capability, and the linker that offers them.

pub(super) mod config;
pub(super) mod fs;
pub(super) mod http;
pub(super) mod keyvalue;
pub(super) mod log;
pub(super) mod progress;
pub(super) mod wasi;

use wasmtime::Engine;
use wasmtime::component::Linker;

use super::state::HostState;

/// The interfaces that a plugin may import, with the versions that are offered. A plugin built for an older `0.2.x` links as well.
pub(super) const OFFERED: &[&str] = &[
    "honeycomb:plugin/progress@0.1.0",
    "honeycomb:plugin/types@0.1.0",
    "wasi:cli/environment@0.2.12",
    "wasi:cli/exit@0.2.12",
    "wasi:cli/stderr@0.2.12",
    "wasi:cli/stdin@0.2.12",
    "wasi:cli/stdout@0.2.12",
    "wasi:cli/terminal-input@0.2.12",
    "wasi:cli/terminal-output@0.2.12",
    "wasi:cli/terminal-stderr@0.2.12",
    "wasi:cli/terminal-stdin@0.2.12",
    "wasi:cli/terminal-stdout@0.2.12",
    "wasi:clocks/monotonic-clock@0.2.12",
    "wasi:clocks/wall-clock@0.2.12",
    "wasi:config/store@0.2.0-rc.1",
    "wasi:filesystem/preopens@0.2.12",
    "wasi:filesystem/types@0.2.12",
    "wasi:http/outgoing-handler@0.2.12",
    "wasi:http/types@0.2.12",
    "wasi:io/error@0.2.12",
    "wasi:io/poll@0.2.12",
    "wasi:io/streams@0.2.12",
    "wasi:keyvalue/atomics@0.2.0-draft2",
    "wasi:keyvalue/store@0.2.0-draft2",
    "wasi:logging/logging@0.1.0-draft",
    "wasi:random/insecure-seed@0.2.12",
    "wasi:random/insecure@0.2.12",
    "wasi:random/random@0.2.12",
    "wasi:sockets/instance-network@0.2.12",
    "wasi:sockets/ip-name-lookup@0.2.12",
    "wasi:sockets/network@0.2.12",
    "wasi:sockets/tcp-create-socket@0.2.12",
    "wasi:sockets/tcp@0.2.12",
    "wasi:sockets/udp-create-socket@0.2.12",
    "wasi:sockets/udp@0.2.12",
];

/// Makes the linker: everything on offer, each behind its own grant.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    wasi::add_to_linker(&mut linker)?;
    fs::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    config::add_to_linker(&mut linker, HostState::config)?;
    keyvalue::add_to_linker(&mut linker, HostState::keyvalue)?;
    log::add_to_linker(&mut linker, HostState::log)?;
    progress::add_to_linker(&mut linker, HostState::progress)?;
    Ok(linker)
}
