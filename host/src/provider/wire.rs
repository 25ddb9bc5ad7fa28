//! The wire formats, and what a request looks like in each.

use serde_json::Value;

use super::quirks::Quirks;
use super::{ModelRequest, RequestOptions, anthropic, openai};

/// The wire formats.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireFormat {
    /// OpenAI's chat completions, and the many servers that copy them.
    OpenAiChat,
    /// Anthropic's messages.
    AnthropicMessages,
}

/// Returns the body that a request has on the wire: what a provider made by [`build`](super::settings::build) sends.
///
/// Providers accept it whatever the conversation looks like: every call is answered, ids are unique, arguments are objects, and
/// nothing is blank.
pub fn request_body(format: WireFormat, model: &str, quirks: Quirks, request: &ModelRequest) -> Value {
    let options = RequestOptions { model: model.to_owned(), temperature: None, max_output_tokens: None, stream: true, quirks };
    body(format, request, &options)
}

pub(super) fn body(format: WireFormat, request: &ModelRequest, options: &RequestOptions) -> Value {
    match format {
        WireFormat::OpenAiChat => openai::request_body(request, options),
        WireFormat::AnthropicMessages => anthropic::request_body(request, options),
    }
}
