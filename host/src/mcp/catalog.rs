//! The tools of one registry as MCP lists them, and the way back from a listed name to the registry's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

use super::generic;
use super::{McpError, McpOptions};
use crate::registry::ToolRegistry;
use crate::tool::{ToolHints, ToolSpec, Tools as _};

/// The tools of one registry.
pub(super) struct Catalog {
    /// What `tools/list` answers.
    pub(super) listed: Arc<[Tool]>,
    /// Everything that may be called, in the order of names; the same as `listed` without generic tools.
    pub(super) all: Arc<[Tool]>,
    /// Names without a prefix, and the registry's name for each.
    bare: HashMap<String, String>,
}

impl Catalog {
    /// Lists a registry's tools.
    ///
    /// # Errors
    ///
    /// Fails when `bare_names` names no plugin, or leads to two tools of one name.
    pub(super) fn new(registry: &ToolRegistry, options: &McpOptions) -> Result<Self, McpError> {
        let mut bare = HashMap::new();
        if let Some(plugin) = &options.bare_names {
            let Some(entry) = registry.plugins().find(|entry| entry.id == *plugin) else {
                return Err(McpError::NoSuchPlugin { plugin: plugin.clone() });
            };
            for tool in entry.tools.iter() {
                let taken = registry.plugins().any(|other| {
                    other.id != *plugin
                        && other.tools.iter().any(|of| registry.model_name(&other.id, &of.name) == Some(&tool.name))
                });
                if taken || (options.generic_tools && generic::is_generic(&tool.name)) {
                    return Err(McpError::Collision { plugin: plugin.clone(), tool: tool.name.clone() });
                }
                // The registry gave every tool a name when it was loaded.
                if let Some(name) = registry.model_name(plugin, &tool.name) {
                    bare.insert(tool.name.clone(), name.to_owned());
                }
            }
        }
        Ok(Self::with_names(registry, options, bare))
    }

    /// Lists a registry's tools under the registry's own names.
    pub(super) fn full_names(registry: &ToolRegistry, options: &McpOptions) -> Self {
        Self::with_names(registry, options, HashMap::new())
    }

    fn with_names(registry: &ToolRegistry, options: &McpOptions, bare: HashMap<String, String>) -> Self {
        let shown: HashMap<&str, &str> = bare.iter().map(|(shown, name)| (name.as_str(), shown.as_str())).collect();
        let specs = registry.specs();
        let by_name: BTreeMap<&str, &ToolSpec> =
            specs.iter().map(|spec| (shown.get(spec.name.as_str()).copied().unwrap_or(&spec.name), spec)).collect();
        let all: Arc<[Tool]> = by_name.iter().map(|(name, spec)| tool(name, spec)).collect();
        let listed = if options.generic_tools { generic::tools().into() } else { Arc::clone(&all) };
        Self { listed, all, bare }
    }

    /// The registry's name for a name that a client wrote.
    pub(super) fn registry_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.bare.get(name).map_or(name, String::as_str)
    }

    /// A tool by the name that it is listed under.
    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.listed.iter().chain(self.all.iter()).find(|tool| tool.name == name)
    }
}

fn tool(name: &str, spec: &ToolSpec) -> Tool {
    let mut tool = Tool::new(name.to_owned(), spec.description.clone(), object(&spec.input_schema));
    tool.title.clone_from(&spec.title);
    tool.output_schema = spec.output_schema.as_ref().map(|schema| Arc::new(object(schema)));
    tool.with_annotations(annotations(spec.title.clone(), spec.hints))
}

/// Every hint is said: what MCP assumes of a silent tool is not what a plugin's `false` means.
fn annotations(title: Option<String>, hints: ToolHints) -> ToolAnnotations {
    ToolAnnotations::from_raw(
        title,
        Some(hints.read_only),
        Some(hints.destructive),
        Some(hints.idempotent),
        Some(hints.open_world),
    )
}

/// The schema as it was loaded: the registry accepts only objects.
fn object(schema: &Value) -> JsonObject {
    schema.as_object().cloned().unwrap_or_default()
}
