//! How a tool's result is shown to the model: cleaned, filtered, cut to head and tail, or summarised.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::results::READ_RESULT;
use crate::text;
use crate::tool::ToolOutcome;

/// How results are shown, by tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DisplaySettings {
    /// For tools that have no entry of their own.
    pub default: ResultDisplay,
    /// By model-visible name, exact or with a trailing `*`; an exact name wins, then the longest.
    pub tools: BTreeMap<String, ResultDisplay>,
}

/// How one tool's results are shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResultDisplay {
    /// The most bytes that are shown. The rest can be read with the built-in tool `read_result`.
    pub max_bytes: usize,
    /// Of these, how many are taken from the end: that is where logs and compilers say what matters.
    pub tail_bytes: usize,
    /// Show only this part of a JSON result (RFC 6901).
    pub pointer: Option<String>,
    /// Show results larger than `max_bytes` as a summary by the model; if that fails, cut.
    pub summarise: bool,
}

impl Default for ResultDisplay {
    fn default() -> Self {
        Self { max_bytes: 32 * 1024, tail_bytes: 4 * 1024, pointer: None, summarise: false }
    }
}

/// A result as it is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    /// What the model sees.
    pub(crate) text: String,
    /// The whole, cleaned, if the model sees less.
    pub(crate) whole: Option<String>,
}

impl DisplaySettings {
    /// How a tool's results are shown.
    pub fn for_tool(&self, name: &str) -> &ResultDisplay {
        let matches = |pattern: &str| pattern.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix));
        self.tools.get(name).unwrap_or_else(|| {
            let patterns = self.tools.iter().filter(|(pattern, _)| matches(pattern));
            patterns.max_by_key(|(pattern, _)| pattern.len()).map_or(&self.default, |(_, display)| display)
        })
    }
}

impl ResultDisplay {
    /// Shows the result of a call.
    pub(crate) fn show(&self, call_id: &str, outcome: &ToolOutcome) -> Shown {
        let text = outcome.model_text();
        let whole = text::clean(&text, usize::MAX);
        let filtered = match &self.pointer {
            Some(pointer) if outcome.error.is_none() => self.filter(pointer, outcome, &whole),
            _ => Cow::Borrowed(whole.as_ref()),
        };
        let shown = self.cut(call_id, &filtered);
        let is_whole = shown == whole;
        Shown { text: shown, whole: (!is_whole).then(|| whole.into_owned()) }
    }

    /// Cuts text to head and tail.
    pub(crate) fn cut(&self, call_id: &str, text: &str) -> String {
        if text.len() <= self.max_bytes {
            return text.to_owned();
        }
        let tail = self.tail_bytes.min(self.max_bytes);
        let head_end = text.floor_char_boundary(self.max_bytes - tail);
        let tail_start = text.ceil_char_boundary(text.len() - tail);
        let left_out = tail_start - head_end;
        format!(
            "{}\n[… {left_out} of {} bytes left out; {READ_RESULT}({{\"id\":\"{call_id}\",\"offset\":{head_end}}}) reads on …]\n{}",
            &text[..head_end],
            text.len(),
            &text[tail_start..]
        )
    }

    fn filter<'a>(&self, pointer: &str, outcome: &ToolOutcome, whole: &'a str) -> Cow<'a, str> {
        let parsed = if outcome.structured.is_none() { serde_json::from_str(whole).ok() } else { None };
        let value = outcome.structured.as_ref().or(parsed.as_ref()).and_then(|value| value.pointer(pointer));
        // A tool that changes its answers must not become mute.
        value.map_or(Cow::Borrowed(whole), |value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Cow::Owned(text::clean(&text, usize::MAX).into_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolStatus;
    use crate::tool::{CallUsage, Content};
    use serde_json::json;

    fn outcome(content: Content) -> ToolOutcome {
        let structured = if let Content::Json { value } = &content { Some(value.clone()) } else { None };
        let usage = CallUsage::default();
        ToolOutcome { status: ToolStatus::Ok, content: vec![content], structured, error: None, denials: Vec::new(), usage }
    }

    #[test]
    fn shows_head_and_tail_of_a_long_result() {
        let display = ResultDisplay { max_bytes: 10, tail_bytes: 4, ..ResultDisplay::default() };
        let shown = display.show("c1", &outcome(Content::Text { text: format!("北京{}END!", "x".repeat(100)) }));
        assert!(
            shown.text.starts_with("北京\n[… 100 of 110 bytes left out; read_result({\"id\":\"c1\",\"offset\":6})"),
            "{}",
            shown.text
        );
        assert!(shown.text.ends_with("END!"));
        assert_eq!(shown.whole.expect("kept").len(), 110);
    }

    #[test]
    fn a_pointer_picks_a_part_and_its_absence_shows_all() {
        let display = ResultDisplay { pointer: Some("/daily/0".into()), ..ResultDisplay::default() };
        for (value, expected) in [
            (json!({"daily": [{"max": 21}], "noise": 1}), r#"{"max":21}"#),
            (json!({"daily": ["晴"]}), "晴"),
            (json!({"other": 1}), r#"{"other":1}"#),
        ] {
            assert_eq!(display.show("c", &outcome(Content::Json { value })).text, expected);
        }
    }

    #[test]
    fn hides_what_a_reader_would_not_see() {
        let shown = ResultDisplay::default().show("c", &outcome(Content::Text { text: "a\0b\u{202e}c".into() }));
        assert_eq!((shown.text.as_str(), shown.whole), ("abc", None));
    }

    #[test]
    fn an_exact_name_wins_then_the_longest_pattern() {
        let with = |max_bytes| ResultDisplay { max_bytes, ..ResultDisplay::default() };
        let tools = [("*", 1), ("fetch__*", 2), ("fetch__page", 3)].map(|(name, max)| (name.to_owned(), with(max))).into();
        let settings = DisplaySettings { default: with(0), tools };
        for (name, expected) in [("a__b", 1), ("fetch__raw", 2), ("fetch__page", 3)] {
            assert_eq!(settings.for_tool(name).max_bytes, expected, "{name}");
        }
    }
}
