//! The corpus: one row for each way to misbehave.

use std::time::{Duration, Instant};

use honeycomb_host::policy::{Grants, Limits};
use honeycomb_host::tool::{Content, ToolOutcome};
use honeycomb_tests::guest::Guest;
use honeycomb_tests::news::tell;

use super::fixture::{Fixture, code};

const MIB: u64 = 1024 * 1024;

/// One guest, and what must come of it.
struct Row {
    name: &'static str,
    guest: Guest,
    limits: Limits,
    expected: &'static str,
}

fn row(name: &'static str, expected: &'static str, guest: Guest) -> Row {
    let limits = Limits { fuel: 20_000_000, timeout: Duration::from_secs(20), memory: 8 * MIB, ..Limits::default() };
    Row { name, guest, limits, expected }
}

impl Row {
    fn with(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }
}

fn body(body: &str) -> Guest {
    Guest { body: body.to_owned(), ..Guest::default() }
}

fn fields(fields: &str, body: &str) -> Guest {
    Guest { fields: fields.to_owned(), body: body.to_owned(), ..Guest::default() }
}

/// A guest that imports `declaration` and calls its functions: each a component-level function, and its core type under a name.
pub(crate) fn importing(declaration: &str, functions: &[(&str, &str, &str)], body: &str) -> Guest {
    let options = r#"(memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))"#;
    let (mut host, mut core_imports) = (Vec::new(), String::new());
    for (name, function, core) in functions {
        host.push(((*name).to_owned(), format!("(canon lower {function} {options})")));
        core_imports.push_str(&format!("(import \"host\" \"{name}\" (func ${name} {core}))"));
    }
    Guest { imports: declaration.to_owned(), host, core_imports, body: body.to_owned(), ..Guest::default() }
}

const EXIT: &str = r#"(import "wasi:cli/exit@0.2.0" (instance $exit (export "exit" (func (param "status" (result))))))"#;
const RANDOM: &str = r#"(import "wasi:random/random@0.2.0" (instance $random
  (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))"#;
pub(crate) const LOG: &str = r#"(import "wasi:logging/logging@0.1.0-draft" (instance $log
  (type $levels (enum "trace" "debug" "info" "warn" "error" "critical")) (export "level" (type $level (eq $levels)))
  (export "log" (func (param "level" $level) (param "context" string) (param "message" string)))))"#;

fn execution() -> Vec<Row> {
    let exit = |body: &str| importing(EXIT, &[("exit", r#"(func $exit "exit")"#, "(param i32)")], body);
    let spin = "(loop $again (br $again)) unreachable";
    vec![
        row("a loop without end", "limit.fuel", body(spin)),
        row(
            "a loop in the start function",
            "limit.fuel",
            // Not without end, or `list-tools`, which has more fuel than this call, would not get through either.
            fields(
                "(func $start (local $n i32)
                   (loop $again (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 4000000)))))
                 (start $start)",
                "(call $ok)",
            ),
        ),
        row(
            "a loop in realloc",
            "limit.fuel",
            Guest { realloc: "(loop $again (br $again)) (i32.const 0)".to_owned(), ..Guest::default() },
        ),
        row(
            "a loop in post-return",
            "limit.fuel",
            Guest { post_return: Some("(loop $again (br $again))".to_owned()), ..Guest::default() },
        ),
        row("recursion without end", "trap.stack_overflow", fields("(func $deep (call $deep))", "(call $deep) (call $ok)")),
        row(
            "a loop of large fills",
            "limit.fuel",
            body(
                "(drop (memory.grow (i32.const 60))) (loop $again (memory.fill (i32.const 1024) (i32.const 1) (i32.const 3000000)) (br $again)) unreachable",
            ),
        ),
        row(
            "memory that grows until it may not",
            "ok",
            body("(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (call $ok)"),
        ),
        row(
            "memory that grows until it may not, and dies of it",
            "limit.memory",
            body("(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable"),
        ),
        row(
            "a memory that is too large to begin with",
            "limit.memory",
            Guest { memory: "(memory (export \"memory\") 160)".to_owned(), ..Guest::default() },
        ),
        row("more instances than there may be", "limit.memory", Guest::default()).with(|limits| limits.instances = 1),
        row(
            "a table that grows until it may not",
            "limit.memory",
            fields(
                "(table $t 1 funcref)",
                "(if (i32.eq (table.grow $t (ref.null func) (i32.const 1000000)) (i32.const -1)) (then unreachable)) (call $ok)",
            ),
        ),
        row("unreachable", "trap.unreachable_code_reached", body("unreachable")),
        row("division by zero", "trap.integer_division_by_zero", body("(i32.div_u (i32.const 1) (i32.const 0))")),
        row("integer overflow", "trap.integer_overflow", body("(i32.div_s (i32.const -2147483648) (i32.const -1))")),
        row(
            "a float that is no integer",
            "trap.bad_conversion_to_integer",
            body("(i32.trunc_f64_s (f64.div (f64.const 0) (f64.const 0)))"),
        ),
        row("a load out of bounds", "trap.memory_out_of_bounds", body("(i32.load (i32.const 0xfffffff0))")),
        row(
            "a call through an empty table entry",
            "trap.indirect_call_to_null",
            fields("(table 1 funcref) (type $t (func))", "(call_indirect (type $t) (i32.const 0)) (call $ok)"),
        ),
        row(
            "a call past a table",
            "trap.table_out_of_bounds",
            fields("(table 1 funcref) (type $t (func))", "(call_indirect (type $t) (i32.const 9)) (call $ok)"),
        ),
        row(
            "a call with another signature",
            "trap.bad_signature",
            fields(
                "(table funcref (elem $f)) (type $t (func (param i64))) (func $f)",
                "(call_indirect (type $t) (i64.const 0) (i32.const 0)) (call $ok)",
            ),
        ),
        row(
            "exit(0)",
            "plugin.exit",
            exit("(call $exit (i32.const 0)) (call $ok)"),
        ),
        row(
            "exit(1)",
            "plugin.exit",
            exit("(call $exit (i32.const 1)) (call $ok)"),
        ),
    ]
}

fn results() -> Vec<Row> {
    let store = |text: &str, answer: &str| fields(&format!("(data (i32.const 1024) \"{text}\")"), answer);
    vec![
        row("a string past the memory", "result.invalid", body("(call $text (i32.const 130000) (i32.const 4096))")),
        row("a string that is not UTF-8", "result.invalid", store("\\ff\\fe", "(call $text (i32.const 1024) (i32.const 2))")),
        row("an unknown kind of content", "result.invalid", body("(call $content (i32.const 77) (i32.const 256) (i32.const 2))")),
        row("an unknown kind of error", "result.invalid", body("(call $error (i32.const 200) (i32.const 256) (i32.const 2))")),
        row(
            "neither a result nor an error",
            "result.invalid",
            body("(drop (call $ok)) (i32.store8 (i32.const 512) (i32.const 9)) (i32.const 512)"),
        ),
        row("a result that is not aligned", "result.invalid", body("(drop (call $ok)) (i32.const 513)")),
        row("a result past the memory", "result.invalid", body("(i32.const 131064)")),
        row("JSON that is none", "result.invalid", store("NaN", "(call $json (i32.const 1024) (i32.const 3))")),
        row(
            "JSON with a key twice",
            "result.invalid",
            store("{\\22a\\22:1,\\22a\\22:2}", "(call $json (i32.const 1024) (i32.const 13))"),
        ),
        row(
            "a result over max_output",
            "limit.output",
            Guest {
                memory: "(memory (export \"memory\") 40)".to_owned(),
                ..body("(call $text (i32.const 65536) (i32.const 2000000))")
            },
        ),
        row(
            "a result over hostcall_bytes",
            "limit.hostcall",
            Guest {
                memory: "(memory (export \"memory\") 160)".to_owned(),
                ..body("(call $text (i32.const 0) (i32.const 10000000))")
            },
        )
        .with(|limits| limits.memory = 32 * MIB),
        row(
            "a list of ten thousand strings that are one",
            "limit.hostcall",
            Guest {
                memory: "(memory (export \"memory\") 40)".to_owned(),
                body: r"(local $n i32) (local $at i32)
              (drop (call $ok)) (i32.store (i32.const 520) (i32.const 131072)) (i32.store (i32.const 524) (i32.const 10000))
              (loop $again
                (local.set $at (i32.add (i32.const 131072) (i32.mul (local.get $n) (i32.const 28))))
                (i32.store (i32.add (local.get $at) (i32.const 4)) (i32.const 1024))
                (i32.store (i32.add (local.get $at) (i32.const 8)) (i32.const 65536))
                (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 10000))))
              (i32.const 512)"
                    .to_owned(),
                ..Guest::default()
            },
        ),
        row(
            "a list longer than the memory",
            "result.invalid",
            body("(drop (call $ok)) (i32.store (i32.const 524) (i32.const 0xfffffff)) (i32.const 512)"),
        ),
        row(
            "realloc past the memory",
            "trap.invalid_call",
            Guest { realloc: "(i32.const 0x7fffff00)".to_owned(), ..Guest::default() },
        ),
        row("a tool's own error", "tool.not_found", body("(call $error (i32.const 2) (i32.const 256) (i32.const 2))")),
    ]
}

/// A guest that makes this many resources of its own and answers.
fn resources(count: u32) -> Guest {
    Guest {
        imports: "(type $r (resource (rep i32)))".to_owned(),
        host: vec![("new".to_owned(), "(canon resource.new $r)".to_owned())],
        core_imports: "(import \"host\" \"new\" (func $new (param i32) (result i32)))".to_owned(),
        body: format!(
            "(local $n i32)
             (loop $again (drop (call $new (i32.const 1)))
               (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {count}))))
             (call $ok)"
        ),
        ..Guest::default()
    }
}

const CLOCK: &str = r#"
(import "wasi:io/poll@0.2.0" (instance $poll
  (export "pollable" (type $pollable (sub resource)))
  (export "[method]pollable.block" (func (param "self" (borrow $pollable))))
  (export "poll" (func (param "in" (list (borrow $pollable))) (result (list u32))))))
(alias export $poll "pollable" (type $pollable))
(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
  (alias outer 1 $pollable (type $theirs))
  (export "pollable" (type $ours (eq $theirs)))
  (export "subscribe-duration" (func (param "when" u64) (result (own $ours))))))"#;

const STDOUT: &str = r#"
(import "wasi:io/error@0.2.0" (instance $io-error (export "error" (type (sub resource)))))
(alias export $io-error "error" (type $error))
(import "wasi:io/streams@0.2.0" (instance $streams
  (export "output-stream" (type $stream (sub resource)))
  (alias outer 1 $error (type $their-error))
  (export "error" (type $our-error (eq $their-error)))
  (type $stream-error (variant (case "last-operation-failed" (own $our-error)) (case "closed")))
  (export "stream-error" (type $failure (eq $stream-error)))
  (export "[method]output-stream.write"
    (func (param "self" (borrow $stream)) (param "contents" (list u8)) (result (result (error $failure)))))
  (export "[method]output-stream.write-zeroes"
    (func (param "self" (borrow $stream)) (param "len" u64) (result (result (error $failure)))))))
(alias export $streams "output-stream" (type $stream))
(import "wasi:cli/stdout@0.2.0" (instance $stdout
  (alias outer 1 $stream (type $theirs))
  (export "output-stream" (type $ours (eq $theirs)))
  (export "get-stdout" (func (result (own $ours))))))"#;

fn host_functions() -> Vec<Row> {
    let random = |body: &str| importing(RANDOM, &[("random", r#"(func $random "get-random-bytes")"#, "(param i64 i32)")], body);
    let log = |body: &str| importing(LOG, &[("log", r#"(func $log "log")"#, "(param i32 i32 i32 i32 i32)")], body);
    let clock = |body: &str| {
        let functions = [
            ("subscribe", r#"(func $clock "subscribe-duration")"#, "(param i64) (result i32)"),
            ("block", r#"(func $poll "[method]pollable.block")"#, "(param i32)"),
            ("poll", r#"(func $poll "poll")"#, "(param i32 i32 i32)"),
        ];
        importing(CLOCK, &functions, body)
    };
    let stdout = |body: &str| {
        let functions = [
            ("stdout", r#"(func $stdout "get-stdout")"#, "(result i32)"),
            ("write", r#"(func $streams "[method]output-stream.write")"#, "(param i32 i32 i32 i32)"),
            ("zeroes", r#"(func $streams "[method]output-stream.write-zeroes")"#, "(param i32 i64 i32)"),
        ];
        importing(STDOUT, &functions, body)
    };
    let write = |length: u32| {
        format!(
            "(local $out i32) (local.set $out (call $stdout))
             (loop $again (call $write (local.get $out) (i32.const 1024) (i32.const {length}) (i32.const 2048)) (br $again)) unreachable"
        )
    };
    vec![
        row(
            "all the random bytes there are",
            "limit.hostcall",
            random("(call $random (i64.const -1) (i32.const 1024)) (call $ok)"),
        ),
        row(
            "a log without end",
            "limit.fuel",
            log(
                "(loop $again (call $log (i32.const 2) (i32.const 256) (i32.const 2) (i32.const 256) (i32.const 2)) (br $again)) unreachable",
            ),
        ),
        row(
            "a log of bytes that are no text",
            "trap.invalid_call",
            log("(i32.store8 (i32.const 1024) (i32.const 255))
             (call $log (i32.const 2) (i32.const 256) (i32.const 2) (i32.const 1024) (i32.const 1)) (call $ok)"),
        ),
        row(
            "a log of an unknown level",
            "trap.invalid_call",
            log("(call $log (i32.const 99) (i32.const 256) (i32.const 2) (i32.const 256) (i32.const 2)) (call $ok)"),
        ),
        row("resources without end", "limit.handles", resources(u32::MAX)),
        row("more resources than `handles`", "limit.handles", resources(9)).with(|limits| limits.handles = 8),
        row("as many resources as `handles`", "ok", resources(8)).with(|limits| limits.handles = 8),
        row(
            "more random bytes than `random_bytes`",
            "limit.hostcall",
            random("(call $random (i64.const 17) (i32.const 1024)) (call $ok)"),
        )
        .with(|limits| limits.random_bytes = 16),
        row("as many random bytes as `random_bytes`", "ok", random("(call $random (i64.const 16) (i32.const 1024)) (call $ok)"))
            .with(|limits| limits.random_bytes = 16),
        row("a sleep of five centuries", "limit.time", clock("(call $block (call $subscribe (i64.const -1))) (call $ok)"))
            .with(|limits| limits.timeout = Duration::from_millis(100)),
        row(
            "pollables without end",
            "limit.handles",
            clock("(loop $again (drop (call $subscribe (i64.const 1))) (br $again)) unreachable"),
        ),
        row(
            "a poll of nothing",
            "trap.invalid_call",
            clock("(call $poll (i32.const 0) (i32.const 0) (i32.const 1024)) (call $ok)"),
        ),
        row(
            "a poll of one handle a thousand times too often",
            "limit.handles",
            clock(
                "(local $n i32) (local $handle i32) (local.set $handle (call $subscribe (i64.const 0)))
             (loop $again
               (i32.store (i32.add (i32.const 32768) (i32.shl (local.get $n) (i32.const 2))) (local.get $handle))
               (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 20000))))
             (call $poll (i32.const 32768) (i32.const 20000) (i32.const 1024)) (call $ok)",
            ),
        ),
        row("a handle that was never given", "trap.invalid_call", clock("(call $block (i32.const 12345)) (call $ok)")),
        row("stdout without end", "limit.fuel", stdout(&write(32768))).with(|limits| limits.fuel = 300_000),
        row("empty writes without end", "limit.fuel", stdout(&write(0))).with(|limits| limits.fuel = 5_000_000),
        row(
            "one write over what is permitted",
            "trap.invalid_call",
            stdout("(call $write (call $stdout) (i32.const 0) (i32.const 100000) (i32.const 2048)) (call $ok)"),
        ),
        row(
            "all the zeroes there are",
            "trap.invalid_call",
            stdout("(call $zeroes (call $stdout) (i64.const -1) (i32.const 2048)) (call $ok)"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_ends_as_it_must_and_the_next_call_works() {
    let fixture = Fixture::new();
    let good = fixture.bind(&Guest::default(), Limits::default()).await;
    let mut wrong = Vec::new();
    for (group, rows) in [("execution", execution()), ("results", results()), ("host functions", host_functions())] {
        let count = rows.len();
        for row in rows {
            let bound = fixture.bind(&row.guest, row.limits).await;
            let outcome = fixture.call(&bound).await;
            if code(&outcome) != row.expected {
                wrong.push(format!("{group}: {}: expected {}, got {outcome:?}", row.name, row.expected));
            }
            assert_answers(&fixture.call(&good).await, row.name);
        }
        tell(&format!("hostile corpus: {group} {count}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn assert_answers(outcome: &ToolOutcome, after: &str) {
    assert_eq!(outcome.content, [Content::Text { text: "ok".to_owned() }], "after {after}: {outcome:?}");
    assert!(outcome.usage.fuel > 0 && outcome.usage.memory_bytes == 2 * 65536 && outcome.usage.output_bytes == 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_reported_for_a_call_that_failed() {
    let fixture = Fixture::new();
    let spin = body("(loop $again (br $again)) unreachable");
    let bound = fixture.bind(&spin, Limits { fuel: 3_000_000, ..Limits::default() }).await;
    let usage = fixture.call(&bound).await.usage;
    assert_eq!(usage.fuel, 3_000_000);
    assert_eq!(usage.memory_bytes, 2 * 65536);
    assert!(usage.wall_us >= usage.host_us && usage.wall_us > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_asks_for_megabytes_of_random_numbers_still_meets_its_deadline() {
    let fixture = Fixture::new();
    // Ten units of fuel and milliseconds of host time for each turn of the loop; the memory is used over and over.
    let guest = Guest {
        realloc: "(if (result i32) (i32.gt_u (local.get 3) (i32.const 65536)) (then (i32.const 65536)) (else (i32.const 16384)))"
            .to_owned(),
        memory: "(memory (export \"memory\") 40)".to_owned(),
        ..importing(
            RANDOM,
            &[("random", r#"(func $random "get-random-bytes")"#, "(param i64 i32)")],
            "(loop $again (call $random (i64.const 1000000) (i32.const 1024)) (br $again)) unreachable",
        )
    };
    let bound = fixture.bind(&guest, Limits { timeout: Duration::from_millis(200), ..Limits::default() }).await;
    let started = Instant::now();
    assert_eq!(code(&fixture.call(&bound).await), "limit.time");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

const CONFIG: &str = r#"(import "wasi:config/store@0.2.0-rc.1" (instance $config
  (type $errors (variant (case "upstream" string) (case "io" string)))
  (export "error" (type $error (eq $errors)))
  (export "get" (func (param "key" string) (result (result (option string) (error $error)))))))"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_spends_its_time_in_a_host_function_still_meets_its_deadline() {
    let fixture = Fixture::new();
    // A key of four megabytes, a few units of fuel and a millisecond of host time at each turn; this function never yields.
    let guest = Guest {
        memory: "(memory (export \"memory\") 80)".to_owned(),
        ..importing(
            CONFIG,
            &[("get", r#"(func $config "get")"#, "(param i32 i32 i32)")],
            "(loop $again (call $get (i32.const 32768) (i32.const 4000000) (i32.const 1024)) (br $again)) unreachable",
        )
    };
    let bound = fixture.bind(&guest, Limits { timeout: Duration::from_millis(200), ..Limits::default() }).await;
    let started = Instant::now();
    let outcome = fixture.call(&bound).await;
    assert_eq!(code(&outcome), "limit.time", "{outcome:?}");
    assert!(outcome.usage.fuel > 0 && outcome.usage.memory_bytes == 80 * 65536, "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

const ENVIRONMENT: &str = r#"(import "wasi:cli/environment@0.2.0" (instance $environment
  (export "get-environment" (func (result (list (tuple string string)))))
  (export "get-arguments" (func (result (list string))))))"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_sees_the_environment_that_is_granted_and_no_arguments() {
    let fixture = Fixture::new();
    let functions = [
        ("environment", r#"(func $environment "get-environment")"#, "(param i32)"),
        ("arguments", r#"(func $environment "get-arguments")"#, "(param i32)"),
    ];
    // Answers with the value of its only variable, and `not-found` if there is not exactly one, or an argument.
    let guest = importing(
        ENVIRONMENT,
        &functions,
        "(local $pair i32)
         (call $environment (i32.const 1024)) (call $arguments (i32.const 1032))
         (if (i32.or (i32.ne (i32.load (i32.const 1028)) (i32.const 1)) (i32.load (i32.const 1036)))
           (then (return (call $error (i32.const 2) (i32.const 256) (i32.const 2)))))
         (local.set $pair (i32.load (i32.const 1024)))
         (call $text (i32.load offset=8 (local.get $pair)) (i32.load offset=12 (local.get $pair)))",
    );
    let plugin = fixture.load(&guest).await;
    let env = std::iter::once(("LANG".to_owned(), "zh_CN.UTF-8 中文".to_owned())).collect();
    let grants = Grants { env, ..Grants::default() };
    let bound = fixture.sandbox.bind(&plugin, "guest", grants, Limits::default()).expect("a bound plugin");
    assert_eq!(fixture.call(&bound).await.content, [Content::Text { text: "zh_CN.UTF-8 中文".to_owned() }]);
    let bound = fixture.bind(&guest, Limits::default()).await;
    assert_eq!(code(&fixture.call(&bound).await), "tool.not_found");
}
