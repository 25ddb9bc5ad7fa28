//! What a tool returns to the model.

use std::any::Any;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::{Error, Result};

/// One piece of a result.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub enum Content {
    /// Text for the model.
    Text(String),
    /// JSON text. The first one in a result is the structured result.
    Json(String),
    /// Bytes, such as an image.
    Blob {
        /// RFC 6838 media type, such as `image/png`.
        mime_type: String,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Bytes that have a name of their own.
    Resource {
        /// RFC 3986 URI that names the content.
        uri: String,
        /// RFC 6838 media type.
        mime_type: String,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// A result in pieces, for tools that return more than one text or one value.
///
/// ```
/// # use honeycomb_sdk::prelude::*;
/// # fn example() -> Result<Contents> {
/// Ok(Contents::new().text("The chart:").blob("image/svg+xml", "<svg/>").json(&[1, 2, 3])?)
/// # }
/// # assert_eq!(example().expect("numbers are JSON").0.len(), 3);
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Contents(pub Vec<Content>);

impl Contents {
    /// A result with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds text for the model.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.0.push(Content::Text(text.into()));
        self
    }

    /// Adds a JSON value.
    ///
    /// # Errors
    /// When `value` cannot be written as JSON, such as a map whose keys are not strings.
    pub fn json(mut self, value: &impl Serialize) -> Result<Self> {
        self.0.push(Content::Json(to_json(value)?));
        Ok(self)
    }

    /// Adds bytes with their media type.
    #[must_use]
    pub fn blob(mut self, mime_type: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.push(Content::Blob { mime_type: mime_type.into(), bytes: bytes.into() });
        self
    }

    /// Adds a named resource.
    #[must_use]
    pub fn resource(mut self, uri: impl Into<String>, mime_type: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.push(Content::Resource { uri: uri.into(), mime_type: mime_type.into(), bytes: bytes.into() });
        self
    }
}

impl From<Content> for Contents {
    fn from(content: Content) -> Self {
        Self(vec![content])
    }
}

/// Anything: a tool that returns pieces promises no structure.
impl JsonSchema for Contents {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Contents".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}

/// Turns what a tool returned into pieces, by its type: see [`Tool::Output`](crate::Tool::Output).
pub(crate) fn into_contents<T: Serialize + 'static>(output: T) -> Result<Contents> {
    let mut slot = Some(output);
    let any: &mut dyn Any = &mut slot;
    if let Some(text) = any.downcast_mut::<Option<String>>().and_then(Option::take) {
        return Ok(Content::Text(text).into());
    }
    if let Some(contents) = any.downcast_mut::<Option<Contents>>().and_then(Option::take) {
        return Ok(contents);
    }
    let json = to_json(&slot)?;
    // The output schema makes the same distinction, so that what a tool returns always fits it.
    let json = if json.starts_with('{') { json } else { format!(r#"{{"result":{json}}}"#) };
    Ok(Content::Json(json).into())
}

fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::failed(format!("the result cannot be written as JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use std::collections::HashMap;

    #[derive(Serialize)]
    struct City {
        name: &'static str,
    }

    fn json<T: Serialize + 'static>(output: T) -> String {
        match into_contents(output).expect("is JSON").0.as_slice() {
            [Content::Json(json)] => json.clone(),
            other => panic!("one JSON value expected: {other:?}"),
        }
    }

    #[test]
    fn the_type_decides_the_form() {
        assert_eq!(into_contents("你好".to_owned()).expect("text"), Contents::new().text("你好"));
        let pieces = Contents::new().text("a").blob("image/png", [1, 2]).resource("file:///a", "text/plain", "x");
        assert_eq!(into_contents(pieces.clone()).expect("pieces"), pieces);
        assert_eq!(json(City { name: "北京" }), r#"{"name":"北京"}"#);
    }

    #[test]
    fn what_is_not_an_object_is_wrapped() {
        assert_eq!(json(7), r#"{"result":7}"#);
        assert_eq!(json(vec![1, 2]), r#"{"result":[1,2]}"#);
        assert_eq!(json(()), r#"{"result":null}"#);
        assert_eq!(json(None::<City>), r#"{"result":null}"#);
        assert_eq!(json(Some(City { name: "x" })), r#"{"name":"x"}"#);
        assert_eq!(json(Some("a".to_owned())), r#"{"result":"a"}"#);
    }

    #[test]
    fn what_json_cannot_say_is_an_error() {
        let error = into_contents(HashMap::from([(vec![1], 1)])).expect_err("keys are not strings");
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.message().contains("key must be a string"), "{error}");
    }
}
