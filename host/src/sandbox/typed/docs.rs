//! The WIT doc comments that a component carries.
//!
//! They are in a custom section `package-docs` at the top of the component: a version byte, then JSON. The format is that of
//! `wit_parser::PackageMetadata` (wasm-tools). Tools that make components do not all write it; `wit-docs-inject` adds it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The custom section.
const SECTION: &[u8] = b"package-docs";

/// The largest section that is read. It is decoration: a larger one is passed over.
const MAX_BYTES: usize = 512 * 1024;

/// Doc comments of one package: of its interfaces' functions, and of the functions that its worlds export.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PackageDocs {
    #[serde(default)]
    worlds: BTreeMap<String, WorldDocs>,
    #[serde(default)]
    interfaces: BTreeMap<String, InterfaceDocs>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct WorldDocs {
    /// Imports and exports in version 0, imports alone since.
    #[serde(default)]
    funcs: BTreeMap<String, FunctionDocs>,
    #[serde(default)]
    func_exports: BTreeMap<String, FunctionDocs>,
    #[serde(default)]
    interfaces: BTreeMap<String, InterfaceDocs>,
    #[serde(default)]
    interface_exports: BTreeMap<String, InterfaceDocs>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct InterfaceDocs {
    #[serde(default)]
    funcs: BTreeMap<String, FunctionDocs>,
}

/// Text alone in version 0.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum FunctionDocs {
    Text(Option<String>),
    Full {
        #[serde(default)]
        docs: Option<String>,
    },
}

impl PackageDocs {
    /// The docs in a component's bytes. None, when there are none or they cannot be read: they decide nothing.
    pub(crate) fn of_component(wasm: &[u8]) -> Self {
        let Some(data) = section(wasm).filter(|data| data.len() <= MAX_BYTES) else { return Self::default() };
        let json = match data {
            [0 | 1, json @ ..] => json,
            bare => bare,
        };
        serde_json::from_slice(json).unwrap_or_default()
    }

    /// The docs of a function that is exported freely.
    pub(super) fn free_function(&self, name: &str) -> Option<&str> {
        let worlds = || self.worlds.values();
        let exported = worlds().find_map(|world| world.func_exports.get(name));
        exported.or_else(|| worlds().find_map(|world| world.funcs.get(name)))?.text()
    }

    /// The docs of a function inside an interface.
    pub(super) fn interface_function(&self, interface: &str, name: &str) -> Option<&str> {
        let inline = self.worlds.values().flat_map(|world| [&world.interface_exports, &world.interfaces]);
        let homes = std::iter::once(&self.interfaces).chain(inline);
        homes.filter_map(|home| home.get(interface)?.funcs.get(name)).find_map(FunctionDocs::text)
    }
}

impl FunctionDocs {
    fn text(&self) -> Option<&str> {
        let (Self::Text(docs) | Self::Full { docs }) = self;
        docs.as_deref().map(str::trim).filter(|text| !text.is_empty())
    }
}

/// The data of the custom section, found by hopping over the top level's sections.
fn section(wasm: &[u8]) -> Option<&[u8]> {
    // Magic number and version.
    let mut rest = wasm.get(8..)?;
    while let [id, after @ ..] = rest {
        let (size, after) = leb128(after)?;
        let (body, next) = after.split_at_checked(size)?;
        if *id == 0 {
            let (length, named) = leb128(body)?;
            let (name, data) = named.split_at_checked(length)?;
            if name == SECTION {
                return Some(data);
            }
        }
        rest = next;
    }
    None
}

/// An unsigned 32-bit LEB128 number, and what follows it.
fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value: u64 = 0;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut wasm = b"\0asm\x0d\0\x01\0".to_vec();
        for (name, data) in sections {
            let mut body = vec![u8::try_from(name.len()).expect("short")];
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(data);
            wasm.extend_from_slice(&[0, u8::try_from(body.len() & 0x7f).expect("7 bits") | 0x80]);
            wasm.push(u8::try_from(body.len() >> 7).expect("short"));
            wasm.extend_from_slice(&body);
        }
        wasm
    }

    #[test]
    fn reads_both_versions_per_interface() {
        let json = br#"{"docs":"all","worlds":{"w":{"func_exports":{"run":{"docs":"Runs.\n","stability":"x"}},
            "funcs":{"run":{"docs":"an import"},"old":"Old way."},"interface_exports":{"inline":{"funcs":{"f":{"docs":"Inline."}}}}}},
            "interfaces":{"a":{"docs":"A","funcs":{"get":{"docs":"Gets a."}}},"b":{"funcs":{"get":"Gets b."}}}}"#;
        for version in [&b"\0"[..], &b"\x01"[..], &b""[..]] {
            let docs = PackageDocs::of_component(&component(&[("name", b"x"), ("package-docs", &[version, json].concat())]));
            assert_eq!(docs.free_function("run"), Some("Runs."));
            assert_eq!(docs.free_function("old"), Some("Old way."));
            assert_eq!(docs.interface_function("a", "get"), Some("Gets a."));
            assert_eq!(docs.interface_function("b", "get"), Some("Gets b."));
            assert_eq!(docs.interface_function("inline", "f"), Some("Inline."));
            assert_eq!(docs.interface_function("b", "run"), None);
        }
    }

    #[test]
    fn unreadable_docs_are_no_docs() {
        let good = component(&[("package-docs", br#"{"interfaces":{"a":{"funcs":{"f":"x"}}}}"#)]);
        assert!(PackageDocs::of_component(&good).interface_function("a", "f").is_some());
        for cut in 0..good.len() {
            assert!(PackageDocs::of_component(&good[..cut]).interface_function("a", "f").is_none(), "{cut}");
        }
        for data in [&b"\x02{}"[..], b"", b"\x01", b"\x01[]", b"\x01{\"interfaces\":7}", b"\xff\xff"] {
            assert!(PackageDocs::of_component(&component(&[("package-docs", data)])).interfaces.is_empty(), "{data:?}");
        }
        assert!(section(b"\0asm\x0d\0\x01\0\x00\xff\xff\xff\xff\xff\xff").is_none());
    }
}
