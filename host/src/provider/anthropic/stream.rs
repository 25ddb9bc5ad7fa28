//! Builds a turn from the events of a streamed message.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Block, Usage, finish_reason, part, tool_call};
use crate::message::{FinishReason, ModelTurn, Part};
use crate::provider::decode::{Assembler, IdSource, Progress, bad_response, says_something};
use crate::provider::{ModelEvent, ProviderError};

/// More content blocks than this in one message are a fault of the server.
const MAX_BLOCKS: usize = 1024;

pub(in crate::provider) struct StreamAssembler {
    blocks: BTreeMap<u64, Slot>,
    finish: FinishReason,
    usage: Usage,
    ids: IdSource,
    progress: Progress,
}

struct Slot {
    block: Block,
    /// The host's id, where the block is a call.
    host_id: Option<String>,
    /// The text that its deltas added, for the field that they add to.
    added: String,
    signature: String,
}

impl StreamAssembler {
    pub(in crate::provider) fn new(ids: IdSource) -> Self {
        let progress = Progress::Idle;
        Self { blocks: BTreeMap::new(), finish: FinishReason::Missing, usage: Usage::default(), ids, progress }
    }

    fn start_block(&mut self, data: &Value, events: &mut dyn FnMut(ModelEvent)) -> Result<(), ProviderError> {
        let Some(Value::Object(block)) = data.get("content_block") else { return Ok(()) };
        let index = index_of(data).unwrap_or_else(|| self.blocks.last_key_value().map_or(0, |(last, _)| last + 1));
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(bad_response(format!("the provider's answer has more than {MAX_BLOCKS} content blocks")));
        }
        let mut slot = Slot { block: block.clone(), host_id: None, added: String::new(), signature: String::new() };
        match slot.kind() {
            "tool_use" => {
                // A stream that starts a block over means the same call.
                let same = |before: &&Slot| before.block.get("id") == block.get("id");
                if let Some(before) = self.blocks.get(&index).filter(same) {
                    slot.host_id.clone_from(&before.host_id);
                    self.blocks.insert(index, slot);
                    return Ok(());
                }
                let id = (self.ids)();
                let name = block.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                events(ModelEvent::ToolCallStarted { id: id.clone(), name });
                slot.host_id = Some(id);
            }
            "text" => emit_text(block.get("text"), events),
            _ => {}
        }
        self.blocks.insert(index, slot);
        Ok(())
    }

    fn block_delta(&mut self, data: &Value, events: &mut dyn FnMut(ModelEvent)) {
        let slot = match index_of(data) {
            Some(index) => self.blocks.get_mut(&index),
            None => self.blocks.last_entry().map(std::collections::btree_map::OccupiedEntry::into_mut),
        };
        let (Some(slot), Some(delta)) = (slot, data.get("delta")) else { return };
        let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        match (slot.kind(), delta.get("type").and_then(Value::as_str).unwrap_or_default()) {
            ("text", "text_delta") => {
                slot.added.push_str(text("text"));
                emit_text(delta.get("text"), events);
            }
            ("thinking", "thinking_delta") => {
                slot.added.push_str(text("thinking"));
                if !text("thinking").is_empty() {
                    events(ModelEvent::ReasoningDelta { text: text("thinking").to_owned() });
                }
            }
            ("thinking", "signature_delta") => slot.signature.push_str(text("signature")),
            ("tool_use", "input_json_delta") => slot.added.push_str(text("partial_json")),
            // Citations, and whatever comes next.
            _ => {}
        }
    }
}

impl Assembler for StreamAssembler {
    fn event(&mut self, data: &Value, events: &mut dyn FnMut(ModelEvent)) -> Result<(), ProviderError> {
        if self.progress == Progress::Idle {
            self.progress = Progress::Started;
        }
        match data.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => self.usage.set(data.pointer("/message/usage")),
            "content_block_start" => self.start_block(data, events)?,
            "content_block_delta" => self.block_delta(data, events),
            "message_delta" => {
                self.usage.set(data.get("usage"));
                let reason = finish_reason(data.pointer("/delta/stop_reason"));
                if reason != FinishReason::Missing {
                    self.finish = reason;
                    self.progress = Progress::Complete;
                }
            }
            "message_stop" => self.progress = Progress::Ended,
            _ => {}
        }
        Ok(())
    }

    fn has_content(&self, data: &Value) -> bool {
        match data.get("type").and_then(Value::as_str).unwrap_or_default() {
            "content_block_delta" => data.get("delta").is_some_and(says_something),
            "message_start" => self.progress == Progress::Idle,
            "content_block_start" | "content_block_stop" | "message_delta" | "message_stop" => true,
            _ => false,
        }
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn end_mark(&mut self) {}

    fn finish(self: Box<Self>, _events: &mut dyn FnMut(ModelEvent)) -> Result<ModelTurn, ProviderError> {
        let ids = self.ids;
        let parts = self.blocks.into_values().filter_map(|slot| slot.into_part(&ids)).collect();
        Ok(ModelTurn { parts, finish_reason: self.finish, usage: self.usage.total() })
    }
}

impl Slot {
    fn kind(&self) -> &str {
        self.block.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    fn into_part(mut self, ids: &IdSource) -> Option<Part> {
        match self.kind() {
            "text" => append(&mut self.block, "text", &self.added),
            "thinking" => {
                append(&mut self.block, "thinking", &self.added);
                append(&mut self.block, "signature", &self.signature);
            }
            // The start event carries an empty object, or all of the input when no delta follows.
            "tool_use" if !self.added.trim().is_empty() => {
                let id = self.host_id.unwrap_or_else(|| ids());
                return Some(Part::ToolCall(tool_call(&Value::Object(self.block), self.added, id)));
            }
            _ => {}
        }
        let host_id = self.host_id;
        let ids: IdSource = match host_id {
            Some(id) => std::sync::Arc::new(move || id.clone()),
            None => std::sync::Arc::clone(ids),
        };
        part(&Value::Object(self.block), &ids)
    }
}

fn append(block: &mut Block, field: &str, added: &str) {
    if added.is_empty() {
        return;
    }
    let before = block.get(field).and_then(Value::as_str).unwrap_or_default();
    let text = format!("{before}{added}");
    block.insert(field.to_owned(), text.into());
}

fn index_of(data: &Value) -> Option<u64> {
    data.get("index").and_then(Value::as_u64)
}

fn emit_text(text: Option<&Value>, events: &mut dyn FnMut(ModelEvent)) {
    if let Some(text) = text.and_then(Value::as_str).filter(|text| !text.is_empty()) {
        events(ModelEvent::TextDelta { text: text.to_owned() });
    }
}
