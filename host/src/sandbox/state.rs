//! What a store carries: the state of one call, seen by the host functions.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::bind::BoundPlugin;
use super::capability::config::ConfigView;
use super::capability::http::Egress;
use super::capability::keyvalue::{KeyValue, KeyValueView};
use super::capability::log::{Log, LogView};
use super::capability::progress::{Progress, ProgressView};
use super::limits::Limiter;
use super::meter::Meter;
use super::pace::{Pace, Turn, Watch};
use super::stdio::BoundedPipe;
use crate::tool::ProgressSink;

/// Names and values of one set of HTTP fields, in bytes. No server takes as much; the guest's copy lives in the host.
const HTTP_FIELD_BYTES: usize = 64 * 1024;

/// The state of one call.
pub(super) struct HostState {
    pub(super) limiter: Limiter,
    pub(super) table: ResourceTable,
    pub(super) bound: Arc<BoundPlugin>,
    pub(super) meter: Meter,
    pub(super) stdout: Option<BoundedPipe>,
    pub(super) stderr: Option<BoundedPipe>,
    /// Made when the guest first uses it: many tools never do, and seeding its random generators costs more than their work.
    wasi: Option<WasiCtx>,
    http: WasiHttpCtx,
    egress: Option<Egress>,
    keyvalue: Option<KeyValue>,
    log: Log,
    progress: Progress,
    turn: Arc<Turn>,
    watch: Watch,
    pub(super) pace: Pace,
}

impl HostState {
    pub(super) fn new(
        bound: Arc<BoundPlugin>,
        turn: Arc<Turn>,
        cancel: CancellationToken,
        progress: Option<ProgressSink>,
        meter: Meter,
    ) -> Self {
        let limits = &bound.limits;
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HTTP_FIELD_BYTES);
        let mut table = ResourceTable::new();
        table.set_max_capacity(usize::try_from(limits.handles).unwrap_or(usize::MAX));
        Self {
            limiter: Limiter::new(limits),
            table,
            meter,
            stdout: None,
            stderr: None,
            wasi: None,
            http,
            egress: None,
            keyvalue: None,
            log: Log::new(Arc::clone(&bound.id), Arc::clone(&bound.secrets), limits.max_log),
            progress: Progress::new(progress, cancel),
            turn,
            watch: Watch::default(),
            pace: Pace::default(),
            bound,
        }
    }

    pub(super) fn log(&mut self) -> LogView<'_> {
        self.enter();
        LogView { ctx: &mut self.log }
    }

    pub(super) fn config(&mut self) -> ConfigView<'_> {
        self.enter();
        ConfigView { ctx: &self.bound.config }
    }

    pub(super) fn keyvalue(&mut self) -> KeyValueView<'_> {
        self.enter();
        let (bound, meter) = (&self.bound, &self.meter);
        if self.keyvalue.is_none()
            && let Some(grant) = &bound.kv
        {
            meter.add_used("kv", &grant.rule);
        }
        let ctx = self
            .keyvalue
            .get_or_insert_with(|| KeyValue::new(Arc::clone(&bound.id), bound.kv.clone(), bound.store.clone(), meter.clone()));
        KeyValueView { ctx, table: &mut self.table }
    }

    pub(super) fn progress(&mut self) -> ProgressView<'_> {
        self.enter();
        ProgressView { ctx: &mut self.progress }
    }

    /// Called on the way into every host function.
    fn enter(&mut self) {
        self.watch.enter(&self.turn);
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.enter();
        if self.wasi.is_none() {
            let limits = &self.bound.limits;
            let stdout = self.stdout.insert(BoundedPipe::new(limits.max_stdio)).clone();
            let stderr = self.stderr.insert(BoundedPipe::new(limits.max_stdio)).clone();
            let mut builder = WasiCtxBuilder::new();
            builder.stdout(stdout).stderr(stderr).envs(&self.bound.env).max_random_size(limits.random_bytes);
            let mut wasi = builder.build();
            // The directories were opened when the plugin was bound; their descriptors are shared.
            *wasi.filesystem() = self.bound.filesystem.clone();
            self.wasi = Some(wasi);
        }
        let ctx = self.wasi.as_mut().expect("set just above");
        WasiCtxView { ctx, table: &mut self.table }
    }
}

impl WasiHttpView for HostState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.enter();
        let (bound, meter, turn) = (&self.bound, &self.meter, &self.turn);
        let hooks = self
            .egress
            .get_or_insert_with(|| Egress::new(Arc::clone(&bound.egress), meter.clone(), &bound.limits, turn.deadline()));
        WasiHttpCtxView { hooks, table: &mut self.table, ctx: &mut self.http }
    }
}
