//! Wrong files, flags, JSON, policies and plugins: one clear error, the right exit code, never a panic.

use honeycomb_tests::host::{Host, plugins_dir};

#[test]
fn each_wrong_input_gives_a_clear_line_and_exit_code() {
    let host = Host::new();
    host.write("not-toml.toml", "version = ");
    host.write("unknown-field.toml", "version = 1\n[plugins.calculator]\nfuell = 1\n");
    host.write("bad-config.toml", "[model]\nnaem = 1\n");
    host.write("bad-script.toml", "version = 1\n[[turns]]\n[turns.rply]\n");
    host.write("empty.wasm", "");
    host.write("text.wasm", "(component)");
    host.write("module.wasm", b"\0asm\x01\0\0\0");
    host.write("binary.json", b"\xff\xfe");
    for (arguments, code, expected) in [
        (&["--no-such-flag"][..], 2, "--no-such-flag"),
        (&["tolls"], 2, "did you mean `tools`"),
        (&["serve"], 2, "no command `serve`"),
        (&["TOOLS"], 2, "did you mean `tools`"),
        (&[], 2, "no task"),
        (&[""], 2, "the task is empty"),
        (&["a task"], 2, "no model is configured"),
        (&["--max-steps", "x", "a task"], 2, "--max-steps"),
        (&["--policy", "missing.toml", "tools"], 2, "missing.toml"),
        (&["--policy", "not-toml.toml", "policy", "check"], 2, "not-toml.toml:1"),
        (&["--policy", "unknown-field.toml", "policy", "check"], 2, "unknown-field.toml:3"),
        (&["--config", "missing.toml", "a task"], 2, "missing.toml"),
        (&["--config", "bad-config.toml", "a task"], 2, "line 2"),
        (&["--model", "scripted:missing.toml", "a task"], 2, "missing.toml"),
        (&["--model", "scripted:bad-script.toml", "a task"], 2, "rply"),
        (&["policy", "check"], 2, "no policy"),
        (&["policy", "explain", "calculator"], 2, "`calculator` is not `plugin/tool`"),
        (&["call", "calculator"], 2, "`calculator` is not `plugin/tool`"),
        (&["call", "nothing/here"], 1, "no plugin `nothing`"),
        (&["call", "calculator/nothing"], 1, "no tool `nothing`"),
        (&["call", "calculator/calculate", "--args", "{"], 2, "not valid JSON"),
        (&["call", "calculator/calculate", "--args", "[]"], 2, "an array"),
        (&["call", "calculator/calculate", "--args", "{\"a\":1,\"a\":2}"], 2, "twice"),
        (&["call", "calculator/calculate", "--args", "@missing.json"], 2, "missing.json"),
        (&["call", "calculator/calculate", "--args", "@binary.json"], 2, "UTF-8"),
        (&["inspect", "missing.wasm"], 1, "missing.wasm"),
        (&["inspect", "empty.wasm"], 1, "is empty"),
        (&["inspect", "text.wasm"], 1, "WebAssembly text"),
        (&["inspect", "module.wasm"], 1, "core WebAssembly module"),
        (&["inspect", "."], 1, "a directory"),
        (&["--plugins", "nowhere", "tools"], 2, "nowhere"),
    ] {
        let mut command = host.command();
        // Given twice, the last one counts; the harness gives one first.
        let output = command.args(arguments.iter().filter(|_| arguments.first() != Some(&"--plugins"))).output();
        let output = if arguments.first() == Some(&"--plugins") {
            let mut command = std::process::Command::new(honeycomb_tests::host::host_program());
            command.current_dir(host.path()).args(arguments).output().expect("the program starts")
        } else {
            output.expect("the program starts")
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("RUST_BACKTRACE"), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn wrong_arguments_are_named_before_anything_runs() {
    let host = Host::new().policy("version = 1\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\n");
    for (arguments, expected) in
        [("{}", "expression"), ("{\"expression\":5}", "/expression"), ("{\"expression\":\"1\",\"more\":2}", "more")]
    {
        let ran = host.run(&["call", "calculator/calculate", "--args", arguments, "--json"]);
        assert_eq!(ran.code, 1, "{arguments}: {ran:?}");
        assert!(ran.stdout.contains("args.invalid") && ran.stdout.contains(expected), "{arguments}: {ran:?}");
        assert!(ran.stdout.contains("\"fuel\":0"), "{arguments}: {ran:?}");
    }
}

#[test]
fn a_plugin_that_cannot_be_loaded_is_reported_and_the_others_work() {
    let host = Host::new();
    let directory = host.path().join("plugins");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::copy(plugins_dir().join("calculator.wasm"), directory.join("calculator.wasm")).expect("a copy");
    for (name, bytes) in [("broken.wasm", &b"\0asm\x0d\0\x01\0rest"[..]), ("Bad Name.wasm", b"x"), ("empty.wasm", b"")] {
        std::fs::write(directory.join(name), bytes).expect("a file");
    }
    let host = host.plugins(&directory);
    let ran = host.run(&["tools", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(document["failures"].as_array().map(Vec::len), Some(3), "{document}");
    assert_eq!(document["plugins"][0]["plugin"], "calculator", "{document}");
    for name in ["broken", "Bad Name", "empty"] {
        assert!(ran.stderr.contains(&format!("plugin `{name}")), "{name}: {}", ran.stderr);
    }
}

#[test]
fn a_pinned_file_that_changed_is_refused() {
    let policy = format!(
        "version = 1\n[plugins.calculator]\nsha256 = \"{}\"\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\n",
        "0".repeat(64)
    );
    let ran = Host::new().policy(&policy).run(&["call", "calculator/calculate", "--args", "{\"expression\":\"1\"}", "--json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("load.invalid") && ran.stdout.contains("pins"), "{ran:?}");
}

#[test]
fn with_json_every_error_is_one_document() {
    let host = Host::new();
    for arguments in [
        &["--bogus"][..],
        &["call"],
        &["tools", "extra"],
        &["--max-steps", "x", "a task"],
        &["policy"],
        &["a task"],
        &["serve"],
        &["call", "nothing/here"],
        &["--policy", "missing.toml", "tools"],
    ] {
        let output = host.command().arg("--json").args(arguments).output().expect("the program starts");
        let stdout = String::from_utf8(output.stdout).expect("UTF-8");
        let document: serde_json::Value =
            serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stdout}"));
        assert_eq!(document["status"], "error", "{arguments:?}");
        assert!(document["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{arguments:?}: {document}");
        assert!(document["error"]["code"].as_str().is_some_and(|code| code.contains('.')), "{arguments:?}: {document}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn lost_output_is_a_failure() {
    let host = Host::new().policy("version = 1\n[[plugins.calculator.tools]]\nname = \"*\"\ndecision = \"allow\"\n");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let status = host
        .command()
        .args(["call", "calculator/calculate", "--args", "{\"expression\":\"1\"}", "--json"])
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .expect("the program starts");
    assert_eq!(status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_name_that_is_no_text_harms_nothing() {
    use std::os::unix::ffi::OsStrExt as _;
    let host = Host::new();
    let directory = host.path().join("plugins");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(directory.join(std::ffi::OsStr::from_bytes(b"u\xff.wasm")), b"x").expect("a file");
    let ran = host.plugins(&directory).run(&["tools", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}
