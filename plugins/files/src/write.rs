//! Writing.

use std::fs::{self, OpenOptions};
use std::io::Write;

use honeycomb_sdk::prelude::*;

use crate::place::{explain, path};

/// The most bytes of one call.
const MAX_BYTES: usize = 1024 * 1024;

/// Writes a text file. Directories on the way are made. By default an existing file is left alone and an error returned.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    /// The file, as an absolute path.
    path: String,
    /// The text to write; 1 MiB is the most.
    text: String,
    /// What to do if the file exists. The default is `fail`.
    #[serde(default)]
    if_exists: IfExists,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IfExists {
    /// Leave the file alone and return an error.
    #[default]
    Fail,
    /// Replace all of it.
    Replace,
    /// Add the text at its end.
    Append,
}

impl Tool for WriteFile {
    const NAME: &'static str = "write_file";
    const HINTS: Hints = Hints { read_only: false, destructive: true, idempotent: false, open_world: false };
    type Output = String;

    fn call(self, _context: &Context) -> Result<String> {
        let explain = |error| explain(error, &self.path);
        let file = path(&self.path)?;
        if self.text.len() > MAX_BYTES {
            return Err(Error::invalid_arguments(format!("the text has {} bytes; {MAX_BYTES} is the most", self.text.len())));
        }
        // A mount itself cannot be made, and need not be.
        if let Some(parent) = file.parent().filter(|parent| !parent.is_dir()) {
            fs::create_dir_all(parent).map_err(explain)?;
        }
        let mut options = OpenOptions::new();
        match self.if_exists {
            IfExists::Fail => options.write(true).create_new(true),
            IfExists::Replace => options.write(true).create(true).truncate(true),
            IfExists::Append => options.append(true).create(true),
        };
        options.open(file).and_then(|mut file| file.write_all(self.text.as_bytes())).map_err(explain)?;
        Ok(format!("wrote {} bytes to `{}`", self.text.len(), self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_replaces_and_appends_only_as_it_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("新/file.txt");
        let write = |text: &str, if_exists| {
            WriteFile { path: file.display().to_string(), text: text.to_owned(), if_exists }.call(&Context::test())
        };
        write("一", IfExists::Fail).expect("is new");
        assert_eq!(write("二", IfExists::Fail).expect_err("exists").kind(), ErrorKind::InvalidArguments);
        write("三", IfExists::Append).expect("appends");
        assert_eq!(fs::read_to_string(&file).expect("is there"), "一三");
        write("四", IfExists::Replace).expect("replaces");
        assert_eq!(fs::read_to_string(&file).expect("is there"), "四");
    }

    #[test]
    fn refuses_what_cannot_be_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let inside = directory.path().join("f").display().to_string();
        for (path, text) in [("relative".to_owned(), String::new()), (inside, "x".repeat(MAX_BYTES + 1))] {
            let error = WriteFile { path, text, if_exists: IfExists::Replace }.call(&Context::test()).expect_err("is refused");
            assert_eq!(error.kind(), ErrorKind::InvalidArguments);
        }
        assert!(!directory.path().join("f").exists());
        let path = directory.path().display().to_string();
        let error = WriteFile { path, text: String::new(), if_exists: IfExists::Replace }.call(&Context::test());
        assert_eq!(error.expect_err("is a directory").kind(), ErrorKind::InvalidArguments);
    }
}
