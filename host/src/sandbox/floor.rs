//! The floor under a call, for `cargo xtask bench`: wasmtime's own loop over the same engine and component, with none of this host's
//! layers. It grants what no policy would: nothing at all.

use std::time::Duration;

use wasmtime::component::{Instance, InstancePre, Linker, ResourceTable};
use wasmtime::{Store, StoreLimits, StoreLimitsBuilder};
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

use super::Sandbox;
use super::bindings::{CallContext, Content, ToolError};
use super::pace::FUEL_PER_TURN;
use super::plugin::{Entry, Plugin};
use crate::policy::Limits;

/// A plugin in a bare wasmtime loop: a store with a WASI context, fuel, limits and a timeout; instantiate, call, drop.
#[doc(hidden)]
pub struct Floor {
    pre: InstancePre<State>,
    plugin: Plugin,
    limits: Limits,
}

struct State {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    hooks: NoHttp,
    table: ResourceTable,
    limits: StoreLimits,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.hooks, table: &mut self.table, ctx: &mut self.http }
    }
}

/// Sends nothing.
struct NoHttp;

type Transfer = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for NoHttp {
    fn send_request(
        &mut self,
        _: http::Request<WasiBody>,
        _: Option<RequestOptions>,
        _: Transfer,
    ) -> Box<dyn Future<Output = Result<(http::Response<WasiBody>, Transfer), Error>> + Send> {
        Box::new(std::future::ready(Err(Error::HttpRequestDenied)))
    }
}

impl Floor {
    /// Links a plugin against WASI and against imports that do nothing.
    ///
    /// # Errors
    ///
    /// Fails for a plugin that imports more than WASI's command interfaces and `wasi:logging`.
    pub fn new(sandbox: &Sandbox, plugin: &Plugin, limits: Limits) -> wasmtime::Result<Self> {
        let mut linker = Linker::<State>::new(sandbox.shared.linker.engine());
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
        linker.instance("wasi:logging/logging@0.1.0-draft")?.func_new("log", |_, _, _, _| Ok(()))?;
        let pre = linker.instantiate_pre(plugin.code.pre.component())?;
        Ok(Self { pre, plugin: plugin.clone(), limits })
    }

    /// One call. Returns the bytes of the result.
    ///
    /// # Errors
    ///
    /// Fails when the guest does.
    pub async fn call(&self, tool: &str, arguments: &str) -> wasmtime::Result<u64> {
        let mut builder = WasiCtxBuilder::new();
        let pipe = || MemoryOutputPipe::new(usize::try_from(self.limits.max_stdio).unwrap_or(usize::MAX));
        builder.stdout(pipe()).stderr(pipe());
        let memory = usize::try_from(self.limits.memory).unwrap_or(usize::MAX);
        let state = State {
            wasi: builder.build(),
            http: WasiHttpCtx::new(),
            hooks: NoHttp,
            table: ResourceTable::new(),
            limits: StoreLimitsBuilder::new().memory_size(memory).build(),
        };
        let mut store = Store::try_new(self.pre.engine(), state)?;
        store.limiter(|state| &mut state.limits);
        store.set_fuel(self.limits.fuel)?;
        store.fuel_async_yield_interval(Some(FUEL_PER_TURN))?;
        tokio::time::timeout(self.limits.timeout, async {
            let instance = self.pre.instantiate_async(&mut store).await?;
            self.enter(&mut store, &instance, tool, arguments).await
        })
        .await
        .unwrap_or_else(|_| Err(wasmtime::Error::msg("out of time")))
    }

    async fn enter(&self, store: &mut Store<State>, instance: &Instance, tool: &str, arguments: &str) -> wasmtime::Result<u64> {
        type Parameters<'a> = (&'a str, &'a str, &'a CallContext);
        type Results = (Result<Vec<Content>, ToolError>,);
        let Entry::Tools { call, .. } = &self.plugin.code.entry else { return Err(wasmtime::Error::msg("no `call-tool`")) };
        let call_tool = instance.get_typed_func::<Parameters<'_>, Results>(&mut *store, call)?;
        let context = CallContext {
            call_id: "call".to_owned(),
            run_id: "run".to_owned(),
            idempotency_key: "key".to_owned(),
            attempt: 1,
            deadline_ms: u64::try_from(Duration::from_secs(30).as_millis()).unwrap_or(u64::MAX),
            traceparent: None,
        };
        let (result,) = call_tool.call_async(&mut *store, (tool, arguments, &context)).await?;
        match result {
            Ok(content) => Ok(super::outcome::output_bytes(&content)),
            Err(_) => Err(wasmtime::Error::msg("the tool failed")),
        }
    }
}
