//! The fixture tools of `@modelcontextprotocol/conformance`. Names and texts are the suite's.

use std::borrow::Cow;
use std::thread::sleep;
use std::time::Duration;

use honeycomb_sdk::prelude::*;
use schemars::{Schema, SchemaGenerator, json_schema};

/// A red pixel.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00,
    0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78,
    0xda, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01, 0x01, 0x00, 0xf7, 0x03, 0x41, 0x43, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45,
    0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

/// One sample of silence.
const WAV: &[u8] = &[
    0x52, 0x49, 0x46, 0x46, 0x26, 0x00, 0x00, 0x00, 0x57, 0x41, 0x56, 0x45, 0x66, 0x6d, 0x74, 0x20, 0x10, 0x00, 0x00, 0x00, 0x01,
    0x00, 0x01, 0x00, 0x40, 0x1f, 0x00, 0x00, 0x80, 0x3e, 0x00, 0x00, 0x02, 0x00, 0x10, 0x00, 0x64, 0x61, 0x74, 0x61, 0x02, 0x00,
    0x00, 0x00, 0x00, 0x00,
];

/// The pause between two reports; the suite wants to see them come one by one.
const PAUSE: Duration = Duration::from_millis(50);

/// Declares a tool without arguments.
macro_rules! tool {
    ($(#[$doc:meta])* $type:ident, $name:literal, |$context:ident| $body:expr) => {
        $(#[$doc])*
        #[derive(Deserialize, JsonSchema)]
        struct $type {}

        impl Tool for $type {
            const NAME: &'static str = $name;
            const HINTS: Hints = Hints::READ_ONLY;
            type Output = Contents;

            fn call(self, $context: &Context) -> Result<Contents> {
                $body
            }
        }
    };
}

tool!(
    /// Returns a text.
    SimpleText,
    "test_simple_text",
    |_context| Ok(Contents::new().text("This is a simple text response for testing."))
);

tool!(
    /// Returns an image.
    Image,
    "test_image_content",
    |_context| Ok(Contents::new().blob("image/png", PNG))
);

tool!(
    /// Returns audio.
    Audio,
    "test_audio_content",
    |_context| Ok(Contents::new().blob("audio/wav", WAV))
);

tool!(
    /// Returns a resource.
    EmbeddedResource,
    "test_embedded_resource",
    |_context| {
        let text = "This is an embedded resource content.";
        Ok(Contents::new().resource("test://embedded-resource", "text/plain", text))
    }
);

tool!(
    /// Returns a text, an image and a resource.
    MultipleContentTypes,
    "test_multiple_content_types",
    |_context| {
        let json = r#"{"test":"data","value":123}"#;
        Ok(Contents::new().text("Multiple content types test:").blob("image/png", PNG).resource(
            "test://mixed-content-resource",
            "application/json",
            json,
        ))
    }
);

tool!(
    /// Logs three lines.
    WithLogging,
    "test_tool_with_logging",
    |context| {
        context.log(Level::Info, "Tool execution started");
        sleep(PAUSE);
        context.log(Level::Info, "Tool processing data");
        sleep(PAUSE);
        context.log(Level::Info, "Tool execution completed");
        Ok(Contents::new().text("Tool with logging executed successfully"))
    }
);

tool!(
    /// Reports progress three times.
    WithProgress,
    "test_tool_with_progress",
    |context| {
        for done in [0, 50, 100] {
            context.progress(done, Some(100), None);
            sleep(PAUSE);
        }
        Ok(Contents::new().text("Tool with progress executed successfully"))
    }
);

tool!(
    /// Fails.
    ErrorHandling,
    "test_error_handling",
    |_context| Err(Error::failed("This tool intentionally returns an error for testing"))
);

tool!(
    /// Takes a moment; the suite looks at the stream meanwhile.
    Reconnection,
    "test_reconnection",
    |_context| {
        sleep(PAUSE * 4);
        Ok(Contents::new().text("Reconnection test completed"))
    }
);

/// What the suite wants to find again in `tools/list`, keyword by keyword.
#[derive(Deserialize)]
struct JsonSchema2020 {
    name: Option<String>,
    address: Option<Address>,
}

/// Part of [`JsonSchema2020`].
#[derive(Deserialize)]
struct Address {
    street: Option<String>,
    city: Option<String>,
}

impl JsonSchema for JsonSchema2020 {
    fn schema_name() -> Cow<'static, str> {
        "JsonSchema2020".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "description": "Tool with JSON Schema 2020-12 features",
            "type": "object",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                },
            },
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": false,
        })
    }
}

impl Tool for JsonSchema2020 {
    const NAME: &'static str = "json_schema_2020_12_tool";
    const HINTS: Hints = Hints::READ_ONLY;
    type Output = String;

    fn call(self, _context: &Context) -> Result<String> {
        let address = self.address.map(|address| [address.street, address.city].into_iter().flatten().collect::<Vec<_>>());
        Ok(format!("{:?} at {:?}", self.name, address.unwrap_or_default()))
    }
}

honeycomb_sdk::export!(
    SimpleText,
    Image,
    Audio,
    EmbeddedResource,
    MultipleContentTypes,
    WithLogging,
    WithProgress,
    ErrorHandling,
    Reconnection,
    JsonSchema2020,
);
