//! The trait that makes a struct a tool.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{Context, Level};
use crate::output::{Contents, into_contents};
use crate::schema::{input_schema, output_schema};
use crate::{Error, Result};

/// A tool: its arguments are its fields.
///
/// The doc comment of the struct is the description that the model reads, the doc comments of the fields describe the parameters, and
/// `#[serde(deny_unknown_fields)]` makes a misspelt parameter an error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "this type does not implement `Tool`",
    note = "a tool is a struct that derives `Deserialize` and `JsonSchema` and implements `honeycomb_sdk::Tool`"
)]
pub trait Tool: DeserializeOwned + JsonSchema {
    /// The name, unique within the plugin: 1 to 64 of `a-z A-Z 0-9 _ -`.
    const NAME: &'static str;

    /// A short name for people.
    const TITLE: Option<&'static str> = None;

    /// What the tool promises about its effects. Without it a host has to assume the worst.
    const HINTS: Hints = Hints::UNKNOWN;

    /// What the tool returns: `String` becomes text, [`Contents`] is passed on as it is, anything else becomes JSON with an output
    /// schema. A result that is not a JSON object is wrapped as `{"result": …}`.
    type Output: Serialize + JsonSchema + 'static;

    /// Runs the tool.
    fn call(self, context: &Context) -> Result<Self::Output>;
}

/// What a tool promises about its effects. The names and meanings are those of the Model Context Protocol's tool annotations.
///
/// A hint never grants anything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hints {
    /// The tool does not change its environment.
    pub read_only: bool,
    /// The tool may destroy or overwrite something.
    pub destructive: bool,
    /// Calling the tool twice with the same arguments has the effect of calling it once.
    pub idempotent: bool,
    /// The tool deals with the world outside the host, such as a web site.
    pub open_world: bool,
}

impl Hints {
    /// Nothing is known, so a host assumes the worst.
    pub const UNKNOWN: Self = Self { read_only: false, destructive: true, idempotent: false, open_world: true };

    /// The tool only computes, or reads what the host holds.
    pub const READ_ONLY: Self = Self { read_only: true, destructive: false, idempotent: true, open_world: false };

    /// The tool only reads, from the world outside.
    pub const LOOKUP: Self = Self { open_world: true, ..Self::READ_ONLY };
}

/// What a plugin tells the host about one tool.
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(hidden)]
pub struct Definition {
    pub name: &'static str,
    pub title: Option<&'static str>,
    pub description: String,
    pub input_schema: String,
    pub output_schema: Option<String>,
    pub hints: Hints,
}

/// Describes a tool.
#[doc(hidden)]
pub fn define<T: Tool>() -> Definition {
    let (description, input_schema) = input_schema::<T>();
    Definition {
        name: T::NAME,
        title: T::TITLE,
        description,
        input_schema,
        output_schema: output_schema::<T::Output>(),
        hints: T::HINTS,
    }
}

/// Reads the arguments, runs the tool and writes its result.
#[doc(hidden)]
pub fn call<T: Tool>(arguments: &str, context: &Context) -> Result<Contents> {
    let tool: T = serde_json::from_str(arguments)
        .map_err(|error| Error::invalid_arguments(format!("the arguments of `{}` are wrong: {error}", T::NAME)))?;
    let result = tool.call(context).and_then(into_contents);
    if let Err(error) = &result
        && let Some(cause) = error.cause()
    {
        context.log(Level::Warn, &format!("`{}` failed: {}: {cause}", T::NAME, error.message()));
    }
    result
}

/// Finds what is wrong with a plugin's tools: the test that `export!` adds calls it.
#[doc(hidden)]
pub fn check(definitions: &[Definition]) -> Result<(), String> {
    for (index, definition) in definitions.iter().enumerate() {
        let name = definition.name;
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            return Err(format!("`{name}` is not a tool name: use 1 to 64 of `a-z A-Z 0-9 _ -`"));
        }
        if definitions[..index].iter().any(|other| other.name == name) {
            return Err(format!("two tools are named `{name}`"));
        }
        if definition.description.trim().is_empty() {
            return Err(format!("`{name}` has no description: write a doc comment on its struct"));
        }
        let schema: serde_json::Value = serde_json::from_str(&definition.input_schema).map_err(|error| error.to_string())?;
        if schema.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            return Err(format!(
                "the arguments of `{name}` are not a JSON object: use a struct with named fields, even with none"
            ));
        }
    }
    Ok(())
}

/// The error for a name that the plugin does not know.
#[doc(hidden)]
pub fn unknown(name: &str) -> Error {
    let shown: Cow<'_, str> = name.chars().take(64).collect();
    Error::not_found(format!("the plugin has no tool `{shown}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, ErrorKind};
    use serde::Deserialize;

    /// Doubles a number.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Double {
        /// The number to double.
        number: i64,
    }

    impl Tool for Double {
        const NAME: &'static str = "double";
        const HINTS: Hints = Hints::READ_ONLY;
        type Output = i64;

        fn call(self, _: &Context) -> Result<i64> {
            self.number.checked_mul(2).ok_or_else(|| {
                let cause = i32::try_from(self.number).expect_err("too large");
                Error::invalid_arguments("the number is too large").because(cause)
            })
        }
    }

    #[test]
    fn the_struct_is_the_definition() {
        let definition = define::<Double>();
        assert_eq!(definition.description, "Doubles a number.");
        assert_eq!(
            definition.input_schema,
            concat!(
                r#"{"type":"object","additionalProperties":false,"properties":{"number":"#,
                r#"{"type":"integer","format":"int64","description":"The number to double."}},"required":["number"]}"#
            )
        );
        assert_eq!(
            definition.output_schema.as_deref(),
            Some(r#"{"type":"object","properties":{"result":{"type":"integer","format":"int64"}},"required":["result"]}"#)
        );
    }

    #[test]
    fn calls_with_good_arguments() {
        let contents = call::<Double>(r#"{"number":21}"#, &Context::test()).expect("good arguments");
        assert_eq!(contents, Contents::from(Content::Json(r#"{"result":42}"#.to_owned())));
    }

    #[test]
    fn bad_arguments_never_become_a_default() {
        for (arguments, expected) in [
            ("{}", "missing field `number`"),
            (r#"{"number":"x"}"#, "invalid type: string \"x\", expected i64"),
            (r#"{"number":1,"nubmer":2}"#, "unknown field `nubmer`, expected `number`"),
            ("null", "invalid type: null"),
            ("[1", "EOF while parsing"),
            ("", "EOF while parsing"),
        ] {
            let error = call::<Double>(arguments, &Context::test()).expect_err(arguments);
            assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{arguments}");
            assert!(error.message().contains(expected), "{arguments}: {error}");
        }
    }

    #[test]
    fn a_cause_goes_to_the_log_and_not_to_the_model() {
        let context = Context::test();
        let error = call::<Double>(&format!(r#"{{"number":{}}}"#, i64::MAX), &context).expect_err("overflows");
        assert_eq!(error.message(), "the number is too large");
        let log = context.logs();
        assert_eq!(log.len(), 1);
        assert!(log[0].message.contains("out of range integral type conversion attempted"), "{log:?}");
    }

    #[test]
    fn an_unknown_tool_is_not_found() {
        assert_eq!(unknown("nope").kind(), ErrorKind::NotFound);
    }

    #[test]
    fn finds_what_a_host_would_refuse() {
        let good = define::<Double>();
        assert_eq!(check(std::slice::from_ref(&good)), Ok(()));
        for (bad, expected) in [
            (Definition { name: "天气", ..good.clone() }, "not a tool name"),
            (Definition { name: "", ..good.clone() }, "not a tool name"),
            (good.clone(), "two tools"),
            (Definition { name: "other", description: " ".to_owned(), ..good.clone() }, "no description"),
            (Definition { name: "other", input_schema: r#"{"type":"null"}"#.to_owned(), ..good.clone() }, "not a JSON object"),
        ] {
            let message = check(&[good.clone(), bad]).expect_err(expected);
            assert!(message.contains(expected), "{message}");
        }
    }
}
