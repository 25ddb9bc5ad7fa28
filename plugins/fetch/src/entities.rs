//! Character references: `&amp;`, `&#20013;`, `&#x4e2d;`.

use std::borrow::Cow;

/// The named ones that are common in text.
const NAMED: [(&str, &str); 26] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("ensp", " "),
    ("emsp", " "),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("hellip", "…"),
    ("mdash", "—"),
    ("ndash", "–"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("middot", "·"),
    ("bull", "•"),
    ("times", "×"),
    ("deg", "°"),
    ("yen", "¥"),
    ("euro", "€"),
];

/// Replaces character references by what they mean; what is not one stays.
pub(crate) fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        decoded.push_str(before);
        // The longest name above is 6 letters and the largest number 8; more is not looked at.
        let end = after.bytes().take(10).position(|b| b == b';');
        match end.and_then(|end| Some((meaning(&after[..end])?, &after[end + 1..]))) {
            Some((meaning, after)) => {
                decoded.push_str(&meaning);
                rest = after;
            }
            None => {
                decoded.push('&');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

fn meaning(name: &str) -> Option<Cow<'static, str>> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => number.parse().ok()?,
        };
        let c = char::from_u32(code).filter(|c| !c.is_control() || c.is_whitespace())?;
        return Some(Cow::Owned(c.to_string()));
    }
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, meaning)| Cow::Borrowed(*meaning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_what_is_a_reference_and_nothing_else() {
        for (text, expected) in [
            ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
            ("&#20013;&#x6587;&#X6587;", "中文文"),
            ("25&deg;C&nbsp;&hellip;", "25°C …"),
            ("AT&T; R&D &unknown; &; &#; &#x; &", "AT&T; R&D &unknown; &; &#; &#x; &"),
            ("&#0;&#27;&#xd800;&#x110000;", "&#0;&#27;&#xd800;&#x110000;"),
            ("&中文中文中文;", "&中文中文中文;"),
            ("&amp;lt;", "&lt;"),
            ("plain 北京", "plain 北京"),
        ] {
            assert_eq!(decode(text), expected);
        }
    }
}
