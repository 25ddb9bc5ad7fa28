//! Compares what a component imports with what the host offers, to say what is missing in words that help.

use super::load::Problem;

/// Finds the first import whose interface the host has, but only in another version.
///
/// A component that was built for a later minor version may call what the host does not have; one for an earlier version is served by
/// the host's. An import of which the host has no version at all is left to the linker, which knows whether anything in it is used.
pub(crate) fn check_versions(imports: &[String], offered: &[String]) -> Result<(), Problem> {
    for import in imports {
        let (interface, version) = split(import);
        let mut same_interface = offered.iter().filter(|name| split(name).0 == interface).peekable();
        let Some(have) = same_interface.peek().copied() else { continue };
        if !same_interface.any(|name| serves(split(name).1, version)) {
            return Err(Problem::MissingImport { wanted: import.clone(), have: Some(have.clone()) });
        }
    }
    Ok(())
}

/// Names the import that a linker could not satisfy, for the message: the first that the host has no version of.
pub(crate) fn first_missing(imports: &[String], offered: &[String]) -> Option<Problem> {
    imports
        .iter()
        .find(|import| !offered.iter().any(|name| split(name).0 == split(import).0))
        .map(|import| Problem::MissingImport { wanted: import.clone(), have: None })
}

fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once('@').map_or((name, None), |(interface, version)| (interface, Some(version)))
}

/// Whether an interface in version `have` can serve a component that was built for version `want`: the same as wasmtime's linker takes
/// for compatible (equal up to the first number that is not 0; a pre-release only itself), and not older.
fn serves(have: Option<&str>, want: Option<&str>) -> bool {
    let (Some(have), Some(want)) = (have, want) else { return have == want };
    if have == want {
        return true;
    }
    match (numbers(have), numbers(want)) {
        (Some(have), Some(want)) => {
            let track = |[major, minor, patch]: [u64; 3]| match (major, minor) {
                (0, 0) => [0, 0, patch],
                (0, minor) => [0, minor, 0],
                (major, _) => [major, 0, 0],
            };
            track(have) == track(want) && have >= want
        }
        _ => false,
    }
}

/// The three numbers of a release version (semver 2.0.0 section 2); nothing for a pre-release.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let release = version.split('+').next()?;
    let mut parts = release.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered() -> Vec<String> {
        ["wasi:io/poll@0.2.12", "wasi:keyvalue/store@0.2.0-draft2", "honeycomb:plugin/progress@0.1.0", "acme:big/api@2.3.4"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn serves_the_same_and_earlier_compatible_versions() {
        for (import, served) in [
            ("wasi:io/poll@0.2.12", true),
            ("wasi:io/poll@0.2.0", true),
            ("wasi:io/poll@0.2.99", false),
            ("wasi:io/poll@0.3.0", false),
            ("wasi:io/poll@0.1.9", false),
            ("wasi:io/poll@1.0.0", false),
            ("wasi:io/poll@0.2.13-rc.1", false),
            ("wasi:io/poll", false),
            ("wasi:keyvalue/store@0.2.0-draft2", true),
            ("wasi:keyvalue/store@0.2.0-draft", false),
            ("acme:big/api@2.0.0", true),
            ("acme:big/api@2.4.0", false),
            ("acme:big/api@1.9.9", false),
            ("evil:host/api@1.0.0", true),
        ] {
            let checked = check_versions(&[import.to_owned()], &offered());
            assert_eq!(checked.is_ok(), served, "{import}");
        }
    }

    #[test]
    fn names_what_is_wanted_and_what_is_there() {
        let error = check_versions(&["wasi:io/poll@0.3.0".to_owned()], &offered()).expect_err("another version");
        assert_eq!(error.to_string(), "imports `wasi:io/poll@0.3.0`, but this host has `wasi:io/poll@0.2.12`");
        let imports = ["wasi:io/poll@0.2.0".to_owned(), "evil:host/api@1.0.0".to_owned()];
        let missing = first_missing(&imports, &offered()).expect("missing");
        assert_eq!(missing.to_string(), "imports `evil:host/api@1.0.0`, but this host has nothing of that name");
        assert_eq!(missing.code().as_str(), "link.missing");
    }
}
