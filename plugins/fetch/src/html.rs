//! HTML to text.
//!
//! No tree is built: one pass over the tags is enough for text, and no page, however broken, makes it fail or take more than a few
//! steps for each byte.

use url::Url;

use crate::entities::decode;
use crate::tags::{Tag, Token, tokens};

/// A page as text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Document {
    pub(crate) title: Option<String>,
    pub(crate) text: String,
}

/// Turns a page into text. `base` is its address, for links.
pub(crate) fn to_text(html: &str, base: &Url) -> Document {
    let mut writer = Writer::new(base);
    for token in tokens(html) {
        match token {
            Token::Text(text) => writer.text(&decode(text)),
            Token::Tag(tag) if tag.closes => writer.close(&tag),
            Token::Tag(tag) => writer.open(&tag),
        }
    }
    writer.finish()
}

struct Writer {
    base: Url,
    title: Option<String>,
    text: String,
    /// Where the text of the open link begins, and where it leads.
    link: Option<(usize, String)>,
    in_title: bool,
    in_pre: bool,
    /// For each open list, the number of its next item; zero for a list without numbers.
    lists: Vec<usize>,
    /// Newlines to write before the next text.
    newlines: usize,
    space: bool,
}

impl Writer {
    fn new(base: &Url) -> Self {
        Self {
            base: base.clone(),
            title: None,
            text: String::new(),
            link: None,
            in_title: false,
            in_pre: false,
            lists: Vec::new(),
            newlines: 0,
            space: false,
        }
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if self.title.is_none() && !words.is_empty() {
                self.title = Some(words);
            }
            return;
        }
        if self.in_pre {
            self.break_line();
            self.text.push_str(text);
            return;
        }
        self.space |= text.starts_with(char::is_whitespace);
        for word in text.split_whitespace() {
            self.word(word);
            self.space = true;
        }
        self.space = text.ends_with(char::is_whitespace);
    }

    fn word(&mut self, word: &str) {
        if self.newlines > 0 {
            self.break_line();
        } else if self.space && !self.text.is_empty() && !self.text.ends_with([' ', '\n']) {
            self.text.push(' ');
        }
        self.text.push_str(word);
    }

    fn break_line(&mut self) {
        if !self.text.is_empty() {
            self.text.truncate(self.text.trim_end_matches(' ').len());
            let there = self.text.len() - self.text.trim_end_matches('\n').len();
            self.text.extend(std::iter::repeat_n('\n', self.newlines.saturating_sub(there)));
        }
        self.newlines = 0;
        self.space = false;
    }

    fn want_newlines(&mut self, count: usize) {
        self.newlines = self.newlines.max(count);
    }

    fn open(&mut self, tag: &Tag<'_>) {
        match tag.name.as_str() {
            "title" => self.in_title = true,
            "br" => self.want_newlines(1),
            "hr" => self.rule(),
            "pre" => {
                self.want_newlines(2);
                self.in_pre = true;
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.want_newlines(2);
                let level = usize::from(tag.name.as_bytes()[1] - b'0');
                self.mark(&"#".repeat(level));
            }
            "ul" => self.open_list(0),
            "ol" => self.open_list(1),
            "li" => self.open_item(),
            "td" | "th" => {
                if self.newlines == 0 && !self.text.is_empty() {
                    self.space = true;
                    self.word("|");
                    self.space = true;
                }
            }
            "a" => {
                self.end_link();
                let target = tag.attribute("href").and_then(|target| self.base.join(decode(target).trim()).ok());
                if let Some(target) = target.filter(|target| matches!(target.scheme(), "http" | "https")) {
                    self.link = Some((self.text.len(), target.into()));
                }
            }
            "img" => {
                let alt = tag.attribute("alt").map(|alt| decode(alt).trim().to_owned());
                if let Some(alt) = alt.filter(|alt| !alt.is_empty()) {
                    self.word(&format!("[image: {alt}]"));
                }
            }
            "base" => {
                if let Some(base) = tag.attribute("href").and_then(|target| self.base.join(target).ok()) {
                    self.base = base;
                }
            }
            name => self.want_newlines(lines_around(name)),
        }
    }

    fn close(&mut self, tag: &Tag<'_>) {
        match tag.name.as_str() {
            "title" => self.in_title = false,
            "pre" => {
                self.in_pre = false;
                self.want_newlines(2);
            }
            "a" => self.end_link(),
            "ul" | "ol" => {
                self.lists.pop();
                self.want_newlines(if self.lists.is_empty() { 2 } else { 1 });
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.want_newlines(2),
            "li" => self.want_newlines(1),
            name => self.want_newlines(lines_around(name)),
        }
    }

    fn rule(&mut self) {
        self.want_newlines(2);
        self.word("---");
        self.want_newlines(2);
    }

    fn mark(&mut self, mark: &str) {
        self.word(mark);
        self.space = true;
    }

    fn open_list(&mut self, first: usize) {
        self.want_newlines(if self.lists.is_empty() { 2 } else { 1 });
        // A page that nests deeper than anyone reads gets no deeper indentation.
        if self.lists.len() < 100 {
            self.lists.push(first);
        }
    }

    fn open_item(&mut self) {
        self.want_newlines(1);
        self.break_line();
        let depth = self.lists.len().saturating_sub(1).min(10);
        let mark = match self.lists.last_mut() {
            Some(number) if *number > 0 => {
                *number += 1;
                format!("{}.", *number - 1)
            }
            _ => "-".to_owned(),
        };
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(&mark);
        self.space = true;
    }

    /// Writes where the link leads, after its text.
    fn end_link(&mut self) {
        let Some((start, target)) = self.link.take() else { return };
        let text = self.text.get(start..).unwrap_or_default().trim();
        if !text.is_empty() && text != target {
            self.text.push_str(&format!(" <{target}>"));
        }
    }

    fn finish(mut self) -> Document {
        self.end_link();
        Document { title: self.title, text: self.text.trim().to_owned() }
    }
}

/// How many newlines an element has around its text.
fn lines_around(name: &str) -> usize {
    match name {
        "p" | "blockquote" | "table" | "dl" | "figure" | "article" | "section" => 2,
        "div" | "tr" | "header" | "footer" | "main" | "nav" | "aside" | "form" | "fieldset" | "address" | "dt" | "dd"
        | "figcaption" | "caption" | "body" | "option" | "details" | "summary" => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(html: &str, expected: &str) {
        let base = Url::parse("https://a.example/dir/page").expect("is a URL");
        assert_eq!(to_text(html, &base).text, expected, "{html}");
    }

    #[test]
    fn text_is_arranged_as_it_would_be_read() {
        for (html, expected) in [
            ("<p>one\n  two</p><p>three", "one two\n\nthree"),
            ("a<br>b<br/>c", "a\nb\nc"),
            ("<h1>标题</h1>text<h2>Next</h2>", "# 标题\n\ntext\n\n## Next"),
            ("a<b>b</b>c <i>d</i>", "abc d"),
            ("<div>a</div><div>b</div>", "a\nb"),
            ("x<hr>y", "x\n\n---\n\ny"),
            ("<pre>  a\n    b</pre>c", "a\n    b\n\nc"),
            ("<img src=x alt='a cat'> <img src=y>", "[image: a cat]"),
            ("", ""),
        ] {
            check(html, expected);
        }
    }

    #[test]
    fn lists_and_tables_keep_their_shape() {
        check("<ul><li>a<li>b<ol><li>x</li><li>y</ol></ul>z", "- a\n- b\n  1. x\n  2. y\n\nz");
        check("<table><tr><th>城市<th>温度<tr><td>北京</td><td>24</td></tr></table>", "城市 | 温度\n北京 | 24");
        check("<li>no list", "- no list");
    }

    #[test]
    fn links_say_where_they_lead() {
        for (html, expected) in [
            ("<a href='/x?a=1&amp;b=2'>here</a>.", "here <https://a.example/x?a=1&b=2>."),
            ("<a href=other>there</a>", "there <https://a.example/dir/other>"),
            ("<a href=javascript:alert(1)>run</a> <a href=mailto:x@y>mail</a>", "run mail"),
            ("<a href=/x></a><a>none</a>", "none"),
            ("<a href=/x>never closed", "never closed <https://a.example/x>"),
            ("<base href=https://b.example/><a href=x>y</a>", "y <https://b.example/x>"),
        ] {
            check(html, expected);
        }
    }

    #[test]
    fn what_is_not_for_readers_is_left_out() {
        for html in [
            "<style>p { color: red }</style>ok",
            "<script>if (a < b) document.write('<p>no')</script>ok",
            "<SCRIPT SRC=x></SCRIPT >ok",
            "<!-- no <p> -->ok",
            "<!doctype html><?xml version='1.0'?>ok",
            "<noscript>no</noscript><template><p>no</p></template>ok<svg><text>no</text></svg>",
            "ok<script>never closed <p>no",
            "ok<!-- never closed",
        ] {
            check(html, "ok");
        }
    }

    #[test]
    fn the_title_is_apart_from_the_text() {
        let base = Url::parse("https://a.example/").expect("is a URL");
        let document = to_text("<head><title> 天气 &amp;\n more </title></head><p>x<svg><title>icon</title></svg>", &base);
        assert_eq!(document, Document { title: Some("天气 & more".to_owned()), text: "x".to_owned() });
    }
}
