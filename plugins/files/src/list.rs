//! Listing.

use std::fs;

use honeycomb_sdk::prelude::*;

use crate::place::{explain, is_illegal_name, path, roots};

/// The most entries that are returned.
const MAX_ENTRIES: usize = 1000;

/// Lists a directory: the name, kind and size of each entry, sorted by name. Begin with `/` to learn which directories are granted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    /// The directory, as an absolute path.
    path: String,
}

/// What is in a directory.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Listing {
    /// The entries, sorted by name.
    entries: Vec<Entry>,
    /// Whether there are more than the 1000 that are returned.
    truncated: bool,
    /// How many entries are left out because their names are not UTF-8: no tool can be told such a name.
    #[serde(skip_serializing_if = "is_zero")]
    unnamed: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One entry of a directory.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Entry {
    name: String,
    kind: Kind,
    /// In bytes; only of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    File,
    Directory,
    /// A symbolic link or something else.
    Other,
}

impl Tool for ListFiles {
    const NAME: &'static str = "list_files";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = Listing;

    fn call(self, _context: &Context) -> Result<Listing> {
        let directory = path(&self.path)?;
        // `/` is no directory of its own unless it is mounted: it is where the mounts are.
        if let Some(roots) = roots().filter(|roots| self.path == "/" && !roots.iter().any(|root| root == "/")) {
            let entries = roots.into_iter().map(|name| Entry { name, kind: Kind::Directory, size: None }).collect();
            return Ok(Listing { entries, truncated: false, unnamed: 0 });
        }
        let (mut entries, mut unnamed) = (Vec::new(), 0);
        for entry in fs::read_dir(directory).map_err(|error| explain(error, &self.path))? {
            let entry = match entry {
                // One file with such a name must not hide all the others. The host cannot pass the name on, so it sends this in its place.
                Err(error) if is_illegal_name(&error) && unnamed < MAX_ENTRIES => {
                    unnamed += 1;
                    continue;
                }
                other => other.map_err(|error| explain(error, &self.path))?,
            };
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_dir() => Kind::Directory,
                Ok(kind) if kind.is_file() => Kind::File,
                _ => Kind::Other,
            };
            // An entry that goes away meanwhile has no size.
            let size = if kind == Kind::File { entry.metadata().ok().map(|metadata| metadata.len()) } else { None };
            entries.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), kind, size });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let truncated = entries.len() > MAX_ENTRIES;
        entries.truncate(MAX_ENTRIES);
        Ok(Listing { entries, truncated, unnamed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(path: &str) -> Result<Listing> {
        ListFiles { path: path.to_owned() }.call(&Context::test())
    }

    #[test]
    fn lists_files_and_directories_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("乙.txt"), "12345").expect("writes");
        fs::create_dir(directory.path().join("a")).expect("creates");
        let listing = list(&directory.path().display().to_string()).expect("is a directory");
        assert_eq!(
            listing.entries,
            [
                Entry { name: "a".to_owned(), kind: Kind::Directory, size: None },
                Entry { name: "乙.txt".to_owned(), kind: Kind::File, size: Some(5) },
            ]
        );
        assert!(!listing.truncated);
    }

    #[test]
    fn says_why_it_cannot_list() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("f");
        fs::write(&file, "").expect("writes");
        for (path, expected) in [
            (directory.path().join("none").display().to_string(), ErrorKind::NotFound),
            (file.display().to_string(), ErrorKind::InvalidArguments),
            ("relative".to_owned(), ErrorKind::InvalidArguments),
        ] {
            assert_eq!(list(&path).expect_err("cannot be listed").kind(), expected, "{path}");
        }
    }
}
