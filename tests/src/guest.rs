//! Guests written by hand: components that export `honeycomb:plugin/tools` and behave as a test wants.
//!
//! The canonical ABI around a tool is tedious and always the same, so it stands here once; a test gives the instructions of `call-tool`.

use std::fmt::Write as _;

/// The component types of `honeycomb:plugin/tools`, and the lifting of the core module `$main`.
const TOOLS: &str = r#"
  (type $json string)
  (type $tool-hints (record (field "read-only" bool) (field "destructive" bool) (field "idempotent" bool) (field "open-world" bool)))
  (type $tool (record
    (field "name" string) (field "title" (option string)) (field "description" string)
    (field "input-schema" string) (field "output-schema" (option string)) (field "hints" $tool-hints)))
  (type $call-context (record
    (field "call-id" string) (field "run-id" string) (field "idempotency-key" string) (field "attempt" u32)
    (field "deadline-ms" u64) (field "traceparent" (option string))))
  (type $blob (record (field "mime-type" string) (field "bytes" (list u8))))
  (type $resource-contents (record (field "uri" string) (field "mime-type" string) (field "bytes" (list u8))))
  (type $content (variant
    (case "text" string) (case "json" string) (case "blob" $blob) (case "resource" $resource-contents)))
  (type $rate-limit (record (field "message" string) (field "retry-after-ms" (option u64))))
  (type $tool-error (variant
    (case "invalid-arguments" string) (case "denied" string) (case "not-found" string)
    (case "rate-limited" $rate-limit) (case "unavailable" string) (case "failed" string)))
  (type $list-tools-type (func (result (list $tool))))
  (type $call-tool-type (func
    (param "name" string) (param "arguments" string) (param "context" $call-context)
    (result (result (list $content) (error $tool-error)))))
  (func $list-tools (type $list-tools-type) (canon lift (core func $main "list-tools")
    (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
  (func $call-tool (type $call-tool-type) (canon lift (core func $main "call-tool")
    (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))
    POST_RETURN))
  (instance $tools
    (export "tool-hints" (type $tool-hints)) (export "tool" (type $tool)) (export "call-context" (type $call-context))
    (export "blob" (type $blob)) (export "resource-contents" (type $resource-contents)) (export "content" (type $content))
    (export "rate-limit" (type $rate-limit)) (export "tool-error" (type $tool-error))
    (export "list-tools" (func $list-tools)) (export "call-tool" (func $call-tool)))
  (export "honeycomb:plugin/tools@0.1.0" (instance $tools))
"#;

/// What the body of `call-tool` may use: ways to answer. Each returns what `call-tool` must return.
const ANSWERS: &str = r#"
    (func $content (param $case i32) (param $at i32) (param $length i32) (result i32)
      ;; result: ok = 0 at 0, list at 8; the one piece of content at 64: its case, then a string.
      (i32.store8 (i32.const 512) (i32.const 0))
      (i32.store (i32.const 520) (i32.const 576))
      (i32.store (i32.const 524) (i32.const 1))
      (i32.store8 (i32.const 576) (local.get $case))
      (i32.store (i32.const 580) (local.get $at))
      (i32.store (i32.const 584) (local.get $length))
      (i32.const 512))
    (func $text (param $at i32) (param $length i32) (result i32)
      (call $content (i32.const 0) (local.get $at) (local.get $length)))
    (func $json (param $at i32) (param $length i32) (result i32)
      (call $content (i32.const 1) (local.get $at) (local.get $length)))
    (func $error (param $case i32) (param $at i32) (param $length i32) (result i32)
      (i32.store8 (i32.const 512) (i32.const 1))
      (i32.store8 (i32.const 520) (local.get $case))
      (i32.store (i32.const 528) (local.get $at))
      (i32.store (i32.const 532) (local.get $length))
      (i32.const 512))
    (func $ok (result i32) (call $text (i32.const 256) (i32.const 2)))
"#;

/// A guest, in parts. [`Guest::default`] answers `ok`.
#[derive(Clone, Debug)]
pub struct Guest {
    /// What stands before the core modules in the component: imports.
    pub imports: String,
    /// Imports of the core module `$main`, from the instance `host`.
    pub core_imports: String,
    /// The exports of the core instance `host`, which `core_imports` take: a name, and the `canon` definition behind it.
    pub host: Vec<(String, String)>,
    /// The memory of the core module `$libc`.
    pub memory: String,
    /// The body of `realloc`; by default it only ever goes up.
    pub realloc: String,
    /// More fields of the core module `$main`: functions, tables, globals, data, a start function.
    pub fields: String,
    /// The instructions of `call-tool`. Parameters: `$name $name_length $arguments $arguments_length` and the context's; result `i32`.
    pub body: String,
    /// The instructions of `list-tools`; result `i32`.
    pub list: String,
    /// The instructions of `call-tool`'s post-return function, if it has one.
    pub post_return: Option<String>,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            imports: String::new(),
            core_imports: String::new(),
            host: Vec::new(),
            memory: "(memory (export \"memory\") 2)".to_owned(),
            realloc: BUMP.to_owned(),
            fields: String::new(),
            body: "(call $ok)".to_owned(),
            list: "(i32.const 0)".to_owned(),
            post_return: None,
        }
    }
}

/// A `realloc` that takes the next free bytes and grows the memory when it must.
const BUMP: &str = r"
      (local $at i32)
      (local.set $at (i32.and
        (i32.add (global.get $free) (i32.sub (local.get 2) (i32.const 1)))
        (i32.xor (i32.sub (local.get 2) (i32.const 1)) (i32.const -1))))
      (global.set $free (i32.add (local.get $at) (local.get 3)))
      (if (i32.gt_u (global.get $free) (i32.mul (memory.size) (i32.const 65536)))
        (then (if (i32.eq (i32.const -1)
            (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get 3) (i32.const 65536)))))
          (then unreachable))))
      (local.get $at)";

impl Guest {
    /// The component's text.
    ///
    /// The static data, by address: 0 the list of tools, 16 the tool `run`, 128 its strings, 256 `ok`, 512 what `ANSWERS` builds; from
    /// 1024 on the memory is the test's, and `realloc` hands out from 16384 on.
    pub fn wat(&self) -> String {
        let mut wat = String::from("(component\n");
        let _ = write!(
            wat,
            "{imports}
  (core module $libc-module
    {memory}
    (global $free (mut i32) (i32.const 16384))
    (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) {realloc}))
  (core instance $libc (instantiate $libc-module))
  {lowered}
  (core module $main-module
    (import \"libc\" \"memory\" (memory 0))
    (import \"libc\" \"realloc\" (func $realloc (param i32 i32 i32 i32) (result i32)))
    {core_imports}
    {ANSWERS}
    (data (i32.const 0) \"\\10\\00\\00\\00\\01\\00\\00\\00\")
    (data (i32.const 16) \"{tool}\")
    (data (i32.const 128) \"run\")
    (data (i32.const 144) \"runs a test\")
    (data (i32.const 160) \"{{\\\"type\\\":\\\"object\\\"}}\")
    (data (i32.const 256) \"ok\")
    {fields}
    (func (export \"list-tools\") (result i32) {list})
    (func (export \"post-return\") (param i32) {post_return})
    (func (export \"call-tool\")
      (param $name i32) (param $name_length i32) (param $arguments i32) (param $arguments_length i32)
      (param $call_id i32) (param $call_id_length i32) (param $run_id i32) (param $run_id_length i32)
      (param $key i32) (param $key_length i32) (param $attempt i32) (param $deadline i64)
      (param $has_trace i32) (param $trace i32) (param $trace_length i32) (result i32)
      {body}))
  (core instance $main (instantiate $main-module (with \"libc\" (instance $libc)) {with}))
",
            imports = self.imports,
            memory = self.memory,
            realloc = self.realloc,
            lowered = self.lowered(),
            core_imports = self.core_imports,
            tool = tool_record(),
            fields = self.fields,
            list = self.list,
            post_return = self.post_return.as_deref().unwrap_or_default(),
            body = self.body,
            with = if self.host.is_empty() { "" } else { "(with \"host\" (instance $host))" },
        );
        let post_return = if self.post_return.is_some() { "(post-return (core func $main \"post-return\"))" } else { "" };
        wat.push_str(&TOOLS.replace("POST_RETURN", post_return));
        wat.push(')');
        wat
    }

    /// The lowered host functions, and the core instance that holds them.
    fn lowered(&self) -> String {
        if self.host.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for (name, canon) in &self.host {
            let _ = writeln!(text, "  (core func $host-{name} {canon})");
        }
        let exports: String = self.host.iter().map(|(name, _)| format!("(export \"{name}\" (func $host-{name}))")).collect();
        let _ = writeln!(text, "  (core instance $host {exports})");
        text
    }

    /// The component's bytes.
    ///
    /// # Errors
    ///
    /// Fails when a part is not valid text.
    pub fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        Ok(wat::parse_str(self.wat())?)
    }
}

/// The text of a component whose `call-tool` has these instructions, and whose core module has these further fields.
pub fn plugin_wat(call_body: &str, extra: &str) -> String {
    Guest { body: call_body.to_owned(), fields: extra.to_owned(), ..Guest::default() }.wat()
}

/// The record of the tool `run`, little-endian: strings as address and length, options as a tag and a value, then the hints.
fn tool_record() -> String {
    let words: [u32; 13] = [128, 3, 0, 0, 0, 144, 11, 160, 17, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "\\{byte:02x}");
        text
    })
}
