//! A loaded plugin: what is known about it, and its code, linked and ready to be instantiated.

use std::collections::BTreeMap;
use std::sync::Arc;

use wasmtime::component::{ComponentExportIndex, InstancePre, Linker};

use super::bindings::TOOLS;
use super::load::{Loaded, Loader, Problem};
use super::metadata::PluginTool;
use super::state::HostState;
use super::typed::{TypedFunction, TypedTools, UnsupportedFunction};

/// A plugin that was loaded, linked and asked for its tools. Cheap to clone.
#[derive(Clone)]
pub struct Plugin {
    /// SHA-256 of the file.
    pub sha256: [u8; 32],
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// How the plugin offers its tools.
    pub kind: PluginKind,
    /// Its tools, in the order in which it lists them.
    pub tools: Arc<[PluginTool]>,
    /// Functions that it exports and that cannot be tools; only where each exported function is one.
    pub unsupported: Vec<UnsupportedFunction>,
    /// The interfaces that it imports, as it names them.
    pub imports: Vec<String>,
    /// The text of its custom section `honeycomb:requests`.
    pub requests_text: Option<String>,
    /// Whether the compiled code came from the cache.
    pub from_cache: bool,
    pub(super) code: Arc<Code>,
}

/// How a plugin offers its tools.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum PluginKind {
    /// It exports `honeycomb:plugin/tools`.
    Tools,
    /// Each of its exported functions is a tool.
    Typed,
}

impl PluginKind {
    /// The word for it in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Typed => "typed",
        }
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("kind", &self.kind).field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}

/// Linked code, with the places of its exports: a call looks nothing up by name.
pub(super) struct Code {
    pub(super) pre: InstancePre<HostState>,
    pub(super) entry: Entry,
}

/// How a plugin's tools are called.
pub(super) enum Entry {
    /// Through `honeycomb:plugin/tools`.
    Tools {
        /// `list-tools`
        list: ComponentExportIndex,
        /// `call-tool`
        call: ComponentExportIndex,
    },
    /// Each by a function of its own.
    Typed(BTreeMap<String, TypedFunction>),
}

impl Code {
    /// Links a component. `Problem` says what is missing, and what there is instead.
    pub(super) fn link(linker: &Linker<HostState>, loader: &Loader, loaded: &Loaded) -> Result<Self, Problem> {
        let component = &loaded.component;
        let pre = linker.instantiate_pre(component).map_err(|error| loader.link_problem(loaded, &error))?;
        let tools =
            component.get_export_index(None, TOOLS).ok_or_else(|| Problem::Malformed(format!("it does not export `{TOOLS}`")))?;
        let function = |name: &str| {
            component
                .get_export_index(Some(&tools), name)
                .ok_or_else(|| Problem::Malformed(format!("`{TOOLS}` lacks the function `{name}`")))
        };
        Ok(Self { pre, entry: Entry::Tools { list: function("list-tools")?, call: function("call-tool")? } })
    }

    /// Links a component whose exported functions are its tools, and finds them. Runs no code.
    pub(super) fn link_typed(
        linker: &Linker<HostState>,
        loader: &Loader,
        loaded: &Loaded,
    ) -> Result<(Self, Vec<PluginTool>, Vec<UnsupportedFunction>), Problem> {
        let pre = linker.instantiate_pre(&loaded.component).map_err(|error| loader.link_problem(loaded, &error))?;
        let TypedTools { tools: found, unsupported } = TypedTools::discover(&loaded.component, linker.engine(), &loaded.docs);
        if found.is_empty() {
            return Err(match unsupported.into_iter().next() {
                Some(first) => Problem::NoTools { function: first.name, reason: first.reason },
                None => Problem::NoExports,
            });
        }
        let mut functions = BTreeMap::new();
        let mut tools = Vec::with_capacity(found.len());
        for tool in found {
            functions.insert(tool.name.clone(), tool.function);
            tools.push(PluginTool {
                name: tool.name,
                title: tool.title,
                description: tool.description,
                input_schema: tool.input_schema,
                output_schema: tool.output_schema,
                hints: tool.hints,
                validator: tool.validator,
                // The result is made by the same rules as its schema.
                output_validator: None,
            });
        }
        Ok((Self { pre, entry: Entry::Typed(functions) }, tools, unsupported))
    }
}
