//! Counts, and connections that end when nobody wants them any more.

use super::*;

/// A server that answers with this and no more, and says when it has the request and when the client has closed.
async fn unfinished(answer: &'static str) -> Server {
    Server::start(move |mut stream, requests| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = requests.send("open".to_owned());
        read_to_end(&mut stream).await;
        let _ = requests.send("closed".to_owned());
    })
    .await
}

const BEGINNING: &str = "HTTP/1.1 200 OK\r\n\r\nbeginning";

fn limited(server: &Server, limits: &Limits) -> World {
    World::with(&[grant("api.example", server.port)], Names::loopback(&["api.example"]), limits, Secrets::default(), LONG)
}

#[tokio::test]
async fn requests_of_one_call_are_counted() {
    let server = Server::ok().await;
    let world = limited(&server, &Limits { http_requests: 3, ..Limits::default() });
    let url = format!("http://api.example:{}/", server.port);
    for _ in 0..3 {
        world.get(&url).await.expect("within the limit");
    }
    for _ in 0..1000 {
        assert!(matches!(world.get(&url).await, Err(Error::ConnectionLimitReached)));
    }
    let denial = world.denial();
    assert_eq!(denial.code.as_str(), "limit.http");
    assert_eq!(denial.hint.as_deref(), Some("raise it in the policy:\n[plugins.weather.limits]\nhttp_requests = …"));
    assert_eq!((server.accepts().await, world.names.lookups().len(), world.meter.counts().http_requests), (3, 3, 3));
}

#[tokio::test]
async fn open_connections_are_counted_and_given_back() {
    let mut server = unfinished(BEGINNING).await;
    let world = limited(&server, &Limits { http_connections: 2, ..Limits::default() });
    let url = format!("http://api.example:{}/", server.port);
    let first = world.egress.send(request("GET", &url), None).await.expect("within the limit");
    let second = world.egress.send(request("GET", &url), None).await.expect("within the limit");
    let error = world.get(&url).await.expect_err("one too many");
    assert!(matches!(error, Error::ConnectionLimitReached), "{error:?}");
    assert_eq!(world.denial().code.as_str(), "limit.http");
    assert_eq!(world.meter.counts().http_requests, 2);
    drop((first, second));
    while server.next_request().await != "closed" {}
    drop(world.egress.send(request("GET", &url), None).await.expect("there is room again"));
}

#[tokio::test]
async fn many_at_once_stay_within_the_limit() {
    let server = Server::ok().await;
    let world = limited(&server, &Limits { http_connections: 4, http_requests: 2000, ..Limits::default() });
    let url = format!("http://api.example:{}/", server.port);
    let all = futures_util::future::join_all((0..1000).map(|_| world.get(&url))).await;
    let refused = all.iter().filter(|answer| matches!(answer, Err(Error::ConnectionLimitReached))).count();
    let answered = all.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(refused + answered, 1000);
    assert!(answered >= 4 && refused > 0, "{answered} answered, {refused} refused");
    world.get(&url).await.expect("all were given back");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let limits = || Limits { http_request_bytes: 100_000, ..Limits::default() };
    let server = Server::ok().await;
    let url = format!("http://api.example:{}/", server.port);
    // Announced, so nothing is sent; short enough to be read ahead, so nothing is sent; too long for that, so it breaks off.
    for (body, announced, sent) in [
        (text_body(vec![b'x'; 100_001]), Some(100_001), 0),
        (text_body(vec![b'x'; 100_001]), None, 0),
        (pieces((0..101).map(|_| vec![b'x'; 1000])), None, 1),
    ] {
        let world = limited(&server, &limits());
        let mut post = http::Request::post(&url);
        if let Some(announced) = announced {
            post = post.header("content-length", announced.to_string());
        }
        let error = world.fetch(post.body(body).expect("a request"), None).await.expect_err("too large");
        assert!(matches!(error, Error::HttpRequestBodySize(Some(100_000))), "{error:?}");
        assert_eq!(world.denial().code.as_str(), "limit.http");
        assert!(world.denial().message.contains("limit `http_request_bytes`"));
        assert_eq!(world.meter.counts().http_requests, sent);
    }
    let world = limited(&server, &limits());
    let post = http::Request::post(&url).body(pieces((0..100).map(|_| vec![b'x'; 1000]))).expect("a request");
    world.fetch(post, None).await.expect("exactly the limit");
}

#[tokio::test]
async fn a_body_of_empty_pieces_gives_other_tasks_a_turn_and_ends_by_time() {
    // A first piece that is longer than what is read ahead has the connection poll the empty ones.
    for first in [0, 70_000] {
        let server = Server::ok().await;
        let names = Names::loopback(&["api.example"]);
        let timeout = Duration::from_millis(200);
        let world = World::with(&[grant("api.example", server.port)], names, &Limits::default(), Secrets::default(), timeout);
        let frames = std::iter::once(Bytes::from(vec![b'x'; first])).chain(std::iter::repeat(Bytes::new()));
        let frames = futures_util::stream::iter(frames.map(|data| Ok(http_body::Frame::data(data))));
        let body = http_body_util::StreamBody::new(frames).boxed_unsync();
        let post = http::Request::post(format!("http://api.example:{}/", server.port)).body(body).expect("a request");
        let error = tokio::time::timeout(LONG, world.fetch(post, None)).await.expect("it ends").expect_err("it never ends");
        assert!(matches!(error, Error::ConnectionReadTimeout | Error::ConnectionWriteTimeout), "{error:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_before_its_response_is_closed() {
    let mut server = unfinished("").await;
    let world = limited(&server, &Limits { http_connections: 1, ..Limits::default() });
    let mut sending = Box::pin(world.egress.send(request("GET", &format!("http://api.example:{}/", server.port)), None));
    tokio::select! {
        _ = &mut sending => panic!("there is no response"),
        open = server.next_request() => assert_eq!(open, "open"),
    }
    drop(sending);
    assert_eq!(world.egress.0.connections.available_permits(), 1);
    assert_eq!(server.next_request().await, "closed");
}

#[tokio::test]
async fn a_response_that_is_dropped_is_closed() {
    let mut server = unfinished(BEGINNING).await;
    let world = limited(&server, &Limits { http_connections: 1, ..Limits::default() });
    let url = format!("http://api.example:{}/", server.port);
    let (response, worker) = world.egress.send(request("GET", &url), None).await.expect("granted");
    let worker = tokio::spawn(worker);
    drop(response);
    assert_eq!(world.egress.0.connections.available_permits(), 1);
    worker.await.expect("no panic").expect("it ends by itself");
    assert_eq!([server.next_request().await, server.next_request().await], ["open", "closed"]);
}

#[tokio::test]
async fn a_worker_that_is_dropped_ends_the_body_with_an_error() {
    let mut server = unfinished(BEGINNING).await;
    let world = limited(&server, &Limits { http_connections: 1, ..Limits::default() });
    let url = format!("http://api.example:{}/", server.port);
    let (response, worker) = world.egress.send(request("GET", &url), None).await.expect("granted");
    drop(worker);
    assert!(response.into_body().collect().await.is_err(), "it does not end as if it were whole");
    assert_eq!([server.next_request().await, server.next_request().await], ["open", "closed"]);
}

#[tokio::test]
async fn no_task_outlives_a_response() {
    let server = Server::ok().await;
    let world = limited(&server, &Limits { http_requests: 1000, ..Limits::default() });
    let url = format!("http://api.example:{}/", server.port);
    world.get(&url).await.expect("granted");
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..50 {
        drop(world.egress.send(request("GET", &url), None).await.expect("granted"));
    }
    // Only the server's own tasks may be left, and they end when they see the end of the connection.
    while tokio::runtime::Handle::current().metrics().num_alive_tasks() > tasks {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_that_is_refused_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let world = World::new(&[grant("api.example", port)], Names::loopback(&["api.example"]));
    assert!(matches!(world.get(&format!("http://api.example:{port}/")).await, Err(Error::ConnectionRefused)));
}
