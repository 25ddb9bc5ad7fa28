//! TOML as the host writes it, in hints and starter policies.

/// A basic string with its quotes.
pub(super) fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Whoever reads the file must see what it holds.
            c if c.is_control() || crate::text::is_hidden(c) => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A key: bare where TOML allows it.
pub(super) fn key(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { text.to_owned() } else { string(text) }
}

/// A list of strings.
pub(super) fn strings<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| string(text.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}

/// A comment of any number of lines, each at most 120 characters.
pub(super) fn comment(text: &str) -> String {
    let mut lines = String::new();
    for line in crate::text::clean(text, 2_000).lines() {
        let mut width = 0;
        lines.push('#');
        for word in line.split_whitespace() {
            if width > 0 && width + word.chars().count() > 110 {
                lines.push_str("\n#");
                width = 0;
            }
            lines.push(' ');
            lines.push_str(word);
            width += word.chars().count() + 1;
        }
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::de::DeTable;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(name: String, text: String) {
            let written = format!("{} = {}\n{}", key(&name), string(&text), comment(&text));
            let document = DeTable::parse(&written).expect("valid TOML").into_inner();
            let value = document.get(name.as_str()).and_then(|value| value.get_ref().as_str().map(str::to_owned));
            prop_assert_eq!(value, Some(text));
        }
    }
}
