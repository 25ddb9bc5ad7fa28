//! Splits HTML into text and tags.

/// A piece of HTML.
pub(crate) enum Token<'a> {
    /// Text between tags, entities not yet decoded.
    Text(&'a str),
    /// A tag.
    Tag(Tag<'a>),
}

/// A tag.
pub(crate) struct Tag<'a> {
    /// Lower case.
    pub(crate) name: String,
    /// Whether it is `</…>`.
    pub(crate) closes: bool,
    attributes: &'a str,
}

/// Elements whose content is not for readers. Between their tags only the closing one counts.
const HIDDEN: [&str; 8] = ["script", "style", "noscript", "template", "svg", "math", "iframe", "textarea"];

/// Splits HTML; comments, declarations and elements that are not for readers are left out.
pub(crate) fn tokens(html: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = html;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            if !begins_markup(rest) {
                // A `<` that begins no tag is text.
                let end = rest.char_indices().skip(1).find(|(at, c)| *c == '<' && begins_markup(&rest[*at..]));
                let (text, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
                rest = after;
                return Some(Token::Text(text));
            }
            if let Some(comment) = rest.strip_prefix("<!--") {
                rest = comment.split_once("-->").map_or("", |(_, after)| after);
                continue;
            }
            let end = end_of_tag(rest);
            let (markup, after) = rest.split_at(end);
            rest = after;
            let inside = markup.trim_start_matches('<').trim_end_matches('>');
            if inside.starts_with(['!', '?']) {
                continue;
            }
            let closes = inside.starts_with('/');
            let inside = inside.trim_start_matches('/');
            let (name, attributes) =
                inside.split_at(inside.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(inside.len()));
            let tag = Tag { name: name.to_ascii_lowercase(), closes, attributes };
            if !closes && HIDDEN.contains(&tag.name.as_str()) {
                rest = after_closing(rest, &tag.name);
                continue;
            }
            return Some(Token::Tag(tag));
        }
    })
}

impl<'a> Tag<'a> {
    /// The value of an attribute, entities not yet decoded.
    pub(crate) fn attribute(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.attributes;
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
            if rest.is_empty() {
                return None;
            }
            // From the second character on, so that a stray `=` is passed over.
            let end = rest.char_indices().skip(1).find(|(_, c)| c.is_whitespace() || *c == '=').map_or(rest.len(), |(at, _)| at);
            let (key, after) = rest.split_at(end);
            let (value, after) = match after.trim_start().strip_prefix('=') {
                Some(after) => value(after.trim_start()),
                None => ("", after),
            };
            if key.eq_ignore_ascii_case(name) {
                return Some(value);
            }
            rest = after;
        }
    }
}

/// An attribute's value, quoted or not, and what follows it.
fn value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(quoted) = text.strip_prefix(quote) {
            return quoted.split_once(quote).unwrap_or((quoted, ""));
        }
    }
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

/// Whether text begins with a tag, a comment or a declaration.
fn begins_markup(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next() == Some(b'<')
        && match bytes.next() {
            Some(b'!' | b'?') => true,
            Some(b'/') => bytes.next().is_some_and(|b| b.is_ascii_alphabetic()),
            Some(b) => b.is_ascii_alphabetic(),
            None => false,
        }
}

/// Where the tag that begins the text ends: after the first `>` outside quotes, or else at the end.
fn end_of_tag(text: &str) -> usize {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            // A quote begins a value only after `=`; in `<p title=it's>` it is a part of one.
            (None, b'"' | b'\'') if text[..at].trim_end().ends_with('=') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    text.len()
}

/// What follows the closing tag of an element.
fn after_closing<'a>(text: &'a str, name: &str) -> &'a str {
    for (at, _) in text.match_indices("</") {
        let candidate = &text[at + 2..];
        if candidate.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name)) {
            return &text[at + end_of_tag(&text[at..])..];
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(html: &str) -> Vec<String> {
        tokens(html)
            .map(|token| match token {
                Token::Text(text) => text.to_owned(),
                Token::Tag(tag) => format!("<{}{}>", if tag.closes { "/" } else { "" }, tag.name),
            })
            .collect()
    }

    #[test]
    fn splits_text_and_tags() {
        for (html, expected) in [
            ("a<B class=x>c</B >", vec!["a", "<b>", "c", "</b>"]),
            ("1 < 2 <3 <> & </ x", vec!["1 < 2 <3 <> & </ x"]),
            ("<a title='x>y'>z", vec!["<a>", "z"]),
            ("<p title=it's>z", vec!["<p>", "z"]),
            ("<a title=\"never closed>z", vec!["<a>"]),
            ("<br/>北<", vec!["<br>", "北<"]),
        ] {
            assert_eq!(shown(html), expected, "{html}");
        }
    }

    #[test]
    fn reads_attributes_however_they_are_written() {
        for (html, expected) in [
            ("<a href=/x>", Some("/x")),
            ("<a HREF = \"/x y\" id=1>", Some("/x y")),
            ("<a id='href=no' disabled href='/x'/>", Some("/x")),
            ("<a href>", Some("")),
            ("<a =x href=/y>", Some("/y")),
            ("<a xhref=/x>", None),
            ("<a>", None),
        ] {
            let Some(Token::Tag(tag)) = tokens(html).next() else { panic!("{html}") };
            assert_eq!(tag.attribute("href"), expected, "{html}");
        }
    }
}
