use proptest::prelude::*;

use super::*;

/// A component that can be scanned: it exports one function.
fn component(extra: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(component
            (core module $m (func (export "run")))
            (core instance $i (instantiate $m))
            {extra}
            (func (export "run") (canon lift (core func $i "run"))))"#
    ))
    .expect("valid text")
}

fn problem(bytes: &[u8]) -> String {
    match scan(bytes, &LoadLimits::default()) {
        Ok(outline) => panic!("accepted: {outline:?}"),
        Err(problem) => format!("{} {problem}", problem.code()),
    }
}

/// Components nested `levels` deep, each of which instantiates the next one `width` times.
fn tower(levels: usize, width: usize) -> Vec<u8> {
    let mut text = "(component $c (core module $m) (core instance (instantiate $m)))".to_owned();
    for _ in 0..levels {
        text = format!("(component $c {text} {})", "(instance (instantiate $c))".repeat(width));
    }
    component(&format!("{text} (instance (instantiate $c))"))
}

#[test]
fn tells_apart_what_is_not_a_component() {
    let module = wat::parse_str("(module)").expect("valid text");
    let mut version = module.clone();
    version[4] = 2;
    for (bytes, expected) in [
        (&b""[..], "load.invalid is empty"),
        (b"\0as", "load.invalid is cut short: it ends inside the header"),
        (b"\0asm\x0d\0", "load.invalid is cut short: it ends inside the header"),
        (b"hello", "load.invalid is not WebAssembly: it starts with 68 65 6c 6c"),
        (b"\x1f\x8b\x08\0", "load.invalid is not WebAssembly: it starts with 1f 8b 08 00"),
        (b"\x7fELF\x02\x01\x01\xc8", "load.invalid is a precompiled artifact or a native program, which is never loaded"),
        (b"MZ\x90\0", "load.invalid is a precompiled artifact or a native program, which is never loaded"),
        (b"  (component)", "load.invalid is WebAssembly text, not a binary component"),
        (b";; a comment\n(module)", "load.invalid is WebAssembly text, not a binary component"),
        (&module, "load.invalid is a core WebAssembly module, not a component"),
        (&version, "load.invalid has version 2 of the WebAssembly binary format, which is neither a module nor a component"),
        (b"\0asm\x0d\0\x01\0", "load.invalid exports no function, so there is no tool in it"),
    ] {
        assert_eq!(problem(bytes), expected);
    }
}

#[test]
fn notices_every_truncation() {
    let whole = component(r#"(component (core module (memory 1) (data (i32.const 0) "0123456789")))"#);
    assert!(scan(&whole, &LoadLimits::default()).is_ok());
    for length in 0..whole.len() {
        // What the text format adds at the end, the names, is a section that may be left out.
        let only_names_are_gone =
            whole[length..].starts_with(&[0]) && whole[length..].windows(14).any(|bytes| bytes == b"component-name");
        let scanned = scan(&whole[..length], &LoadLimits::default());
        assert!(scanned.is_err() || only_names_are_gone, "{length} of {} bytes", whole.len());
    }
}

#[test]
fn reads_names_and_kind() {
    let wasm = component(
        r#"(import "wasi:io/poll@0.2.0" (instance)) (import "say" (func (param "n" u32)))
           (type $t u32) (import "t" (type (eq $t)))"#,
    );
    let outline = scan(&wasm, &LoadLimits::default()).expect("an outline");
    assert_eq!(outline.imports, ["wasi:io/poll@0.2.0", "say"]);
    assert_eq!((outline.exports, outline.kind, outline.requests), (vec!["run".to_owned()], Kind::Typed, None));

    let tools = component(r#"(instance $t) (export "honeycomb:plugin/tools@0.1.0" (instance $t))"#);
    assert_eq!(scan(&tools, &LoadLimits::default()).expect("an outline").kind, Kind::Tools);
    let later = component(r#"(instance $t) (export "honeycomb:plugin/tools@0.2.0" (instance $t))"#);
    let expected = "load.unsupported exports `honeycomb:plugin/tools@0.2.0`, but this host speaks `honeycomb:plugin/tools@0.1.0`";
    assert_eq!(problem(&later), expected);
}

#[test]
fn finds_the_one_requests_section_wherever_a_linker_put_it() {
    let inside = component(r#"(core module (@custom "honeycomb:requests" "[net]\n# 北京"))"#);
    assert_eq!(scan(&inside, &LoadLimits::default()).expect("an outline").requests.as_deref(), Some("[net]\n# 北京"));
    let top = component(r#"(@custom "honeycomb:requests" "x")"#);
    assert_eq!(scan(&top, &LoadLimits::default()).expect("an outline").requests.as_deref(), Some("x"));

    let two = component(r#"(@custom "honeycomb:requests" "x") (core module (@custom "honeycomb:requests" "x"))"#);
    assert_eq!(problem(&two), "load.invalid has a bad `honeycomb:requests` section: there is more than one");
    let binary = component(r#"(@custom "honeycomb:requests" "\ff")"#);
    assert!(problem(&binary).starts_with("load.invalid has a bad `honeycomb:requests` section: invalid utf-8"));
    let long = component(&format!(r#"(@custom "honeycomb:requests" "{}")"#, "x".repeat(65_537)));
    assert_eq!(problem(&long), "load.invalid has a bad `honeycomb:requests` section: 65537 bytes, more than the 65536 allowed");
}

#[test]
fn multiplies_instances_out() {
    // 20^5 of them: the component of 631 bytes that costs gigabytes to compile.
    assert_eq!(problem(&tower(5, 20)), "load.limit has 3200001 core instances, more than the 512 that a plugin may have");
    // Ten thousand to the tenth overflows 64 bits.
    assert!(problem(&tower(20, 20)).contains(&format!("has {} core instances", u64::MAX)));
    assert!(scan(&tower(2, 10), &LoadLimits::default()).is_ok());
    assert!(problem(&tower(33, 1)).starts_with("load.limit has 33 levels of nested components"));

    // Through names that stand for the component inside another.
    let aliased = "(component $a (core module $m) (core instance (instantiate $m)))
        (component $b (alias outer 1 $a (component $x)) (instance (instantiate $x)) (instance (instantiate $x)))
        (export $c \"c\" (component $b)) (instance (instantiate $c)) (instance (instantiate $c))";
    let limits = LoadLimits { core_instances: 4, ..LoadLimits::default() };
    let found = scan(&component(aliased), &limits).err().map(|problem| problem.to_string());
    assert_eq!(found.as_deref(), Some("has 5 core instances, more than the 4 that a plugin may have"));
}

#[test]
fn refuses_components_as_values() {
    let import = component(r#"(import "c" (component))"#);
    assert!(problem(&import).starts_with("load.unsupported passes components around"));
    let nested = component(r#"(component (import "c" (component $x)) (instance (instantiate $x)))"#);
    assert!(problem(&nested).starts_with("load.unsupported passes components around"));
    let alias = component(
        r#"(component $a (component $b) (export "b" (component $b))) (instance $i (instantiate $a)) (alias export $i "b" (component))"#,
    );
    assert!(problem(&alias).starts_with("load.unsupported passes components around"));
}

#[test]
fn refuses_a_module_with_two_memories() {
    for module in [
        "(memory 1) (memory 1)",
        r#"(import "a" "b" (memory 1)) (memory 1)"#,
        r#"(import "a" "b" (memory 1)) (import "a" "c" (memory 1))"#,
    ] {
        let expected = "load.unsupported needs the WebAssembly feature multi-memory, which plugins may not use: a module has more than one memory";
        assert_eq!(problem(&component(&format!("(core module {module})"))), expected);
    }
    assert!(scan(&component("(core module (memory 1)) (core module (memory 1))"), &LoadLimits::default()).is_ok());
}

#[test]
fn bounds_counts_and_names() {
    let many = |n: usize| (0..n).map(|i| format!(r#"(export "f{i}" (func $f))"#)).collect::<String>();
    let lifted = r#"(func $f (canon lift (core func $i "run")))"#;
    assert_eq!(
        problem(&component(&format!("{lifted}{}", many(1_024)))),
        "load.limit has 1025 exports, more than the 1024 that a plugin may have"
    );
    assert!(scan(&component(&format!("{lifted}{}", many(1_023))), &LoadLimits::default()).is_ok());
    let bag = (0..2_000).map(|i| format!(r#"(export "f{i}" (func $f))"#)).collect::<String>();
    let bag = component(&format!(r#"{lifted} (instance $b {bag}) (export "bag" (instance $b))"#));
    assert!(problem(&bag).starts_with("load.limit has 2000 exports"));
    let types = component(&"(type u8)".repeat(20_001));
    assert!(problem(&types).ends_with("items, more than the 20000 that a plugin may have"), "{}", problem(&types));
    let name = format!(r#"(import "{}" (func))"#, "a".repeat(513));
    assert_eq!(problem(&component(&name)), "load.limit has 513 bytes in a name, more than the 512 that a plugin may have");
}

#[test]
fn refuses_names_that_hide_something() {
    let mut wasm = component(r#"(import "abcd" (func))"#);
    let at = wasm.windows(4).position(|bytes| bytes == b"abcd").expect("the name");
    for name in ["a\u{202e}", "a\x1b[m", "a b ", "a\n\n\n"] {
        wasm[at..at + 4].copy_from_slice(&name.as_bytes()[..4]);
        assert!(problem(&wasm).contains("is not a name"), "{name:?}: {}", problem(&wasm));
    }
}

#[test]
fn any_bytes_are_an_outline_or_a_problem() {
    for seed in [component(""), tower(3, 3), b"\0asm\x0d\0\x01\0".to_vec(), Vec::new()] {
        for at in 0..seed.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = seed.clone();
                bytes[at] = value;
                fuzz_component(&bytes);
            }
        }
    }
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>) {
        fuzz_component(&bytes);
        fuzz_component(&[&b"\0asm\x0d\0\x01\0"[..], &bytes].concat());
    }
}
