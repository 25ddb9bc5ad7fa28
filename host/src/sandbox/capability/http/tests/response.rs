//! Servers that answer too much, too slowly or not in HTTP.

use super::*;

/// Sends one request with short limits; what the guest reads, or the error.
async fn read_from(server: &Server, timeout: Duration) -> (Result<Answer, Error>, World) {
    let limits = Limits { http_response_bytes: 100_000, ..Limits::default() };
    let names = Names::loopback(&["api.example"]);
    let world = World::with(&[grant("api.example", server.port)], names, &limits, Secrets::default(), timeout);
    let url = format!("http://api.example:{}/", server.port);
    let answer = tokio::time::timeout(LONG, world.get(&url)).await.expect("it ends in time");
    (answer, world)
}

/// Writes the bytes again and again until the client has closed; then says so.
async fn endless(head: &'static str, again: &'static [u8]) -> Server {
    Server::start(move |mut stream, requests| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(head.as_bytes()).await;
        while stream.write_all(again).await.is_ok() {}
        let _ = requests.send("closed".to_owned());
    })
    .await
}

#[tokio::test]
async fn what_is_not_http_is_an_error_and_not_a_panic() {
    for (answer, expected) in [
        ("", "HttpResponseIncomplete"),
        ("garbage\r\n\r\n", "HttpProtocolError"),
        ("HTTP/1.1 999999 X\r\n\r\n", "HttpProtocolError"),
        ("HTTP/2.0 200 OK\r\n\r\n", "HttpProtocolError"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HttpProtocolError"),
        ("HTTP/1.1 200 OK\r\nbad header\r\n\r\n", "HttpProtocolError"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok", "HttpResponseIncomplete"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nokokok", "HttpProtocolError"),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "HttpProtocolError"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n", "HttpProtocolError"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nok", "HttpProtocolError"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", "HttpResponseIncomplete"),
        ("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", "HttpUpgradeFailed"),
        ("\x16\x03\x01\x02\0\x01\0", "HttpProtocolError"),
    ] {
        let server = Server::start(move |mut stream, _| async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        })
        .await;
        let (answered, world) = read_from(&server, LONG).await;
        assert_eq!(name_of(&answered.expect_err(answer)), expected, "{answer:?}");
        assert!(world.meter.counts().denials.is_empty(), "{answer:?}");
    }
}

#[tokio::test]
async fn both_framings_at_once_are_read_as_one_message() {
    // RFC 9112 section 6.3: chunked wins. The connection is used once, so nothing can follow.
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n";
    let server = Server::answering(format!("{head}2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nevil")).await;
    let (answered, _) = read_from(&server, LONG).await;
    match answered {
        Ok(answer) => assert_eq!(answer.body, "ok"),
        Err(error) => assert!(matches!(error, Error::HttpProtocolError), "{error:?}"),
    }
}

#[tokio::test]
async fn a_body_without_end_stops_at_the_limit_and_closes_the_connection() {
    for (head, again) in [
        ("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 8192][..]),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n"),
    ] {
        let mut server = endless(head, again).await;
        let (answered, world) = read_from(&server, LONG).await;
        let error = answered.expect_err("too large");
        assert!(matches!(error, Error::HttpResponseBodySize(Some(100_000))), "{error:?}");
        let denial = world.denial();
        assert_eq!(denial.code.as_str(), "limit.http");
        assert!(denial.message.contains("limit `http_response_bytes`"), "{}", denial.message);
        assert!(world.meter.counts().http_bytes < 1_000_000);
        assert_eq!(server.next_request().await, "closed");
    }
}

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_not_read() {
    let mut server = endless("HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n", &[b'x'; 8192]).await;
    let (answered, world) = read_from(&server, LONG).await;
    assert!(matches!(answered, Err(Error::HttpResponseBodySize(Some(100_000)))), "{answered:?}");
    assert_eq!(world.meter.counts().http_bytes, 0);
    assert_eq!(world.denial().code.as_str(), "limit.http");
    assert_eq!(server.next_request().await, "closed");
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{}", "x".repeat(100_000));
    let server = Server::answering(answer).await;
    assert_eq!(read_from(&server, LONG).await.0.expect("within the limit").body.len(), 100_000);
}

#[tokio::test]
async fn a_head_without_end_stops_at_the_limit() {
    for (head, again) in [
        ("HTTP/1.1 200 OK\r\n", &b"x-more: and more\r\n"[..]),
        ("HTTP/1.1 200 OK\r\nx-large: ", &[b'x'; 8192][..]),
        ("HTTP/1.1 200 ", &[b'x'; 8192][..]),
    ] {
        let mut server = endless(head, again).await;
        let (answered, world) = read_from(&server, LONG).await;
        assert!(matches!(answered, Err(Error::HttpResponseHeaderSectionSize(_))), "{answered:?}");
        assert_eq!(world.denial().code.as_str(), "limit.http");
        assert_eq!(server.next_request().await, "closed");
    }
}

#[tokio::test]
async fn interim_responses_and_trailers_without_end_stop() {
    for (head, again) in [
        ("", &b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"[..]),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x-trailer: 1\r\n"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", &[b'x'; 8192]),
    ] {
        let mut server = endless(head, again).await;
        let (answered, _) = read_from(&server, Duration::from_millis(300)).await;
        answered.expect_err("it never ends");
        assert_eq!(server.next_request().await, "closed");
    }
}

#[tokio::test]
async fn a_server_that_drips_is_ended_by_the_deadline() {
    for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nx: "] {
        let server = Server::start(move |mut stream, _| async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(head.as_bytes()).await;
            let mut drop = tokio::time::interval(Duration::from_millis(20));
            while stream.write_all(b".").await.is_ok() {
                drop.tick().await;
            }
        })
        .await;
        let begun = Instant::now();
        let (answered, _) = read_from(&server, Duration::from_millis(200)).await;
        assert!(matches!(answered, Err(Error::ConnectionReadTimeout)), "{answered:?}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn the_guests_timeouts_end_a_silent_server() {
    let short = Some(Duration::from_millis(30));
    for (answer, options) in [
        ("", RequestOptions { first_byte_timeout: short, ..RequestOptions::default() }),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
            RequestOptions { between_bytes_timeout: short, ..RequestOptions::default() },
        ),
    ] {
        let server = Server::answering(answer).await;
        let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
        let url = format!("http://api.example:{}/", server.port);
        let error = world.fetch(request("GET", &url), Some(options)).await.expect_err("silent");
        assert!(matches!(error, Error::ConnectionReadTimeout), "{error:?}");
    }
}

#[tokio::test]
async fn no_timeout_of_a_guest_panics() {
    for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(u64::MAX), Duration::MAX] {
        let options =
            RequestOptions { connect_timeout: Some(time), first_byte_timeout: Some(time), between_bytes_timeout: Some(time) };
        let server = Server::ok().await;
        let world = World::new(&[grant("api.example", server.port)], Names::loopback(&["api.example"]));
        let url = format!("http://api.example:{}/", server.port);
        match world.fetch(request("GET", &url), Some(options)).await {
            Ok(answer) => assert_eq!(answer.body, "ok"),
            Err(error) => {
                assert!(time < Duration::from_secs(1), "{time:?}: {error:?}");
                assert!(
                    matches!(error, Error::ConnectionTimeout | Error::ConnectionReadTimeout | Error::DnsTimeout),
                    "{error:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn compressed_bodies_pass_as_they_are() {
    // The limit counts what comes over the wire; a guest that unpacks it does so within its own memory.
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x08\x00").await;
    let (answered, _) = read_from(&server, LONG).await;
    let answer = answered.expect("passed on");
    assert_eq!((answer.headers["content-encoding"].as_bytes(), answer.body.len()), (&b"gzip"[..], 3));
}
