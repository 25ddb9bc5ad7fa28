//! "Did you mean": the known word nearest to an unknown one.

/// The known word that `unknown` is most likely a misspelling of.
pub(super) fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let folded = fold(unknown);
    // Longer words are no misspelling of ours, and the distance is quadratic.
    if folded.chars().count() > 40 {
        return None;
    }
    let (distance, word) = known.iter().map(|word| (distance(&folded, &fold(word)), *word)).min_by_key(|(d, _)| *d)?;
    let allowed = if word.chars().count() <= 4 { 1 } else { 2 };
    if distance <= allowed {
        return Some(word);
    }
    // `path_prefix` for `path`, `max_output_bytes` for `max_output`: the longest known word that starts or ends it.
    known
        .iter()
        .filter(|word| word.len() >= 3)
        .filter(|word| folded.starts_with(**word) || folded.ends_with(**word) || (folded.len() >= 3 && word.starts_with(&folded)))
        .max_by_key(|word| word.len())
        .copied()
}

/// A hint that names the nearest known word, or all of them.
pub(super) fn did_you_mean(unknown: &str, known: &[&str]) -> String {
    match nearest(unknown, known) {
        Some(word) => format!("did you mean `{word}`?"),
        None => {
            let list: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
            format!("known are {}", list.join(", "))
        }
    }
}

fn fold(word: &str) -> String {
    word.to_lowercase().replace(['-', ' '], "_")
}

/// Edit distance in which a swap of two neighbours counts one (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut best = (last[j] + usize::from(a[i] != b[j])).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_nearest_word() {
        let known = ["host", "scheme", "port", "methods", "path", "private", "secret", "max_output"];
        for (unknown, expected) in [
            ("methdos", Some("methods")),
            ("Host", Some("host")),
            ("ports", Some("port")),
            ("path_prefix", Some("path")),
            ("allow_private", Some("private")),
            ("max-output-bytes", Some("max_output")),
            ("xyzzy", None),
            ("", None),
            (&"x".repeat(1_000_000), None),
            ("端口", None),
        ] {
            assert_eq!(nearest(unknown, &known), expected, "{unknown:.20}");
        }
    }
}
