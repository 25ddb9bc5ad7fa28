//! Model-visible tool names: `plugin__tool`, within what every provider accepts.

use sha2::{Digest, Sha256};

/// The longest name that all providers accept (OpenAI and Anthropic: `^[a-zA-Z0-9_-]{1,64}$`).
const MAX_NAME: usize = 64;
/// How many hexadecimal digits of the digest end a shortened name.
const DIGEST_DIGITS: usize = 8;

/// The model-visible name of a plugin's tool.
///
/// Depends on the two names alone, so it stays the same whatever else is loaded. Characters that providers refuse become `_`, and a
/// name that is too long is cut; both then end in eight hexadecimal digits of the SHA-256 of `plugin/tool`, so that two tools hardly
/// ever meet. If they do, the registry refuses to start: policy binds to the raw names, and a visible name must lead to one tool.
pub fn model_name(plugin: &str, tool: &str) -> String {
    let raw = format!("{plugin}__{tool}");
    let legal: String = raw.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    if legal == raw && raw.len() <= MAX_NAME {
        return raw;
    }
    let digest = Sha256::digest(format!("{plugin}/{tool}"));
    let digits: String = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(DIGEST_DIGITS).map(hex_digit).collect();
    let kept: String = legal.chars().take(MAX_NAME - DIGEST_DIGITS - 1).collect();
    format!("{kept}_{digits}")
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_and_stable() {
        assert_eq!(model_name("calculator", "calculate"), "calculator__calculate");
        for (plugin, tool) in [("p", "a.b"), ("p", "a/b"), ("p", "天气"), ("p", &"x".repeat(64)), (&"y".repeat(64), "t")] {
            let name = model_name(plugin, tool);
            assert!(name.len() <= MAX_NAME && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{name}");
            assert_eq!(name, model_name(plugin, tool));
        }
    }

    #[test]
    fn lossy_names_stay_apart() {
        let names = [model_name("p", "a.b"), model_name("p", "a/b"), model_name("p", "a_b"), model_name("p", "a:b")];
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}
