use std::path::PathBuf;

use super::*;
use crate::policy::{Grants, PluginPolicy, Policy, PolicySource};

fn requests(text: &str) -> Requests {
    Requests::parse(&format!("version = 1\n{text}")).unwrap_or_else(|errors| panic!("{errors}"))
}

fn plugin(lines: &str) -> PluginPolicy {
    let text = format!("version = 1\n[plugins.a]\n{lines}");
    let source = PolicySource { name: Arc::from("p.toml"), text: &text, base_dir: PathBuf::from("/policy") };
    Policy::parse(&[source]).expect("valid").plugin("a").expect("plugin a").clone()
}

fn allows(grants: &Grants, method: &str, url: &str) -> bool {
    let target = NetTarget::from_url(url).expect(url);
    grants.allow_net("a", &target.request(method)).is_ok()
}

#[test]
fn every_error_names_its_line() {
    for (text, place, message) in [
        ("nett = 1", "2:1", "unknown field `nett`"),
        ("[[net]]\nhost = \"a.example\"\nsecret = {}", "4:1", "unknown field `secret`"),
        ("[[net]]\nhost = \"*.com\"", "3:8", "anybody can register"),
        ("[[net]]\nconfig = \"x\"", "3:10", "config key `x` is not declared"),
        ("[[net]]\nconfig = \"x\"\nhost = \"a.example\"\n[[config]]\nkey = \"x\"", "4:1", "unknown field `host`"),
        ("[[net]]\nhost = \"a.example\"\nmethods = [\"CONNECT\"]", "4:12", "cannot be granted"),
        ("[[fs]]\nguest = \"data\"\nmode = \"ro\"", "3:9", "is not absolute"),
        ("[[fs]]\nguest = \"/data\"", "2:1", "has no `mode`"),
        ("[kv]", "2:1", "has no `quota`"),
        ("[[config]]\nkey = \"a b\"", "3:7", "cannot be a config key"),
        ("[[config]]\nkey = \"a\"\nrequired = \"yes\"", "4:12", "true or false"),
        ("[[env]]\nname = \"A=B\"", "3:8", "cannot name an environment variable"),
        ("[[secrets]]\nheader = \"host\"\nhost = \"a.example\"", "3:10", "frames or routes"),
        ("[[secrets]]\nheader = \"x-a\"", "2:1", "has no `host`"),
        ("[limits]\nfuel = 0", "3:8", "`fuel` is zero"),
        ("[[net]]\nhost = 5", "3:8", "must be a string"),
    ] {
        let error = Requests::parse(&format!("version = 1\n{text}")).expect_err(text).to_string();
        assert!(error.starts_with(&format!("honeycomb:requests:{place}: ")) && error.contains(message), "{text}: {error}");
    }
    assert!(Requests::parse("").expect_err("no version").to_string().contains("add `version = 1`"));
    assert!(Requests::parse(&"#".repeat(MAX_REQUESTS_BYTES + 1)).is_err());
    let many = format!("version = 1\n{}", "[[env]]\nname = \"A\"\n".repeat(65));
    assert!(Requests::parse(&many).expect_err("too many").to_string().contains("more than the 64 allowed"));
}

#[test]
fn texts_of_the_author_are_cleaned_and_bounded() {
    let found = requests(&format!("[[env]]\nname = \"A\"\nreason = \"\\u001b[2J{}\\u202e\"", "x".repeat(1_000)));
    let reason = &found.env[0].reason;
    assert!(!reason.contains(['\u{1b}', '\u{202e}']) && reason.len() < 400, "{reason}");
}

#[test]
fn a_request_must_be_granted_and_asked_for() {
    let grants = plugin("[[plugins.a.net]]\nhost = \"*.example.com\"\nmethods = [\"GET\", \"POST\"]").grants;
    let wishes = requests("[[net]]\nhost = \"api.example.com\"\npath = \"/v1/\"\n[[net]]\nhost = \"other.org\"");
    let (limited, notes) = grants.within(&wishes);
    assert_eq!(notes, []);
    for (method, url, expected) in [
        ("GET", "https://api.example.com/v1/x", true),
        ("POST", "https://api.example.com/v1/x", false),
        ("GET", "https://api.example.com/v2", false),
        ("GET", "https://www.example.com/v1/x", false),
        ("GET", "https://other.org/", false),
    ] {
        assert_eq!(allows(&limited, method, url), expected, "{method} {url}");
    }
    let target = NetTarget::from_url("https://www.example.com/v1/x").expect("valid");
    let denial = limited.allow_net("a", &target.request("GET")).expect_err("denied");
    assert!(denial.reason.ends_with("the plugin's own requests do not cover it"), "{}", denial.reason);
    assert!(denial.hint.contains("its author must add it"), "{}", denial.hint);
}

#[test]
fn any_host_in_a_request_is_any_that_the_policy_grants() {
    let lines =
        "[[plugins.a.net]]\nhost = \"a.example\"\nscheme = \"http\"\nport = 8080\n[[plugins.a.net]]\nhost = \"b.example\"";
    let (limited, notes) = plugin(lines).grants.within(&requests("[[net]]\nhost = \"*\""));
    assert_eq!(notes, []);
    assert!(allows(&limited, "GET", "http://a.example:8080/x") && allows(&limited, "GET", "https://b.example/"));
    assert!(!allows(&limited, "GET", "https://c.example/"));
    let (limited, _) = plugin(lines).grants.within(&requests("[[net]]\nhost = \"*\"\nscheme = \"https\""));
    assert!(!allows(&limited, "GET", "http://a.example:8080/x") && allows(&limited, "GET", "https://b.example/"));
}

#[test]
fn a_url_in_config_says_where_requests_go() {
    let wishes = requests("[[config]]\nkey = \"base\"\ndefault = \"https://api.example/v1\"\n[[net]]\nconfig = \"base\"");
    let net =
        "[[plugins.a.net]]\nhost = \"api.example\"\n[[plugins.a.net]]\nhost = \"127.0.0.1\"\nscheme = \"http\"\nport = 9000";
    let (default, notes) = plugin(net).grants.within(&wishes);
    assert_eq!(default.config["base"], "https://api.example/v1");
    assert!(allows(&default, "GET", "https://api.example/v1/x"));
    assert!(!allows(&default, "GET", "https://api.example/v2"));
    assert!(!allows(&default, "GET", "http://127.0.0.1:9000/"));
    assert_eq!(notes.iter().map(|note| note.kind).collect::<Vec<_>>(), [NoteKind::NotRequested]);

    let (stated, _) = plugin(&format!("{net}\n[plugins.a.config]\nbase = \"http://127.1:9000\"")).grants.within(&wishes);
    assert!(allows(&stated, "GET", "http://127.0.0.1:9000/x") && !allows(&stated, "GET", "https://api.example/v1/x"));

    let narrow = requests("[[config]]\nkey = \"base\"\n[[net]]\nconfig = \"base\"\npath = \"/v1/\"");
    let (below, _) = plugin(&format!("{net}\n[plugins.a.config]\nbase = \"https://api.example/api/\"")).grants.within(&narrow);
    assert!(allows(&below, "GET", "https://api.example/api/v1/x"));
    assert!(!allows(&below, "GET", "https://api.example/v1/x") && !allows(&below, "GET", "https://api.example/api/v2"));

    let (broken, notes) = plugin(&format!("{net}\n[plugins.a.config]\nbase = \"nowhere\"")).grants.within(&wishes);
    assert!(broken.net.is_empty());
    assert_eq!(
        (notes[0].kind, notes[0].message.as_str()),
        (NoteKind::Missing, "config `base` is not a URL: the scheme is neither `http` nor `https`")
    );
}

#[test]
fn what_the_plugin_does_not_ask_for_is_dropped() {
    let all = "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", source = \"env:A\" }\n\
               [[plugins.a.fs]]\nhost = \"d\"\nguest = \"/data\"\nmode = \"rw\"\n[[plugins.a.fs]]\nhost = \"e\"\nguest = \"/database\"\nmode = \"ro\"\n\
               [plugins.a.kv]\nquota = \"1MiB\"\n[plugins.a.env]\nLANG = \"C\"\n[plugins.a.config]\nk = \"v\"";
    let (nothing, notes) = plugin(all).grants.within(&requests(""));
    assert!(
        nothing.net.is_empty()
            && nothing.fs.is_empty()
            && nothing.kv.is_none()
            && nothing.env.is_empty()
            && nothing.config.is_empty()
    );
    assert_eq!(notes.len(), 6, "{notes:?}");

    let wishes = requests(
        "[[net]]\nhost = \"a.example\"\n[[fs]]\nguest = \"/data\"\nmode = \"ro\"\n[kv]\nquota = \"1KiB\"\n[[env]]\nname = \"LANG\"\n\
         [[config]]\nkey = \"k\"\n[[config]]\nkey = \"needed\"\nrequired = true",
    );
    let (some, notes) = plugin(all).grants.within(&wishes);
    assert_eq!(some.net[0].secret, None);
    assert_eq!((some.fs.len(), some.fs[0].mode), (1, FsMode::ReadOnly));
    assert_eq!(some.kv.as_ref().map(|kv| kv.quota_bytes), Some(1024));
    assert_eq!((some.env.len(), some.config.len()), (1, 1));
    assert_eq!(notes[2].to_string(), "the plugin asks for `/data` read-only (p.toml:6)");
    let kinds: Vec<NoteKind> = notes.iter().map(|note| note.kind).collect();
    use NoteKind::{Missing, Narrowed, NotRequested};
    assert_eq!(kinds, [Missing, NotRequested, Narrowed, NotRequested, Narrowed], "{notes:?}");

    let (all_asked, _) = plugin(all)
        .grants
        .within(&requests("[[net]]\nhost = \"a.example\"\n[[secrets]]\nheader = \"X-A\"\nhost = \"a.example\""));
    assert!(all_asked.net[0].secret.is_some());
    let (other_host, _) = plugin(all)
        .grants
        .within(&requests("[[net]]\nhost = \"a.example\"\n[[secrets]]\nheader = \"x-a\"\nhost = \"b.example\""));
    assert!(other_host.net[0].secret.is_none());
}

#[test]
fn a_request_never_raises_a_limit() {
    let wishes = requests("[limits]\nfuel = 9_223_372_036_854_775_807\nmemory = \"1MiB\"");
    let limits = wishes.limits(&Limits::default());
    assert_eq!((limits.fuel, limits.memory), (Limits::default().fuel, 1 << 20));
}

#[test]
fn lists_what_is_asked_for_beyond_the_grants() {
    let wishes = requests(
        "[[net]]\nhost = \"a.example\"\nmethods = [\"GET\", \"POST\"]\nreason = \"why\"\n[[net]]\nhost = \"b.example\"\n[[fs]]\nguest = \"/data\"\nmode = \"rw\"\n\
         [kv]\nquota = \"2MiB\"\n[[env]]\nname = \"LANG\"\n[[config]]\nkey = \"k\"\nrequired = true\n[[secrets]]\nheader = \"x-a\"\nhost = \"a.example\"\n\
         [limits]\nfuel = 2_000_000_000",
    );
    let granted = plugin(
        "[[plugins.a.net]]\nhost = \"a.example\"\n[[plugins.a.fs]]\nhost = \"d\"\nguest = \"/data/in\"\nmode = \"ro\"\n[plugins.a.kv]\nquota = \"1MiB\"",
    );
    let wanted: Vec<String> = wishes.beyond(&granted).iter().map(|one| format!("{}: {}", one.table, one.what)).collect();
    assert_eq!(
        wanted,
        [
            "net: POST https://a.example:443/",
            "net: GET https://b.example:443/",
            "fs: `/data` rw",
            "kv: 2MiB of key-value store",
            "config: `k`",
            "env: `LANG`",
            "secret: a secret in `x-a`",
            "limits: `fuel` of 2000000000",
        ]
    );
    assert_eq!(requests("").beyond(&granted), []);
}

#[test]
fn an_upgrade_that_asks_for_more_keeps_the_old_right() {
    let policy = plugin(
        "[[plugins.a.net]]\nhost = \"a.example\"\npath = \"/v1/\"\n[[plugins.a.fs]]\nhost = \"d\"\nguest = \"/data\"\nmode = \"ro\"\n\
         [plugins.a.kv]\nquota = \"1KiB\"\n[plugins.a.env]\nLANG = \"C\"",
    );
    let old = "[[net]]\nhost = \"a.example\"\npath = \"/v1/\"\n[[fs]]\nguest = \"/data\"\nmode = \"ro\"\n[kv]\nquota = \"1KiB\"\n[[env]]\nname = \"LANG\"\n";
    let new = "[[net]]\nhost = \"*.b.example\"\nmethods = [\"GET\", \"POST\"]\n[[net]]\nhost = \"a.example\"\nmethods = [\"GET\", \"POST\"]\n[[net]]\nhost = \"evil.test\"\n\
               [[fs]]\nguest = \"/\"\nmode = \"rw\"\n[kv]\nquota = \"1GiB\"\n[[env]]\nname = \"LANG\"\n[[env]]\nname = \"HOME\"\n\
               [limits]\nfuel = 9_000_000_000\n";
    for text in [old, new] {
        let asked = requests(text);
        let (grants, _) = policy.grants.clone().within(&asked);
        for (method, url, expected) in [
            ("GET", "https://a.example/v1/x", true),
            ("POST", "https://a.example/v1/x", false),
            ("GET", "https://a.example/v2", false),
            ("GET", "https://x.b.example/v1/x", false),
            ("GET", "https://evil.test/", false),
        ] {
            assert_eq!(allows(&grants, method, url), expected, "{method} {url}\n{text}");
        }
        assert_eq!((grants.fs.len(), grants.fs[0].guest.as_str(), grants.fs[0].mode), (1, "/data", FsMode::ReadOnly));
        assert_eq!(grants.kv.as_ref().map(|kv| kv.quota_bytes), Some(1024));
        assert_eq!(grants.env.keys().collect::<Vec<_>>(), ["LANG"]);
        assert!(asked.limits(&policy.limits).fuel <= policy.limits.fuel);
    }
}

#[test]
fn lists_what_a_version_asks_for_beyond_an_older_one() {
    let old = "[[config]]\nkey = \"url\"\ndefault = \"https://a.example\"\n[[net]]\nconfig = \"url\"\npath = \"/v1/\"\n\
               [[net]]\nhost = \"*.b.example\"\nmethods = [\"GET\", \"POST\"]\n[[fs]]\nguest = \"/data\"\nmode = \"ro\"\n[kv]\nquota = \"1KiB\"\n\
               [[env]]\nname = \"LANG\"\n[[secrets]]\nheader = \"x-a\"\nhost = \"*.b.example\"\n[limits]\nfuel = 1_000\nmemory = \"1MiB\"\n";
    let more = |text: &str| {
        let more = requests(text).beyond_older(&requests(old));
        more.iter().map(|one| format!("{}: {}", one.table, one.what)).collect::<Vec<_>>()
    };
    let keep = "[limits]\nfuel = 1_000\nmemory = \"1MiB\"\n";
    assert_eq!(more(old), Vec::<String>::new());
    assert_eq!(more(keep), Vec::<String>::new(), "less is not more");
    for (text, expected) in [
        ("[[net]]\nhost = \"x.b.example\"\nmethods = [\"POST\"]", ""),
        ("[[net]]\nhost = \"*.x.b.example\"", ""),
        ("[[net]]\nhost = \"b.example\"", "net: GET https://b.example:443/"),
        ("[[net]]\nhost = \"*\"", "net: GET *://*:*/"),
        ("[[net]]\nhost = \"x.b.example\"\nmethods = [\"GET\", \"PUT\"]", "net: PUT https://x.b.example:443/"),
        ("[[net]]\nhost = \"x.b.example\"\nscheme = \"http\"", "net: GET http://x.b.example:80/"),
        ("[[net]]\nhost = \"x.b.example\"\nport = 8443", "net: GET https://x.b.example:8443/"),
        ("[[config]]\nkey = \"url\"\n[[net]]\nconfig = \"url\"\npath = \"/v1/x\"", ""),
        ("[[config]]\nkey = \"url\"\n[[net]]\nconfig = \"url\"", "net: GET the URL in config `url`, path /"),
        ("[[config]]\nkey = \"url\"\ndefault = \"https://evil.test\"", "config: `url` is `https://evil.test` by default"),
        ("[[config]]\nkey = \"url\"\nrequired = true", "config: `url`"),
        ("[[config]]\nkey = \"other\"", "config: `other`"),
        ("[[fs]]\nguest = \"/data/in\"\nmode = \"ro\"", ""),
        ("[[fs]]\nguest = \"/data\"\nmode = \"rw\"", "fs: `/data` rw"),
        ("[[fs]]\nguest = \"/\"\nmode = \"ro\"", "fs: `/` ro"),
        ("[kv]\nquota = \"2KiB\"", "kv: 2KiB of key-value store"),
        ("[[env]]\nname = \"HOME\"", "env: `HOME`"),
        ("[[secrets]]\nheader = \"x-a\"\nhost = \"x.b.example\"", ""),
        ("[[secrets]]\nheader = \"x-b\"\nhost = \"x.b.example\"", "secret: a secret in `x-b` for `x.b.example`"),
        ("[[secrets]]\nheader = \"x-a\"\nhost = \"c.example\"", "secret: a secret in `x-a` for `c.example`"),
    ] {
        let found = more(&format!("{text}\n{keep}"));
        assert_eq!(found.join("; "), expected, "{text}");
    }
    assert_eq!(more("[limits]\nfuel = 1_001\nmemory = \"1MiB\""), ["limits: `fuel` of 1001"]);
    assert_eq!(more("[limits]\nfuel = 9"), ["limits: `memory` as far as the policy goes, where 1MiB were enough"]);
}
