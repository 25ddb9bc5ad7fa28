//! What a scenario knows only once its world stands: where its server listens, where its files are, what its plugins are.

use std::collections::BTreeMap;

/// What stands for what.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Puts the values into a text: `{http}` and the like. Any other brace stays as it is, since TOML and JSON have their own.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            filled.push_str(&rest[..start]);
            let after = &rest[start + 1..];
            let known = after.find('}').and_then(|end| Some((end, self.0.get(&after[..end])?)));
            match known {
                Some((end, value)) => {
                    filled.push_str(value);
                    rest = &after[end + 1..];
                }
                None => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        filled.push_str(rest);
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_are_filled_in() {
        let mut names = Names::default();
        names.set("http", "http://127.0.0.1:1");
        names.set("sha256:calculator", "ab");
        let text = "{http}/x {sha256:calculator} {\"a\":{}} {{result:a__b}} { \"城市\" = 1 } {";
        assert_eq!(names.fill(text), "http://127.0.0.1:1/x ab {\"a\":{}} {{result:a__b}} { \"城市\" = 1 } {");
    }
}
