//! What the policy does not allow: no lookup, no packet, and a message that says how it would be allowed.

use super::*;

/// One rule: `GET http://api.example:PORT/v1/…`.
async fn narrow() -> (Server, World) {
    let server = Server::ok().await;
    let mut grant = grant("api.example", server.port);
    grant.methods = vec!["GET".to_owned()];
    grant.path = "/v1/".to_owned();
    let world = World::new(&[grant], Names::loopback(&["api.example", "evil.example"]));
    (server, world)
}

#[tokio::test]
async fn refuses_what_no_rule_allows_without_a_lookup_or_a_packet() {
    let table = [
        // Another host, however it is dressed up.
        ("GET", "http://evil.example:{port}/v1/", "HttpRequestDenied"),
        ("GET", "http://api.example.evil.example:{port}/v1/", "HttpRequestDenied"),
        ("GET", "http://evil.example/api.example:{port}/v1/", "HttpRequestDenied"),
        ("GET", "http://evil.example:{port}/v1/?http://api.example/", "HttpRequestDenied"),
        ("GET", "http://127.0.0.1:{port}/v1/", "HttpRequestDenied"),
        ("GET", "http://user:pw@api.example:{port}/v1/", "HttpRequestUriInvalid"),
        ("GET", "http://api.example@evil.example:{port}/v1/", "HttpRequestUriInvalid"),
        ("GET", "http://api.example:80@evil.example:{port}/v1/", "HttpRequestUriInvalid"),
        ("GET", "http://api..example:{port}/v1/", "HttpRequestUriInvalid"),
        ("GET", "http://api.example..:{port}/v1/", "HttpRequestUriInvalid"),
        ("GET", "http://api_.example:{port}/v1/", "HttpRequestDenied"),
        ("GET", "http://xn--api-.example:{port}/v1/", ""),
        // Another port or scheme.
        ("GET", "http://api.example/v1/", "HttpRequestDenied"),
        ("GET", "http://api.example:1/v1/", "HttpRequestDenied"),
        ("GET", "http://api.example:0/v1/", "HttpRequestUriInvalid"),
        ("GET", "http://api.example:/v1/", "HttpRequestUriInvalid"),
        ("GET", "https://api.example:{port}/v1/", "HttpRequestDenied"),
        ("GET", "ftp://api.example:{port}/v1/", "HttpProtocolError"),
        ("GET", "/v1/", "HttpProtocolError"),
        // Another method, or one that is never allowed.
        ("POST", "http://api.example:{port}/v1/", "HttpRequestDenied"),
        ("get", "http://api.example:{port}/v1/", "HttpRequestDenied"),
        ("BREW", "http://api.example:{port}/v1/", "HttpRequestDenied"),
        ("CONNECT", "http://api.example:{port}/v1/", "HttpRequestDenied"),
        ("TRACE", "http://api.example:{port}/v1/", "HttpRequestDenied"),
        // Another path.
        ("GET", "http://api.example:{port}/", "HttpRequestDenied"),
        ("GET", "http://api.example:{port}/v1", "HttpRequestDenied"),
        ("GET", "http://api.example:{port}/v10/", "HttpRequestDenied"),
        ("GET", "http://api.example:{port}/v1/../v2/", "HttpRequestDenied"),
        ("GET", "http://api.example:{port}/v1/%2e%2e/v2/", "HttpRequestDenied"),
        ("GET", "http://api.example:{port}/v1/..%2fv2/", "HttpRequestUriInvalid"),
        ("GET", "http://api.example:{port}/v1/..;/v2/", "HttpRequestUriInvalid"),
        ("GET", "http://api.example:{port}/v1/%252e%252e/v2/", "HttpRequestUriInvalid"),
        ("GET", "http://api.example:{port}/v1/%", "HttpRequestUriInvalid"),
        ("GET", "http://api.example:{port}//v1/", "HttpRequestUriInvalid"),
    ];
    let (server, _) = narrow().await;
    for (method, url, expected) in table {
        let (_, world) = narrow().await;
        let url = url.replace("{port}", &server.port.to_string());
        let error = world.fetch(request(method, &url), None).await.expect_err(&url);
        if !expected.is_empty() {
            assert_eq!(name_of(&error), expected, "{method} {url}");
        }
        let denial = world.denial();
        assert_eq!(denial.code.as_str(), "http.denied", "{method} {url}");
        assert!(denial.message.starts_with("plugin `weather` may not send `"), "{}", denial.message);
        assert!(!denial.message.contains("user:pw"), "{}", denial.message);
        assert_eq!(world.names.lookups(), [""; 0], "{method} {url}");
        assert!(world.meter.counts().dialled.is_empty(), "{method} {url}");
        assert_eq!(world.meter.counts().http_requests, 0, "{method} {url}");
    }
    assert_eq!(server.accepts().await, 0);
}

#[tokio::test]
async fn tunnels_and_traces_are_refused_even_by_a_rule_that_names_them() {
    let server = Server::ok().await;
    let methods = ["CONNECT", "TRACE", "BREW"].map(str::to_owned).to_vec();
    let grant = NetGrant { methods, ..grant("api.example", server.port) };
    let url = format!("http://api.example:{}/", server.port);
    for method in ["CONNECT", "TRACE"] {
        let world = World::new(std::slice::from_ref(&grant), Names::loopback(&["api.example"]));
        let error = world.fetch(request(method, &url), None).await.expect_err(method);
        assert!(matches!(error, Error::HttpRequestDenied), "{method}: {error:?}");
        assert_eq!(world.denial().code.as_str(), "http.denied");
    }
    assert_eq!(server.accepts().await, 0);
    let world = World::new(&[grant], Names::loopback(&["api.example"]));
    world.fetch(request("BREW", &url), None).await.expect("a method of one's own is for the policy to allow");
}

#[tokio::test]
async fn the_same_requests_within_the_rule_are_sent() {
    for path in ["/v1/", "/v1/now?q=1", "/v2/../v1/now", "/%76%31/now", "/v1/a/%2e%2e/b"] {
        let (server, world) = narrow().await;
        let answer = world.get(&format!("http://API.example.:{}{path}", server.port)).await.expect(path);
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"), "{path}");
        assert_eq!(world.names.lookups(), ["api.example"]);
    }
}

#[tokio::test]
async fn paths_that_are_not_paths_are_refused() {
    let (server, world) = narrow().await;
    for path in ["http://evil.example/", "*", "//evil.example/v1/", "v1/", "http://api.example/v1/"] {
        let uri = http::Uri::builder().scheme("http").authority(format!("api.example:{}", server.port)).path_and_query(path);
        // Some of these the `http` crate refuses itself.
        let Ok(uri) = uri.build() else { continue };
        let request = http::Request::builder().uri(uri).body(text_body("")).expect("a request");
        let error = world.fetch(request, None).await.expect_err(path);
        assert!(matches!(error, Error::HttpRequestUriInvalid | Error::HttpRequestDenied), "{path}: {error:?}");
    }
    assert_eq!(server.accepts().await, 0);
    assert_eq!(world.names.lookups(), [""; 0]);
}

#[tokio::test]
async fn a_plugin_without_rules_reaches_nothing() {
    let server = Server::ok().await;
    let world = World::new(&[], Names::loopback(&["api.example"]));
    let error = world.get(&format!("http://api.example:{}/", server.port)).await.expect_err("denied");
    assert!(matches!(error, Error::HttpRequestDenied));
    assert!(world.denial().message.ends_with("no rule names this host"), "{:?}", world.denial());
}

#[tokio::test]
async fn a_denial_shows_the_lines_that_would_allow_it() {
    for (method, url, reason, lines) in [
        (
            "GET",
            "https://api.open-meteo.com/v1/forecast?latitude=39.9",
            "no rule names this host",
            "host = \"api.open-meteo.com\"\nscheme = \"https\"\nmethods = [\"GET\"]\npath = \"/v1/forecast\"",
        ),
        (
            "POST",
            "http://api.example:8080/%E5%8C%97?q",
            "scheme `http` is not `https` (policy.toml:12)",
            "host = \"api.example\"\nscheme = \"http\"\nport = 8080\nmethods = [\"POST\"]\npath = \"/%E5%8C%97\"",
        ),
    ] {
        let world = World::new(&[NetGrant { scheme: Scheme::Https, ..grant("api.example", 443) }], Names::default());
        world.fetch(request(method, url), None).await.expect_err("denied");
        let denial = world.denial();
        assert!(denial.message.ends_with(reason), "{}", denial.message);
        assert_eq!(
            denial.hint.as_deref(),
            Some(format!("to allow it, add to the policy:\n[[plugins.weather.net]]\n{lines}").as_str())
        );
    }
}

#[tokio::test]
async fn a_redirect_is_given_to_the_guest_and_its_target_is_judged_anew() {
    for location in
        ["http://169.254.169.254/latest/", "http://evil.example/", "file:///etc/passwd", "//evil.example/", "/v1/again"]
    {
        let server = Server::answering(format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n")).await;
        let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example", "evil.example"]));
        let answer = world.get(&format!("http://api.example:{}/v1/", server.port)).await.expect("a response");
        assert_eq!((answer.status, answer.headers["location"].to_str().expect("text")), (302, location));
        assert_eq!((server.accepts().await, world.names.lookups().len()), (1, 1), "{location}");
        if location.starts_with("http:") {
            world.get(location).await.expect_err(location);
            assert_eq!((server.accepts().await, world.names.lookups().len()), (1, 1), "{location}");
        }
    }
}
