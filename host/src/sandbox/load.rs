//! Loads plugins: from a file that nobody vouches for to a component that can be instantiated.
//!
//! In this order: read once and bounded, compare the pinned digest, read the outline, look in the cache, compile in a child process,
//! file in the cache. No code of the plugin runs.

mod error;
mod limits;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Semaphore;
use wasmtime::Engine;
use wasmtime::component::Component;

pub use self::error::{LoadError, Problem};
pub use self::limits::LoadLimits;
use super::artifact::Artifact;
use super::cache::{Cache, EntryKey};
use super::compile::Compiler;
use super::config::{AddressSpace, EngineRole, address_space, engine_config};
use super::file::PluginFile;
use super::imports;
pub use super::scan::Kind;
use super::scan::{Outline, scan};
use super::typed::PackageDocs;
use crate::text;

/// Files that are read, or wait for a compiler, at once. Each is in memory meanwhile.
const LOADS_AT_ONCE: usize = 8;

/// Bytes of a file's path in messages.
const MAX_PATH: usize = 300;

/// Loads plugins for one engine. Cheap to clone.
#[derive(Clone)]
pub struct Loader(Arc<Inner>);

struct Inner {
    engine: Engine,
    cache: Option<Cache>,
    compiler: Compiler,
    limits: LoadLimits,
    offered: Vec<String>,
    loads: Semaphore,
    compiles: Semaphore,
}

/// What a [`Loader`] works with.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where compiled artifacts are kept; without it, every start compiles.
    pub cache_dir: Option<PathBuf>,
    /// The program that is the compile child when its first argument is [`COMPILE_COMMAND`](super::child::COMPILE_COMMAND): this one.
    /// On Linux `/proc/self/exe` still names it after an update has replaced the file.
    pub compiler: PathBuf,
    /// What loading one plugin may cost.
    pub limits: LoadLimits,
    /// The interfaces that the linker offers, with versions, such as `wasi:io/poll@0.2.12`.
    pub offered: Vec<String>,
}

impl LoadOptions {
    /// Options with the default limits and no cache.
    pub fn new(compiler: impl Into<PathBuf>) -> Self {
        Self { cache_dir: None, compiler: compiler.into(), limits: LoadLimits::default(), offered: Vec::new() }
    }
}

/// A plugin that was loaded and not yet run.
#[derive(Clone)]
pub struct Loaded {
    /// Digest of its file.
    pub sha256: [u8; 32],
    /// Bytes of its file.
    pub bytes: u64,
    /// The compiled component.
    pub component: Component,
    /// How it offers its tools.
    pub kind: Kind,
    /// Functions and interfaces that it imports, in its order.
    pub imports: Vec<String>,
    /// Functions and interfaces that it exports, in its order.
    pub exports: Vec<String>,
    /// The text of its `honeycomb:requests` section.
    pub requests_text: Option<String>,
    /// Doc comments of its functions; read only where they are tools.
    pub(super) docs: Arc<PackageDocs>,
    /// Whether the cache had it.
    pub from_cache: bool,
}

impl Loader {
    /// A loader for an engine that was made with this module's configuration.
    ///
    /// A cache that cannot be used is left out, with one line in the log.
    pub fn new(engine: Engine, options: LoadOptions) -> Self {
        let cache = options.cache_dir.as_deref().and_then(|path| {
            Cache::open(path, &engine, options.limits.artifact_bytes)
                .inspect_err(|error| {
                    tracing::warn!(cache = %path.display(), %error, "cannot use the cache; plugins will be compiled at every start");
                })
                .ok()
        });
        let space = address_space(&engine);
        Self(Arc::new(Inner {
            engine,
            cache,
            compiler: Compiler::new(&options.compiler, options.limits.clone(), space),
            offered: options.offered,
            loads: Semaphore::new(LOADS_AT_ONCE),
            compiles: Semaphore::new(options.limits.compiles.max(1)),
            limits: options.limits,
        }))
    }

    /// Loads a file. If `pin` is given, a file with another SHA-256 digest is refused before anything looks into it.
    ///
    /// # Errors
    ///
    /// Says which file was refused and why; [`Problem::code`] is stable.
    pub async fn load(&self, path: &Path, pin: Option<[u8; 32]>) -> Result<Loaded, LoadError> {
        let name = text::clean_line(&path.to_string_lossy(), MAX_PATH);
        self.load_unnamed(path.to_owned(), pin).await.map_err(|problem| LoadError::new(name, problem))
    }

    /// What is wrong with a component that the linker refused: it names the import that is missing, or repeats the linker's words.
    pub(super) fn link_problem(&self, loaded: &Loaded, error: &wasmtime::Error) -> Problem {
        imports::first_missing(&loaded.imports, &self.0.offered)
            .unwrap_or_else(|| Problem::Link(text::clean_line(&format!("{error:#}"), MAX_PATH)))
    }

    /// What loading one plugin may cost.
    pub(super) fn limits(&self) -> &LoadLimits {
        &self.0.limits
    }

    async fn load_unnamed(&self, path: PathBuf, pin: Option<[u8; 32]>) -> Result<Loaded, Problem> {
        let _slot = self.0.loads.acquire().await.map_err(closed)?;
        let this = self.clone();
        let opened = blocking(move || this.open(&path, pin)).await??;
        let (file, outline) = match opened {
            Opened::Cached(loaded) => return Ok(*loaded),
            Opened::Fresh { file, outline } => (file, outline),
        };
        let artifact = {
            let _slot = self.0.compiles.acquire().await.map_err(closed)?;
            self.0.compiler.compile(&file.bytes).await?
        };
        let this = self.clone();
        blocking(move || this.finish(&file, outline, artifact)).await?
    }

    /// Everything before compilation. Blocks.
    fn open(&self, path: &Path, pin: Option<[u8; 32]>) -> Result<Opened, Problem> {
        let file = PluginFile::read(path, self.0.limits.file_bytes, pin)?;
        let outline = scan(&file.bytes, &self.0.limits)?;
        imports::check_versions(&outline.imports, &self.0.offered)?;
        match self.cached(&file.sha256) {
            Some(component) => Ok(Opened::Cached(Box::new(loaded(&file, outline, component, true)))),
            None => Ok(Opened::Fresh { file, outline }),
        }
    }

    fn cached(&self, sha256: &[u8; 32]) -> Option<Component> {
        let cache = self.0.cache.as_ref()?;
        let key = cache.key(sha256);
        let artifact = cache.get(key).inspect_err(|error| tracing::debug!(%error, "not in the cache")).ok()?;
        // It is this user's and whole, but may be of another processor: a home directory on two machines.
        artifact.into_component(&self.0.engine).inspect_err(|_| cache.remove(key)).ok()
    }

    /// Files an artifact and makes a component of it, from the file if there is one: a mapped file costs no memory of its own. Blocks.
    fn finish(&self, file: &PluginFile, outline: Outline, artifact: Artifact) -> Result<Loaded, Problem> {
        let filed = self.0.cache.as_ref().and_then(|cache| {
            let key: EntryKey = cache.key(&file.sha256);
            cache.put(key, artifact.bytes()?);
            cache.get(key).ok()
        });
        let component = filed
            .unwrap_or(artifact)
            .into_component(&self.0.engine)
            .map_err(|error| Problem::Host { what: "reading the compiled artifact", source: error.into() })?;
        Ok(loaded(file, outline, component, false))
    }
}

enum Opened {
    Cached(Box<Loaded>),
    Fresh { file: PluginFile, outline: Outline },
}

fn loaded(file: &PluginFile, outline: Outline, component: Component, from_cache: bool) -> Loaded {
    let docs = match outline.kind {
        Kind::Typed => PackageDocs::of_component(&file.bytes),
        Kind::Tools => PackageDocs::default(),
    };
    Loaded {
        docs: Arc::new(docs),
        sha256: file.sha256,
        bytes: u64::try_from(file.bytes.len()).unwrap_or(u64::MAX),
        component,
        kind: outline.kind,
        imports: outline.imports,
        exports: outline.exports,
        requests_text: outline.requests,
        from_cache,
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Problem::Host { what: "a task ended early", source: error.into() })
}

fn closed(error: tokio::sync::AcquireError) -> Problem {
    Problem::Host { what: "the loader is closed", source: error.into() }
}

/// An engine as the sandbox's own, without a pool; for tests of loading alone.
#[doc(hidden)]
pub fn plain_engine() -> wasmtime::Result<Engine> {
    Engine::new(&engine_config(EngineRole::Serve, AddressSpace::Large))
}

#[cfg(test)]
mod tests {
    use wasmtime::component::Linker;

    use super::*;

    #[test]
    fn names_the_import_that_the_linker_misses() {
        let wasm =
            wat::parse_str(r#"(component (import "evil:host/api@1.0.0" (instance (export "pwn" (func)))))"#).expect("valid text");
        let compiler = Engine::new(&engine_config(EngineRole::Compile, AddressSpace::Large)).expect("an engine");
        let artifact = compiler.precompile_component(&wasm).expect("compiled");
        let engine = plain_engine().expect("an engine");
        let component = Artifact::from_compiler(artifact).into_component(&engine).expect("the same configuration");
        let error = Linker::<()>::new(&engine).instantiate_pre(&component).err().expect("missing");

        let mut plugin = Loaded {
            sha256: [0; 32],
            bytes: 0,
            component,
            kind: Kind::Typed,
            imports: vec!["evil:host/api@1.0.0".to_owned()],
            exports: Vec::new(),
            requests_text: None,
            docs: Arc::default(),
            from_cache: false,
        };
        let loader = Loader::new(engine, LoadOptions::new("/nonexistent"));
        let missing = loader.link_problem(&plugin, &error);
        assert_eq!(missing.to_string(), "imports `evil:host/api@1.0.0`, but this host has nothing of that name");
        assert_eq!(missing.code().as_str(), "link.missing");
        plugin.imports.clear();
        let words = loader.link_problem(&plugin, &error).to_string();
        assert!(words.starts_with("does not fit this host: "), "{words}");
    }

    #[tokio::test]
    async fn cleans_the_name_of_the_file_in_messages() {
        let loader = Loader::new(plain_engine().expect("an engine"), LoadOptions::new("/nonexistent"));
        let error = loader.load(Path::new("/nonexistent/a\u{1b}[2J\u{202e}.wasm"), None).await.err().expect("refused");
        assert!(error.to_string().starts_with("`/nonexistent/a[2J.wasm` cannot be read"), "{error}");
    }
}
