use super::source;
use crate::policy::{MAX_FILE_BYTES, Policy};

fn errors(text: &str) -> Vec<String> {
    let errors = Policy::parse(&[source("policy.toml", text)]).expect_err(text);
    errors.errors.iter().map(ToString::to_string).collect()
}

/// Lines below `version = 1` and `[plugins.a]`, and the one error that they give: its line and column, and parts of its text.
const PLUGIN: &[(&str, &str, &str, &str)] = &[
    // Fields and their types.
    ("sorce = \"a.wasm\"", "3:1", "unknown field `sorce` in `[plugins.a]`", "did you mean `source`?"),
    ("source = 1", "3:10", "`source` must be a string, not a number", "source = \"a.wasm\""),
    ("source = \"../a.wasm\"", "3:10", "not the name of a component", "a file in the plugins directory"),
    ("source = \"a.cwasm\"", "3:10", "not the name of a component", "source = \"a.wasm\""),
    ("sha256 = \"sha256:00\"", "3:10", "not a SHA-256 digest", "sha256sum"),
    ("sha256 = \"0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef\"", "3:10", "not a SHA-256", "lower case"),
    ("tools = 5", "3:9", "`tools` must be a list of tables", "`[[plugins.a.tools]]` with two brackets"),
    ("[plugins.a.tools]\nname = \"x\"", "3:1", "`tools` must be a list of tables", "two brackets"),
    ("tools = [1]", "3:10", "holds a number", "two brackets"),
    ("env = 1", "3:7", "`env` must be a table, not a number", "[plugins.a.env]"),
    // Tools.
    ("[[plugins.a.tools]]\ndecision = \"allow\"", "3:1", "has no `name`", "add `name = \"…\"`"),
    ("[[plugins.a.tools]]\nname = \"x\"", "3:1", "has no `decision`", "add `decision = \"allow\"`"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"alow\"", "5:12", "`decision` has no value `alow`", "did you mean `allow`?"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"Allow\"", "5:12", "has no value `Allow`", "did you mean `allow`?"),
    ("[[plugins.a.tools]]\nname = \"g*t\"\ndecision = \"allow\"", "4:8", "a `*` in its middle", "only at the end"),
    ("[[plugins.a.tools]]\nname = \"**\"\ndecision = \"allow\"", "4:8", "a `*` in its middle", "only at the end"),
    ("[[plugins.a.tools]]\nname = \"\"\ndecision = \"allow\"", "4:8", "cannot be a tool's name", "without spaces"),
    ("[[plugins.a.tools]]\nname = \"a b\"\ndecision = \"allow\"", "4:8", "cannot be a tool's name", "without spaces"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"\nmax_calls = 0", "6:13", "`max_calls` is zero", "for example"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"\nmax_calls = -1", "6:13", "negative or too large", "for example"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"deny\"\nmax_calls = 1", "6:13", "`max_calls` does nothing", "remove it"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"\nrate = 10", "6:8", "`rate` must be a string", "10/min"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"\nrate = \"0/s\"", "6:8", "is zero", "10/min"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"\nrate = \"10/day\"", "6:8", "`10/day` is not a rate", "`/h`"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"deny\"\nrate = \"1/s\"", "6:8", "`rate` does nothing", "remove it"),
    (
        "[[plugins.a.tools]]\nname = \"x\"\ndecision = \"ask\"\nargs = { propertis = {} }",
        "6:8",
        "unknown keyword",
        "`properties`",
    ),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"ask\"\nargs = { const = 1979-05-27 }", "6:8", "is a date", "as a string"),
    ("[[plugins.a.tools]]\nname = \"x\"\ndecision = \"ask\"\nargs = { const = nan }", "6:8", "not a JSON number", "as a string"),
    (
        "[[plugins.a.tools]]\nname = \"x\"\ndecision = \"ask\"\n[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"",
        "6",
        "a second rule for `x` with the same `args`; the first is at policy.toml:3",
        "remove one",
    ),
    // HTTP.
    ("[[plugins.a.net]]\nport = 80", "3:1", "has no `host`", "add `host = "),
    ("[[plugins.a.net]]\nhost = \"*\"", "4:8", "hosts that nobody has looked at", "*.example.com"),
    ("[[plugins.a.net]]\nhost = \"*.com\"", "4:8", "anybody can register", "*.example.com"),
    ("[[plugins.a.net]]\nhost = \"*.co.uk\"", "4:8", "anybody can register", "*.example.co.uk"),
    ("[[plugins.a.net]]\nhost = \"a*.example.com\"", "4:8", "nobody has looked at", "name the host"),
    ("[[plugins.a.net]]\nhost = \"*.*.example.com\"", "4:8", "nobody has looked at", "name the host"),
    ("[[plugins.a.net]]\nhost = \"*.10.0.0.1\"", "4:8", "a `*` before an address", "one rule for each"),
    ("[[plugins.a.net]]\nhost = \"https://example.com\"", "4:8", "more than a host", "`scheme`, `port` and `path`"),
    ("[[plugins.a.net]]\nhost = \"example.com:80\"", "4:8", "neither a domain nor an IP address", "the port in `port`"),
    ("[[plugins.a.net]]\nhost = \"user@example.com\"", "4:8", "user names", "write a domain"),
    ("[[plugins.a.net]]\nhost = \"a..b\"", "4:8", "empty label", "write a domain"),
    ("[[plugins.a.net]]\nhost = \"fe80::1%eth0\"", "4:8", "zone is not allowed", "write a domain"),
    ("[[plugins.a.net]]\nhost = \"\"", "4:8", "the host is empty", "write a domain"),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nscheme = \"htps\"",
        "5:10",
        "`scheme` has no value `htps`",
        "did you mean `https`?",
    ),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nport = 0", "5:8", "`port` is zero", "from 1 to 65535"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nport = 65536", "5:8", "too large", "from 1 to 65535"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nport = \"80\"", "5:8", "must be a whole number, not a string", "port = 8443"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nports = [80]", "5:1", "unknown field `ports`", "did you mean `port`?"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nmethods = []", "5:11", "`methods` is empty", "name the methods"),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nmethods = \"GET\"",
        "5:11",
        "a list of strings, not a string",
        "[\"GET\", \"POST\"]",
    ),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nmethods = [1]", "5:12", "a list of strings, not a number", "[\"GET\", \"POST\"]"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nmethods = [\"get\"]", "5:12", "not in upper case", "did you mean `GET`?"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nmethods = [\"CONNECT\"]", "5:12", "cannot be granted", "remove it"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nmethods = [\"GET\", \"TRACE\"]", "5:19", "cannot be granted", "remove it"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nmethods = [\"PSOT\"]", "5:12", "`PSOT` is not known", "did you mean `POST`?"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nmethods = [\"GET\", \"GET\"]", "5:19", "named twice", "remove one"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\npath = \"v1\"", "5:8", "must begin with one `/`", "/repos/"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\npath = \"/v1/*\"", "5:8", "has a `*`", "leave the `*` out"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\npath = \"/a/../b\"", "5:8", "not in its normal form", "write `/b`"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\npath = \"/a?b\"", "5:8", "not allowed in paths", "no query"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nprivate = [\"10.0.0.1/8\"]", "5:12", "bits set beyond its prefix", "10.20.0.0/16"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nprivate = [\"0.0.0.0/0\"]", "5:12", "is every address", "name the ranges"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nprivate = [\"8.8.8.0/24\"]", "5:12", "is public", "remove it"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nprivate = [\"local\"]", "5:12", "not an address range", "10.20.0.0/16"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nprivate = []", "5:11", "1 to 64 ranges", "remove `private`"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nprivate = [\"::1\", \"::1/128\"]", "5:19", "named twice", "remove one"),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\n[[plugins.a.net]]\nhost = \"A.EXAMPLE.\"",
        "5",
        "repeats the rule at policy.toml:3",
        "merge",
    ),
    // Secrets.
    ("[[plugins.a.net]]\nhost = \"a.example\"\nsecret = \"x\"", "5:10", "`secret` must be a table", "secret"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\" }", "5:10", "has no `source`", "env:API_TOKEN"),
    ("[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { source = \"env:A\" }", "5:10", "has no `header`", "authorization"),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x a\", source = \"env:A\" }",
        "5:21",
        "not the name of a header",
        "x-api-key",
    ),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"Host\", source = \"env:A\" }",
        "5:21",
        "frames or routes the request",
        "authorization",
    ),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", format = \"Bearer\", source = \"env:A\" }",
        "5:37",
        "must hold `{}` once",
        "Bearer {}",
    ),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", format = \"{}\\r\\nx: y\", source = \"env:A\" }",
        "5:37",
        "visible ASCII",
        "Bearer {}",
    ),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", source = \"env:A-B\" }",
        "5:37",
        "not the name of an environment variable",
        "letters",
    ),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", source = \"ghp_1234\" }",
        "5:37",
        "names neither a variable nor a file",
        "never stands in a policy",
    ),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", source = \"keyring:github\" }",
        "5:37",
        "`github` is not an entry of a keyring",
        "keyring:SERVICE/ACCOUNT",
    ),
    (
        "[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", source = \"keyring:--all/x\" }",
        "5:37",
        "is not an entry of a keyring",
        "not beginning with `-`",
    ),
    (
        "[[plugins.a.net]]\nhost = \"*.a.example\"\nsecret = { header = \"x-a\", source = \"env:A\" }\n\
         [[plugins.a.net]]\nhost = \"b.a.example\"\nsecret = { header = \"x-a\", source = \"env:B\" }",
        "6",
        "two secrets for `x-a`",
        "narrower",
    ),
    // Directories.
    ("[[plugins.a.fs]]\nguest = \"/d\"\nmode = \"ro\"", "3:1", "has no `host`", "./data"),
    ("[[plugins.a.fs]]\nhost = \"d\"\nmode = \"ro\"", "3:1", "has no `guest`", "/data"),
    ("[[plugins.a.fs]]\nhost = \"d\"\nguest = \"/d\"", "3:1", "has no `mode`", "mode = \"ro\""),
    ("[[plugins.a.fs]]\nhost = \"d\"\nguest = \"/d\"\nmode = \"r\"", "6:8", "has no value `r`", "`ro`"),
    ("[[plugins.a.fs]]\nhost = \"d\"\nguest = \"d\"\nmode = \"ro\"", "5:9", "is not absolute", "/data"),
    ("[[plugins.a.fs]]\nhost = \"d\"\nguest = \"/d/../e\"\nmode = \"ro\"", "5:9", "not in its normal form", "/data"),
    ("[[plugins.a.fs]]\nhost = \"~/d\"\nguest = \"/d\"\nmode = \"ro\"", "4:8", "nothing is expanded", "write the path out"),
    ("[[plugins.a.fs]]\nhost = \"${HOME}/d\"\nguest = \"/d\"\nmode = \"ro\"", "4:8", "nothing is expanded", "write the path out"),
    ("[[plugins.a.fs]]\nhost = \"\"\nguest = \"/d\"\nmode = \"ro\"", "4:8", "is not a path", "relative to the policy file"),
    ("[[plugins.a.fs]]\nhost = \"/\"\nguest = \"/d\"\nmode = \"ro\"", "4:8", "is the root directory", "dangerous = true"),
    (
        "[[plugins.a.fs]]\nhost = \"/proc/self\"\nguest = \"/d\"\nmode = \"ro\"",
        "4:8",
        "a directory of the kernel",
        "dangerous = true",
    ),
    ("[[plugins.a.fs]]\nhost = \"/home/ann\"\nguest = \"/d\"\nmode = \"ro\"", "4:8", "is a home directory", "dangerous = true"),
    ("[[plugins.a.fs]]\nhost = \"d\"\nguest = \"/d\"\nmode = \"ro\"\ndangerous = 1", "7:13", "true or false", "dangerous = true"),
    (
        "[[plugins.a.fs]]\nhost = \"d\"\nguest = \"/d\"\nmode = \"ro\"\n[[plugins.a.fs]]\nhost = \"e\"\nguest = \"/d\"\nmode = \"ro\"",
        "7",
        "guest path `/d` is mounted twice, first at policy.toml:3",
        "its own `guest`",
    ),
    (
        "[[plugins.a.fs]]\nhost = \"d\"\nguest = \"/d\"\nmode = \"ro\"\n[[plugins.a.fs]]\nhost = \"x/../d/e\"\nguest = \"/e\"\nmode = \"rw\"",
        "7",
        "a read-only and a writable mount overlap",
        "dangerous = true",
    ),
    ("[[plugins.a.fs]]\nhost = \".\"\nguest = \"/d\"\nmode = \"rw\"", "3", "could grant itself anything", "./data"),
    (
        "[[plugins.a.fs]]\nhost = \"..\"\nguest = \"/d\"\nmode = \"rw\"\ndangerous = true",
        "3",
        "could grant itself anything",
        "./data",
    ),
    (
        "[[plugins.a.fs]]\nhost = \"keys\"\nguest = \"/d\"\nmode = \"ro\"\n[[plugins.a.net]]\nhost = \"a.example\"\n\
         secret = { header = \"x-a\", source = \"file:keys/a\" }",
        "3",
        "plugin `a` could read the secret of policy.toml:7 in this mount",
        "outside every mount",
    ),
    // Key-value store, environment, config.
    ("[plugins.a.kv]", "3:1", "has no `quota`", "quota = \"1MiB\""),
    ("[plugins.a.kv]\nquota = 0", "4:9", "`quota` is zero", "from 1B to 1024GiB"),
    ("[plugins.a.kv]\nquota = \"1mib\"", "4:9", "not a size", "did you mean `\"1MiB\"`?"),
    ("[plugins.a.kv]\nquota = \"99999999999GiB\"", "4:9", "too large", "whole number and a unit"),
    ("[plugins.a.env]\n\"A=B\" = \"x\"", "4:1", "cannot name an environment variable", "letters, digits"),
    ("[plugins.a.env]\nA = 1", "4:5", "`A` must be a string", "A = "),
    ("[plugins.a.env]\nA = \"x\\u0000\"", "4:5", "has a NUL", "mount its directory"),
    ("[plugins.a.config]\n\"a b\" = \"x\"", "4:1", "cannot be a config key", "without spaces"),
    ("[plugins.a.config]\na = true", "4:5", "`a` must be a string, not a boolean", "a = "),
    // Limits.
    ("[plugins.a.limits]\nfuell = 1", "4:1", "unknown field `fuell`", "did you mean `fuel`?"),
    ("[plugins.a.limits]\nfuel = 0", "4:8", "`fuel` is zero", "for example `fuel = 1_000`"),
    ("[plugins.a.limits]\nfuel = -1", "4:8", "negative or too large", "fuel"),
    ("[plugins.a.limits]\nfuel = 1.5", "4:8", "a whole number, not a fraction", "fuel = 1_000"),
    ("[plugins.a.limits]\nfuel = 99999999999999999999", "4:8", "too large", "fuel"),
    ("[plugins.a.limits]\ntimeout = 30", "4:11", "a duration in quotes, not a number", "\"30s\""),
    ("[plugins.a.limits]\ntimeout = \"0s\"", "4:11", "`timeout` is zero", "24h"),
    ("[plugins.a.limits]\ntimeout = \"25h\"", "4:11", "too large", "24h"),
    ("[plugins.a.limits]\nmemory = \"1TiB\"", "4:10", "not a size", "128MiB"),
    ("[plugins.a.limits]\nfuel = 1_000_000_001", "4", "above the ceiling of 1000000000 (the default)", "raise the ceiling"),
    ("[plugins.a.limits]\nmemory = \"129MiB\"", "4", "is 129MiB, above the ceiling of 128MiB", "raise the ceiling"),
    ("[plugins.a.limits]\ntimeout = \"31s\"", "4", "is 31s, above the ceiling of 30s", "raise the ceiling"),
];

#[test]
fn every_error_names_its_line_and_its_remedy() {
    let mut wrong = Vec::new();
    for (lines, place, message, hint) in PLUGIN {
        let found = errors(&format!("version = 1\n[plugins.a]\n{lines}"));
        let (first, second) = found[0].split_once("\n  hint: ").expect("a hint");
        let named = first.starts_with(&format!("policy.toml:{place}: ")) && first.contains(message);
        if found.len() != 1 || !named || !second.contains(hint) {
            wrong.push(format!("{lines}\nwanted {place}: {message}, {hint}\nfound {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn refuses_a_file_that_is_no_policy() {
    for (text, place, message, hint) in [
        ("", "1:1", "the top level has no `version`", "add `version = 1`"),
        ("version = 2", "1:11", "this version is not known", "write `version = 1`"),
        ("version = \"1\"", "1:11", "must be a whole number", "write `version = 1`"),
        ("version = 1\nplugin = {}", "2:1", "unknown field `plugin` in the top level", "did you mean `plugins`?"),
        ("version = 1\ndefault = \"allow\"", "2:1", "unknown field `default`", "known are `version`, `limits`, `plugins`"),
        ("version = 1\nversion = 1", "2:1", "duplicate key", "once"),
        ("version = 1\n[limits]\n[limits]", "3:2", "duplicate key", "once"),
        ("version = 1\n[plugins.a]\n[plugins.a]", "3:10", "duplicate key", "once"),
        ("version = 1\n[plugins.A]", "2:10", "`A` cannot be a plugin's id", "[a-z0-9][a-z0-9_-]*"),
        ("version = 1\n[plugins.-a]", "2:10", "cannot be a plugin's id", "`source`"),
        ("version = 1\n[plugins.\"a/b\"]", "2:10", "cannot be a plugin's id", "`source`"),
        ("version = 1\n[plugins.北京]", "", "", ""),
        ("version = 1\nplugins = 1", "2:11", "`plugins` must be a table", "[plugins]"),
        ("version = 1\n[plugins]\na = 1", "3:5", "`a` must be a table", "[plugins.a]"),
        ("version = 1\n[limits]\ntimeout = \"30 s\"", "3:11", "`30 s` is not a duration", "\"30s\""),
        ("version = 1\n\n  x = [1,", "3:", "", "not TOML"),
        ("version = 1\0", "1:", "", "not TOML"),
        ("version = 1\r\nx = 1\r\n", "2:1", "unknown field `x`", ""),
        ("\u{feff}version = 2", "1:", "this version is not known", ""),
        ("version: 1\nplugins: {}", "1:", "", "not TOML"),
        ("{\"version\": 1}", "1:", "", "not TOML"),
    ] {
        let found = errors(text);
        assert!(found[0].starts_with(&format!("policy.toml:{place}")), "{text:?}: {found:?}");
        assert!(found[0].contains(message) && found[0].contains(hint), "{text:?}: {found:?}");
    }
}

#[test]
fn reports_all_errors_in_the_order_of_lines() {
    let found = errors("version = 1\n[plugins.b]\nx = 1\n[plugins.a]\nsha256 = \"1\"\nsource = 1\n[limits]\nfuel = 0");
    let places: Vec<&str> = found.iter().filter_map(|error| error.split(": ").next()).collect();
    assert_eq!(places, ["policy.toml:3:1", "policy.toml:5:10", "policy.toml:6:10", "policy.toml:8:8"]);
}

#[test]
fn bounds_what_it_reads_and_what_it_reports() {
    let large = format!("version = 1\n# {}", "x".repeat(MAX_FILE_BYTES));
    assert!(errors(&large)[0].contains("more than the 1048576 allowed"));
    let typos: String = (0..5_000).map(|number| format!("x{number} = 1\n")).collect();
    let found = Policy::parse(&[source("policy.toml", &format!("version = 1\n{typos}"))]).expect_err("unknown fields");
    assert_eq!((found.errors.len(), found.omitted), (100, 4_900));
    assert!(found.to_string().ends_with("4900 more errors"));
    let rules = "[[plugins.a.tools]]\nname=\"x\"\ndecision=\"ask\"\n".repeat(10_001);
    assert!(errors(&format!("version = 1\n{rules}"))[0].contains("more than the 10000 allowed"));
    let nested = format!("version = 1\nx = {}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(!errors(&nested).is_empty());
}

#[test]
fn a_rule_with_wrong_args_never_becomes_one_without() {
    let text = "version = 1\n[[plugins.a.tools]]\nname = \"x\"\ndecision = \"allow\"\nargs = 5";
    assert_eq!(errors(text).len(), 1);
}

#[test]
fn quotes_no_secret_and_no_terminal_codes() {
    let text = "version = 1\n[[plugins.a.net]]\nhost = \"a.example\"\nsecret = { header = \"x-a\", source = \"ghp_secret\" }\n\
                \"\\u001b[2J\" = 1";
    let found = errors(text).join("\n");
    assert!(!found.contains("ghp_secret") && !found.contains('\u{1b}'), "{found}");
}
