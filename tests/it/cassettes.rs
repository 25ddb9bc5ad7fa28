//! Recorded traffic of real providers: every answer parses, whole and cut anywhere, streamed and not.
//!
//! The recordings are no part of this project. `HONEYCOMB_CASSETTES` says where they are; without it the tests say that they were
//! skipped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use honeycomb_host::message::{FinishReason, ModelTurn, Part, ToolCall};
use honeycomb_host::provider::sse::{SseDecoder, SseEvent};
use honeycomb_host::provider::wire::WireFormat;
use honeycomb_host::provider::{ModelEvent, ProviderError};
use honeycomb_tests::fakellm::{render, validate};
use honeycomb_tests::news::tell;
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use crate::provider::{ANTHROPIC, OPENAI, decode_chunks};

/// How many places of a body are tried with all of the decoding.
const CUTS: usize = 256;

/// One recorded answer.
struct Recording {
    provider: String,
    /// The file below the provider's directory, and the exchange's number in it.
    name: String,
    number: usize,
    path: String,
    request: String,
    status: i64,
    content_type: Option<String>,
    body: String,
}

impl Recording {
    fn format(&self) -> Option<WireFormat> {
        match self.path.as_str() {
            path if path.ends_with("/chat/completions") => Some(OPENAI),
            path if path.ends_with("/messages") => Some(ANTHROPIC),
            _ => None,
        }
    }

    fn is_stream(&self) -> bool {
        self.content_type.as_deref().is_some_and(|found| found.starts_with("text/event-stream"))
    }

    fn decode<'a>(
        &'a self,
        format: WireFormat,
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(ModelTurn, Vec<ModelEvent>), ProviderError> {
        decode_chunks(format, self.content_type.as_deref(), chunks)
    }

    fn label(&self) -> String {
        format!("{}/{} exchange {}", self.provider, self.name, self.number)
    }
}

/// The recordings of answers that this project's formats cover, or nothing, with the reason printed.
fn recordings() -> Vec<Recording> {
    let Some(root) = std::env::var_os("HONEYCOMB_CASSETTES").map(PathBuf::from) else {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| say("skipped, since HONEYCOMB_CASSETTES is not set"));
        return Vec::new();
    };
    // Cargo runs tests in the crate's directory, and the variable is written for the workspace's.
    let root = if root.is_absolute() { root } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(root) };
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    assert!(!files.is_empty(), "no recordings in `{}`", root.display());
    files.iter().flat_map(|file| read(&root, file)).collect()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
}

fn read(root: &Path, file: &Path) -> Vec<Recording> {
    let text = std::fs::read_to_string(file).expect("a readable file");
    let documents = YamlLoader::load_from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let relative = file.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
    let (provider, name) = relative.split_once('/').expect("a directory for each provider");
    let recording = |(at, document): (usize, &Yaml)| {
        let (when, then) = (&document["when"], &document["then"]);
        let headers = then["header"].as_vec().map_or(&[][..], Vec::as_slice);
        let content_type = headers
            .iter()
            .find(|header| header["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case("content-type")))
            .and_then(|header| header["value"].as_str());
        Recording {
            provider: provider.to_owned(),
            name: name.to_owned(),
            number: at + 1,
            path: when["path"].as_str().unwrap_or_default().to_owned(),
            request: when["body"].as_str().unwrap_or_default().to_owned(),
            status: then["status"].as_i64().unwrap_or_default(),
            content_type: content_type.map(str::to_owned),
            body: then["body"].as_str().unwrap_or_default().to_owned(),
        }
    };
    documents.iter().filter(|document| !document.is_badvalue() && !document.is_null()).enumerate().map(recording).collect()
}

/// The recordings of successful answers.
fn answers() -> Vec<Recording> {
    recordings().into_iter().filter(|recording| recording.format().is_some() && recording.status == 200).collect()
}

/// Says how many recordings there are of each kind.
fn count(recordings: &[Recording]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for recording in recordings {
        let what = match (recording.format(), recording.status) {
            (None, _) => format!("skipped, since `{}` is not a protocol of this project", recording.path),
            (Some(_), 200) if recording.is_stream() => "streamed answers".to_owned(),
            (Some(_), 200) => "answers in one piece".to_owned(),
            (Some(_), status) => format!("errors with status {status}"),
        };
        *counts.entry(format!("{}: {what}", recording.provider)).or_default() += 1;
    }
    for (what, count) in counts {
        say(&format!("{what}: {count}"));
    }
}

#[test]
fn every_recorded_answer_parses_and_says_something() {
    count(&recordings());
    for recording in answers() {
        let format = recording.format().expect("checked");
        let (turn, events) = recording
            .decode(format, [recording.body.as_bytes()])
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", recording.label(), recording.body));
        assert_ne!(turn.finish_reason, FinishReason::Missing, "{}", recording.label());
        assert!(turn.usage.input_tokens > 0, "{}", recording.label());
        let streamed: String = events
            .iter()
            .filter_map(|event| if let ModelEvent::TextDelta { text } = event { Some(text.as_str()) } else { None })
            .collect();
        assert_eq!(streamed, turn.text(), "{}", recording.label());
        let started = events.iter().filter(|event| matches!(event, ModelEvent::ToolCallStarted { .. })).count();
        assert_eq!(started, calls(&turn).count(), "{}", recording.label());
        for call in calls(&turn) {
            let cut = turn.finish_reason == FinishReason::Length;
            assert!(!call.name.is_empty() && call.provider_id.is_some(), "{}: {call:?}", recording.label());
            assert!(cut || call.parse_arguments().is_ok(), "{}: {call:?}", recording.label());
        }
    }
}

#[test]
fn every_recorded_error_is_an_error_of_its_class() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for recording in recordings().into_iter().filter(|recording| recording.format().is_some() && recording.status != 200) {
        // The same body inside an answer: an error too, and never an empty turn.
        let format = recording.format().expect("checked");
        let error = recording.decode(format, [recording.body.as_bytes()]).expect_err("an error");
        *counts.entry(format!("{}: status {}: {}", recording.provider, recording.status, error.class.as_str())).or_default() += 1;
        assert!(error.message.len() > 40, "{}: {error}", recording.label());
    }
    for (what, count) in counts {
        say(&format!("{what}: {count}"));
    }
}

#[test]
fn cutting_a_recorded_answer_anywhere_changes_nothing() {
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for recording in answers() {
        let format = recording.format().expect("checked");
        let bytes = recording.body.as_bytes();
        let whole = recording.decode(format, [bytes]).expect("a turn");
        let [bodies, event_cuts, turn_cuts] = counts.entry(recording.provider.clone()).or_default();
        *bodies += 1;
        // Every place at once.
        assert_eq!(recording.decode(format, bytes.chunks(1)).expect("a turn"), whole, "{}", recording.label());
        // Every place in turn, as far as the events; what follows sees nothing but events. A body in one piece has none.
        if recording.is_stream() {
            let events = events([bytes]);
            for cut in 0..=bytes.len() {
                assert_eq!(self::events([&bytes[..cut], &bytes[cut..]]), events, "{} cut at {cut}", recording.label());
                *event_cuts += 1;
            }
        }
        // The beginning, where the kind of body is decided, and places spread over the rest, as far as the turn.
        let step = bytes.len().div_ceil(CUTS).max(1);
        for cut in (0..16.min(bytes.len())).chain((16..=bytes.len()).step_by(step)) {
            let pieces = recording.decode(format, [&bytes[..cut], &bytes[cut..]]).expect("a turn");
            assert_eq!(pieces, whole, "{} cut at {cut}", recording.label());
            *turn_cuts += 1;
        }
    }
    for (provider, [bodies, event_cuts, turn_cuts]) in counts {
        say(&format!(
            "{provider}: {bodies} bodies; {event_cuts} cuts, one at every byte of every stream; {turn_cuts} of whole turns"
        ));
    }
}

fn events<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::new(1 << 20);
    for chunk in chunks {
        decoder.push(chunk).expect("within the limit");
    }
    let last = decoder.finish();
    std::iter::from_fn(|| decoder.next_event()).chain(last).collect()
}

#[test]
fn a_recorded_answer_says_the_same_when_it_is_streamed() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for recording in answers().into_iter().filter(|recording| !recording.is_stream()) {
        let body: Value = serde_json::from_str(&recording.body).expect("JSON");
        let (format, stream) = match recording.format().expect("checked") {
            WireFormat::OpenAiChat => (OPENAI, render::openai_stream_of(&body)),
            WireFormat::AnthropicMessages => (ANTHROPIC, render::anthropic_stream_of(&body)),
        };
        let (whole, _) = recording.decode(format, [recording.body.as_bytes()]).expect("a turn");
        let (streamed, _) = decode_chunks(format, Some("text/event-stream"), [stream.as_bytes()]).expect("a turn");
        assert_eq!(comparable(&streamed), comparable(&whole), "{}", recording.label());
        *counts.entry(recording.provider).or_default() += 1;
    }
    for (provider, count) in counts {
        say(&format!("{provider}: {count} answers agree with themselves as a stream"));
    }
}

#[test]
fn pairs_of_recorded_answers_agree_in_kind() {
    let all = answers();
    let index: BTreeMap<(&str, &str, usize), &Recording> =
        all.iter().map(|it| ((it.provider.as_str(), it.name.as_str(), it.number), it)).collect();
    let (mut pairs, mut same_text) = (BTreeMap::<&str, usize>::new(), 0);
    for recording in all.iter().filter(|recording| !recording.is_stream()) {
        let twins = [("nonstreaming", "streaming"), ("blocking", "streaming"), ("blocking", "streamed")];
        let twin = twins.iter().filter(|(from, _)| recording.name.contains(from)).find_map(|(from, to)| {
            index.get(&(recording.provider.as_str(), recording.name.replace(from, to).as_str(), recording.number)).copied()
        });
        let Some(twin) = twin.filter(|twin| twin.is_stream()) else { continue };
        let format = recording.format().expect("checked");
        let (whole, _) = recording.decode(format, [recording.body.as_bytes()]).expect("a turn");
        let (streamed, _) = twin.decode(format, [twin.body.as_bytes()]).expect("a turn");
        *pairs.entry(&recording.provider).or_default() += 1;
        same_text += usize::from(whole.text() == streamed.text());
        // The model was asked twice, so its words may differ.
        assert_eq!(kind(&whole), kind(&streamed), "{}", recording.label());
    }
    let count: usize = pairs.values().sum();
    for (provider, count) in pairs {
        say(&format!("{provider}: {count} pairs agree in finish reason and tools"));
    }
    if count > 0 {
        say(&format!("{same_text} of {count} pairs have the same text, too"));
    }
}

#[test]
fn the_strict_servers_accept_what_the_real_ones_accepted() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for recording in answers() {
        let request: Value = serde_json::from_str(&recording.request).expect("JSON");
        let verdict = match recording.format().expect("checked") {
            WireFormat::OpenAiChat => validate::openai(&request),
            WireFormat::AnthropicMessages => validate::anthropic(&request),
        };
        let what = match verdict {
            Ok(()) => "requests accepted",
            // DeepSeek takes blank texts, which OpenAI refuses; the fake server speaks for both.
            Err(refusal) if recording.provider == "deepseek" && refusal.contains("must be non-empty") => {
                "requests with blank texts, refused here only"
            }
            Err(refusal) => panic!("{}: {refusal}", recording.label()),
        };
        *counts.entry(format!("{}: {what}", recording.provider)).or_default() += 1;
    }
    for (what, count) in counts {
        say(&format!("{what}: {count}"));
    }
}

/// What two answers to one question have in common: the finish reason, and the tools called.
fn kind(turn: &ModelTurn) -> (FinishReason, Vec<String>) {
    (turn.finish_reason.clone(), calls(turn).map(|call| call.name.clone()).collect())
}

/// A turn, without the spelling of its arguments, which a stream is free to choose.
fn comparable(turn: &ModelTurn) -> ModelTurn {
    let mut turn = turn.clone();
    for part in &mut turn.parts {
        if let Part::ToolCall(call) = part
            && let Ok(arguments) = call.parse_arguments()
        {
            call.arguments = Value::Object(arguments).to_string();
        }
    }
    turn
}

fn calls(turn: &ModelTurn) -> impl Iterator<Item = &ToolCall> {
    turn.parts.iter().filter_map(|part| if let Part::ToolCall(call) = part { Some(call) } else { None })
}

fn say(line: &str) {
    tell(&format!("cassettes: {line}"));
}
