mod errors;
mod merging;

use serde_json::json;

use super::*;

fn source<'a>(name: &str, text: &'a str) -> PolicySource<'a> {
    PolicySource { name: Arc::from(name), text, base_dir: PathBuf::from("/srv/agent/policy") }
}

fn parse(text: &str) -> Policy {
    Policy::parse(&[source("policy.toml", text)]).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// A policy for plugin `a` with these lines.
fn plugin(lines: &str) -> PluginPolicy {
    parse(&format!("version = 1\n[plugins.a]\n{lines}")).plugin("a").expect("plugin a").clone()
}

const FULL: &str = r#"
version = 1
[limits]
fuel = 2_000_000_000
timeout = "1m"
memory = "64MiB"
max_output = 65536

[plugins.github]
source = "gh.wasm"
sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
[plugins.github.limits]
fuel = 1_000
timeout = "500ms"
[[plugins.github.tools]]
name = "get_*"
decision = "allow"
[[plugins.github.tools]]
name = "create_issue"
decision = "ask"
args = { type = "object", required = ["repo"], properties = { repo = { type = "string", pattern = "^acme/" } } }
max_calls = 5
[[plugins.github.tools]]
name = "delete_repo"
decision = "deny"
[[plugins.github.net]]
host = "API.GitHub.com."
methods = ["GET", "POST"]
path = "/repos/"
secret = { header = "Authorization", format = "Bearer {}", source = "env:GITHUB_TOKEN" }
[[plugins.github.net]]
host = "localhost"
scheme = "http"
port = 8080
private = ["127.0.0.1/32", "::1"]
[[plugins.github.fs]]
host = "./data"
guest = "/data"
mode = "ro"
[plugins.github.kv]
quota = "1MiB"
[plugins.github.env]
LANG = "C"
[plugins.github.config]
"base.url" = "https://api.github.com/城市"
"#;

#[test]
fn reads_every_field() {
    let policy = parse(FULL);
    assert_eq!(policy.limits().timeout.as_secs(), 60);
    assert_eq!(policy.limits().max_output, 65_536);
    let plugin = policy.plugin("github").expect("a plugin");
    assert_eq!((plugin.source.as_str(), plugin.rule.line), ("gh.wasm", 9));
    assert!(plugin.sha256.as_deref().is_some_and(|digest| digest.starts_with("012345")));
    assert_eq!((plugin.limits.fuel, plugin.limits.timeout.as_millis()), (1_000, 500));
    assert_eq!(plugin.limits.memory, 64 << 20);
    assert_eq!(plugin.limits.concurrency, Limits::default().concurrency);
    let rules: Vec<String> =
        plugin.rules.all().iter().map(|rule| format!("{} {} {}", rule.rule, rule.tools, rule.verdict.as_str())).collect();
    assert_eq!(rules, ["policy.toml:15 get_* allow", "policy.toml:18 create_issue ask", "policy.toml:23 delete_repo deny"]);
    let [api, local] = plugin.grants.net.as_slice() else { panic!("two net rules") };
    assert_eq!((api.host.to_string().as_str(), api.port, api.rule.line), ("api.github.com", 443, 26));
    assert_eq!(
        api.secret,
        Some(SecretRef {
            header: "authorization".into(),
            format: "Bearer {}".into(),
            source: SecretSource::Env("GITHUB_TOKEN".into())
        })
    );
    assert_eq!((local.scheme, local.port, local.methods.as_slice()), (Scheme::Http, 8080, ["GET".to_owned()].as_slice()));
    assert_eq!(local.private.len(), 2);
    let mount = &plugin.grants.fs[0];
    assert_eq!((mount.host.to_str(), mount.guest.as_str()), (Some("/srv/agent/policy/data"), "/data"));
    assert_eq!((mount.mode, mount.dangerous, mount.rule.line), (FsMode::ReadOnly, false, 36));
    assert_eq!(plugin.grants.kv.as_ref().map(|kv| kv.quota_bytes), Some(1 << 20));
    assert_eq!(plugin.grants.env["LANG"], "C");
    assert_eq!(plugin.grants.config["base.url"], "https://api.github.com/城市");
    assert_eq!(policy.warnings(), [], "{:?}", policy.warnings());
}

#[test]
fn every_limit_can_be_lowered_for_one_plugin() {
    for (name, value) in Limits::default().entries() {
        let value = if value.bytes().all(|byte| byte.is_ascii_digit()) { "1".to_owned() } else { "\"1s\"".to_owned() };
        let value = if name == "timeout" || value == "1" { value } else { "\"1B\"".to_owned() };
        let lowered = plugin(&format!("[plugins.a.limits]\n{name} = {value}")).limits;
        let changed: Vec<&str> =
            lowered.entries().zip(Limits::default().entries()).filter(|(a, b)| a != b).map(|(entry, _)| entry.0).collect();
        assert_eq!(changed, [name]);
    }
}

#[test]
fn the_digest_is_that_of_the_file() {
    assert_eq!(parse("version = 1").digest(), "4eab33c0b9ba9ded10e2a046539031d60df90438efad3533d7ad16b6f61da112");
    assert_ne!(parse("version = 1").digest(), parse("version = 1 ").digest());
    assert_eq!(Policy::empty().digest(), "");
    let (a, b) = (source("a.toml", "version = 1"), source("b.toml", "version = 1 "));
    let both = Policy::parse(&[a.clone(), b.clone()]).expect("valid");
    assert_ne!(both.digest(), Policy::parse(&[b, a]).expect("valid").digest());
}

#[test]
fn without_a_policy_every_call_is_denied_with_the_lines_that_allow_it() {
    let decision = Policy::empty().decide("weather", "forecast", &Map::new());
    assert_eq!(decision.verdict, Verdict::Deny);
    assert_eq!(decision.reason, "tool `forecast` is denied: the policy does not name plugin `weather`");
    let hint = decision.hint.expect("a hint");
    let lines = hint.strip_prefix("to allow it, add to the policy:\n").expect("lines");
    let policy = parse(&format!("version = 1\n{lines}"));
    assert_eq!(policy.decide("weather", "forecast", &Map::new()).verdict, Verdict::Allow);
}

#[test]
fn the_lines_of_a_hint_allow_the_call_whatever_its_name() {
    for (plugin, tool) in [("a", "get-x.y/z"), ("a-b", "say\"hi\""), ("a", "北京"), ("a", "back\\slash")] {
        let hint = Policy::empty().decide(plugin, tool, &Map::new()).hint.expect("a hint");
        let lines = hint.split_once('\n').expect("lines").1;
        assert_eq!(parse(&format!("version = 1\n{lines}")).decide(plugin, tool, &Map::new()).verdict, Verdict::Allow);
    }
    let hostile = Policy::empty().decide("x]\n[limits", "y\"\ndecision = \"allow\u{1b}[2J\u{202e}", &Map::new());
    assert!(!hostile.reason.contains(['\n', '\u{1b}', '\u{202e}']), "{}", hostile.reason);
    assert!(!hostile.hint.expect("a hint").contains(['\u{1b}', '\u{202e}']));
}

#[test]
fn a_request_that_is_not_granted_names_the_lines_that_grant_it() {
    let lines = "[[plugins.a.net]]\nhost = \"api.example.com\"\npath = \"/v1/\"";
    let grants = plugin(lines).grants;
    for (method, url, difference) in [
        ("POST", "https://api.example.com/v1/x", "method `POST` is not one of `GET`"),
        ("GET", "https://api.example.com/v2", "path `/v2` is not within `/v1/`"),
        ("GET", "http://localhost:8080/v1/x", "host `localhost` is not `api.example.com`"),
        ("PUT", "http://127.0.0.1:8080/", "host `127.0.0.1` is not `api.example.com`"),
        ("GET", "https://[::1]/", "host `::1` is not `api.example.com`"),
        ("GET", "https://bücher.example:8443/北京", "host `xn--bcher-kva.example` is not `api.example.com`"),
    ] {
        let target = NetTarget::from_url(url).expect(url);
        let denial = grants.allow_net("a", &target.request(method)).expect_err(url);
        assert!(denial.reason.starts_with(&format!("plugin `a` may not send `{method} ")), "{}", denial.reason);
        assert!(denial.reason.contains("(policy.toml:3)") && denial.reason.ends_with(difference), "{}", denial.reason);
        let added = denial.hint.split_once('\n').expect("lines").1;
        let grants = plugin(&format!("{lines}\n{added}")).grants;
        let allowance = grants.allow_net("a", &target.request(method)).expect(url);
        assert_eq!(allowance.rules[0].rule.line, 6);
        if let Ok(address) = target.host.parse() {
            assert!(allowance.allows_address(address), "{added}");
        }
    }
    let target = NetTarget::from_url("https://api.example.com/").expect("valid");
    assert_eq!(grants.allow_net("a", &target.request("TRACE")).expect_err("denied").hint, "this method cannot be granted");
    let denial = Grants::default().allow_net("a", &target.request("GET")).expect_err("denied");
    assert!(denial.reason.ends_with("no rule grants it any request"), "{}", denial.reason);
}

#[test]
fn rules_for_one_request_add_up() {
    let grants = plugin(
        "[[plugins.a.net]]\nhost = \"api.example.com\"\nsecret = { header = \"x-key\", source = \"env:KEY\" }\n\
         [[plugins.a.net]]\nhost = \"*.example.com\"\nprivate = [\"10.1.0.0/16\"]",
    )
    .grants;
    let target = NetTarget::from_url("https://api.example.com/").expect("valid");
    let allowance = grants.allow_net("a", &target.request("GET")).expect("allowed");
    assert_eq!(allowance.rules.len(), 2);
    assert_eq!(allowance.secrets().count(), 1);
    assert!(allowance.allows_address("10.1.2.3".parse().expect("valid")));
    assert!(!allowance.allows_address("10.2.0.1".parse().expect("valid")));
    let hint = allowance.address_hint("10.2.0.1".parse().expect("valid"));
    assert!(hint.contains("policy.toml:3") && hint.contains("private = [\"10.2.0.1/32\"]"), "{hint}");
}

#[test]
fn what_deserves_a_look_is_a_warning() {
    for (lines, expected) in [
        ("", "plugin `a` is not pinned"),
        ("", "no tool of plugin `a` may be called"),
        ("[[plugins.a.tools]]\nname = \"*\"\ndecision = \"allow\"", "all tools of the plugin are allowed"),
        (
            "[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"\nargs = { properties = { a = { pattern = \"x\" } } }",
            "`a` is constrained but not `required`",
        ),
        (
            "[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"\n[[plugins.a.tools]]\nname = \"*\"\ndecision = \"deny\"",
            "never applies: the rule at policy.toml:6 denies `x`",
        ),
        ("[[plugins.a.net]]\nhost = \"example.com\"\nscheme = \"http\"", "plain HTTP to `example.com`"),
        (
            "[[plugins.a.net]]\nhost = \"example.com\"\nscheme = \"http\"\nsecret = { header = \"x-a\", source = \"env:A\" }",
            "a secret goes over plain HTTP",
        ),
        ("[[plugins.a.net]]\nhost = \"*.github.io\"", "anybody can get a name below `github.io`"),
        (
            "[[plugins.a.net]]\nhost = \"*.example.com\"\nsecret = { header = \"x-a\", source = \"env:A\" }",
            "the secret goes to every host",
        ),
        ("[[plugins.a.net]]\nhost = \"127.0.0.1\"", "`127.0.0.1` is not public, so every request is refused"),
        ("[[plugins.a.net]]\nhost = \"localhost\"", "`localhost` is not public, so every request is refused"),
        ("[[plugins.a.net]]\nhost = \"x.example\"\nprivate = [\"169.254.0.0/16\"]", "metadata service"),
        ("[[plugins.a.net]]\nhost = \"x.example\"\nprivate = [\"10.0.0.0/8\"]", "opens a large part of a private network"),
        ("[[plugins.a.fs]]\nhost = \"/etc\"\nguest = \"/x\"\nmode = \"ro\"\ndangerous = true", "`dangerous` skips the checks"),
        ("[[plugins.a.fs]]\nhost = \"/data\"\nguest = \"/x\"\nmode = \"rw\"", "a whole top-level directory"),
        ("[plugins.a.env]\nAPI_TOKEN = \"x\"", "`API_TOKEN`, which looks like a secret"),
    ] {
        let policy = parse(&format!("version = 1\n[plugins.a]\n{lines}"));
        assert!(
            policy.warnings().iter().any(|warning| warning.message.contains(expected)),
            "{expected}: {:?}",
            policy.warnings()
        );
    }
    let quiet = parse("version = 1\n[[plugins.a.net]]\nhost = \"127.0.0.1\"\nscheme = \"http\"\nprivate = [\"127.0.0.1/32\"]");
    assert!(quiet.warnings().iter().all(|warning| warning.rule.line != 3), "{:?}", quiet.warnings());
}

#[test]
fn a_rule_reads_as_what_it_grants() {
    let policy = parse(FULL);
    let net: Vec<String> = policy.plugin("github").expect("a plugin").grants.net.iter().map(ToString::to_string).collect();
    assert_eq!(
        net,
        [
            "GET,POST https://api.github.com/repos/, secret in authorization",
            "GET http://localhost:8080/, private 127.0.0.1/32, private ::1/128"
        ]
    );
}

#[test]
fn explains_a_decision() {
    let policy = parse(FULL);
    let arguments = json!({"repo": "evil/x"}).as_object().expect("an object").clone();
    let explained = explain(&policy, "github/create_issue", &arguments).expect("a call");
    let text = serde_json::to_value(&explained).expect("serialises");
    assert_eq!((&text["decision"], &text["rule"]), (&json!("deny"), &json!("policy.toml:18")));
    assert!(explained.reason.contains("argument `/repo`"), "{}", explained.reason);
    for call in ["", "github", "/x", "github/"] {
        assert!(explain(&policy, call, &arguments).is_err(), "{call}");
    }
}

#[test]
fn a_policy_has_tests() {
    let policy = parse(FULL);
    let cases = r#"{"call":"github/get_issue","expect":"allow"}

{"call":"github/create_issue","args":{"repo":"acme/x"},"expect":"ask"}
{"call":"github/create_issue","args":{"repo":"evil/x"},"expect":"ask"}
{"call":"github/delete_repo","args":{},"expect":"deny"}
{"call":"github/get_issue","expect":"maybe"}
{"call":"github/get_issue","arg":{},"expect":"allow"}
{"call":"github/get_issue","args":[],"expect":"allow"}
{"call":"github/get_issue","args":{"a":1,"a":2},"expect":"allow"}
not json
"#;
    let report = run_cases(&policy, cases);
    assert_eq!((report.passed, report.failed), (3, 6));
    let failures: Vec<(usize, &str)> = report.failures.iter().map(|failure| (failure.line, failure.reason.as_str())).collect();
    for ((line, reason), (expected_line, expected)) in failures.iter().zip([
        (4, "does not match"),
        (6, "`expect` must be"),
        (7, "did you mean `args`?"),
        (8, "`args` must be an object"),
        (9, "appears twice"),
        (10, "not valid JSON"),
    ]) {
        assert!(*line == expected_line && reason.contains(expected), "{line}: {reason}");
    }
    assert_eq!(report.failures[0].rule.as_deref(), Some("policy.toml:18"));
    let many = "{\"call\":\"github/get_x\",\"expect\":\"allow\"}\n".repeat(10_000);
    assert_eq!(run_cases(&policy, &many).passed, 10_000);
}

#[test]
fn the_shipped_policy_and_requests_are_valid_and_fit() {
    let policy = parse(include_str!("../../../examples/policy.toml"));
    for (id, text) in [
        ("calculator", include_str!("../../../plugins/calculator/requests.toml")),
        ("fetch", include_str!("../../../plugins/fetch/requests.toml")),
        ("files", include_str!("../../../plugins/files/requests.toml")),
        ("notes", include_str!("../../../plugins/notes/requests.toml")),
        ("text", include_str!("../../../plugins/text/requests.toml")),
        ("weather", include_str!("../../../plugins/weather/requests.toml")),
    ] {
        let requests = requests::Requests::parse(text).unwrap_or_else(|errors| panic!("{id}: {errors}"));
        let Some(plugin) = policy.plugin(id) else { continue };
        let (_, notes) = plugin.grants.clone().within(&requests);
        let dropped: Vec<_> = notes.iter().filter(|note| note.kind == requests::NoteKind::NotRequested).collect();
        assert!(dropped.is_empty(), "{id}: {dropped:?}");
    }
}
