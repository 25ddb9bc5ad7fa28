//! Embeddings: texts as vectors that are near each other when the texts mean alike. OpenAI's protocol, which most servers speak.

use std::time::Duration;

use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::http::{client, secret_header};
use super::settings::{ApiKey, EMBEDDINGS, SettingsError, Timeouts, is_loopback};
use crate::text;
use crate::tool::BoxFuture;

/// The largest answer that is read, in bytes.
const MAX_BODY: usize = 16 << 20;
/// The most numbers of one vector.
const MAX_DIMENSIONS: usize = 8192;
/// How long an answer may take: somebody waits for a recall, and it works without.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Turns texts into vectors.
pub trait Embedder: Send + Sync {
    /// Names the model. Vectors of different models are never compared.
    fn model(&self) -> &str;

    /// The vectors of some texts, in their order and all of one length.
    ///
    /// # Errors
    ///
    /// Says why there are none.
    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbeddingError>>;
}

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddingError {
    /// The server cannot be reached, or is too slow.
    #[error("`{origin}` does not answer: {reason}")]
    Unreachable {
        /// The server.
        origin: String,
        /// The cause.
        reason: String,
    },
    /// The server refuses the request.
    #[error("`{origin}` answers with status {status}: {message}")]
    Refused {
        /// The server.
        origin: String,
        /// HTTP's status.
        status: u16,
        /// The server's words, cleaned.
        message: String,
    },
    /// The answer is not what the protocol says.
    #[error("`{origin}` answers with {what}")]
    Malformed {
        /// The server.
        origin: String,
        /// What is wrong.
        what: String,
    },
}

/// Asks an OpenAI-compatible server.
pub struct HttpEmbedder {
    client: Client,
    endpoint: Url,
    headers: HeaderMap,
    key: Option<String>,
    model: String,
}

impl HttpEmbedder {
    /// An embedder at a base URL, as `OPENAI_BASE_URL` has it; none is OpenAI itself. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Says which setting is wrong and how to put it right.
    pub fn new(base_url: Option<&str>, api_key: Option<&ApiKey>, model: impl Into<String>) -> Result<Self, SettingsError> {
        let base = base_url.map(str::trim).filter(|url| !url.is_empty()).unwrap_or(EMBEDDINGS.base_url);
        let endpoint = EMBEDDINGS.endpoint(base)?;
        let is_loopback = is_loopback(&endpoint);
        let key = api_key.map(|key| key.expose().to_owned()).filter(|key| !key.is_empty());
        let mut headers = HeaderMap::new();
        match &key {
            Some(key) => {
                headers.insert(AUTHORIZATION, secret_header(&format!("Bearer {key}")).ok_or(SettingsError::InvalidKey)?);
            }
            None if is_loopback => {}
            None => {
                let host = endpoint.host_str().unwrap_or_default().to_owned();
                return Err(SettingsError::MissingKey { host, variable: EMBEDDINGS.variable });
            }
        }
        let model = model.into();
        if model.trim().is_empty() {
            return Err(SettingsError::MissingModel);
        }
        let client = client(&Timeouts::default(), &endpoint, is_loopback).map_err(SettingsError::Client)?;
        Ok(Self { client, endpoint, headers, key, model })
    }

    async fn ask(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        let body = json!({"model": self.model, "input": texts, "encoding_format": "float"}).to_string();
        let request = self
            .client
            .post(self.endpoint.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let mut response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(self.malformed(format!("more than {MAX_BODY} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        if !response.status().is_success() {
            let mut message = String::from_utf8_lossy(&body).into_owned();
            // Some servers quote the key they refuse.
            if let Some(key) = &self.key {
                message = message.replace(key, "[redacted]");
            }
            let message = text::clean_line(&message, 300);
            return Err(EmbeddingError::Refused { origin: self.origin(), status: response.status().as_u16(), message });
        }
        read(&body, texts.len()).map_err(|what| self.malformed(what))
    }

    fn origin(&self) -> String {
        self.endpoint.origin().ascii_serialization()
    }

    fn malformed(&self, what: String) -> EmbeddingError {
        EmbeddingError::Malformed { origin: self.origin(), what }
    }

    fn unreachable(&self, error: &reqwest::Error) -> EmbeddingError {
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        EmbeddingError::Unreachable { origin: self.origin(), reason: text::clean_line(&cause.to_string(), 200) }
    }
}

impl Embedder for HttpEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbeddingError>> {
        Box::pin(async move {
            tokio::time::timeout(TIMEOUT, self.ask(texts)).await.unwrap_or_else(|_| {
                let reason = format!("nothing within {} s", TIMEOUT.as_secs());
                Err(EmbeddingError::Unreachable { origin: self.origin(), reason })
            })
        })
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

/// Reads an answer to `count` texts. The error says what is wrong with it.
fn read(body: &[u8], count: usize) -> Result<Vec<Vec<f32>>, String> {
    let answer: Answer = serde_json::from_slice(body).map_err(|error| format!("no list of embeddings: {error}"))?;
    let mut vectors = vec![Vec::new(); count];
    for Item { index, embedding } in answer.data {
        if embedding.is_empty() || embedding.len() > MAX_DIMENSIONS {
            return Err(format!("an embedding of {} numbers, and 1 to {MAX_DIMENSIONS} are allowed", embedding.len()));
        }
        match vectors.get_mut(index) {
            Some(vector) if vector.is_empty() => *vector = embedding,
            _ => return Err(format!("index {index}, which is not asked for or there twice")),
        }
    }
    let length = vectors.first().map_or(0, Vec::len);
    if length == 0 || vectors.iter().any(|vector| vector.len() != length) {
        return Err("embeddings that are missing, or differ in length".to_owned());
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_one_vector_for_each_text() {
        let good = br#"{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2.5]}]}"#;
        assert_eq!(read(good, 2), Ok(vec![vec![1.0, 2.5], vec![3.0, 4.0]]));
        for (body, expected) in [
            ("{}", "no list"),
            ("<html>", "no list"),
            (r#"{"data":[{"index":0,"embedding":"AAAA"}]}"#, "no list"),
            (r#"{"data":[]}"#, "missing"),
            (r#"{"data":[{"index":0,"embedding":[1]}]}"#, "missing"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#, "index 0"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":9,"embedding":[1]}]}"#, "index 9"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}"#, "differ in length"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[]}]}"#, "0 numbers"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1e99]}]}"#, "out of range"),
        ] {
            let error = read(body.as_bytes(), 2).expect_err(body);
            assert!(error.contains(expected), "{body}: {error}");
        }
    }

    #[test]
    fn the_endpoint_is_beside_the_chat_s() {
        for (base, expected) in [
            (None, "https://api.openai.com/v1/embeddings"),
            (Some("http://127.0.0.1:1/v1/"), "http://127.0.0.1:1/v1/embeddings"),
            (Some("http://h/v1/chat/completions"), "http://h/v1/embeddings"),
        ] {
            let embedder = HttpEmbedder::new(base, Some(&ApiKey::new("k")), "m").expect("usable");
            assert_eq!(embedder.endpoint.as_str(), expected);
        }
        let error = HttpEmbedder::new(None, None, "m").map(|_| ()).expect_err("no key").to_string();
        assert!(error.contains("OPENAI_API_KEY"), "{error}");
    }
}
