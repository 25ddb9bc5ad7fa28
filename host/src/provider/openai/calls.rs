//! Puts tool calls together from streamed fragments, however a server numbers, names and repeats them.

use serde_json::Value;

use crate::message::ToolCall;
use crate::provider::decode::{IdSource, bad_response};
use crate::provider::{ModelEvent, ProviderError};

/// More calls than this in one turn are a fault of the server; every later fragment is compared with each.
const MAX_CALLS: usize = 128;

/// What one delta says about a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Fragment {
    index: Option<u64>,
    id: Option<String>,
    name: Option<String>,
    arguments: String,
}

impl Fragment {
    /// Reads an element of `tool_calls`.
    pub(super) fn read(value: &Value) -> Self {
        let index = match value.get("index") {
            Some(Value::String(text)) => text.parse().ok(),
            other => other.and_then(Value::as_u64),
        };
        let function = value.get("function").unwrap_or(value);
        Self { index, id: text_of(value.get("id")), ..Self::read_function(function) }
    }

    /// Reads a `function`, or the older `function_call`.
    pub(super) fn read_function(function: &Value) -> Self {
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            // An object where the protocol wants its text; anything else is passed on, and refused where arguments are checked.
            Some(other) => other.to_string(),
        };
        Self { index: None, id: None, name: text_of(function.get("name")), arguments }
    }
}

/// Text, or the digits of a number; blank counts as absent.
fn text_of(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[derive(Debug)]
struct Slot {
    index: Option<u64>,
    host_id: String,
    provider_id: Option<String>,
    name: String,
    arguments: String,
    braces: Braces,
    announced: bool,
}

/// Follows braces, so that nobody has to parse arguments again with every fragment.
#[derive(Debug, Default)]
struct Braces {
    depth: usize,
    in_string: bool,
    escaped: bool,
    closed: bool,
}

impl Braces {
    fn feed(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' => self.depth += 1,
                b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.closed = self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

/// Collects the calls of one turn.
pub(super) struct CallAssembler {
    slots: Vec<Slot>,
    ids: IdSource,
}

impl CallAssembler {
    pub(super) fn new(ids: IdSource) -> Self {
        Self { slots: Vec::new(), ids }
    }

    /// Takes a call that is complete.
    pub(super) fn whole(&mut self, fragment: &Fragment) -> Result<(), ProviderError> {
        let slot = self.open(fragment)?;
        self.merge(slot, fragment);
        Ok(())
    }

    /// Takes the fragments of one delta.
    pub(super) fn delta(&mut self, fragments: &[Fragment], events: &mut dyn FnMut(ModelEvent)) -> Result<(), ProviderError> {
        let base = self.slots.len();
        for (position, fragment) in fragments.iter().enumerate() {
            let slot = match self.find(fragment, position, fragments.len(), base) {
                Some(slot) => slot,
                None => self.open(fragment)?,
            };
            self.merge(slot, fragment);
            let slot = &mut self.slots[slot];
            // The name may come in pieces, so a call is announced only once its arguments begin.
            if !slot.arguments.is_empty() {
                announce(slot, events);
            }
        }
        Ok(())
    }

    /// Ends the turn.
    pub(super) fn finish(self, events: &mut dyn FnMut(ModelEvent)) -> Vec<ToolCall> {
        let mut calls = Vec::new();
        for mut slot in self.slots {
            announce(&mut slot, events);
            let arguments = if slot.arguments.trim().is_empty() { "{}".to_owned() } else { slot.arguments };
            calls.push(ToolCall { id: slot.host_id, provider_id: slot.provider_id, name: slot.name, arguments });
        }
        calls
    }

    /// The call that a fragment continues, if it does not begin one.
    ///
    /// The index decides where there is one, then the id, then the position. Every rule has a server behind it: no index at all, index
    /// 0 for every call, a new id in every fragment, no ids, a repeated name, one whole call after another.
    fn find(&self, fragment: &Fragment, position: usize, siblings: usize, base: usize) -> Option<usize> {
        let known = |slot: &Slot| fragment.id.is_some() && slot.provider_id == fragment.id;
        if let Some(index) = fragment.index {
            let same_index = |slot: &Slot| slot.index == Some(index);
            if let Some(slot) = self.slots.iter().rposition(|slot| same_index(slot) && known(slot)) {
                return Some(slot);
            }
            let slot = self.slots.iter().rposition(same_index)?;
            // A name and another id under the same index: a server that numbers all its calls 0.
            let other_id = fragment.id.is_some() && self.slots[slot].provider_id.is_some();
            let begins = fragment.name.is_some() && (other_id || self.begins_next(slot, fragment));
            return (!begins).then_some(slot);
        }
        if fragment.id.is_some() {
            if let Some(slot) = self.slots.iter().rposition(known) {
                return (!self.begins_next(slot, fragment)).then_some(slot);
            }
            // Arguments may have come before the id and the name.
            let last = self.slots.len().checked_sub(1)?;
            let nameless = self.slots[last].provider_id.is_none() && self.slots[last].name.is_empty();
            let unnamed_rest = fragment.name.is_none();
            return (nameless || unnamed_rest).then_some(last);
        }
        if siblings > 1 {
            // Several at once, neither numbered nor named by id: calls of their own, or the pieces of as many calls.
            return (base >= siblings).then(|| base - siblings + position).filter(|slot| !self.begins_next(*slot, fragment));
        }
        let last = self.slots.len().checked_sub(1)?;
        (!self.begins_next(last, fragment)).then_some(last)
    }

    /// Whether a fragment begins a call although nothing but the call before it says so.
    fn begins_next(&self, slot: usize, fragment: &Fragment) -> bool {
        let slot = &self.slots[slot];
        let Some(name) = fragment.name.as_ref().filter(|_| !slot.name.is_empty()) else { return false };
        let same_name = *name == slot.name;
        if slot.braces.closed {
            return !(same_name && (fragment.arguments.is_empty() || fragment.arguments == slot.arguments));
        }
        // Two names without arguments between them are pieces of one, unless the second comes with all of its arguments.
        fragment.index.is_none() && slot.arguments.is_empty() && !same_name && is_whole_object(&fragment.arguments)
    }

    fn open(&mut self, fragment: &Fragment) -> Result<usize, ProviderError> {
        if self.slots.len() >= MAX_CALLS {
            return Err(bad_response(format!("the provider's answer has more than {MAX_CALLS} tool calls")));
        }
        self.slots.push(Slot {
            index: fragment.index,
            host_id: (self.ids)(),
            provider_id: None,
            name: String::new(),
            arguments: String::new(),
            braces: Braces::default(),
            announced: false,
        });
        Ok(self.slots.len() - 1)
    }

    fn merge(&mut self, slot: usize, fragment: &Fragment) {
        let slot = &mut self.slots[slot];
        if slot.provider_id.is_none() {
            slot.provider_id.clone_from(&fragment.id);
        }
        // Some servers send the name in pieces, some send all of it each time.
        if let Some(name) = &fragment.name
            && *name != slot.name
        {
            slot.name.push_str(name);
        }
        // Some servers repeat the whole call at its end.
        if !(slot.braces.closed && fragment.arguments == slot.arguments) {
            slot.braces.feed(&fragment.arguments);
            slot.arguments.push_str(&fragment.arguments);
        }
    }
}

fn announce(slot: &mut Slot, events: &mut dyn FnMut(ModelEvent)) {
    if !slot.announced && !slot.name.is_empty() {
        slot.announced = true;
        events(ModelEvent::ToolCallStarted { id: slot.host_id.clone(), name: slot.name.clone() });
    }
}

fn is_whole_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
