//! Components, end to end, with a plain wasmtime store.

use serde_json::{Map, Value, json};
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store};

use crate::sandbox::typed::call::TypedError;
use crate::sandbox::typed::{PackageDocs, TypedOutput, TypedTool, TypedTools};
use crate::tool::Content;

/// Functions that hand back what they are given, over one memory with a bump allocator.
const CORE: &str = r#"
    (core module $m
        (memory (export "memory") 1)
        (global $next (mut i32) (i32.const 4096))
        (data (i32.const 64) "empty, 空")
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
            (global.set $next (i32.add (local.get $at) (local.get 3)))
            (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536)))
                (then (drop (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get 3) (i32.const 65536)))))))
            (local.get $at))
        (func (export "pair") (param i32 i32) (result i32)
            (i32.store (i32.const 16) (local.get 0))
            (i32.store (i32.const 20) (local.get 1))
            (i32.const 16))
        ;; The text as bytes, or the error that it is empty.
        (func (export "fallible") (param i32 i32) (result i32)
            (i32.store8 (i32.const 16) (i32.eqz (local.get 1)))
            (i32.store (i32.const 20) (select (local.get 0) (i32.const 64) (local.get 1)))
            (i32.store (i32.const 24) (select (local.get 1) (i32.const 10) (local.get 1)))
            (i32.const 16))
        (func (export "extremes") (result i32)
            (i64.store (i32.const 16) (i64.const -1))
            (i64.store (i32.const 24) (i64.const 0x8000000000000000))
            (i32.const 16))
        (func (export "length") (param i32 i32 i32 i32) (result i64) (i64.extend_i32_u (i32.add (local.get 1) (local.get 3))))
        (func (export "same") (param i64) (result i64) (local.get 0))
        (func (export "nan") (result f64) (f64.const nan))
        (func (export "zero") (result i32) (i32.const 0))
        (func (export "nothing"))
        (func (export "one-argument") (param i32))
        (func (export "two-arguments") (param i32 i32))
        (func (export "trap") (unreachable)))
    (core instance $i (instantiate $m))
    (alias core export $i "memory" (core memory $memory))
    (alias core export $i "realloc" (core func $realloc))"#;

/// `(func $name PARAMS (canon lift …))`
fn lift(name: &str, core: &str, signature: &str) -> String {
    format!(r#"(func ${name} {signature} (canon lift (core func $i "{core}") (memory $memory) (realloc $realloc)))"#)
}

/// A component with functions that are exported freely: name, core function, signature.
fn free(functions: &[(&str, &str, &str)]) -> String {
    let exports = functions.iter().map(|(name, core, signature)| {
        let export = format!("(export \"{name}\" (func ${name}))");
        format!("{} {export}", lift(name, core, signature))
    });
    format!("(component {CORE} {})", exports.collect::<String>())
}

struct Fixture {
    engine: Engine,
    component: Component,
    tools: TypedTools,
}

impl Fixture {
    fn new(text: &str) -> Self {
        let wasm = wat::parse_str(text).expect("a component");
        let engine = Engine::default();
        let component = Component::new(&engine, &wasm).expect("it compiles");
        let tools = TypedTools::discover(&component, &engine, &PackageDocs::of_component(&wasm));
        Self { engine, component, tools }
    }

    fn names(&self) -> Vec<&str> {
        self.tools.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    fn tool(&self, name: &str) -> &TypedTool {
        self.tools.tools.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("no {name} in {:?}", self.names()))
    }

    fn unsupported(&self) -> Vec<(&str, &str)> {
        self.tools.unsupported.iter().map(|function| (function.name.as_str(), function.reason.as_str())).collect()
    }

    /// Calls with 4 MiB that may cross to the host.
    async fn call(&self, name: &str, arguments: Value) -> Result<TypedOutput, TypedError> {
        let tool = self.tool(name);
        assert!(tool.validator.is_valid(&arguments), "{arguments} is not {}", tool.input_schema);
        let arguments: Map<String, Value> = arguments.as_object().expect("an object").clone();
        let arguments = tool.function.arguments(&arguments).expect("fit for the function");
        let mut store = Store::new(&self.engine, ());
        store.set_hostcall_fuel(4 << 20);
        let instance =
            Linker::new(&self.engine).instantiate_async(&mut store, &self.component).await.expect("nothing is imported");
        let output = tool.function.call(&mut store, &instance, arguments).await?;
        if let (Some(schema), Some(structured)) = (&tool.output_schema, &output.structured) {
            assert!(jsonschema::is_valid(schema, structured), "{structured} is not {schema}");
        }
        assert_eq!(tool.output_schema.is_some(), output.structured.is_some());
        Ok(output)
    }

    async fn structured(&self, name: &str, arguments: Value) -> Value {
        self.call(name, arguments).await.expect(name).structured.expect("structured")
    }

    async fn error(&self, name: &str, arguments: Value) -> TypedError {
        self.call(name, arguments).await.expect_err(name)
    }
}

fn mirror() -> Fixture {
    Fixture::new(&free(&[
        ("echo-bytes", "pair", r#"(param "data" (list u8)) (result (list u8))"#),
        ("echo-text", "pair", r#"(param "text" string) (result string)"#),
        ("echo-lists", "pair", r#"(param "lists" (list (list u8))) (result (list (list u8)))"#),
        ("to-bytes", "fallible", r#"(param "text" string) (result (result (list u8) (error string)))"#),
        ("to-text", "fallible", r#"(param "text" string) (result (result string (error string)))"#),
        ("extremes", "extremes", r#"(result (tuple u64 s64))"#),
        ("echo-s64", "same", r#"(param "value" s64) (result s64)"#),
        ("length", "length", r#"(param "name" string) (param "data" (list u8)) (result u64)"#),
        ("nan", "nan", "(result f64)"),
        ("nothing", "nothing", ""),
        ("byte", "one-argument", r#"(param "byte" u8)"#),
        ("trap", "trap", ""),
    ]))
}

#[tokio::test]
async fn values_come_back_as_they_went() {
    let fixture = mirror();
    assert_eq!(fixture.unsupported(), []);
    for (name, arguments, expected) in [
        ("echo-bytes", json!({"data": "AP8="}), json!("AP8=")),
        ("echo-bytes", json!({"data": [0, 255]}), json!("AP8=")),
        ("echo-bytes", json!({"data": ""}), json!("")),
        ("echo-text", json!({"text": "北京 🦀\u{0}"}), json!("北京 🦀\u{0}")),
        ("echo-lists", json!({"lists": []}), json!([])),
        ("echo-lists", json!({"lists": ["AA==", [1], ""]}), json!(["AA==", "AQ==", ""])),
        ("to-bytes", json!({"text": "é"}), json!("w6k=")),
        ("to-text", json!({"text": "é"}), json!("é")),
        ("extremes", json!({}), json!(["18446744073709551615", "-9223372036854775808"])),
        ("echo-s64", json!({"value": i64::MIN}), json!("-9223372036854775808")),
        ("length", json!({"name": "é", "data": "AP8="}), json!(4)),
    ] {
        assert_eq!(fixture.structured(name, arguments).await, json!({"result": expected}), "{name}");
    }
}

#[tokio::test]
async fn text_is_read_as_text_and_nothing_as_done() {
    let fixture = mirror();
    let output = fixture.call("echo-text", json!({"text": "你好"})).await.expect("text");
    assert_eq!(output.content, [Content::Text { text: "你好".to_owned() }]);
    assert_eq!(output.bytes(), "你好".len() as u64);
    let output = fixture.call("nothing", json!({})).await.expect("nothing");
    assert_eq!(output, TypedOutput { content: vec![Content::Text { text: "done".to_owned() }], structured: None });
}

#[tokio::test]
async fn a_mebibyte_costs_about_a_mebibyte() {
    let fixture = mirror();
    let mebibyte = vec![b'x'; 1 << 20];
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &mebibyte);
    assert_eq!(fixture.structured("echo-bytes", json!({"data": base64})).await, json!({"result": base64}));
    let text = String::from_utf8(mebibyte).expect("ASCII");
    assert_eq!(fixture.structured("echo-text", json!({"text": text})).await, json!({"result": text}));
    assert_eq!(fixture.structured("to-bytes", json!({"text": text})).await, json!({"result": base64}));
    assert_eq!(fixture.structured("length", json!({"name": "", "data": base64})).await, json!({"result": 1 << 20}));
    // Deeper inside, each byte is a value of its own, and the store's allowance is what bounds it.
    let error = fixture.error("echo-lists", json!({"lists": [base64]})).await;
    assert!(matches!(error, TypedError::Guest(_)), "{error:?}");
}

#[tokio::test]
async fn failures_say_whose_they_are() {
    let fixture = mirror();
    for name in ["to-bytes", "to-text"] {
        let failure = fixture.error(name, json!({"text": ""})).await.into_failure().expect("the tool's own");
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("tool.failed", "empty, 空"), "{name}");
    }
    let failure = fixture.error("nan", json!({})).await.into_failure().expect("the tool's");
    assert_eq!(failure.code.as_str(), "result.invalid");
    assert!(failure.message.contains("NaN is no JSON number"), "{}", failure.message);
    let error = fixture.error("trap", json!({})).await.into_failure().expect_err("the guest's");
    assert_eq!(error.downcast_ref::<wasmtime::Trap>(), Some(&wasmtime::Trap::UnreachableCodeReached));
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_schema_and_by_conversion() {
    let fixture = mirror();
    for (name, arguments, pointer) in [
        ("echo-bytes", json!({}), ""),
        ("echo-bytes", json!({"data": null}), "/data"),
        ("echo-bytes", json!({"data": [1, 300]}), "/data/1"),
        ("echo-bytes", json!({"data": "AA==", "more": 1}), "/more"),
        ("echo-text", json!({"text": 5}), "/text"),
        ("length", json!({"name": "AA==", "data": 7}), "/data"),
        ("byte", json!({"byte": 300}), "/byte"),
        ("byte", json!({"byte": "1"}), "/byte"),
    ] {
        let tool = fixture.tool(name);
        assert!(!tool.validator.is_valid(&arguments), "{arguments}");
        let error = tool.function.arguments(arguments.as_object().expect("an object")).expect_err(name);
        assert_eq!(error.pointer, pointer, "{arguments}: {error}");
    }
    // What a schema does not say about base64.
    let error = fixture.tool("echo-bytes").function.arguments(json!({"data": "%"}).as_object().expect("an object"));
    assert_eq!(error.expect_err("not base64").pointer, "/data");
}

#[test]
fn finds_functions_in_interfaces_and_leaves_wasi_out() {
    let now = lift("now", "nothing", "");
    let fixture = Fixture::new(&format!(
        r#"(component {CORE} {now}
            (instance $clock (export "now" (func $now)) (export "set" (func $now)))
            (export "acme:time/clock@1.2.0" (instance $clock))
            (export "inline" (instance $clock))
            (export "wasi:cli/run@0.2.0" (instance $clock))
            (export "now" (func $now)))"#
    ));
    assert_eq!(fixture.names(), ["clock__now", "clock__set", "inline__now", "inline__set", "now"]);
    assert_eq!(fixture.tool("clock__now").description, "now: func()");
    assert_eq!(fixture.tool("now").input_schema, json!({"type": "object", "properties": {}, "additionalProperties": false}));
    assert!(fixture.tool("now").hints.destructive && fixture.tool("now").hints.open_world);
}

#[test]
fn refuses_two_functions_of_one_name() {
    let fixture = Fixture::new(&format!(
        r#"(component {CORE} {}
            (instance $ops (export "run" (func $run)))
            (export "a:one/ops@1.0.0" (instance $ops))
            (export "b:two/ops@1.0.0" (instance $ops))
            (export "run" (func $run)))"#,
        lift("run", "nothing", "")
    ));
    assert_eq!(fixture.names(), ["run"]);
    let reason = "another function of the component comes to the same name";
    assert_eq!(fixture.unsupported(), [("ops__run", reason), ("ops__run", reason)]);
}

#[tokio::test]
async fn a_name_of_129_characters_works_under_a_shorter_one() {
    let name = format!("a{}", "-b23456789".repeat(20)).chars().take(129).collect::<String>();
    let fixture = Fixture::new(&free(&[(&name, "nothing", "")]));
    let short = fixture.names()[0];
    assert_eq!(short.len(), 64);
    assert!(name.starts_with(&short[..55]));
    fixture.call(short, json!({})).await.expect("it is called by its index");
}

#[test]
fn a_resource_makes_one_function_unsupported_and_not_the_others() {
    let fixture = Fixture::new(&format!(
        r#"(component {CORE}
            (type $r' (resource (rep i32)))
            (export $r "handle" (type $r'))
            (func (export "open") (result (own $r)) (canon lift (core func $i "zero")))
            (func (export "close") (param "handle" (own $r)) (canon lift (core func $i "one-argument")))
            (func (export "[static]handle.count") (result u32) (canon lift (core func $i "zero")))
            {} (export "run" (func $run)))"#,
        lift("run", "nothing", "")
    ));
    assert_eq!(fixture.names(), ["run"]);
    let unsupported = fixture.unsupported();
    assert_eq!(unsupported.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["open", "close", "[static]handle.count"]);
    assert!(unsupported.iter().all(|(_, reason)| reason.contains("resource")), "{unsupported:?}");
}

#[test]
fn types_that_grow_out_of_hand_are_refused() {
    let cases: String = (0..10_000).map(|n| format!("(case \"c{n}\")")).collect();
    let flags: String = (0..32).map(|n| format!("\"{}-{n}\" ", "x".repeat(4000))).collect();
    let doubled: String = (1..12).map(|n| format!("(type $t{n} (tuple $t{} $t{}))", n - 1, n - 1)).collect();
    let nested = format!("{}u8{}", "(list ".repeat(40), ")".repeat(40));
    let long = "p23456789-".repeat(7) + "p";
    for (ty, core, expected) in [
        (format!("(type $v' (variant {cases})) (export $t \"cases\" (type $v'))"), "one-argument", "more than 4096 parts"),
        (format!("(type $f' (flags {flags})) (export $t \"names\" (type $f'))"), "one-argument", "more than 65536 bytes"),
        (format!("(type $t0 (tuple u8 u8)) {doubled} (type $t (list $t11))"), "two-arguments", "more than 4096 parts"),
        (format!("(type $t {nested})"), "two-arguments", "nested more than 32 deep"),
    ] {
        let function = lift("f", core, r#"(param "p" $t)"#);
        let fixture = Fixture::new(&format!("(component {CORE} {ty} {function} (export \"f\" (func $f)))"));
        assert!(fixture.tools.tools.is_empty());
        assert!(fixture.unsupported()[0].1.contains(expected), "{:?}", fixture.unsupported());
    }
    let fixture = Fixture::new(&free(&[("f", "one-argument", &format!("(param \"{long}\" u8)"))]));
    assert!(fixture.unsupported()[0].1.contains("a name of more than 64 characters"), "{:?}", fixture.unsupported());
}

#[test]
fn a_component_has_a_bounded_number_of_tools() {
    let names: Vec<String> = (0..300).map(|n| format!("f{n}")).collect();
    let functions: Vec<_> = names.iter().map(|name| (name.as_str(), "nothing", "")).collect();
    let fixture = Fixture::new(&free(&functions));
    assert_eq!(fixture.tools.tools.len(), 256);
    assert_eq!(fixture.unsupported(), [("…", "a component can have 256 tools at most; the rest is left out")]);
}

#[test]
fn descriptions_are_the_doc_comments_of_their_interface() {
    let json = r#"{\"worlds\":{\"w\":{\"func_exports\":{\"run\":{\"docs\":\"Runs freely.\"}}}},
        \"interfaces\":{\"a\":{\"funcs\":{\"run\":{\"docs\":\"Runs in a.\"}}}}}"#
        .replace('\n', " ");
    let fixture = Fixture::new(&format!(
        r#"(component {CORE} {}
            (instance $ops (export "run" (func $run)))
            (export "x:y/a@1.0.0" (instance $ops))
            (export "x:y/b@1.0.0" (instance $ops))
            (export "run" (func $run))
            (@custom "package-docs" "\01{json}"))"#,
        lift("run", "one-argument", r#"(param "level" u8)"#)
    ));
    let descriptions: Vec<&str> = fixture.tools.tools.iter().map(|tool| tool.description.as_str()).collect();
    assert_eq!(descriptions, ["Runs in a.", "run: func(level: u8)", "Runs freely."]);
}
