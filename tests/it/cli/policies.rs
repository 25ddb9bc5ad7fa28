//! `policy diff`, `import` and `test`, and where a policy's secrets and plugins come from.

use honeycomb_tests::host::{Host, guests_dir, plugins_dir};
use honeycomb_tests::web::WebServer;
use serde_json::{Value, json};

use super::{weather_policy, weather_responses};

/// A component with one more custom section, as a linker would append it.
fn with_requests(component: &[u8], requests: &str) -> Vec<u8> {
    const NAME: &str = "honeycomb:requests";
    let number = |mut value: usize| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let text = format!("version = 1\n{requests}");
    let content = [number(NAME.len()), NAME.into(), text.into_bytes()].concat();
    [component, &[0], &number(content.len()), &content].concat()
}

#[test]
fn diff_says_what_a_new_version_asks_for_beyond_the_old_one_and_the_policy() {
    let guest = std::fs::read(guests_dir().join("misbehave.wasm")).expect("a guest");
    let host = Host::new();
    let old = "[[net]]\nhost = \"a.example\"\n";
    let new = "[[net]]\nhost = \"a.example\"\nmethods = [\"GET\", \"POST\"]\nreason = \"to write\"\n[[env]]\nname = \"LANG\"\n";
    host.write("plugins/misbehave.wasm", with_requests(&guest, old));
    host.write("same.wasm", with_requests(&guest, old));
    host.write("new.wasm", with_requests(&guest, new));
    host.write("silent.wasm", &guest);
    let plugins = host.path().join("plugins");
    let host = host
        .plugins(plugins)
        .policy("version = 1\n[[plugins.misbehave.tools]]\nname = \"echo\"\ndecision = \"allow\"\n[[plugins.misbehave.net]]\nhost = \"a.example\"\n");
    let diff = |old: &str, new: &str| {
        let ran = host.run(&["policy", "diff", old, new, "--json"]);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        (ran.code, document)
    };
    let (code, document) = diff("misbehave", "same.wasm");
    assert_eq!((code, &document["asks_for_more"], &document["more"]), (0, &json!(false), &json!([])), "{document}");
    let (code, document) = diff("misbehave", "new.wasm");
    assert_eq!(code, 1, "{document}");
    let what = |list: &Value| list.as_array().expect("a list").iter().map(|one| one["what"].clone()).collect::<Vec<_>>();
    assert_eq!(what(&document["more"]), [json!("POST https://a.example:443/"), json!("`LANG`")], "{document}");
    assert_eq!(what(&document["not_granted"]), what(&document["more"]), "{document}");
    // A version that says no more what it needs gets all that the policy grants.
    let (code, document) = diff("misbehave", "silent.wasm");
    assert_eq!((code, &document["more"][0]["table"]), (1, &json!("requests")), "{document}");
    // Back to the old version: no more than before.
    assert_eq!(diff("new.wasm", "same.wasm").0, 0);
    // Another plugin altogether: other tools, none of which the policy lets run.
    let calculator = plugins_dir().join("calculator.wasm");
    let (_, document) = diff("misbehave", &calculator.to_string_lossy());
    assert_eq!(document["tools"]["added"], json!([{"name": "calculate", "decision": "deny"}]), "{document}");
    assert!(document["tools"]["removed"].as_array().is_some_and(|removed| removed.contains(&json!("echo"))), "{document}");
    let ran = host.run(&["policy", "diff", "misbehave", "new.wasm"]);
    assert!(ran.stdout.contains("net     POST https://a.example:443/; it says: to write"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("the new version asks for more\n"), "{}", ran.stdout);
    assert_eq!(host.run(&["policy", "diff", "misbehave", "nowhere.wasm"]).code, 1);
}

#[test]
fn a_wassette_policy_becomes_one_that_checks() {
    let host = Host::new();
    let file = host.write(
        "fetch.policy.yaml",
        "version: \"1.0\"\npermissions:\n  network:\n    allow:\n    - host: \"api.github.com\"\n  environment:\n    allow:\n    - key: GITHUB_TOKEN\n",
    );
    let file = file.to_string_lossy();
    let ran = host.run(&["policy", "import", &file]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("[[plugins.fetch.net]]\nhost = \"api.github.com\"\n"), "{}", ran.stdout);
    let checked = Host::new().policy(&ran.stdout);
    assert_eq!(checked.run(&["policy", "check"]).code, 0, "{}", ran.stdout);
    assert!(checked.run(&["policy", "explain", "fetch/fetch_page"]).stdout.starts_with("ask: "));
    let ran = host.run(&["policy", "import", &file, "--id", "Not An Id"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let file = host.write("bad.yaml", "version: \"1.0\"\npermissions:\n  network:\n    block: []\n");
    let ran = host.run(&["policy", "import", &file.to_string_lossy(), "--json"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stdout.contains("policy.invalid") && ran.stdout.contains("line 4: `block` is not known"), "{ran:?}");
}

#[test]
fn a_file_without_test_cases_and_a_broken_policy_are_no_success() {
    let host = Host::new().policy("version = 1\n");
    for text in ["", "\n\n  \n", "\u{feff}"] {
        let file = host.write("cases.jsonl", text);
        let ran = host.run(&["policy", "test", &file.to_string_lossy()]);
        assert_eq!(ran.code, 2, "{text:?}: {ran:?}");
        assert!(ran.stderr.contains("holds no test case"), "{ran:?}");
    }
    assert_eq!(host.run(&["doctor"]).code, 0);
    let broken = Host::new().policy("version = 1\nlimit = {}\n");
    let ran = broken.run(&["doctor"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stdout.contains("unknown field `limit`"), "{ran:?}");
}

#[test]
fn source_names_the_file_of_a_plugin() {
    let policy = "version = 1\n[plugins.sums]\nsource = \"calculator.wasm\"\n[[plugins.sums.tools]]\nname = \"calculate\"\ndecision = \"allow\"\n";
    let host = Host::new().policy(policy);
    let (code, document) = host.call("sums/calculate", &json!({"expression": "123 + 456"}));
    assert_eq!((code, &document["structured"]["result"]), (0, &json!("579")), "{document}");
    // The file has one id, and so one set of rights.
    let ran = host.run(&["tools", "--json"]);
    assert!(!ran.stdout.contains("\"plugin\":\"calculator\""), "{}", ran.stdout);
}

#[cfg(target_os = "linux")]
#[test]
fn a_secret_comes_from_the_keyring_or_the_host_does_not_start() {
    use std::os::unix::fs::PermissionsExt as _;
    const SECRET: &str = "s3cret-from-the-keyring";
    let server = WebServer::start(weather_responses());
    let policy = weather_policy(server.port())
        .replace("path = \"/v1/\"", "path = \"/v1/\"\nsecret = { header = \"x-api-key\", source = \"keyring:weather/ann\" }");
    let call = ["call", "weather/get_weather", "--args", "{\"city\":\"北京\"}", "--json", "-vv"];
    let host = Host::new();
    // A `secret-tool` that knows one entry, in the first directory of PATH.
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = \"lookup service weather username ann\" ] && [ -f \"{}/unlocked\" ] || exit 1\nprintf '%s' {SECRET}\n",
        host.path().display()
    );
    let tool = host.write("bin/secret-tool", script);
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let host = host.policy(&policy).variable("PATH", &format!("{}:/usr/bin:/bin", host_bin(&tool)));
    let ran = host.run(&call);
    assert_eq!(ran.code, 2, "{ran:?}");
    for part in ["policy0.toml:", "keyring:weather/ann", "no such entry", "secret-tool store"] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    assert_eq!(server.requests(), Vec::<String>::new());
    host.write("unlocked", "");
    let ran = host.run(&call);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(server.requests().iter().all(|request| request.contains(&format!("x-api-key: {SECRET}"))));
    assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{ran:?}");
    // A program that others can replace is not asked.
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o757)).expect("a mode");
    let ran = host.run(&call);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stdout.contains("can be written by everybody"), "{ran:?}");
}

#[cfg(target_os = "linux")]
fn host_bin(tool: &std::path::Path) -> String {
    tool.parent().expect("a directory").to_string_lossy().into_owned()
}

#[test]
fn a_secret_in_the_words_of_a_trap_or_an_echo_is_redacted() {
    const SECRET: &str = "s3cret-trap-token-42";
    let policy = "version = 1\n[[plugins.misbehave.tools]]\nname = \"*\"\ndecision = \"allow\"\n[[plugins.misbehave.net]]\nhost = \"a.example\"\n\
                  secret = { header = \"x-api-key\", source = \"env:TRAP_KEY\" }\n";
    let host = Host::new().plugins(guests_dir()).policy(policy).variable("TRAP_KEY", SECRET);
    for (tool, arguments) in [("panic", json!({"message": SECRET})), ("echo", json!({"text": SECRET}))] {
        let ran = host.run(&["call", &format!("misbehave/{tool}"), "--args", &arguments.to_string(), "--json", "-vvv"]);
        assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{tool}: {ran:?}");
        assert!(ran.stdout.contains("[secret]") || ran.stderr.contains("[secret]"), "{tool}: {ran:?}");
    }
}
