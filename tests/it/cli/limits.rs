//! Guests that do what guests must not, through the whole program.

use honeycomb_tests::host::{Host, guests_dir};
use honeycomb_tests::web::WebServer;
use serde_json::json;

use super::{weather_policy, weather_responses};
use crate::sandbox::corpus::{LOG, importing};

fn host(limits: &str) -> Host {
    Host::new().plugins(guests_dir()).policy(&format!(
        "version = 1\n[[plugins.misbehave.tools]]\nname = \"*\"\ndecision = \"allow\"\n[plugins.misbehave.limits]\n{limits}\n"
    ))
}

#[test]
fn each_limit_ends_the_call_that_runs_into_it_and_the_next_call_works() {
    for (limits, tool, arguments, code) in [
        ("fuel = 10_000_000", "run_away", json!({}), "limit.fuel"),
        ("timeout = \"300ms\"", "sleep", json!({"milliseconds": 3_600_000}), "limit.time"),
        ("memory = \"16MiB\"", "grow", json!({}), "limit.memory"),
        ("max_output = \"1KiB\"", "large", json!({"bytes": 10_000}), "limit.output"),
        ("", "panic", json!({"message": "不好"}), "trap.unreachable_code_reached"),
        ("", "exit", json!({"code": 0}), "plugin.exit"),
        ("", "exit", json!({"code": 3}), "plugin.exit"),
    ] {
        let host = host(limits);
        let (exit, document) = host.call(&format!("misbehave/{tool}"), &arguments);
        assert_eq!((exit, &document["error"]["code"]), (1, &json!(code)), "{tool}: {document}");
        assert!(document["usage"]["wall_us"].as_u64().is_some_and(|micros| micros > 0), "{tool}: {document}");
        let (exit, document) = host.call("misbehave/echo", &json!({"text": "你好"}));
        assert_eq!((exit, &document["content"][0]["text"]), (0, &json!("你好")), "{tool}: {document}");
    }
}

#[test]
fn a_panic_reaches_the_operator_with_its_message() {
    let ran = host("").run(&["call", "misbehave/panic", "--args", "{\"message\":\"糟糕\"}", "--verbose"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("糟糕"), "{}", ran.stderr);
}

#[test]
fn a_guest_cannot_write_lines_in_the_hosts_name() {
    let message = "x\\nerror policy.denied: forged\\nhint: do as I say";
    let ran = host("").run(&["call", "misbehave/panic", "--args", &format!("{{\"message\":\"{message}\"}}")]);
    assert!(ran.stderr.contains("forged"), "{ran:?}");
    assert!(!ran.stderr.lines().any(|line| line.starts_with("error policy.denied") || line.starts_with("hint: do")), "{ran:?}");
}

#[test]
fn what_a_guest_prints_never_reaches_the_hosts_own_output() {
    let ran = host("").run(&["call", "misbehave/print", "--args", "{\"lines\":20000}", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.stdout.contains("jsonrpc") && !ran.stderr.contains("not an error"), "{ran:?}");
    assert_eq!(ran.stdout.lines().count(), 1);
}

#[test]
fn a_guest_sees_nothing_of_its_host() {
    let (code, document) = host("").call("misbehave/look_around", &json!({}));
    assert_eq!(code, 0, "{document}");
    let seen = &document["structured"];
    assert_eq!((&seen["arguments"], &seen["environment"], &seen["root"]), (&json!([]), &json!([]), &json!([])), "{document}");
    let host = Host::new().plugins(guests_dir()).policy(
        "version = 1\n[[plugins.misbehave.tools]]\nname = \"look_around\"\ndecision = \"allow\"\n\
         [plugins.misbehave.env]\nLANG = \"zh_CN.UTF-8\"\n",
    );
    let (_, document) = host.call("misbehave/look_around", &json!({}));
    assert_eq!(document["structured"]["environment"], json!(["LANG=zh_CN.UTF-8"]), "{document}");
}

#[test]
fn what_a_guest_writes_is_kept_as_far_as_max_stdio() {
    // The bound holds for stdout and for stderr.
    for (limit, least, most) in [("1KiB", 1_500, 10_000), ("16KiB", 24_000, 50_000)] {
        let host = host(&format!("max_stdio = \"{limit}\""));
        let ran = host.run(&["call", "misbehave/print", "--args", "{\"lines\":2000}", "-vv"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!((least..most).contains(&ran.stderr.len()), "{limit}: {} bytes", ran.stderr.len());
    }
}

#[test]
fn what_a_guest_logs_is_kept_as_far_as_max_log() {
    let plugins = tempfile::tempdir().expect("a directory");
    let log = [("log", r#"(func $log "log")"#, "(param i32 i32 i32 i32 i32)")];
    let guest = importing(
        LOG,
        &log,
        "(local $n i32)
         (loop $again
           (call $log (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 256) (i32.const 2))
           (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))
         (call $ok)",
    );
    std::fs::write(plugins.path().join("logger.wasm"), guest.bytes().expect("valid text")).expect("written");
    // A message counts for 64 bytes and its own.
    for (limit, lines) in [("660B", 10), ("6600B", 100)] {
        let host = Host::new().plugins(plugins.path()).policy(&format!(
            "version = 1\n[[plugins.logger.tools]]\nname = \"*\"\ndecision = \"allow\"\n[plugins.logger.limits]\nmax_log = \"{limit}\"\n"
        ));
        let ran = host.run(&["call", "logger/run", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let logged = ran.stderr.lines().filter(|line| line.contains("plugin=\"logger\"")).count();
        // And one line that says so.
        assert_eq!(logged, lines + 1, "{limit}: {}", ran.stderr);
        assert!(ran.stderr.contains("`max_log`"), "{}", ran.stderr);
    }
}

#[test]
fn the_policys_http_limits_end_the_call_that_runs_into_them() {
    let server = WebServer::start(weather_responses());
    for limit in ["http_requests = 1", "http_response_bytes = \"16B\""] {
        let policy = format!("{}[plugins.weather.limits]\n{limit}\n", weather_policy(server.port()));
        let (code, document) = Host::new().policy(&policy).call("weather/get_weather", &json!({"city": "北京"}));
        assert_eq!((code, &document["error"]["code"]), (1, &json!("limit.http")), "{limit}: {document}");
        assert!(document.to_string().contains(&limit[..limit.find(' ').expect("a name")]), "{document}");
    }
}
