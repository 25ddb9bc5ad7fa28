//! Reads a component's outline without compiling or running any of it: what it imports and exports, what it asks for, and how large it
//! would become.
//!
//! The outline is not trusted for safety. Full validation is the compile child's work; this pass refuses what would only waste it, and
//! finds what the host must know before it runs code.

use wasmparser::{
    Chunk, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Encoding,
    Instance, Parser, Payload, TypeRef,
};

use super::load::{LoadLimits, Problem};
use crate::text;

/// The custom section in which a plugin says what it wants.
pub(crate) const REQUESTS_SECTION: &str = "honeycomb:requests";

/// The interface that makes a component a plugin in our own sense.
pub(crate) const TOOLS_INTERFACE: &str = "honeycomb:plugin/tools@0.1.0";

/// How deep components may be nested. Composed components have two or three levels.
const MAX_DEPTH: usize = 32;

/// How much of a validator's or the file's own words is repeated in a message.
const MAX_QUOTE: usize = 300;

/// How a component offers its tools.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// It exports `honeycomb:plugin/tools`.
    Tools,
    /// Each of its exported functions is a tool.
    Typed,
}

/// What a component says about itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Outline {
    /// How it offers its tools.
    pub(crate) kind: Kind,
    /// Names of the functions and interfaces that it imports, in its order.
    pub(crate) imports: Vec<String>,
    /// Names of the functions and interfaces that it exports, in its order.
    pub(crate) exports: Vec<String>,
    /// The text of its requests section.
    pub(crate) requests: Option<String>,
}

/// Reads the outline of a component.
pub(crate) fn scan(bytes: &[u8], limits: &LoadLimits) -> Result<Outline, Problem> {
    sniff(bytes)?;
    let mut scan = Scan { limits, frames: Vec::new(), items: 0, imports: Vec::new(), exports: Vec::new(), requests: None };
    let mut parser = Parser::new(0);
    let mut parents = Vec::new();
    let mut rest = bytes;
    loop {
        let (payload, consumed) = match parser.parse(rest, true).map_err(|error| malformed(&error))? {
            Chunk::Parsed { consumed, payload } => (payload, consumed),
            Chunk::NeedMoreData(_) => return Err(Problem::Truncated("it ends inside a section".to_owned())),
        };
        rest = rest.get(consumed..).unwrap_or_default();
        match payload {
            // The parser hands over a nested module or component in place; its end returns to the one around it.
            Payload::ModuleSection { parser: nested, unchecked_range }
            | Payload::ComponentSection { parser: nested, unchecked_range } => {
                if unchecked_range.end > bytes.len() {
                    return Err(Problem::Truncated("it ends inside a nested module or component".to_owned()));
                }
                if parents.len() == MAX_DEPTH {
                    return Err(Problem::TooMany { what: "levels of nested components", found: 33, limit: 32 });
                }
                parents.push(std::mem::replace(&mut parser, nested));
            }
            // Function bodies are none of this pass's business.
            Payload::CodeSectionStart { size, .. } => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                rest = rest.get(size..).ok_or_else(|| Problem::Truncated("it ends inside a code section".to_owned()))?;
                parser.skip_section();
            }
            Payload::End(_) => {
                let cost = scan.end();
                match parents.pop() {
                    Some(parent) => parser = parent,
                    None => return scan.finish(cost),
                }
            }
            payload => scan.payload(payload)?,
        }
    }
}

/// Tells by the first bytes what a file is that is not a component.
fn sniff(bytes: &[u8]) -> Result<(), Problem> {
    const MAGIC: &[u8] = b"\0asm";
    if bytes.is_empty() {
        return Err(Problem::Empty);
    }
    if bytes.starts_with(MAGIC) {
        let Some(version) = bytes.get(4..8).and_then(|version| version.try_into().ok()).map(u32::from_le_bytes) else {
            return Err(Problem::Truncated("it ends inside the header".to_owned()));
        };
        return match version {
            0x1_000d => Ok(()),
            1 => Err(Problem::CoreModule),
            other => Err(Problem::Version(other)),
        };
    }
    if MAGIC.starts_with(bytes) {
        return Err(Problem::Truncated("it ends inside the header".to_owned()));
    }
    let native: [&[u8]; 6] = [b"\x7fELF", b"MZ", b"!<arch>", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe"];
    if native.iter().any(|magic| bytes.starts_with(magic)) {
        return Err(Problem::Native);
    }
    let start = bytes.trim_ascii_start();
    if start.starts_with(b"(") || start.starts_with(b";;") {
        return Err(Problem::Text);
    }
    let head: Vec<String> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    Err(Problem::NotWasm(head.join(" ")))
}

fn malformed(error: &wasmparser::Error) -> Problem {
    let words = text::clean_line(&error.to_string(), MAX_QUOTE);
    if error.message().contains("unexpected end") { Problem::Truncated(words) } else { Problem::Malformed(words) }
}

/// One component, or module, that is being read.
#[derive(Default)]
struct Frame {
    /// For each component in its index space, how many core instances one instance of it makes.
    components: Vec<u64>,
    /// How many core instances this one makes so far.
    core_instances: u64,
    /// How many memories this module has, its own and imported.
    memories: u32,
    is_component: bool,
}

struct Scan<'a> {
    limits: &'a LoadLimits,
    frames: Vec<Frame>,
    items: u64,
    imports: Vec<String>,
    exports: Vec<String>,
    requests: Option<String>,
}

impl Scan<'_> {
    fn payload(&mut self, payload: Payload<'_>) -> Result<(), Problem> {
        match payload {
            Payload::Version { encoding, .. } => {
                if self.frames.is_empty() && encoding != Encoding::Component {
                    return Err(Problem::CoreModule);
                }
                self.frames.push(Frame { is_component: encoding == Encoding::Component, ..Frame::default() });
            }
            Payload::CustomSection(section) if section.name() == REQUESTS_SECTION => self.request(section.data())?,
            Payload::CustomSection(_) => {}
            Payload::UnknownSection { id, .. } => return Err(Problem::Malformed(format!("unknown section {id}"))),
            Payload::InstanceSection(reader) => {
                self.count(reader.count())?;
                for instance in reader {
                    match instance.map_err(|error| malformed(&error))? {
                        Instance::Instantiate { .. } => self.add_core_instances(1),
                        Instance::FromExports(exports) => self.count_exports(exports.len())?,
                    }
                }
            }
            Payload::ComponentInstanceSection(reader) => {
                self.count(reader.count())?;
                for instance in reader {
                    match instance.map_err(|error| malformed(&error))? {
                        ComponentInstance::Instantiate { component_index, .. } => {
                            let cost = self.component(0, component_index)?;
                            self.add_core_instances(cost);
                        }
                        ComponentInstance::FromExports(exports) => self.count_exports(exports.len())?,
                    }
                }
            }
            Payload::ComponentAliasSection(reader) => {
                self.count(reader.count())?;
                for alias in reader {
                    self.alias(&alias.map_err(|error| malformed(&error))?)?;
                }
            }
            Payload::ComponentImportSection(reader) => {
                self.count(reader.count())?;
                for import in reader {
                    let import = import.map_err(|error| malformed(&error))?;
                    match import.ty {
                        ComponentTypeRef::Component(_) => return Err(Problem::ComponentValue("an import of a component")),
                        ComponentTypeRef::Type(_) => {}
                        _ if self.frames.len() == 1 => self.imports.push(self.name(import.name.name)?),
                        _ => {}
                    }
                }
            }
            Payload::ComponentExportSection(reader) => {
                self.count(reader.count())?;
                if self.frames.len() == 1 {
                    self.count_exports(self.exports.len().saturating_add(usize::try_from(reader.count()).unwrap_or(usize::MAX)))?;
                }
                for export in reader {
                    let export = export.map_err(|error| malformed(&error))?;
                    match export.kind {
                        // An export adds its item to the index space once more.
                        ComponentExternalKind::Component => {
                            let cost = self.component(0, export.index)?;
                            self.define(cost);
                        }
                        ComponentExternalKind::Func | ComponentExternalKind::Instance if self.frames.len() == 1 => {
                            self.exports.push(self.name(export.name.name)?);
                        }
                        _ => {}
                    }
                }
            }
            Payload::ComponentTypeSection(reader) => self.count(reader.count())?,
            Payload::CoreTypeSection(reader) => self.count(reader.count())?,
            Payload::ComponentCanonicalSection(reader) => self.count(reader.count())?,
            Payload::ImportSection(reader) => {
                for import in reader.into_imports() {
                    if matches!(import.map_err(|error| malformed(&error))?.ty, TypeRef::Memory(_)) {
                        self.add_memories(1)?;
                    }
                }
            }
            Payload::MemorySection(reader) => self.add_memories(reader.count())?,
            // The other sections of core modules: wasmparser bounds their counts, and the compile child their cost.
            _ => {}
        }
        Ok(())
    }

    /// Ends a component or module; returns how many core instances an instance of it makes.
    fn end(&mut self) -> u64 {
        let Some(frame) = self.frames.pop() else { return 0 };
        if frame.is_component {
            self.define(frame.core_instances);
        }
        frame.core_instances
    }

    fn finish(self, core_instances: u64) -> Result<Outline, Problem> {
        // A component of 631 bytes made 3.2 million: each level instantiates the one below it twenty times.
        if core_instances > self.limits.core_instances {
            return Err(Problem::TooMany { what: "core instances", found: core_instances, limit: self.limits.core_instances });
        }
        if self.exports.is_empty() {
            return Err(Problem::NoExports);
        }
        let (package, _) = TOOLS_INTERFACE.split_once('@').unwrap_or((TOOLS_INTERFACE, ""));
        let tools = self.exports.iter().find(|name| name.split('@').next() == Some(package));
        let kind = match tools {
            Some(name) if name == TOOLS_INTERFACE => Kind::Tools,
            Some(name) => return Err(Problem::PluginVersion { found: name.clone(), wanted: TOOLS_INTERFACE }),
            None => Kind::Typed,
        };
        Ok(Outline { kind, imports: self.imports, exports: self.exports, requests: self.requests })
    }

    fn request(&mut self, data: &[u8]) -> Result<(), Problem> {
        if self.requests.is_some() {
            return Err(Problem::Requests("there is more than one".to_owned()));
        }
        if data.len() > self.limits.requests_bytes {
            let limit = self.limits.requests_bytes;
            return Err(Problem::Requests(format!("{} bytes, more than the {limit} allowed", data.len())));
        }
        let text = std::str::from_utf8(data).map_err(|error| Problem::Requests(error.to_string()))?;
        self.requests = Some(text.to_owned());
        Ok(())
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) -> Result<(), Problem> {
        match *alias {
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => {
                Err(Problem::ComponentValue("an alias of an instance's component"))
            }
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                let cost = self.component(count, index)?;
                self.define(cost);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What an instance costs of a component, `outward` levels out.
    fn component(&self, outward: u32, index: u32) -> Result<u64, Problem> {
        let outward = usize::try_from(outward).unwrap_or(usize::MAX);
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.frames
            .iter()
            .rev()
            .nth(outward)
            .and_then(|frame| frame.components.get(index).copied())
            .ok_or_else(|| Problem::Malformed(format!("there is no component {index}")))
    }

    fn define(&mut self, cost: u64) {
        if let Some(frame) = self.frames.last_mut() {
            frame.components.push(cost);
        }
    }

    fn add_core_instances(&mut self, cost: u64) {
        if let Some(frame) = self.frames.last_mut() {
            frame.core_instances = frame.core_instances.saturating_add(cost);
        }
    }

    /// The proposal is on for the sake of wasmtime's own modules, so it is held off here for the plugin's.
    fn add_memories(&mut self, count: u32) -> Result<(), Problem> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        frame.memories = frame.memories.saturating_add(count);
        if frame.memories > 1 {
            let message = "a module has more than one memory".to_owned();
            return Err(Problem::Feature { feature: "multi-memory".to_owned(), message });
        }
        Ok(())
    }

    fn count(&mut self, count: u32) -> Result<(), Problem> {
        self.items = self.items.saturating_add(u64::from(count));
        if self.items > self.limits.items {
            return Err(Problem::TooMany { what: "items", found: self.items, limit: self.limits.items });
        }
        Ok(())
    }

    fn count_exports(&self, count: usize) -> Result<(), Problem> {
        let found = u64::try_from(count).unwrap_or(u64::MAX);
        if found > self.limits.exports {
            return Err(Problem::TooMany { what: "exports", found, limit: self.limits.exports });
        }
        Ok(())
    }

    /// A name, bounded. The component model's grammar of names has no room for control or invisible characters, and the validator
    /// holds them to it; this pass runs first.
    fn name(&self, name: &str) -> Result<String, Problem> {
        let (found, limit) = (name.len(), self.limits.name_bytes);
        if found > limit {
            let (found, limit) = (u64::try_from(found).unwrap_or(u64::MAX), u64::try_from(limit).unwrap_or(u64::MAX));
            return Err(Problem::TooMany { what: "bytes in a name", found, limit });
        }
        if name.is_empty() || name.chars().any(text::is_hidden) || name.contains(['\n', '\t', ' ']) {
            return Err(Problem::Malformed(format!("`{}` is not a name", text::clean_line(name, MAX_QUOTE))));
        }
        Ok(name.to_owned())
    }
}

/// For fuzzing: any bytes give an outline or a problem.
#[doc(hidden)]
pub fn fuzz_component(bytes: &[u8]) {
    if let Err(problem) = scan(bytes, &LoadLimits::default()) {
        let _ = (problem.to_string(), problem.code(), problem.hint());
    }
}

#[cfg(test)]
mod tests;
