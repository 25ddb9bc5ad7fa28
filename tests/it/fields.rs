//! Every field that the policy's parser knows stands in the table of `SECURITY.md`, with tests that are there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use honeycomb_host::policy::{Policy, PolicySource};
use honeycomb_tests::host::workspace;

/// A field that no table has: the parser answers with those that it has.
const UNKNOWN: &str = "zzzzzzzzzz";

/// Each table of a policy, as the table in `SECURITY.md` calls it, and a policy with an unknown field in it.
const TABLES: [(&str, &str); 9] = [
    ("", "zzzzzzzzzz = 1"),
    ("limits.", "[limits]\nzzzzzzzzzz = 1"),
    ("plugins.", "[plugins.a]\nzzzzzzzzzz = 1"),
    ("plugins.limits.", "[plugins.a.limits]\nzzzzzzzzzz = 1"),
    ("tools.", "[[plugins.a.tools]]\nzzzzzzzzzz = 1"),
    ("net.", "[[plugins.a.net]]\nzzzzzzzzzz = 1"),
    ("net.secret.", "[[plugins.a.net]]\nsecret = { zzzzzzzzzz = 1 }"),
    ("fs.", "[[plugins.a.fs]]\nzzzzzzzzzz = 1"),
    ("kv.", "[plugins.a.kv]\nzzzzzzzzzz = 1"),
];

/// The fields that the parser names in its own message.
fn fields_of(policy: &str) -> Vec<String> {
    let text = format!("version = 1\n{policy}\n");
    let source = PolicySource { name: "policy.toml".into(), text: &text, base_dir: PathBuf::from("/srv/policy") };
    let errors = Policy::parse(&[source]).expect_err("an unknown field").errors;
    let error = errors.iter().find(|error| error.message.contains(UNKNOWN)).expect("the unknown field is an error");
    let known = error.hint.strip_prefix("known are ").unwrap_or_else(|| panic!("{}", error.hint));
    known.split(", ").map(|name| name.trim_matches('`').to_owned()).collect()
}

fn known_fields() -> BTreeSet<String> {
    let all = TABLES.iter().flat_map(|(table, policy)| fields_of(policy).into_iter().map(move |field| format!("{table}{field}")));
    // A plugin's limits are those of `[limits]`.
    let (own, others): (Vec<String>, Vec<String>) = all.partition(|field| field.starts_with("plugins.limits."));
    let shared: Vec<String> = own.iter().map(|field| field.replacen("plugins.", "", 1)).collect();
    assert!(shared.iter().all(|field| others.contains(field)), "{shared:?}");
    others.into_iter().collect()
}

/// The rows of the table: fields, and tests.
fn rows(document: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let section = document.split_once("## Every field of the policy").expect("the section").1;
    let section = section.split("\n## ").next().expect("the section");
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let rows = section.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 2, "{line}");
        (names(cells[0]), names(cells[1]))
    });
    rows.collect()
}

/// The sources of the host and of these tests: path and text.
fn sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut directories = vec![workspace().join("host/src"), workspace().join("tests/it")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push((module(&path), std::fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    files
}

/// `host/src/policy/net/tests.rs` is `policy::net::tests`.
fn module(path: &Path) -> String {
    let path = path.strip_prefix(workspace().join("host/src")).or_else(|_| path.strip_prefix(workspace().join("tests/it")));
    path.expect("one of the two").with_extension("").to_string_lossy().replace(['/', '\\'], "::")
}

#[test]
fn every_field_of_the_policy_has_tests_that_are_there() {
    let document = std::fs::read_to_string(workspace().join("SECURITY.md")).expect("SECURITY.md");
    let rows = rows(&document);
    let listed: Vec<&String> = rows.iter().flat_map(|(fields, _)| fields).collect();
    let listed_once: BTreeSet<String> = listed.iter().map(|field| (*field).clone()).collect();
    assert_eq!(listed_once.len(), listed.len(), "a field stands in two rows: {listed:?}");
    let known = known_fields();
    assert!(known.len() > 40, "{known:?}");
    let missing: Vec<_> = known.difference(&listed_once).collect();
    let strange: Vec<_> = listed_once.difference(&known).collect();
    assert!(missing.is_empty() && strange.is_empty(), "not in the table: {missing:?}; not in the parser: {strange:?}");
    let sources = sources();
    for (fields, tests) in &rows {
        assert!(!tests.is_empty(), "{fields:?} have no test");
        for test in tests {
            let (module, name) = test.rsplit_once("::").unwrap_or_else(|| panic!("`{test}` has no module"));
            let is_there =
                |(path, text): &(String, String)| (path == module || format!("{path}::tests") == module) && is_test(text, name);
            assert!(sources.iter().any(is_there), "{fields:?}: there is no test `{test}`");
        }
    }
}

/// Whether a source has a function of this name with `#[test]` or the like above it.
fn is_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    let before: Vec<&str> = text[..at].lines().rev().take(6).collect();
    before.iter().any(|line| line.contains("#[test]") || line.contains("#[tokio::test"))
}
