use super::*;
use tempfile::TempDir;

fn tree() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("b")).expect("creates");
    fs::write(at("a.txt"), "one\nTwo 北京\n").expect("writes");
    fs::write(at("b/c.md"), "two\ntwo\n\nthree 北京").expect("writes");
    fs::write(at("image.png"), b"two\0two").expect("writes");
    directory
}

fn search_for(pattern: &str, change: impl FnOnce(&mut SearchFiles)) -> Result<Vec<String>> {
    let directory = tree();
    let path = directory.path().display().to_string();
    let mut tool =
        SearchFiles { path, pattern: pattern.to_owned(), regex: false, ignore_case: false, name_ends_with: None, limit: None };
    change(&mut tool);
    let findings = tool.call(&Context::test())?;
    let short = |line: &Line| {
        let path = Path::new(&line.path).strip_prefix(directory.path()).expect("is below").display().to_string();
        format!("{path}:{}:{}", line.line, line.text)
    };
    Ok(findings.lines.iter().map(short).collect())
}

#[test]
fn finds_text_in_files_at_any_depth() {
    assert_eq!(search_for("北京", |_| {}).expect("searches"), ["a.txt:2:Two 北京", "b/c.md:4:three 北京"]);
    assert_eq!(search_for("two", |_| {}).expect("searches"), ["b/c.md:1:two", "b/c.md:2:two"]);
    assert_eq!(search_for("t", |_| {}).expect("searches"), ["b/c.md:1:two", "b/c.md:2:two", "b/c.md:4:three 北京"]);
    assert_eq!(search_for("two", |tool| tool.ignore_case = true).expect("searches").len(), 3);
    assert_eq!(search_for("t.o", |_| {}).expect("is literal"), Vec::<String>::new());
    assert_eq!(search_for("^t.o$", |tool| tool.regex = true).expect("searches"), ["b/c.md:1:two", "b/c.md:2:two"]);
    assert_eq!(search_for("th.+e", |tool| tool.regex = true).expect("searches").len(), 1);
    assert_eq!(search_for("北京", |tool| tool.name_ends_with = Some(".md".to_owned())).expect("searches").len(), 1);
}

#[test]
fn stops_at_the_limit_and_says_so() {
    let directory = tree();
    let path = directory.path().display().to_string();
    let tool =
        SearchFiles { path, pattern: "two".to_owned(), regex: false, ignore_case: true, name_ends_with: None, limit: Some(2) };
    let findings = tool.call(&Context::test()).expect("searches");
    assert_eq!((findings.lines.len(), findings.truncated), (2, true));
    let directory = tree();
    let path = directory.path().join("b/c.md").display().to_string();
    let tool =
        SearchFiles { path, pattern: "two".to_owned(), regex: false, ignore_case: false, name_ends_with: None, limit: Some(1) };
    let findings = tool.call(&Context::test()).expect("searches");
    assert_eq!((findings.lines.len(), findings.truncated), (1, true));
}

#[test]
fn says_why_it_cannot_search() {
    for (pattern, regex, expected) in [("", false, ErrorKind::InvalidArguments), ("(", true, ErrorKind::InvalidArguments)] {
        assert_eq!(search_for(pattern, |tool| tool.regex = regex).expect_err(pattern).kind(), expected);
    }
    let error = search_for("x", |tool| tool.path.push_str("/none")).expect_err("is not there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[cfg(unix)]
#[test]
fn does_not_follow_links_round_in_circles() {
    let directory = tree();
    std::os::unix::fs::symlink(directory.path(), directory.path().join("b/loop")).expect("links");
    let path = directory.path().display().to_string();
    let tool =
        SearchFiles { path, pattern: "one".to_owned(), regex: false, ignore_case: false, name_ends_with: None, limit: None };
    assert_eq!(tool.call(&Context::test()).expect("ends").lines.len(), 1);
}
