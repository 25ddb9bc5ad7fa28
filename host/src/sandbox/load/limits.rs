//! Limits on the component itself: its file, its shape, and what compiling it may cost.

use std::time::Duration;

/// What loading one plugin may cost. Each limit is on by default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadLimits {
    /// `file_bytes`: bytes of the `.wasm` file. Default 32 MiB: an interpreter with its library fits, a disk image does not.
    pub file_bytes: u64,
    /// `artifact_bytes`: bytes of the compiled artifact. Default 128 MiB; 631 bytes of wasm once became 30 MB.
    pub artifact_bytes: u64,
    /// `compile_time`: wall-clock time of the compile child. Default 180 s: it yields to everything else, so on a busy machine it takes many
    /// times its processor time.
    pub compile_time: Duration,
    /// `compile_cpu`: processor time of the compile child, in whole seconds. Default 60 s: a JavaScript engine of 14 MB takes 19 s, Python of
    /// 18 MB 16 s.
    pub compile_cpu: Duration,
    /// `compile_memory`: bytes of address space of the compile child, its own code included. Default 1 GiB.
    pub compile_memory: u64,
    /// `compiles`: compile children at once. Default 2.
    pub compiles: usize,
    /// `core_instances`: core instances in all, nested components multiplied out. Default 512.
    pub core_instances: u64,
    /// `items`: imports, exports, aliases, types, instances and functions, over all nested components. Default 20,000.
    pub items: u64,
    /// `exports`: exports of the component, and of one instance in it. Default 1,024.
    pub exports: u64,
    /// `name_bytes`: bytes of the name of an import or export. Default 512.
    pub name_bytes: usize,
    /// `requests_bytes`: bytes of the `honeycomb:requests` section. Default 64 KiB.
    pub requests_bytes: usize,
    /// `tools`: tools of one plugin. Default 256.
    pub tools: usize,
    /// `schema_bytes`: bytes of one JSON Schema. Default 64 KiB.
    pub schema_bytes: usize,
    /// `description_bytes`: bytes kept of one tool's description; the rest is cut and marked. Default 8 KiB.
    pub description_bytes: usize,
}

impl Default for LoadLimits {
    fn default() -> Self {
        const KIB: usize = 1024;
        const MIB: u64 = 1024 * 1024;
        Self {
            file_bytes: 32 * MIB,
            artifact_bytes: 128 * MIB,
            compile_time: Duration::from_secs(180),
            compile_cpu: Duration::from_secs(60),
            compile_memory: 1024 * MIB,
            compiles: 2,
            core_instances: 512,
            items: 20_000,
            exports: 1_024,
            name_bytes: 512,
            requests_bytes: 64 * KIB,
            tools: 256,
            schema_bytes: 64 * KIB,
            description_bytes: 8 * KIB,
        }
    }
}
