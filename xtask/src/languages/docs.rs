//! The doc comments of functions in a WIT file, as the custom section `package-docs` (a version byte, then JSON; see wasm-tools'
//! `wit_parser::PackageMetadata`).
//!
//! Reads the one file of `tests/typed/wit` line by line; it is no parser of WIT.

use std::fmt::Write as _;

/// The section's name.
const NAME: &str = "package-docs";

/// The whole section, ready to be appended to a component.
pub(super) fn section(wit: &str) -> Vec<u8> {
    let json = json(wit);
    let mut body = leb128(NAME.len());
    body.extend_from_slice(NAME.as_bytes());
    body.push(1);
    body.extend_from_slice(json.as_bytes());
    let mut section = vec![0];
    section.extend(leb128(body.len()));
    section.extend(body);
    section
}

fn json(wit: &str) -> String {
    let mut scopes = Vec::new();
    let mut functions: Vec<(String, String)> = Vec::new();
    let mut docs: Vec<&str> = Vec::new();
    let mut nested = 0_usize;
    for line in wit.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            docs.push(text.strip_prefix(' ').unwrap_or(text));
            continue;
        }
        let mut words = line.split([' ', ':']).filter(|word| !word.is_empty());
        match (words.next(), words.next()) {
            (Some(kind @ ("interface" | "world")), Some(name)) => scopes.push((kind, name, std::mem::take(&mut functions))),
            (Some("export"), Some(name)) if line.contains("func(") => function(&mut functions, name, &docs),
            (Some(name), _) if line.contains(": func(") => function(&mut functions, name, &docs),
            _ if line.ends_with('{') => nested += 1,
            (Some("}"), _) if nested > 0 => nested -= 1,
            (Some("}"), _) => {
                if let Some((_, _, filled)) = scopes.last_mut() {
                    *filled = std::mem::take(&mut functions);
                }
            }
            _ => {}
        }
        docs.clear();
    }
    let part = |wanted: &str, key: &str| {
        let scopes = scopes.iter().filter(|(kind, ..)| *kind == wanted).map(|(_, name, functions)| {
            let functions: Vec<String> =
                functions.iter().map(|(name, docs)| format!("{}:{{\"docs\":{}}}", quoted(name), quoted(docs))).collect();
            format!("{}:{{\"{key}\":{{{}}}}}", quoted(name), functions.join(","))
        });
        scopes.collect::<Vec<_>>().join(",")
    };
    format!("{{\"worlds\":{{{}}},\"interfaces\":{{{}}}}}", part("world", "func_exports"), part("interface", "funcs"))
}

fn function(functions: &mut Vec<(String, String)>, name: &str, docs: &[&str]) {
    if !docs.is_empty() {
        functions.push((name.to_owned(), docs.join("\n")));
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_docs_by_interface() {
        let wit = r#"
            /// A package.
            interface a {
              /// A record.
              record r {
                /// A field.
                x: u8,
              }
              /// Gets "it".
              /// Now.
              get: func(r: r) -> u8;
              enum e { one, two }
              plain: func();
            }
            world w {
              export a;
              /// Runs.
              export run: func();
            }"#;
        assert_eq!(
            json(wit),
            r#"{"worlds":{"w":{"func_exports":{"run":{"docs":"Runs."}}}},"#.to_owned()
                + r#""interfaces":{"a":{"funcs":{"get":{"docs":"Gets \"it\".\u000aNow."}}}}}"#
        );
    }

    #[test]
    fn the_section_says_its_length() {
        let section = section("world w {}");
        assert_eq!(section[0], 0);
        assert_eq!(usize::from(section[1]), section.len() - 2);
        assert_eq!(&section[3..15], b"package-docs");
    }
}
