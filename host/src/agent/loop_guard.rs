//! Notices a model that makes the same call with the same result over and over.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::message::ToolCall;

/// When to warn, and when to end the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopSettings {
    /// Equal calls with equal results, after which the model is warned; 0 never warns.
    pub warn_at: u32,
    /// And after which the run ends; 0 never ends it.
    pub stop_at: u32,
    /// How many calls back they are counted. Wide enough that a model going to and fro between three calls is noticed.
    pub window: usize,
}

impl Default for LoopSettings {
    fn default() -> Self {
        Self { warn_at: 3, stop_at: 5, window: 16 }
    }
}

/// What the guard thinks of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LoopVerdict {
    Fine,
    Warn(u32),
    Stop(u32),
}

/// The signatures of the last calls.
///
/// The result is part of the signature: polling a job until its state changes is not a loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoopGuard {
    recent: VecDeque<Signature>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Signature {
    /// Half a SHA-256, in hex.
    digest: String,
    /// Equal calls of one turn count once: the model had not seen the first one's result.
    turn: u32,
}

impl LoopGuard {
    /// Records a call with its result, and judges it.
    pub(crate) fn record(&mut self, call: &ToolCall, result: &str, turn: u32, settings: &LoopSettings) -> LoopVerdict {
        let digest = signature(call, result);
        if self.recent.iter().any(|seen| seen.turn == turn && seen.digest == digest) {
            return LoopVerdict::Fine;
        }
        self.recent.push_back(Signature { digest, turn });
        while self.recent.len() > settings.window.max(1) {
            self.recent.pop_front();
        }
        let last = self.recent.back().map(|last| last.digest.clone()).unwrap_or_default();
        let count = self.recent.iter().filter(|seen| seen.digest == last).count();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if settings.stop_at > 0 && count >= settings.stop_at {
            LoopVerdict::Stop(count)
        } else if settings.warn_at > 0 && count >= settings.warn_at {
            LoopVerdict::Warn(count)
        } else {
            LoopVerdict::Fine
        }
    }
}

fn signature(call: &ToolCall, result: &str) -> String {
    let arguments = match call.parse_arguments() {
        Ok(arguments) => canonical(&Value::Object(arguments)),
        Err(_) => call.arguments.trim().to_owned(),
    };
    let mut hash = Sha256::new();
    for part in [call.name.as_str(), &arguments, result] {
        // Lengths in front, so that no text can pass for two.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    crate::text::hex(&hash.finalize()[..16])
}

/// JSON with sorted keys and without spaces.
fn canonical(value: &Value) -> String {
    fn write(value: &Value, out: &mut String) {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by(|a, b| a.0.cmp(b.0));
                out.push('{');
                for (index, (key, value)) in entries.into_iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::from(key.as_str()).to_string());
                    out.push(':');
                    write(value, out);
                }
                out.push('}');
            }
            Value::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write(item, out);
                }
                out.push(']');
            }
            scalar => out.push_str(&scalar.to_string()),
        }
    }
    let mut out = String::new();
    write(value, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall { id: "c".into(), provider_id: None, name: "jobs__state".into(), arguments: arguments.into() }
    }

    #[test]
    fn warns_at_three_and_stops_at_five() {
        let mut guard = LoopGuard::default();
        let settings = LoopSettings::default();
        let verdicts: Vec<_> = (0..5).map(|turn| guard.record(&call("{}"), "same", turn, &settings)).collect();
        use LoopVerdict::{Fine, Stop, Warn};
        assert_eq!(verdicts, [Fine, Fine, Warn(3), Warn(4), Stop(5)]);
    }

    #[test]
    fn polling_with_changing_results_is_no_loop() {
        let mut guard = LoopGuard::default();
        for turn in 0..50 {
            let verdict = guard.record(&call("{}"), &format!("{turn} % done"), turn, &LoopSettings::default());
            assert_eq!(verdict, LoopVerdict::Fine);
        }
    }

    #[test]
    fn spelling_does_not_hide_a_loop() {
        let mut guard = LoopGuard::default();
        let spellings = [r#"{"a":1,"b":[2]}"#, r#"{ "b": [2], "a": 1 }"#, r#"{"b":[2],"\u0061":1}"#];
        let last =
            spellings.iter().zip(0..).map(|(text, turn)| guard.record(&call(text), "x", turn, &LoopSettings::default())).last();
        assert_eq!(last, Some(LoopVerdict::Warn(3)));
    }

    #[test]
    fn going_to_and_fro_is_a_loop() {
        let mut guard = LoopGuard::default();
        let settings = LoopSettings::default();
        let stopped = (0..20).any(|turn| {
            let text = if turn % 2 == 0 { r#"{"a":1}"# } else { r#"{"a":2}"# };
            matches!(guard.record(&call(text), "x", turn, &settings), LoopVerdict::Stop(_))
        });
        assert!(stopped);
    }

    #[test]
    fn equal_calls_of_one_turn_count_once() {
        let mut guard = LoopGuard::default();
        for _ in 0..10 {
            assert_eq!(guard.record(&call("{}"), "x", 1, &LoopSettings::default()), LoopVerdict::Fine);
        }
    }
}
