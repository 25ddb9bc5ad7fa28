//! Tools out of any component: each exported function is one, its schema made from its WIT types.
//!
//! This module owns the mapping both ways, WIT type and JSON Schema, component value and JSON value. The schema that is
//! advertised is the schema that arguments are validated against, and [`to_val`](to_val::to_val) is never more lenient.
//!
//! | WIT | JSON |
//! |---|---|
//! | `s8` to `u32` | integer with exact bounds |
//! | `s64`, `u64` | the same, or its digits as a string; printed as a string beyond 2^53 |
//! | `f32`, `f64` | number; NaN and the infinities are refused |
//! | `char` | string of one code point |
//! | `list<u8>` | base64 (an array of numbers is accepted) |
//! | `list<T>`, `list<T, N>`, `tuple` | array |
//! | `map<string, V>` | object; other keys: array of pairs |
//! | `record` | object with exactly its fields |
//! | `option<T>` | `null` or the value; may be left out of a record and of the arguments |
//! | `option<option<T>>` | `null` or `{"some": …}` |
//! | `variant` | `{"tag": …, "val": …}` |
//! | `enum` | its name; `flags`: array of names |
//! | `result<T, E>` | returned: the ok value, or an error of the tool; elsewhere `{"ok": …}` or `{"err": …}` |
//!
//! Resources, streams and futures have no JSON form: a function with one is listed with the reason, and the others work.

mod bytes;
mod call;
mod docs;
mod error;
mod from_val;
mod names;
mod schema;
mod signature;
mod to_val;
mod ty;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jsonschema::Validator;
use serde_json::Value;
use wasmtime::Engine;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex};

pub(crate) use call::{Arguments, TypedFunction, TypedOutput};
pub(crate) use docs::PackageDocs;

use crate::text;
use crate::tool::ToolHints;
use names::tool_name;
use signature::signature;
use ty::{Budget, Unsupported};

/// The most tools of one component, and the most functions that are listed as unsupported.
const MAX_TOOLS: usize = 256;

/// The most bytes in one schema.
const MAX_SCHEMA: usize = 64 * 1024;

/// The most bytes in all schemas of a component together. Every one of them goes to a model, on every turn.
const MAX_SCHEMAS: usize = 1024 * 1024;

/// The most bytes in a description.
const MAX_DESCRIPTION: usize = 4096;

/// A function that is a tool.
pub(crate) struct TypedTool {
    /// The raw name, `interface__function` or `function`, that policy binds to; at most 64 of `a-z A-Z 0-9 _ -`.
    pub(crate) name: String,
    /// A short name for people: WIT has none.
    pub(crate) title: Option<String>,
    /// The doc comment, or the function in WIT syntax. Bounded and clean.
    pub(crate) description: String,
    /// JSON Schema of the arguments.
    pub(crate) input_schema: Value,
    /// JSON Schema of the structured result, if the function returns something.
    pub(crate) output_schema: Option<Value>,
    /// WIT says nothing about effects, so the worst is assumed.
    pub(crate) hints: ToolHints,
    /// Validates against `input_schema`.
    pub(crate) validator: Validator,
    /// What to call.
    pub(crate) function: TypedFunction,
}

/// A function that is not a tool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnsupportedFunction {
    /// Its name, `interface__function`, as far as it can be shown.
    pub name: String,
    /// Why it cannot be a tool.
    pub reason: String,
}

/// The functions of a component.
pub(crate) struct TypedTools {
    /// Those that are tools, in the component's order.
    pub(crate) tools: Vec<TypedTool>,
    /// The others, with the reason.
    pub(crate) unsupported: Vec<UnsupportedFunction>,
}

impl TypedTools {
    /// Finds the exported functions of a component, free or inside an interface. Runs no code.
    ///
    /// Interfaces of `wasi:*` are passed over: `wasi:cli/run` is no tool. Two functions that come to one name are both refused.
    pub(crate) fn discover(component: &Component, engine: &Engine, docs: &PackageDocs) -> Self {
        let mut found = Discovery { docs, names: BTreeMap::new(), tools: Vec::new(), unsupported: Vec::new(), schemas: 0 };
        for (export, item) in component.component_type().exports(engine) {
            match &item.ty {
                ComponentItem::ComponentFunc(function) => {
                    found.function(None, export, function, component.get_export_index(None, export));
                }
                ComponentItem::ComponentInstance(_) if export.starts_with("wasi:") => {}
                ComponentItem::ComponentInstance(interface) => {
                    let index = component.get_export_index(None, export);
                    for (name, item) in interface.exports(engine) {
                        if let ComponentItem::ComponentFunc(function) = &item.ty {
                            let index = component.get_export_index(index.as_ref(), name);
                            found.function(Some(export), name, function, index);
                        }
                        if found.is_full() {
                            break;
                        }
                    }
                }
                // A type is no tool; a module or a component cannot be called.
                _ => {}
            }
            if found.is_full() {
                found.refuse("…".to_owned(), format!("a component can have {MAX_TOOLS} tools at most; the rest is left out"));
                break;
            }
        }
        found.finish()
    }
}

/// What discovery has found so far.
struct Discovery<'a> {
    docs: &'a PackageDocs,
    /// How many functions have come to each name.
    names: BTreeMap<String, usize>,
    tools: Vec<TypedTool>,
    unsupported: Vec<UnsupportedFunction>,
    /// Bytes in the schemas of `tools`.
    schemas: usize,
}

impl Discovery<'_> {
    fn function(&mut self, export: Option<&str>, name: &str, ty: &ComponentFunc, index: Option<ComponentExportIndex>) {
        if self.is_full() {
            return;
        }
        let interface = export.map(names::interface_name);
        match self.tool(interface, name, ty, index) {
            Ok(tool) => {
                *self.names.entry(tool.name.clone()).or_default() += 1;
                self.tools.push(tool);
            }
            Err(Unsupported(reason)) => {
                let shown = interface.map_or_else(|| name.to_owned(), |interface| format!("{interface}__{name}"));
                self.refuse(text::clean_line(&shown, 200), text::clean_line(&reason, 400));
            }
        }
    }

    fn tool(
        &mut self,
        interface: Option<&str>,
        name: &str,
        ty: &ComponentFunc,
        index: Option<ComponentExportIndex>,
    ) -> Result<TypedTool, Unsupported> {
        if (interface, name) == (Some("exports"), "init") && ty.params().next().is_some_and(|(name, _)| name == "app-name") {
            return Err(Unsupported("it is how componentize-py starts its interpreter".to_owned()));
        }
        if name.starts_with('[') {
            return Err(Unsupported("it belongs to a resource, which lives only inside one call".to_owned()));
        }
        if ty.async_() {
            return Err(Unsupported("it is an `async func`".to_owned()));
        }
        let index = index.ok_or_else(|| Unsupported("it cannot be found in the component".to_owned()))?;
        let mut budget = Budget::default();
        let parameters = ty.params().map(|(name, ty)| budget.field(name, &ty)).collect::<Result<Vec<_>, _>>()?;
        let result = ty.results().next().map(|ty| budget.ty(&ty)).transpose()?;
        let function = TypedFunction::new(index, parameters, result);
        let input_schema = schema::arguments(function.parameters());
        let output_schema = function.returned().map(schema::result);
        let size = size(&input_schema)? + output_schema.as_ref().map_or(Ok(0), size)?;
        if self.schemas + size > MAX_SCHEMAS {
            return Err(Unsupported(format!("the schemas of its component come to more than {MAX_SCHEMAS} bytes")));
        }
        let validator = jsonschema::validator_for(&input_schema)
            .map_err(|error| Unsupported(format!("its schema cannot be validated against: {error}")))?;
        self.schemas += size;
        let docs = match interface {
            Some(interface) => self.docs.interface_function(interface, name),
            None => self.docs.free_function(name),
        };
        let description = match docs {
            Some(docs) => text::clean(docs, MAX_DESCRIPTION).into_owned(),
            None => text::clean(&signature(name, function.parameters(), function.result()), MAX_DESCRIPTION).into_owned(),
        };
        Ok(TypedTool {
            name: tool_name(interface, name),
            title: None,
            description,
            input_schema,
            output_schema,
            hints: ToolHints { read_only: false, destructive: true, idempotent: false, open_world: true },
            validator,
            function,
        })
    }

    fn refuse(&mut self, name: String, reason: String) {
        self.unsupported.push(UnsupportedFunction { name, reason });
    }

    fn is_full(&self) -> bool {
        self.tools.len() >= MAX_TOOLS || self.unsupported.len() >= MAX_TOOLS
    }

    fn finish(mut self) -> TypedTools {
        let (unique, colliding) = self.tools.into_iter().partition(|tool| self.names.get(&tool.name) == Some(&1));
        self.tools = unique;
        let colliding: Vec<TypedTool> = colliding;
        for tool in colliding {
            let reason = "another function of the component comes to the same name".to_owned();
            self.unsupported.push(UnsupportedFunction { name: tool.name, reason });
        }
        TypedTools { tools: self.tools, unsupported: self.unsupported }
    }
}

/// The size of a schema, within the bound.
fn size(schema: &Value) -> Result<usize, Unsupported> {
    let size = schema.to_string().len();
    if size > MAX_SCHEMA {
        return Err(Unsupported(format!("its schema comes to {size} bytes, more than the {MAX_SCHEMA} allowed")));
    }
    Ok(size)
}
