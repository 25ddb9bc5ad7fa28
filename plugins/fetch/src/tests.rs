use super::*;

fn fetch(url: &str, max_chars: Option<usize>, context: &Context) -> Result<Page> {
    FetchPage { url: url.to_owned(), max_chars }.call(context)
}

fn answer(kind: &'static str, body: &'static str) -> Context {
    Context::test().with_http(move |_| Ok(Response::new(200).with_header("content-type", kind).with_body(body)))
}

#[test]
fn a_page_becomes_text_and_other_text_stays() {
    let page = fetch("https://a.example", None, &answer("text/html; charset=utf-8", "<title>首页</title><p>你好 <b>世界</b>"))
        .expect("fetches");
    assert_eq!((page.title.as_deref(), page.text.as_str()), (Some("首页"), "你好 世界"));
    assert_eq!(page.url, "https://a.example/");
    let page = fetch("https://a.example/x", None, &answer("application/json", r#"{"a":"<b>"}"#)).expect("fetches");
    assert_eq!((page.title, page.text.as_str()), (None, r#"{"a":"<b>"}"#));
}

#[test]
fn returns_no_more_than_is_asked_for() {
    let context = Context::test()
        .with_http(|_| Ok(Response::new(200).with_header("content-type", "text/plain").with_body("字".repeat(101))));
    let page = fetch("https://a.example/", Some(100), &context).expect("fetches");
    assert_eq!((page.text.chars().count(), page.truncated), (100, true));
    let page = fetch("https://a.example/", Some(101), &context).expect("fetches");
    assert_eq!((page.text.chars().count(), page.truncated), (101, false));
}

#[test]
fn follows_redirects_one_request_at_a_time() {
    let context = Context::test().with_http(|request| {
        Ok(match request.url.as_str() {
            "http://a.example/" => Response::new(301).with_header("Location", "https://a.example/deep/"),
            "https://a.example/deep/" => Response::new(302).with_header("Location", "../page?x=1#part"),
            "https://a.example/page?x=1" => Response::new(200).with_header("content-type", "text/plain").with_body("there"),
            other => panic!("{other}"),
        })
    });
    let page = fetch("http://a.example#top", None, &context).expect("arrives");
    assert_eq!((page.url.as_str(), page.text.as_str()), ("https://a.example/page?x=1", "there"));
}

#[test]
fn a_redirect_can_go_only_where_a_request_can() {
    for (location, expected) in [
        ("file:///etc/passwd", ErrorKind::InvalidArguments),
        ("https://user:secret@a.example/", ErrorKind::InvalidArguments),
        ("https://[", ErrorKind::Failed),
        ("/again", ErrorKind::Failed),
        ("http://169.254.169.254/", ErrorKind::Denied),
    ] {
        let context = Context::test().with_http(move |request| {
            if request.url.contains("169.254") {
                return Err(honeycomb_sdk::http::HttpError::ProhibitedAddress { url: request.url.clone() });
            }
            Ok(Response::new(302).with_header("location", location))
        });
        assert_eq!(fetch("https://a.example/", None, &context).expect_err(location).kind(), expected, "{location}");
    }
    let context = Context::test().with_http(|_| Ok(Response::new(302)));
    assert_eq!(fetch("https://a.example/", None, &context).expect_err("goes nowhere").kind(), ErrorKind::Failed);
}

#[test]
fn says_why_there_is_no_page() {
    for url in ["", "a.example", "ftp://a.example/", "javascript:alert(1)", "https://user@a.example/"] {
        assert_eq!(fetch(url, None, &answer("text/plain", "")).expect_err(url).kind(), ErrorKind::InvalidArguments, "{url}");
    }
    for (kind, body) in [("image/png", "x"), ("application/pdf", "%PDF"), ("text/plain", "a\0b")] {
        assert_eq!(fetch("https://a.example/", None, &answer(kind, body)).expect_err(kind).kind(), ErrorKind::Failed, "{kind}");
    }
    let missing = Context::test().with_http(|_| Ok(Response::new(404).with_body("gone")));
    assert_eq!(fetch("https://a.example/", None, &missing).expect_err("is missing").kind(), ErrorKind::NotFound);
    assert_eq!(fetch("https://a.example/", None, &Context::test()).expect_err("is not granted").kind(), ErrorKind::Denied);
}
