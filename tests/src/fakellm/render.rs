//! Renders answers as the providers send them.

use serde_json::{Value, json};

/// One server-sent event without a name, as chat completions use them.
pub fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// The end mark of a chat completion stream.
pub const DONE: &str = "data: [DONE]\n\n";

/// A chunk of a chat completion stream.
pub fn openai_chunk(delta: &Value, finish_reason: Option<&str>) -> String {
    data(&json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "fake",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }))
}

/// The chunk with usage, which has no choices.
pub fn openai_usage(input: u64, output: u64) -> String {
    data(&json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output},
    }))
}

/// A whole chat completion stream: these deltas, a finish reason, usage, and the end mark.
pub fn openai_stream(deltas: &[Value], finish_reason: &str) -> String {
    let mut stream: String = deltas.iter().map(|delta| openai_chunk(delta, None)).collect();
    stream.push_str(&openai_chunk(&json!({}), Some(finish_reason)));
    stream.push_str(&openai_usage(10, 5));
    stream.push_str(DONE);
    stream
}

/// A stream that says a text in pieces.
pub fn openai_text(pieces: &[&str]) -> String {
    let deltas: Vec<Value> = pieces.iter().map(|piece| json!({"content": piece})).collect();
    openai_stream(&deltas, "stop")
}

/// A stream that calls tools, as OpenAI sends it: id and name first, then the arguments in two pieces.
pub fn openai_calls(calls: &[(&str, &str, &str)]) -> String {
    let mut deltas = Vec::new();
    for (index, (id, name, arguments)) in calls.iter().enumerate() {
        let function = json!({"name": name, "arguments": ""});
        deltas.push(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}));
        let (left, right) = halves(arguments);
        for piece in [left, right] {
            deltas.push(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
        }
    }
    openai_stream(&deltas, "tool_calls")
}

/// A chat completion with this message.
pub fn openai_completion(message: &Value, finish_reason: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "fake",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": null}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    })
}

/// Turns a recorded chat completion into the stream that says the same.
pub fn openai_stream_of(completion: &Value) -> String {
    let choice = &completion["choices"][0];
    let message = &choice["message"];
    let mut stream = openai_chunk(&json!({"role": "assistant", "content": ""}), None);
    for field in ["reasoning_content", "content", "refusal"] {
        if let Some(text) = message[field].as_str() {
            for piece in <[&str; 2]>::from(halves(text)) {
                stream.push_str(&openai_chunk(&json!({field: piece}), None));
            }
        }
    }
    for (index, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let mut first = call.clone();
        let arguments = first["function"]["arguments"].take();
        first["index"] = index.into();
        first["function"]["arguments"] = "".into();
        stream.push_str(&openai_chunk(&json!({"tool_calls": [first]}), None));
        for piece in <[&str; 2]>::from(halves(arguments.as_str().unwrap_or_default())) {
            let delta = json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]});
            stream.push_str(&openai_chunk(&delta, None));
        }
    }
    stream.push_str(&openai_chunk(&json!({}), choice["finish_reason"].as_str()));
    let (id, object) = ("chatcmpl-1", "chat.completion.chunk");
    stream.push_str(&data(&json!({"id": id, "object": object, "choices": [], "usage": completion["usage"]})));
    stream.push_str(DONE);
    stream
}

/// An error body of OpenAI.
pub fn openai_error(kind: &str, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
}

/// One event of a message stream; its name is its type.
pub fn anthropic_event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

/// Turns a message into the stream that says the same.
pub fn anthropic_stream_of(message: &Value) -> String {
    let mut start = message.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = 1.into();
    let mut stream = anthropic_event(&json!({"type": "message_start", "message": start}));
    stream.push_str(&anthropic_event(&json!({"type": "ping"})));
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        stream.push_str(&anthropic_block(index, block));
    }
    let delta = json!({"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]});
    stream.push_str(&anthropic_event(&json!({"type": "message_delta", "delta": delta, "usage": message["usage"]})));
    stream.push_str(&anthropic_event(&json!({"type": "message_stop"})));
    stream
}

/// A message with these content blocks.
pub fn anthropic_message(content: &[Value], stop_reason: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 5},
    })
}

/// An error body of Anthropic, which is also the error event of a stream.
pub fn anthropic_error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
}

fn anthropic_block(index: usize, block: &Value) -> String {
    let mut start = block.clone();
    let mut deltas = Vec::new();
    match block["type"].as_str() {
        Some("text") => {
            start["text"] = "".into();
            let (left, right) = halves(block["text"].as_str().unwrap_or_default());
            deltas.extend([left, right].map(|text| json!({"type": "text_delta", "text": text})));
        }
        Some("thinking") => {
            start["thinking"] = "".into();
            start["signature"] = "".into();
            let (left, right) = halves(block["thinking"].as_str().unwrap_or_default());
            deltas.extend([left, right].map(|text| json!({"type": "thinking_delta", "thinking": text})));
            deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
        }
        Some("tool_use") => {
            start["input"] = json!({});
            let input = block["input"].to_string();
            let (left, right) = halves(&input);
            deltas.extend(["", left, right].map(|text| json!({"type": "input_json_delta", "partial_json": text})));
        }
        _ => {}
    }
    let mut stream = anthropic_event(&json!({"type": "content_block_start", "index": index, "content_block": start}));
    for delta in deltas {
        stream.push_str(&anthropic_event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
    }
    stream.push_str(&anthropic_event(&json!({"type": "content_block_stop", "index": index})));
    stream
}

fn halves(text: &str) -> (&str, &str) {
    text.split_at(text.floor_char_boundary(text.len() / 2))
}
