//! House rules that a compiler does not check: which module may use which, who may print, how long a file may be.

use std::path::{Path, PathBuf};

/// What each module of the host may use of the others: imports point inward. `cli` and `mcp` see everything and nothing sees them.
const LAYERS: &[(&str, &[&str])] = &[
    ("file", &[]),
    ("json", &[]),
    ("text", &[]),
    ("message", &["json"]),
    ("time", &[]),
    ("tool", &["json", "message", "text"]),
    ("secret", &["file", "policy", "text"]),
    ("approval", &["tool"]),
    ("policy", &["json", "message", "text", "tool"]),
    ("provider", &["file", "json", "message", "secret", "text", "tool"]),
    // The trait of `provider` and its plain data, none of the providers themselves: see `PROVIDERS`.
    ("agent", &["approval", "json", "message", "provider", "text", "time", "tool"]),
    ("audit", &["message", "policy", "secret", "text", "time", "tool"]),
    ("sandbox", &["file", "json", "message", "policy", "secret", "text", "tool"]),
    ("registry", &["audit", "json", "message", "policy", "sandbox", "text", "tool"]),
    ("memory", &["file", "message", "provider", "registry", "sandbox", "secret", "text", "time", "tool"]),
    ("store", &["agent", "file", "json", "message", "secret", "text", "time", "tool"]),
    (
        "eval",
        &[
            "agent", "approval", "memory", "message", "policy", "provider", "registry", "sandbox", "secret", "text", "time",
            "tool",
        ],
    ),
    ("recording", &["agent", "approval", "message", "provider", "secret", "text", "tool"]),
    ("config", &[]),
];

/// Modules that use everything, and that nothing uses.
const EDGES: &[&str] = &["cli", "mcp", "main", "lib"];

/// The providers, which the agent does not know.
const PROVIDERS: &[&str] = &["openai", "anthropic", "scripted", "http", "retry", "sse"];

/// The longest source file.
const MAX_LINES: usize = 500;

/// Things that belong in one place: what is looked for, where it may stand, and why.
const HOMES: &[(&str, &[&str], &str)] = &[
    ("wasmtime::", &["sandbox"], "wasmtime is used only under `sandbox/`"),
    ("wasmtime_wasi", &["sandbox"], "wasmtime is used only under `sandbox/`"),
    ("use wasmtime", &["sandbox"], "wasmtime is used only under `sandbox/`"),
    ("println!", &["cli"], "only the command line prints"),
    ("print!(", &["cli"], "only the command line prints"),
    ("std::env", &["cli", "main"], "only the command line reads the environment"),
    ("process::exit", &["cli", "main"], "only the command line ends the process"),
    ("io::stdout", &["cli", "sandbox"], "only the command line, and the compiler's child, write to stdout"),
    ("reqwest::", &["provider"], "plugins' requests go through the sandbox's egress; reqwest is for models"),
    ("hyper::client", &["sandbox/capability/http"], "one egress function, nothing else builds a client"),
    ("TcpStream::connect", &["sandbox/capability/http"], "one egress function, nothing else dials"),
    ("unsafe {", &["sandbox/artifact"], "the one `unsafe` block is in `sandbox/artifact.rs`"),
];

/// What `policy/` may not touch: it is pure.
const IMPURE: &[&str] = &["std::fs", "tokio", "async fn", "Instant::now", "SystemTime::now", "std::process"];

/// What may stand in no source file.
const BANNED: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];

#[test]
fn the_sources_follow_the_house_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace");
    let mut problems = Vec::new();
    for file in rust_files(root) {
        let text = std::fs::read_to_string(&file).expect("a source file is UTF-8");
        let name = file.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
        problems.extend(check(&name, &text));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_broken_house_rule_is_found() {
    for (file, text, expected) in [
        ("host/src/agent/run.rs", "use wasmtime::Engine;", "wasmtime is used only under"),
        ("host/src/registry.rs", "let e = wasmtime::Engine::default();", "wasmtime is used only under"),
        ("host/src/agent.rs", "use crate::policy::Policy;", "`agent` must not use `policy`"),
        ("host/src/agent/run.rs", "use crate::{message::Message, sandbox::Sandbox};", "`agent` must not use `sandbox`"),
        ("host/src/agent/run.rs", "use crate::provider::openai::OpenAi;", "`agent` must not know the provider `openai`"),
        ("host/src/policy/net.rs", "use std::fs;", "`policy` is pure"),
        ("host/src/policy.rs", "use crate::sandbox::Sandbox;", "`policy` must not use `sandbox`"),
        ("host/src/sandbox/call.rs", "use crate::registry::ToolRegistry;", "`sandbox` must not use `registry`"),
        ("host/src/tool.rs", "use crate::cli::Common;", "`tool` must not use `cli`"),
        ("host/src/registry.rs", "println!(\"x\");", "only the command line prints"),
        ("host/src/provider/http.rs", "std::env::var(\"X\")", "only the command line reads the environment"),
        ("host/src/sandbox/call.rs", "unsafe { f() }", "the one `unsafe` block"),
        ("host/src/sandbox/capability/fs.rs", "TcpStream::connect(a)", "nothing else dials"),
        ("plugins/text/src/mod.rs", "", "no `mod.rs`"),
        ("xtask/src/main.rs", "#[ignore]", "`#[ignore` may stand in no source file"),
    ] {
        let problems = check(file, text);
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{file}: {text}: {problems:?}");
    }
    assert!(check("host/src/sandbox/call.rs", &"// line\n".repeat(MAX_LINES + 1)).iter().any(|p| p.contains("lines")));
    for (file, text) in [
        ("host/src/sandbox/engine.rs", "use wasmtime::Engine;"),
        ("host/src/agent/run.rs", "// wasmtime is not known here\nuse crate::message::Message;"),
        ("host/src/registry.rs", "use crate::policy::Policy;\nuse crate::sandbox::Sandbox;"),
    ] {
        assert_eq!(check(file, text), Vec::<String>::new(), "{file}");
    }
}

/// The rules that one file breaks.
fn check(file: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!("{file}: {lines} lines; {MAX_LINES} at most"));
    }
    if file.ends_with("/mod.rs") {
        problems.push(format!("{file}: no `mod.rs`; `foo.rs` beside `foo/`"));
    }
    let code: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")).collect();
    // This file names what it looks for.
    if !file.ends_with("it/tidy.rs") {
        for (number, line) in &code {
            for banned in BANNED.iter().filter(|banned| line.contains(**banned)) {
                problems.push(format!("{file}:{}: `{banned}` may stand in no source file", number + 1));
            }
        }
    }
    let Some(module_path) = file.strip_prefix("host/src/").and_then(|path| path.strip_suffix(".rs")) else { return problems };
    let module = module_path.split('/').next().unwrap_or(module_path);
    for (number, line) in &code {
        let mut problem = |what: String| problems.push(format!("{file}:{}: {what}", number + 1));
        for (what, homes, why) in HOMES {
            // A unit test may start itself as a child, and talk to it.
            let test = module_path.contains("/tests") && ["std::env", "println!", "print!("].contains(what);
            if line.contains(what) && !test && !homes.iter().any(|home| module_path.starts_with(home)) {
                problem((*why).to_owned());
            }
        }
        if module == "policy" {
            for impure in IMPURE.iter().filter(|impure| line.contains(**impure)) {
                problem(format!("`policy` is pure: no `{impure}`"));
            }
        }
        for used in crate_modules(line) {
            let allowed = LAYERS.iter().find(|(name, _)| *name == module).map(|(_, allowed)| *allowed);
            let known = EDGES.contains(&module) || used == module || allowed.is_some_and(|allowed| allowed.contains(&used));
            if !known {
                problem(format!("`{module}` must not use `{used}`"));
            }
        }
        if module == "agent" {
            for provider in PROVIDERS.iter().filter(|provider| line.contains(&format!("provider::{provider}::"))) {
                problem(format!("`agent` must not know the provider `{provider}`"));
            }
        }
    }
    problems
}

/// The modules that a line names behind `crate::`, also in braces.
fn crate_modules(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (start, _) in line.match_indices("crate::") {
        let rest = &line[start + "crate::".len()..];
        // `$crate::` belongs to macros, and `crate::tests` to a test.
        let names = rest.strip_prefix('{').map_or_else(|| vec![rest], |braced| braced.split([',', '}']).collect());
        for name in names {
            let name = name.trim_start();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            if end > 0 && (LAYERS.iter().any(|(layer, _)| *layer == &name[..end]) || EDGES.contains(&&name[..end])) {
                found.push(&name[..end]);
            }
        }
    }
    found
}

fn rust_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories: Vec<PathBuf> =
        ["host", "plugin-sdk", "plugins", "tests", "xtask"].iter().map(|name| root.join(name)).collect();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory of the workspace").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
