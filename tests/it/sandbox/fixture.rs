//! A sandbox with one guest in it.

use std::sync::atomic::{AtomicU32, Ordering};

use honeycomb_host::policy::Grants;
use honeycomb_host::policy::Limits;
use honeycomb_host::sandbox::{Bound, Call, Plugin, Sandbox, SandboxOptions};
use honeycomb_host::tool::ToolOutcome;
use honeycomb_tests::guest::Guest;
use honeycomb_tests::host::host_program;
use tokio_util::sync::CancellationToken;

/// A sandbox and a directory for its plugins.
pub(super) struct Fixture {
    pub(super) sandbox: Sandbox,
    directory: tempfile::TempDir,
    files: AtomicU32,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(change: impl FnOnce(&mut SandboxOptions)) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut options = SandboxOptions::new(host_program());
        change(&mut options);
        Self { sandbox: Sandbox::new(options).expect("a sandbox"), directory, files: AtomicU32::new(0) }
    }

    pub(super) async fn load(&self, guest: &Guest) -> Plugin {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.path().join(format!("guest{number}.wasm"));
        std::fs::write(&path, guest.bytes().expect("valid text")).expect("a file");
        self.sandbox.load(&path, None).await.expect("a plugin")
    }

    pub(super) async fn bind(&self, guest: &Guest, limits: Limits) -> Bound {
        let plugin = self.load(guest).await;
        self.sandbox.bind(&plugin, "guest", Grants::default(), limits).expect("a bound plugin")
    }

    pub(super) async fn call(&self, bound: &Bound) -> ToolOutcome {
        self.sandbox.call(bound, call()).await
    }
}

pub(super) fn call() -> Call {
    Call {
        tool: "run".to_owned(),
        arguments: "{\"城市\":\"北京\"}".to_owned(),
        run_id: "run-1".to_owned(),
        call_id: "call-1".to_owned(),
        idempotency_key: "key-1".to_owned(),
        attempt: 1,
        cancel: CancellationToken::new(),
        progress: None,
        log: None,
    }
}

/// The code that an outcome ended with; `ok` if it did not fail.
pub(super) fn code(outcome: &ToolOutcome) -> &str {
    outcome.error.as_ref().map_or("ok", |failure| failure.code.as_str())
}
