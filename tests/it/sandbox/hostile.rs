//! Hostile components that speak no interface of ours: what they export is a tool, and each ends with the code that must come.

use std::path::{Path, PathBuf};

use honeycomb_host::policy::{Grants, Limits};
use honeycomb_host::tool::Content;
use honeycomb_tests::alone::alone;
use honeycomb_tests::guest::Guest;
use honeycomb_tests::news::tell;

use super::fixture::{Fixture, call, code};

/// Each file of `tests/hostile`, and the code that loading it or, if it loads, calling its `run` must end with.
const FILES: &[(&str, &str)] = &[
    ("p01_spin", "limit.fuel"),
    ("p02_start_spin", "limit.fuel"),
    ("p03_recurse", "trap.stack_overflow"),
    // It stops when it gets no more, and answers.
    ("p04_mem_grow", "ok"),
    ("p05_mem_initial_4g", "limit.memory"),
    // `table.grow` says no, and the guest says so.
    ("p07_table_grow", "ok"),
    ("p08_memfill_uninterruptible", "limit.fuel"),
    ("p09_memory64", "load.unsupported"),
    ("p10_shared_mem", "load.unsupported"),
    ("p13_huge_string", "limit.hostcall"),
    ("p14_string_oob", "result.invalid"),
    ("p15_bad_utf8", "result.invalid"),
    ("p17_realloc_spin", "limit.fuel"),
    ("p20_unreachable", "trap.unreachable_code_reached"),
    ("p21_div0", "trap.integer_division_by_zero"),
    ("p22_oob_load", "trap.memory_out_of_bounds"),
    ("p23_resource_flood", "limit.handles"),
    ("p26_core_module_only", "load.invalid"),
    ("p27_missing_import", "link.missing"),
    ("p33_br_table_70k", "load.invalid"),
    ("p36_inst_blowup_5x20", "load.limit"),
    ("p37_float_nan", "result.invalid"),
    ("p39_async_lift", "load.unsupported"),
    ("p44_list_u8_16m", "limit.hostcall"),
    ("p46_string_60m", "limit.hostcall"),
];

/// Results that are none of their type: the type, what the core function returns, and what must come.
const TYPED: &[(&str, &str, &str)] = &[
    ("char", "(result i32) (i32.const 0xd800)", "result.invalid"),
    ("char", "(result i32) (i32.const 0x110000)", "result.invalid"),
    ("char", "(result i32) (i32.const 0x4eac)", "ok"),
    ("$enum", "(result i32) (i32.const 77)", "result.invalid"),
    ("$variant", "(result i32) (i32.const 77)", "result.invalid"),
    ("(option u8)", "(result i32) (i32.store8 (i32.const 0) (i32.const 9)) (i32.const 0)", "result.invalid"),
    // The canonical ABI ignores the bits of flags that are not defined.
    ("$flags", "(result i32) (i32.const 0xf1)", "ok"),
    ("float32", "(result f32) (f32.const inf)", "result.invalid"),
    (
        "(list u64)",
        "(result i32) (i32.store (i32.const 0) (i32.const 4)) (i32.store (i32.const 4) (i32.const 1)) (i32.const 0)",
        "result.invalid",
    ),
    ("(list u8)", "(result i32) (i32.store (i32.const 4) (i32.const -1)) (i32.const 0)", "result.invalid"),
    ("string", "(result i32) (i32.const 2)", "result.invalid"),
    ("string", "(result i32) (i32.const -4)", "result.invalid"),
];

/// Loads the file and calls its `run`: the code of whichever failed first.
async fn outcome(fixture: &Fixture, path: &Path) -> String {
    let plugin = match fixture.sandbox.load(path, None).await {
        Ok(plugin) => plugin,
        Err(error) => return error.problem().code().as_str().to_owned(),
    };
    let limits = Limits { fuel: 200_000_000, ..Limits::default() };
    let bound = fixture.sandbox.bind(&plugin, "guest", Grants::default(), limits).expect("a bound plugin");
    let takes_text = plugin.tools[0].input_schema.to_string().contains("\"s\"");
    let mut request = call();
    request.arguments = if takes_text { "{\"s\":\"北京\"}" } else { "{}" }.to_owned();
    code(&fixture.sandbox.call(&bound, request).await).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shared_file_ends_as_it_must_and_leaves_nothing_behind() {
    if !alone("sandbox::hostile::every_shared_file_ends_as_it_must_and_leaves_nothing_behind") {
        return;
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .expect("the corpus")
        .flatten()
        .filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    assert!(names.iter().map(String::as_str).eq(FILES.iter().map(|(name, _)| *name)), "each file has a row: {names:?}");

    let fixture = Fixture::new();
    let good = fixture.bind(&Guest::default(), Limits::default()).await;
    assert_eq!(code(&fixture.call(&good).await), "ok");
    let (slots, before) = (fixture.sandbox.free_slots(), descriptors());
    let scratch = tempfile::tempdir().expect("a directory");
    let mut wrong = Vec::new();
    for (name, expected) in FILES {
        let text = std::fs::read_to_string(directory.join(format!("{name}.wat"))).expect("the file");
        let path = write(&scratch, &text);
        let found = outcome(&fixture, &path).await;
        if found != *expected {
            wrong.push(format!("{name}: expected {expected}, got {found}"));
        }
        assert_eq!(fixture.call(&good).await.content, [Content::Text { text: "ok".to_owned() }], "after {name}");
        assert_eq!(fixture.sandbox.free_slots(), slots, "after {name}");
        assert!(descriptors() <= before + 2, "{before} descriptors became {} after {name}", descriptors());
    }
    tell(&format!("hostile corpus: shared files {}", FILES.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_are_none_of_their_type_are_invalid() {
    let fixture = Fixture::new();
    let scratch = tempfile::tempdir().expect("a directory");
    let mut wrong = Vec::new();
    for (kind, core, expected) in TYPED {
        let text = format!(
            r#"(component
              (type $enum-type (enum "a" "b")) (export $enum "e" (type $enum-type))
              (type $variant-type (variant (case "a") (case "b"))) (export $variant "v" (type $variant-type))
              (type $flags-type (flags "a" "b")) (export $flags "f" (type $flags-type))
              (core module $m (memory (export "memory") 1) (func (export "run") {core}))
              (core instance $i (instantiate $m))
              (func (export "run") (result {kind}) (canon lift (core func $i "run") (memory (core memory $i "memory")))))"#
        );
        let found = outcome(&fixture, &write(&scratch, &text)).await;
        if found != *expected {
            wrong.push(format!("{kind} of {core}: expected {expected}, got {found}"));
        }
    }
    tell(&format!("hostile corpus: typed results {}", TYPED.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn write(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("guest.wasm");
    std::fs::write(&path, wat::parse_str(text).expect("valid text")).expect("a file");
    path
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
