//! Loading files that nobody vouches for: each is refused with its own code, in bounded time, and the host is none the worse.

mod bombs;
mod child;
mod crash;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use honeycomb_host::sandbox::load::{LoadLimits, LoadOptions, Loaded, Loader, Problem, plain_engine};
use honeycomb_tests::alone::alone;
use honeycomb_tests::host::host_program;
use honeycomb_tests::news::tell;

fn options() -> LoadOptions {
    LoadOptions::new(host_program())
}

fn loader(options: LoadOptions) -> Loader {
    Loader::new(plain_engine().expect("an engine"), options)
}

/// A component with one exported function, and `extra` before it.
fn component(extra: &str) -> Vec<u8> {
    text(&format!(
        r#"(component
            (core module $m (func (export "run")))
            (core instance $i (instantiate $m))
            {extra}
            (func (export "run") (canon lift (core func $i "run"))))"#
    ))
}

fn text(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("valid text")
}

/// One of the hostile files of this directory.
fn hostile(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile").join(name);
    text(&std::fs::read_to_string(path).expect("the file"))
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    fn script(&self, lines: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write("compiler", format!("#!/bin/sh\n{lines}\n").as_bytes());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("changed");
        path
    }
}

async fn load_bytes(loader: &Loader, bytes: &[u8]) -> Result<Loaded, String> {
    let files = Files::new();
    let path = files.write("plugin.wasm", bytes);
    loader
        .load(&path, None)
        .await
        .map_err(|error| format!("{} {error}", error.problem().code()).replace(&format!("`{}` ", path.display()), ""))
}

/// Open descriptors of this process, without the one that counts them.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1))
}

#[tokio::test]
async fn each_kind_of_bad_file_has_its_code() {
    let loader =
        loader(LoadOptions { offered: vec!["wasi:io/poll@0.2.12".to_owned(), "wasi:http/types@0.2.12".to_owned()], ..options() });
    let good = component("");
    let locals = |n: usize| component(&format!("(core module (func (local{})))", " i32".repeat(n)));
    let nested = |n: usize| {
        component(&(0..n).fold("(type $t0 u8)".to_owned(), |text, i| format!("{text} (type $t{} (list $t{i}))", i + 1)))
    };
    let wasi = |name: &str| component(&format!(r#"(import "{name}" (instance (export "f" (func))))"#));
    let mut half = good.clone();
    half.truncate(good.len() / 2);
    let mut body = component("(core module (func (result i32) i32.const 1))");
    let at = body.iter().rposition(|&byte| byte == 0x41).expect("an i32.const");
    body[at] = 0x42;

    let rows = [
        ("empty", Vec::new(), "load.invalid is empty"),
        ("random bytes", vec![0xa7; 4096], "load.invalid is not WebAssembly: it starts with a7 a7 a7 a7"),
        ("truncated", half, "load.invalid is cut short"),
        ("core module", hostile("p26_core_module_only.wat"), "load.invalid is a core WebAssembly module"),
        ("ELF", std::fs::read(host_program()).expect("read")[..4096].to_vec(), "load.invalid is a precompiled artifact"),
        ("text", b"(component)".to_vec(), "load.invalid is WebAssembly text"),
        ("invalid code", body, "load.invalid is not a valid component: type mismatch"),
        ("memory64", hostile("p09_memory64.wat"), "load.unsupported needs the WebAssembly feature memory64"),
        ("shared memory", hostile("p10_shared_mem.wat"), "load.unsupported needs the WebAssembly feature threads"),
        ("async export", hostile("p39_async_lift.wat"), "load.unsupported needs the WebAssembly feature component-model async"),
        ("exceptions", component("(core module (tag))"), "load.unsupported needs the WebAssembly feature exceptions"),
        (
            "tail call",
            component("(core module (func $f return_call $f))"),
            "load.unsupported needs the WebAssembly feature tail-call",
        ),
        (
            "garbage collection",
            component("(core module (type (sub (func))))"),
            "load.unsupported needs the WebAssembly feature gc",
        ),
        (
            "two memories",
            component("(core module (memory 1) (memory 1))"),
            "load.unsupported needs the WebAssembly feature multi-memory",
        ),
        (
            "later WASI",
            wasi("wasi:io/poll@0.2.99"),
            "link.missing imports `wasi:io/poll@0.2.99`, but this host has `wasi:io/poll@0.2.12`",
        ),
        (
            "WASI 0.3",
            wasi("wasi:http/types@0.3.0"),
            "link.missing imports `wasi:http/types@0.3.0`, but this host has `wasi:http/types@0.2.12`",
        ),
        ("100,000 exports", bombs::exports(100_000), "load.limit has 100004 items"),
        ("type nested 5,000 deep", nested(5_000), "load.invalid is not a valid component: type nesting is too deep"),
        ("50,001 locals", locals(50_001), "load.invalid is not a valid component: too many locals"),
        ("br_table of 70,000", hostile("p33_br_table_70k.wat"), "load.invalid is not a valid component"),
        ("instance bomb", hostile("p36_inst_blowup_5x20.wat"), "load.limit has 3200000 core instances"),
        (
            "a long name",
            component(&format!(r#"(import "{}" (func))"#, "a".repeat(100_000))),
            "load.limit has 100000 bytes in a name",
        ),
    ];
    tell(&format!("hostile corpus: loading {}", rows.len()));
    for (name, bytes, expected) in rows {
        let started = Instant::now();
        let error = load_bytes(&loader, &bytes).await.err().unwrap_or_else(|| panic!("{name} was loaded"));
        assert!(error.starts_with(expected), "{name}: {error}");
        assert!(started.elapsed() < Duration::from_secs(10), "{name} took {:?}", started.elapsed());
        assert!(load_bytes(&loader, &good).await.is_ok(), "a good plugin after {name}");
    }
}

#[tokio::test]
async fn loads_what_is_odd_but_within_the_limits() {
    let loader = loader(options());
    let blocks = format!("(core module (func {}{}))", "block ".repeat(50_000), "end ".repeat(50_000));
    let custom = format!(r#"(@custom "name of nothing" "{}")"#, "x".repeat(20_000_000));
    let composed = r#"
        (component $a
          (core module $m (memory (export "memory") 1) (func (export "f") (param i32 i32))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 8))
          (core instance $i (instantiate $m))
          (func (export "f") (param "s" string) (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))
        (component $b
          (import "f" (func $f (param "s" string)))
          (core module $mem (memory (export "memory") 1))
          (core instance $mem (instantiate $mem))
          (core func $lowered (canon lower (func $f) (memory (core memory $mem "memory"))))
          (core module $m (import "" "f" (func $f (param i32 i32))) (func (export "run") (call $f (i32.const 0) (i32.const 4))))
          (core instance $i (instantiate $m (with "" (instance (export "f" (func $lowered))))))
          (func (export "g") (canon lift (core func $i "run"))))
        (instance $a (instantiate $a))
        (instance $b (instantiate $b (with "f" (func $a "f"))))
        (export "g" (func $b "g"))"#;
    for (name, bytes) in [
        ("plain", component("")),
        ("50,000 nested blocks", component(&blocks)),
        ("20 MB custom section", component(&custom)),
        ("two components with a string between them", component(composed)),
        ("SIMD", component("(core module (func (result v128) v128.const i64x2 1 2))")),
        (
            "90,000 data segments",
            component(&format!("(core module (memory 1) {})", r#"(data (i32.const 0) "a")"#.repeat(90_000))),
        ),
        ("an import that only the linker can judge", hostile("p27_missing_import.wat")),
        ("a memory that only the call can judge", hostile("p05_mem_initial_4g.wat")),
    ] {
        if let Err(error) = load_bytes(&loader, &bytes).await {
            panic!("{name}: {error}");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_too_large_is_not_read() {
    let files = Files::new();
    let path = files.path("large.wasm");
    // Sparse: reading it would take memory, having it takes none.
    std::fs::File::create(&path).and_then(|file| file.set_len(64 << 30)).expect("made");
    let error = loader(options()).load(&path, None).await.err().expect("refused");
    assert_eq!(error.problem().code().as_str(), "load.limit");
    assert!(error.to_string().ends_with("has more than the 33554432 bytes that a plugin file may have"), "{error}");
}

#[tokio::test]
async fn the_pin_is_compared_before_anything_looks_into_the_file() {
    let files = Files::new();
    let loader = loader(options());
    let path = files.write("p.wasm", &component(""));
    let loaded = loader.load(&path, None).await.expect("loaded");
    assert!(loader.load(&path, Some(loaded.sha256)).await.is_ok());
    // The file is replaced after it was approved.
    for other in [component("(core module)"), b"not even wasm".to_vec()] {
        std::fs::write(&path, other).expect("written");
        let error = loader.load(&path, Some(loaded.sha256)).await.err().expect("refused");
        assert!(matches!(error.problem(), Problem::Pin { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_second_start_loads_from_the_cache_and_a_spoilt_entry_is_made_anew() {
    let files = Files::new();
    let cache = files.path("cache");
    let path = files.write("北京.wasm", &component(""));
    let start = || loader(LoadOptions { cache_dir: Some(cache.clone()), ..options() });
    assert!(!start().load(&path, None).await.expect("loaded").from_cache);
    assert!(start().load(&path, None).await.expect("loaded").from_cache);

    let mut spoilt = 0;
    for entry in std::fs::read_dir(&cache).expect("listed") {
        let entry = entry.expect("an entry").path();
        let good = std::fs::read(&entry).expect("read");
        for at in [0, good.len() / 3, good.len() / 2, good.len() - 1] {
            let mut bad = std::fs::read(&entry).expect("read");
            let at = at.min(bad.len() - 1);
            bad[at] ^= 1;
            let mode = std::fs::metadata(&entry).expect("there").permissions();
            std::fs::remove_file(&entry).expect("removed");
            std::fs::write(&entry, bad).expect("written");
            std::fs::set_permissions(&entry, mode).expect("changed");
            assert!(!start().load(&path, None).await.expect("loaded").from_cache, "{} byte {at}", entry.display());
            assert!(start().load(&path, None).await.expect("loaded").from_cache, "{} byte {at}", entry.display());
            spoilt += 1;
        }
    }
    assert_eq!(spoilt, 8, "the key and one entry");
}

#[tokio::test]
async fn a_cache_that_cannot_be_used_costs_only_time() {
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    let path = files.write("p.wasm", &component(""));
    let open_to_all = files.path("open");
    std::fs::create_dir(&open_to_all).expect("made");
    std::fs::set_permissions(&open_to_all, PermissionsExt::from_mode(0o777)).expect("changed");
    for cache in [PathBuf::from("/proc/honeycomb"), path.join("x"), path.clone(), open_to_all] {
        let loader = loader(LoadOptions { cache_dir: Some(cache.clone()), ..options() });
        for _ in 0..2 {
            assert!(!loader.load(&path, None).await.expect("loaded").from_cache, "{}", cache.display());
        }
    }
}

#[tokio::test]
async fn a_compiler_that_misbehaves_fails_the_plugin_and_nothing_else() {
    if !alone("load::a_compiler_that_misbehaves_fails_the_plugin_and_nothing_else") {
        return;
    }
    let limits = LoadLimits { compile_time: Duration::from_secs(1), artifact_bytes: 1 << 20, ..LoadLimits::default() };
    let before = descriptors();
    for (lines, expected) in [
        ("kill -9 $$", "load.limit could not be compiled: the compiler was killed by signal 9"),
        ("kill -XCPU $$", "load.limit is too costly to compile: it needs more than 60 s of processor time"),
        ("kill -SEGV $$", "host.internal could not be compiled: the compiler crashed"),
        (
            "echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$",
            "load.limit is too costly to compile: it needs more than 1073741824 bytes",
        ),
        ("exit 0", "host.internal could not be compiled: it wrote nothing"),
        ("exit 3", "host.internal could not be compiled: the compiler crashed (exit status: 3)"),
        ("printf 'bad\\033[31m\\n' >&2; exit 10", "load.invalid is not a valid component: bad[31m"),
        ("cat >/dev/null & echo garbage", "host.internal could not be loaded: reading the compiled artifact"),
        ("cat /dev/zero", "load.limit is too costly to compile: it needs more than 1048576 bytes of compiled code"),
        ("cat /dev/zero >&2", "load.limit is too costly to compile: it needs more than 1 s"),
        ("sleep 60", "load.limit is too costly to compile: it needs more than 1 s"),
        ("exec <&- >&- 2>&-; sleep 60", "load.limit is too costly to compile: it needs more than 1 s"),
    ] {
        let files = Files::new();
        let program = files.script(lines);
        let cache = files.path("cache");
        let loader = loader(LoadOptions { limits: limits.clone(), cache_dir: Some(cache.clone()), ..LoadOptions::new(program) });
        let started = Instant::now();
        let error = load_bytes(&loader, &component("")).await.err().expect(lines);
        assert!(error.starts_with(expected), "{lines}: {error}");
        assert!(started.elapsed() < Duration::from_secs(10), "{lines} took {:?}", started.elapsed());
        let left = std::fs::read_dir(&cache).expect("listed").flatten().filter(|entry| entry.file_name() != "key");
        assert!(left.map(|entry| entry.file_name()).all(|name| name.to_string_lossy().ends_with(".cwasm")), "{lines}");
    }
    let absent = loader(LoadOptions::new("/nonexistent/compiler"));
    let error = load_bytes(&absent, &component("")).await.err().expect("refused");
    assert_eq!(error, "host.internal could not be loaded: starting the compiler");
    assert!(descriptors() <= before + 4, "{before} descriptors became {}", descriptors());
}
