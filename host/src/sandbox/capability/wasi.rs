//! WASI 0.2 with nothing granted: clocks, random numbers, stdio into a buffer, and what a policy adds to them.
//!
//! The interfaces of `wasi:sockets` are offered, because libraries import them without ever opening a socket, and deny everything: no
//! socket can be made, and no name looked up.

use tokio::task::yield_now;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::p2::bindings::io::{poll, streams};
use wasmtime_wasi::p2::bindings::random::{insecure, random};
use wasmtime_wasi::p2::{DynOutputStream, DynPollable, StreamResult};

use crate::sandbox::state::HostState;
use crate::sandbox::trap::Stop;
use crate::tool::{ErrorCode, Failure};

/// What one pollable of a list counts for.
const POLLABLE_COST: usize = 64;

/// Offers the interfaces, and replaces the functions that must be bounded or paced more than wasmtime's are.
pub(in crate::sandbox) fn add_to_linker(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    pace_random(linker)?;
    pace_streams(linker)?;
    bound_poll(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// A megabyte of random bytes takes milliseconds and not one unit of fuel.
fn pace_random(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.instance("wasi:random/random@0.2.12")?.func_wrap_async(
        "get-random-bytes",
        |mut store: StoreContextMut<'_, HostState>, (len,): (u64,)| {
            Box::new(async move {
                spend_random(&mut store, len).await?;
                Ok((random::Host::get_random_bytes(store.data_mut().ctx().ctx.random(), len)?,))
            })
        },
    )?;
    linker.instance("wasi:random/insecure@0.2.12")?.func_wrap_async(
        "get-insecure-random-bytes",
        |mut store: StoreContextMut<'_, HostState>, (len,): (u64,)| {
            Box::new(async move {
                spend_random(&mut store, len).await?;
                Ok((insecure::Host::get_insecure_random_bytes(store.data_mut().ctx().ctx.random(), len)?,))
            })
        },
    )
}

async fn spend_random(store: &mut StoreContextMut<'_, HostState>, len: u64) -> wasmtime::Result<()> {
    let bound = &store.data().bound;
    let limit = bound.limits.random_bytes;
    if len > limit {
        let message = format!("`{}` asked for {len} random bytes at once, over `random_bytes` = {limit}", bound.id);
        let failure = Failure::new(ErrorCode::LIMIT_HOSTCALL, message);
        return Err(Stop(failure.hint("ask for less, or raise `random_bytes` in the policy's limits")).into());
    }
    spend(store, usize::try_from(len).unwrap_or(usize::MAX)).await;
    Ok(())
}

/// Writes carry up to `hostcall_bytes`, and into a buffer they never wait.
fn pace_streams(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut instance = linker.instance("wasi:io/streams@0.2.12")?;
    instance.func_wrap_async(
        "[method]output-stream.write",
        |mut store: StoreContextMut<'_, HostState>, (stream, bytes): (Resource<DynOutputStream>, Vec<u8>)| {
            Box::new(async move {
                spend(&mut store, bytes.len()).await;
                let table = store.data_mut().ctx().table;
                let written = streams::HostOutputStream::write(table, stream, bytes);
                Ok((stream_result(table, written)?,))
            })
        },
    )?;
    instance.func_wrap_async(
        "[method]output-stream.blocking-write-and-flush",
        |mut store: StoreContextMut<'_, HostState>, (stream, bytes): (Resource<DynOutputStream>, Vec<u8>)| {
            Box::new(async move {
                spend(&mut store, bytes.len()).await;
                let table = store.data_mut().ctx().table;
                let written = streams::HostOutputStream::blocking_write_and_flush(table, stream, bytes).await;
                Ok((stream_result(table, written)?,))
            })
        },
    )
}

fn stream_result<T>(
    table: &mut wasmtime_wasi::ResourceTable,
    result: StreamResult<T>,
) -> wasmtime::Result<Result<T, streams::StreamError>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => streams::Host::convert_stream_error(table, error).map(Err),
    }
}

/// A list may name one pollable a million times, and be ready at once.
fn bound_poll(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.instance("wasi:io/poll@0.2.12")?.func_wrap_async(
        "poll",
        |mut store: StoreContextMut<'_, HostState>, (pollables,): (Vec<Resource<DynPollable>>,)| {
            Box::new(async move {
                let bound = &store.data().bound;
                let limit = bound.limits.handles;
                if pollables.len() as u64 > limit {
                    let message = format!("`{}` polls {} handles at once, over `handles` = {limit}", bound.id, pollables.len());
                    let failure = Failure::new(ErrorCode::LIMIT_HANDLES, message);
                    return Err(Stop(failure.hint("poll fewer, or raise `handles` in the policy's limits")).into());
                }
                spend(&mut store, pollables.len().saturating_mul(POLLABLE_COST)).await;
                Ok((poll::Host::poll(store.data_mut().ctx().table, pollables).await?,))
            })
        },
    )
}

async fn spend(store: &mut StoreContextMut<'_, HostState>, bytes: usize) {
    if store.data_mut().pace.due(bytes) {
        yield_now().await;
    }
}
