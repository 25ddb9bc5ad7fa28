//! What a server sees.

use super::*;

#[tokio::test]
async fn a_request_is_in_origin_form_with_the_canonical_host() {
    let mut server = Server::ok().await;
    let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
    let mut get = request("GET", &format!("http://API.Example.:{}/a/../b/%7Ec?q=%20&r=http://x/", server.port));
    get.headers_mut().insert("x-guest", http::HeaderValue::from_bytes("北京".as_bytes()).expect("obs-text"));
    let answer = world.fetch(get, None).await.expect("granted");
    assert_eq!((answer.status, answer.body.as_str(), &answer.headers["x-from"]), (200, "ok", &"server".parse().expect("text")));
    let seen = server.next_request().await;
    assert_eq!(
        seen,
        format!("GET /b/~c?q=%20&r=http://x/ HTTP/1.1\r\nhost: api.example:{}\r\nx-guest: 北京\r\n\r\n", server.port)
    );
    let counts = world.meter.counts();
    assert_eq!((counts.http_requests, counts.http_bytes), (1, 2));
    assert_eq!(counts.dialled, [("api.example".into(), loopback(server.port))]);
}

#[tokio::test]
async fn a_body_that_ends_soon_is_sent_with_its_length() {
    for (body, said) in [
        (text_body("天气"), None),
        (pieces(["天", "", "气"]), None),
        (pieces(["天气"]), Some("6")),
        (text_body("天气"), Some("6")),
    ] {
        let mut server = Server::ok().await;
        let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
        let mut post = http::Request::post(format!("http://api.example:{}/", server.port));
        if let Some(said) = said {
            post = post.header("content-length", said);
        }
        world.fetch(post.body(body).expect("a request"), None).await.expect("granted");
        let seen = server.next_request().await;
        assert!(seen.ends_with("\r\n\r\n天气"), "{seen}");
        assert_eq!(seen.matches("content-length: 6\r\n").count(), 1, "{seen}");
        assert!(!seen.contains("transfer-encoding"), "{seen}");
        assert_eq!(world.meter.counts().http_bytes, 8);
    }
}

#[tokio::test]
async fn an_empty_body_adds_nothing_to_a_get() {
    let mut server = Server::ok().await;
    let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
    let get = http::Request::get(format!("http://api.example:{}/", server.port)).body(pieces(["", ""])).expect("a request");
    world.fetch(get, None).await.expect("granted");
    let seen = server.next_request().await;
    assert!(!seen.contains("transfer-encoding") && !seen.contains("content-length"), "{seen}");
}

#[tokio::test]
async fn a_long_body_is_streamed() {
    let mut server = Server::ok().await;
    let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
    let body = pieces((0..50).map(|index| vec![b'a' + index % 26; 10_000]));
    let post = http::Request::post(format!("http://api.example:{}/", server.port)).body(body).expect("a request");
    world.fetch(post, None).await.expect("granted");
    let seen = server.next_request().await;
    assert!(seen.contains("transfer-encoding: chunked"), "{}", &seen[..200]);
    assert_eq!(
        seen.split("\r\n")
            .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
            .map(str::len)
            .filter(|len| *len > 100)
            .sum::<usize>(),
        500_000
    );
    assert_eq!(world.meter.counts().http_bytes, 500_002);
}

#[tokio::test]
async fn headers_that_are_not_the_guests_are_refused_and_nothing_is_sent() {
    let server = Server::ok().await;
    for (name, value) in [
        ("host", "evil.example"),
        ("connection", "keep-alive, x-secret"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("proxy-authorization", "Basic eA=="),
        ("proxy-connection", "close"),
        ("proxy-anything", "1"),
        ("proxy", "http://evil.example"),
        ("expect", "100-continue"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA"),
        ("content-length", "+2"),
        ("content-length", "2, 2"),
        ("content-length", "-1"),
        ("content-length", ""),
        ("content-length", "99999999999999999999"),
    ] {
        let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
        let post = http::Request::post(format!("http://api.example:{}/", server.port)).header(name, value);
        let error = world.fetch(post.body(text_body("ok")).expect("a request"), None).await.expect_err(name);
        assert!(matches!(error, Error::HttpRequestDenied), "{name}: {error:?}");
        assert_eq!(world.denial().code.as_str(), "http.denied");
        assert_eq!(world.names.lookups(), [""; 0], "{name}");
    }
    assert_eq!(server.accepts().await, 0);
}

#[tokio::test]
async fn a_second_or_a_false_content_length_is_refused_and_nothing_is_sent() {
    let server = Server::ok().await;
    let url = format!("http://api.example:{}/", server.port);
    let post = || http::Request::post(&url);
    for request in [
        post().header("content-length", "2").header("content-length", "2").body(text_body("ok")),
        post().header("content-length", "2").header("content-length", "3").body(text_body("ok")),
        post().header("content-length", "3").body(text_body("ok")),
        post().header("content-length", "1").body(text_body("ok")),
        post().header("content-length", "0").body(pieces(["ok"])),
        post().header("content-length", "5").body(text_body("")),
    ] {
        let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
        let error = world.fetch(request.expect("a request"), None).await.expect_err("refused");
        assert!(matches!(error, Error::HttpRequestDenied | Error::HttpRequestBodySize(_)), "{error:?}");
        assert_eq!(world.denial().code.as_str(), "http.denied");
    }
    assert_eq!(server.accepts().await, 0);
}

#[tokio::test]
async fn line_breaks_cannot_be_in_a_head() {
    for bytes in [&b"a\r\nx: y"[..], b"a\nb", b"a\rb", b"a\0b", b"\x7f"] {
        assert!(http::HeaderValue::from_bytes(bytes).is_err(), "{bytes:?}");
        assert!(http::HeaderName::from_bytes(bytes).is_err(), "{bytes:?}");
        assert!(http::uri::PathAndQuery::try_from([b"/", bytes].concat().as_slice()).is_err(), "{bytes:?}");
        assert!(http::Method::from_bytes(bytes).is_err(), "{bytes:?}");
    }
}

#[tokio::test]
async fn trailers_of_a_request_are_refused() {
    let server = Server::ok().await;
    let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
    let frames = vec![Ok(http_body::Frame::data(Bytes::from("ok"))), Ok(http_body::Frame::trailers(http::HeaderMap::new()))];
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let post = http::Request::post(format!("http://api.example:{}/", server.port)).body(body).expect("a request");
    assert!(matches!(world.fetch(post, None).await, Err(Error::HttpRequestTrailerSectionSize(_))));
    assert_eq!(server.accepts().await, 0);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let server = Server::ok().await;
    let url = format!("http://api.example:{}/", server.port);
    let many = (0..101).fold(http::Request::get(&url), |request, index| request.header(format!("x-{index}"), "1"));
    let large = http::Request::get(&url).header("x-large", "x".repeat(65 * 1024));
    for request in [many, large] {
        let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
        let error = world.fetch(request.body(text_body("")).expect("a request"), None).await.expect_err("too large");
        assert!(matches!(error, Error::HttpRequestHeaderSectionSize(Some(_))), "{error:?}");
    }
    let long = format!("{url}{}", "x/".repeat(10_000));
    let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
    world.get(&long).await.expect_err("too long");
    assert_eq!(server.accepts().await, 0);
}

#[tokio::test]
async fn the_hooks_go_the_same_way() {
    use wasmtime_wasi_http::WasiHttpHooks as _;
    let server = Server::ok().await;
    let mut world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
    assert!(!world.egress.set_host_header());
    assert!(world.egress.is_forbidden_header(&http::header::HOST));
    assert!(!world.egress.is_forbidden_header(&http::header::AUTHORIZATION));
    let mut send = |url: &str| Box::into_pin(world.egress.send_request(request("GET", url), None, Box::new(async { Ok(()) })));
    assert!(matches!(send("http://evil.example/").await, Err(Error::HttpRequestDenied)));
    let (response, worker) = send(&format!("http://api.example:{}/", server.port)).await.expect("granted");
    let worker = tokio::spawn(Box::into_pin(worker));
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "ok");
    worker.abort();
}

/// Run by itself, and by [`proxy_variables_are_ignored`] with such variables set.
#[tokio::test]
async fn sends_straight_to_the_server() {
    let server = Server::ok().await;
    let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
    world.get(&format!("http://api.example:{}/", server.port)).await.expect("granted");
    assert_eq!(server.accepts().await, 1);
}

#[tokio::test]
async fn proxy_variables_are_ignored() {
    let proxy = Server::ok().await;
    let url = format!("http://127.0.0.1:{}", proxy.port);
    let test = "sandbox::capability::http::tests::wire::sends_straight_to_the_server";
    let mut child = tokio::process::Command::new(std::env::current_exe().expect("this test"));
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        child.env(name, &url);
    }
    let output = child.args(["--exact", test]).output().await.expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(proxy.accepts().await, 0);
}
