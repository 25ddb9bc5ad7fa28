//! Notes that an agent keeps between its runs.

use honeycomb_sdk::prelude::*;

/// The most bytes of a title: it is a key of the store.
const MAX_TITLE: usize = 200;

/// The most bytes of a note.
const MAX_TEXT: usize = 64 * 1024;

/// Saves a note under a title, so that it can be read in a later conversation. Replaces the note of that title if there is one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SaveNote {
    /// The title, such as `shopping list` or `会议纪要`.
    #[schemars(length(min = 1, max = 200))]
    title: String,
    /// The text of the note; 64 KiB is the most.
    text: String,
}

/// Reads the note that has a title.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadNote {
    /// The title, exactly as it was saved.
    title: String,
}

/// Lists the titles of all notes, sorted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListNotes {
    /// Only titles that contain this text.
    #[serde(default)]
    contains: Option<String>,
}

/// Deletes the note that has a title.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteNote {
    /// The title, exactly as it was saved.
    title: String,
}

impl Tool for SaveNote {
    const NAME: &'static str = "save_note";
    const HINTS: Hints = Hints { read_only: false, destructive: true, idempotent: true, open_world: false };
    type Output = String;

    fn call(self, context: &Context) -> Result<String> {
        let title = self.title.trim();
        if title.is_empty() || title.len() > MAX_TITLE || title.contains(char::is_control) {
            return Err(Error::invalid_arguments(format!("a title is one line of 1 to {MAX_TITLE} bytes")));
        }
        if self.text.len() > MAX_TEXT {
            return Err(Error::invalid_arguments(format!("the note has {} bytes; {MAX_TEXT} is the most", self.text.len())));
        }
        let replaced = context.kv().exists(title)?;
        context.kv().set(title, self.text.as_bytes())?;
        Ok(if replaced { format!("replaced `{title}`") } else { format!("saved `{title}`") })
    }
}

impl Tool for ReadNote {
    const NAME: &'static str = "read_note";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = String;

    fn call(self, context: &Context) -> Result<String> {
        let title = self.title.trim();
        let bytes = context.kv().get(title)?.ok_or_else(|| absent(title))?;
        Ok(String::from_utf8(bytes)?)
    }
}

impl Tool for ListNotes {
    const NAME: &'static str = "list_notes";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = Vec<String>;

    fn call(self, context: &Context) -> Result<Vec<String>> {
        let mut titles = context.kv().keys()?;
        if let Some(text) = &self.contains {
            titles.retain(|title| title.contains(text.as_str()));
        }
        titles.sort();
        Ok(titles)
    }
}

impl Tool for DeleteNote {
    const NAME: &'static str = "delete_note";
    const HINTS: Hints = Hints { read_only: false, destructive: true, idempotent: true, open_world: false };
    type Output = String;

    fn call(self, context: &Context) -> Result<String> {
        let title = self.title.trim();
        if !context.kv().exists(title)? {
            return Err(absent(title));
        }
        context.kv().delete(title)?;
        Ok(format!("deleted `{title}`"))
    }
}

fn absent(title: &str) -> Error {
    Error::not_found(format!("there is no note `{title}`; `list_notes` lists the titles"))
}

honeycomb_sdk::export!(SaveNote, ReadNote, ListNotes, DeleteNote);
honeycomb_sdk::requests!("../requests.toml");

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Context {
        Context::test().with_kv([("会议", "三点"), ("shopping", "milk")])
    }

    fn save(title: &str, text: &str, context: &Context) -> Result<String> {
        SaveNote { title: title.to_owned(), text: text.to_owned() }.call(context)
    }

    #[test]
    fn keeps_a_note_until_it_is_deleted() {
        let context = store();
        let title = || "计划 B".to_owned();
        assert_eq!(save(&title(), "跑步", &context).expect("saves"), "saved `计划 B`");
        assert_eq!(save(&title(), "游泳", &context).expect("replaces"), "replaced `计划 B`");
        assert_eq!(ReadNote { title: title() }.call(&context).expect("is there"), "游泳");
        assert_eq!(DeleteNote { title: title() }.call(&context).expect("is there"), "deleted `计划 B`");
        assert_eq!(ReadNote { title: title() }.call(&context).expect_err("is gone").kind(), ErrorKind::NotFound);
        assert_eq!(DeleteNote { title: title() }.call(&context).expect_err("is gone").kind(), ErrorKind::NotFound);
    }

    #[test]
    fn lists_titles_that_match() {
        let list =
            |contains: Option<&str>| ListNotes { contains: contains.map(str::to_owned) }.call(&store()).expect("is granted");
        assert_eq!(list(None), ["shopping", "会议"]);
        assert_eq!(list(Some("议")), ["会议"]);
        assert!(list(Some("zzz")).is_empty());
    }

    #[test]
    fn refuses_what_it_cannot_keep() {
        for (title, text) in [("", "x"), (" ", "x"), ("a\nb", "x"), (&"长".repeat(67), "x"), ("a", &"x".repeat(MAX_TEXT + 1))] {
            assert_eq!(save(title, text, &store()).expect_err(title).kind(), ErrorKind::InvalidArguments);
        }
        assert_eq!(save("a", "x", &Context::test()).expect_err("no store").kind(), ErrorKind::Denied);
    }
}
