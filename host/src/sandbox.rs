//! The sandbox: loads plugins, binds them to grants and limits, and calls their tools. wasmtime appears only below this module.
//!
//! - One [`Engine`](wasmtime::Engine) and one linker for the host; a component is compiled and linked once.
//! - Every call gets a store of its own, dropped after it: a trapped instance is never entered again. A call that takes more than a moment
//!   is a task of its own, and a panic in a host function ends one call.
//! - Fuel, the deadline and every other limit cover instantiation, `realloc` and post-return as well.

mod artifact;
mod bind;
mod bindings;
mod cache;
mod call;
mod capability;
pub mod child;
mod compile;
pub mod config;
mod drive;
mod engine;
mod file;
#[doc(hidden)]
pub mod floor;
mod imports;
mod limits;
pub mod load;
pub mod metadata;
mod meter;
mod outcome;
mod pace;
mod plugin;
pub mod scan;
mod state;
mod stdio;
mod trace;
mod trap;
mod typed;
mod version;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use wasmtime::component::Linker;

use self::bind::{BoundPlugin, Means};
use self::load::{Kind, LoadOptions, Loader, Problem};
use self::metadata::RawTool;
use self::plugin::Code;
use self::state::HostState;
use crate::policy::Grants;
use crate::policy::Limits;
use crate::secret::{Redactor, Secrets};
use crate::text;
use crate::tool::{ErrorCode, Failure, ToolHints, ToolOutcome};

pub use self::bind::{BindError, Bound};
pub use self::call::Call;
pub use self::capability::fs::{MountError, Protected};
pub use self::child::compile_child_main;
pub use self::engine::Allocation;
pub use self::load::{LoadError, LoadLimits};
pub use self::metadata::PluginTool;
pub use self::plugin::{Plugin, PluginKind};
pub use self::trace::{Trace, Traced};
pub use self::typed::UnsupportedFunction;
pub use self::version::{Advisory, ENGINE_VERSION, advisories};

/// Calls that may run at once, over all plugins, unless the options say otherwise.
const MAX_CALLS: usize = 64;

/// Runs plugins. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Sandbox {
    shared: Arc<Shared>,
    means: Arc<Means>,
}

struct Shared {
    linker: Linker<HostState>,
    loader: Loader,
    allocation: Allocation,
    /// What no plugin's mount may hand over, whatever the policy.
    own: Vec<Protected>,
    /// One for each call that may run.
    calls: Arc<Semaphore>,
    /// One for each `list-tools` that may run.
    loads: Semaphore,
}

/// How to make a [`Sandbox`].
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// Where compiled plugins are kept; none means that each start compiles again.
    pub cache_dir: Option<PathBuf>,
    /// Where the key-value store lives; none means that it cannot be used.
    pub state_dir: Option<PathBuf>,
    /// The program that compiles plugins in a child process: this host's own executable.
    pub compiler: PathBuf,
    /// Calls that may run at once, over all plugins; more wait.
    pub max_calls: usize,
    /// Bounds on plugins themselves.
    pub load_limits: LoadLimits,
    /// What no mount may hand to a guest, beside the cache and the state directory: the policy, the plugins, files of secrets.
    pub protected: Vec<Protected>,
    /// The secrets that the policy names, for the requests that it adds them to.
    pub secrets: Arc<Secrets>,
}

impl SandboxOptions {
    /// Defaults, without a cache or a state directory.
    pub fn new(compiler: PathBuf) -> Self {
        Self {
            cache_dir: None,
            state_dir: None,
            compiler,
            max_calls: MAX_CALLS,
            load_limits: LoadLimits::default(),
            protected: Vec::new(),
            secrets: Arc::default(),
        }
    }
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// wasmtime cannot run here.
    #[error("cannot start the WebAssembly engine")]
    Engine(#[source] wasmtime::Error),
    /// An interface cannot be offered.
    #[error("cannot set up the interfaces that plugins import")]
    Linker(#[source] wasmtime::Error),
}

impl Sandbox {
    /// Makes a sandbox.
    ///
    /// Reserves address space for `max_calls` instances; where there is not enough, warns and goes on without.
    ///
    /// # Errors
    ///
    /// Fails when the engine, the interfaces or the loader cannot be set up.
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let max_calls = options.max_calls.clamp(1, 4096);
        let (engine, allocation) = engine::new_engine(max_calls)?;
        let linker = capability::linker(&engine).map_err(SandboxError::Linker)?;
        let own = [(&options.cache_dir, "compiled plugins"), (&options.state_dir, "the data of plugins")];
        let own: Vec<Protected> = own
            .into_iter()
            .filter_map(|(path, what)| path.as_ref().map(|path| Protected { path: path.clone(), what, readable: false }))
            .collect();
        let protected = [options.protected, own.clone()].concat();
        let loader = Loader::new(
            engine,
            LoadOptions {
                cache_dir: options.cache_dir,
                compiler: options.compiler,
                limits: options.load_limits,
                offered: capability::OFFERED.iter().map(|&name| name.to_owned()).collect(),
            },
        );
        let shared = Shared {
            linker,
            loader,
            allocation,
            own,
            calls: Arc::new(Semaphore::new(max_calls)),
            loads: Semaphore::new(engine::LOADS_AT_ONCE),
        };
        Ok(Self { shared: Arc::new(shared), means: Arc::new(Means::new(options.state_dir, protected, options.secrets)) })
    }

    /// The same sandbox for another policy: with other secrets, and other files that no mount may hand over.
    ///
    /// The engine, the caches, the key-value store and the room for calls are shared.
    #[must_use]
    pub fn renewed(&self, protected: Vec<Protected>, secrets: Arc<Secrets>) -> Self {
        let protected = [protected, self.shared.own.clone()].concat();
        Self { shared: Arc::clone(&self.shared), means: Arc::new(self.means.renewed(protected, secrets)) }
    }

    /// Finds the secrets of this sandbox in text.
    pub fn redactor(&self) -> &Redactor {
        self.means.secrets().redactor()
    }

    /// How instances are placed.
    pub fn allocation(&self) -> Allocation {
        self.shared.allocation
    }

    /// Calls that could start now without waiting.
    pub fn free_slots(&self) -> usize {
        self.shared.calls.available_permits()
    }

    /// Loads a plugin: reads and compiles the file (or takes the compiled code from the cache), links it, and asks for its tools once, in
    /// an instance that is thrown away, with small limits and no grants.
    ///
    /// `pin` is the SHA-256 that the file must have.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the file, or which import the host does not have.
    pub async fn load(&self, path: &Path, pin: Option<[u8; 32]>) -> Result<Plugin, LoadError> {
        let loaded = self.shared.loader.load(path, pin).await?;
        let name = text::clean_line(&path.to_string_lossy(), 200);
        let bad = |problem| LoadError::new(name.clone(), problem);
        let (linker, loader) = (&self.shared.linker, &self.shared.loader);
        let (kind, code, tools, unsupported) = match loaded.kind {
            Kind::Tools => {
                let code = Arc::new(Code::link(linker, loader, &loaded).map_err(bad)?);
                let tools = self.list_tools(&code).await.map_err(|failure| bad(Problem::ListTools(failure)))?;
                (PluginKind::Tools, code, tools, Vec::new())
            }
            Kind::Typed => {
                let (code, tools, unsupported) = Code::link_typed(linker, loader, &loaded).map_err(bad)?;
                (PluginKind::Typed, Arc::new(code), tools, unsupported)
            }
        };
        Ok(Plugin {
            sha256: loaded.sha256,
            bytes: loaded.bytes,
            kind,
            tools: tools.into(),
            unsupported,
            imports: loaded.imports,
            requests_text: loaded.requests_text,
            from_cache: loaded.from_cache,
            code,
        })
    }

    /// Binds a plugin to what it may reach and use. `id` is the plugin's id in the policy.
    ///
    /// # Errors
    ///
    /// Says which grant cannot be given: a directory that is missing or too dangerous to mount, a secret that is not there.
    pub fn bind(&self, plugin: &Plugin, id: &str, grants: Grants, limits: Limits) -> Result<Bound, BindError> {
        Ok(Bound(Arc::new(BoundPlugin::new(Arc::clone(&plugin.code), id, grants, limits, &self.means)?)))
    }

    /// Calls a tool. Whatever the plugin does is an outcome; so is a fault of the host.
    ///
    /// The first turn of the guest (see `sandbox/pace.rs`) runs in the caller's task: most tools end in it, and handing such a call to another
    /// thread and back took as long as the call. Whatever takes longer becomes a task of its own. Dropping the future stops the call.
    pub async fn call(&self, bound: &Bound, call: Call) -> ToolOutcome {
        self.call_traced(bound, call, &Trace::default()).await
    }

    /// Like [`Sandbox::call`]; `trace` tells what the call has done, while it runs and after it.
    pub async fn call_traced(&self, bound: &Bound, call: Call, trace: &Trace) -> ToolOutcome {
        let started = Instant::now();
        let tool = call.tool.clone();
        let mut run = Box::pin(call::run(Arc::clone(&self.shared.calls), Arc::clone(&bound.0), call, trace.clone(), started));
        let first = poll_fn(|context| Poll::Ready(catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context))))).await;
        let ended = match first {
            Ok(Poll::Ready(outcome)) => return outcome,
            Ok(Poll::Pending) => AbortOnDropHandle::new(tokio::spawn(run)).await.map_err(|error| error.is_panic()),
            Err(_) => Err(true),
        };
        ended.unwrap_or_else(|panicked| call::lost(&bound.0, &tool, panicked, started))
    }

    async fn list_tools(&self, code: &Arc<Code>) -> Result<Vec<PluginTool>, Failure> {
        let _slot = self.shared.loads.acquire().await.ok();
        let bound = BoundPlugin::new(Arc::clone(code), "list-tools", Grants::default(), list_limits(), &self.means)
            .map_err(|error| Failure::new(ErrorCode::HOST_INTERNAL, error.to_string()))?;
        let tools = call::list_tools(Arc::new(bound)).await?;
        metadata::check_tools(tools.into_iter().map(raw_tool).collect(), self.shared.loader.limits()).map_err(Failure::from)
    }
}

/// Entry points for fuzzing: each takes any bytes, and must neither panic nor hang.
#[doc(hidden)]
pub mod fuzz {
    pub use super::cache::fuzz_cache_entry;
    pub use super::metadata::fuzz_tool_metadata;
    pub use super::scan::fuzz_component;
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("allocation", &self.shared.allocation).finish_non_exhaustive()
    }
}

/// The limits of `list-tools`, which does no more than to return constants.
fn list_limits() -> Limits {
    Limits { fuel: 50_000_000, timeout: Duration::from_secs(2), memory: 64 << 20, http_requests: 0, ..Limits::default() }
}

fn raw_tool(tool: bindings::Tool) -> RawTool {
    let hints = ToolHints {
        read_only: tool.hints.read_only,
        destructive: tool.hints.destructive,
        idempotent: tool.hints.idempotent,
        open_world: tool.hints.open_world,
    };
    RawTool {
        name: tool.name,
        title: tool.title,
        description: tool.description,
        input_schema: tool.input_schema,
        output_schema: tool.output_schema,
        hints,
    }
}
