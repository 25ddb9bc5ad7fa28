//! Web pages as readable text.

mod entities;
mod html;
mod tags;

use honeycomb_sdk::http::Response;
use honeycomb_sdk::prelude::*;
use url::Url;

/// How many redirects are followed. Each is a request of its own, and the policy checks it.
const MAX_REDIRECTS: usize = 5;

/// The most bytes of a page that are read.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// How many characters are returned when nothing is said.
const DEFAULT_CHARS: usize = 20_000;

/// Fetches a web page or a text file over HTTP and returns it as readable text: headings, paragraphs, lists, tables, and links with their
/// addresses; no scripts and styles. Only hosts that the operator allows can be reached.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FetchPage {
    /// The address, beginning with `https://` or `http://`.
    url: String,
    /// The most characters of text to return. The default is 20000.
    #[serde(default)]
    #[schemars(range(min = 100, max = 200000))]
    max_chars: Option<usize>,
}

/// A page.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Page {
    /// The address of the page, after redirects.
    url: String,
    /// The title, if the page has one.
    title: Option<String>,
    /// The text.
    text: String,
    /// Whether there is more text than was asked for.
    truncated: bool,
}

impl Tool for FetchPage {
    const NAME: &'static str = "fetch_page";
    const TITLE: Option<&'static str> = Some("Web page");
    const HINTS: Hints = Hints::LOOKUP;
    type Output = Page;

    fn call(self, context: &Context) -> Result<Page> {
        let max_chars = self.max_chars.unwrap_or(DEFAULT_CHARS).clamp(100, 200_000);
        let url = Url::parse(self.url.trim()).map_err(|error| {
            Error::invalid_arguments(format!("`url` is not an absolute address such as `https://example.com/`: {error}"))
        })?;
        let (url, response) = follow(context, url)?;
        let body = decode(&response)?;
        let document =
            if is_html(&response, &body) { html::to_text(&body, &url) } else { html::Document { title: None, text: body } };
        let mut text = document.text;
        let end = text.char_indices().nth(max_chars).map(|(at, _)| at);
        if let Some(end) = end {
            text.truncate(end);
        }
        Ok(Page { url: url.into(), title: document.title, text, truncated: end.is_some() })
    }
}

/// Requests a page, and the pages that it redirects to.
fn follow(context: &Context, mut url: Url) -> Result<(Url, Response)> {
    for _ in 0..=MAX_REDIRECTS {
        check(&url)?;
        url.set_fragment(None);
        let request = context.http().get(url.as_str()).header("accept", "text/html, text/*;q=0.9, application/json;q=0.8");
        let response = request.header("user-agent", "honeycomb-fetch/0.1").max_bytes(MAX_BYTES).send()?;
        if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
            return Ok((url, response.success()?));
        }
        let location =
            response.header("location").ok_or_else(|| Error::failed("the server redirects without saying where to"))?;
        url = url.join(location).map_err(|error| Error::failed(format!("the server redirects to a wrong address: {error}")))?;
    }
    Err(Error::failed(format!("the server redirects more than {MAX_REDIRECTS} times; the last address is `{url}`")))
}

fn check(url: &Url) -> Result<()> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::invalid_arguments(format!(
            "`{}:` addresses cannot be fetched; use `https:` or `http:`",
            url.scheme()
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::invalid_arguments("an address with a user name or password is not fetched"));
    }
    Ok(())
}

/// The body as text. Pages in another encoding than UTF-8 are rare by now, and the tables for all of them would be most of the plugin.
fn decode(response: &Response) -> Result<String> {
    let kind = media_type(response);
    let is_text = kind.is_empty()
        || kind.starts_with("text/")
        || ["json", "xml", "javascript", "yaml"].iter().any(|word| kind.contains(word));
    if !is_text || response.body.contains(&0) {
        return Err(Error::failed(format!("it is not text but `{kind}`, {} bytes", response.body.len())));
    }
    let text = String::from_utf8_lossy(&response.body);
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

fn media_type(response: &Response) -> String {
    let value = response.header("content-type").unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_html(response: &Response, body: &str) -> bool {
    match media_type(response).as_str() {
        "text/html" | "application/xhtml+xml" => true,
        "" => body.trim_start().starts_with('<'),
        _ => false,
    }
}

honeycomb_sdk::export!(FetchPage);
honeycomb_sdk::requests!("../requests.toml");

#[cfg(test)]
mod tests;
