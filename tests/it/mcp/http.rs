//! Over Streamable HTTP.

use honeycomb_tests::mcp::{Server, initialize, request};
use serde_json::json;

use super::host;

const TOKEN: &str = "correct-horse-battery-staple";

fn hello() -> serde_json::Value {
    request(1, "initialize", initialize("2025-11-25", &json!({})))
}

#[test]
fn serves_sessions_and_ends_them() {
    let server = Server::start(&host(), &[]);
    let session = server.begin();
    let in_session = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let call = json!({"name": "conformance__test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": 1}});
    let answer = server.post(&in_session, &request(2, "tools/call", call));
    let events = answer.events();
    let progress: Vec<f64> = events.iter().filter_map(|event| event["params"]["progress"].as_f64()).collect();
    assert_eq!(progress, [0.0, 50.0, 100.0], "{answer:?}");
    assert_eq!(events.last().map(|event| &event["id"]), Some(&json!(2)));

    let head =
        format!("DELETE /mcp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nmcp-session-id: {session}\r\n\r\n", server.address);
    assert!(server.exchange(&head).status < 300);
    assert_eq!(server.post(&in_session, &request(3, "tools/list", json!({}))).status, 404);
    assert!(server.stop().success(), "SIGTERM ends the server cleanly");
}

#[test]
fn each_session_counts_its_own_calls() {
    let server = Server::start(&host(), &[]);
    let call = |session: &str| {
        let call = json!({"name": "misbehave__echo", "arguments": {"text": "a"}});
        let answer = server.post(&[("mcp-session-id", session)], &request(2, "tools/call", call));
        answer.events().last().map(|event| event["result"]["isError"] == true).expect("an answer")
    };
    let (first, second) = (server.begin(), server.begin());
    assert_eq!([call(&first), call(&first), call(&first), call(&first)], [false, false, false, true]);
    assert!(!call(&second));
}

#[test]
fn a_page_from_elsewhere_and_a_rebound_name_are_refused() {
    let server = Server::start(&host(), &["--allowed-origin", "https://app.example.com:443"]);
    let port = server.address.rsplit(':').next().expect("a port").to_owned();
    for (headers, expected) in [
        (vec![], 200),
        (vec![("origin", format!("http://localhost:{port}"))], 200),
        (vec![("origin", "https://app.example.com".to_owned())], 200),
        (vec![("host", format!("localhost:{port}"))], 200),
        (vec![("origin", "https://evil.example.com".to_owned())], 403),
        (vec![("origin", "http://localhost.evil.example.com".to_owned())], 403),
        (vec![("origin", "null".to_owned())], 403),
        (vec![("host", "evil.example.com".to_owned())], 403),
        (vec![("host", format!("evil.example.com:{port}"))], 403),
    ] {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = server.post(&headers, &hello());
        assert_eq!(answer.status, expected, "{headers:?}: {answer:?}");
        if expected == 403 {
            assert!(answer.body.contains("--allowed-host"), "{answer:?}");
        }
    }
}

#[test]
fn a_token_is_asked_for_when_there_is_one_and_must_be_there_beyond_loopback() {
    let server = Server::start(&host().variable("HONEYCOMB_MCP_TOKEN", TOKEN), &[]);
    assert_eq!(server.post(&[], &hello()).status, 401);
    assert_eq!(server.post(&[("authorization", "Bearer wrong-horse-battery-staple")], &hello()).status, 401);
    assert_eq!(server.post(&[("authorization", &format!("Bearer {TOKEN}"))], &hello()).status, 200);

    for (host, expected) in
        [(host(), "there is no bearer token"), (host().variable("HONEYCOMB_MCP_TOKEN", "short"), "22 at least")]
    {
        let refused = host.run(&["mcp", "--http", "0.0.0.0:0"]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(expected) && refused.stderr.contains("hint:"), "{refused:?}");
    }
}

#[test]
fn sessions_requests_and_paths_are_bounded() {
    let server = Server::start(&host(), &["--max-sessions", "2"]);
    let first = server.begin();
    server.begin();
    let full = server.post(&[], &hello());
    assert_eq!((full.status, full.header("retry-after")), (503, Some("30")), "{full:?}");
    let head =
        format!("DELETE /mcp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nmcp-session-id: {first}\r\n\r\n", server.address);
    server.exchange(&head);
    let second = server.begin();
    let large = server.post(&[("mcp-session-id", &second)], &json!({"x": "x".repeat(5 * 1024 * 1024)}));
    assert_eq!(large.status, 413, "{}", large.head);
    let elsewhere = format!("GET / HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address);
    assert_eq!(server.exchange(&elsewhere).status, 404);
}

#[test]
fn an_idle_session_ends() {
    let server = Server::start(&host(), &["--session-idle", "1"]);
    let session = server.begin();
    let deadline = std::time::Instant::now() + honeycomb_tests::mcp::PATIENCE;
    // Each look keeps a live session alive, so looks are further apart than the bound.
    loop {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        if server.post(&[("mcp-session-id", &session)], &request(2, "ping", json!({}))).status == 404 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the session never ends");
    }
}
