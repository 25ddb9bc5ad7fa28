//! Arbitrary heads of requests.

use proptest::prelude::*;

use super::*;
use crate::sandbox::capability::http::head;

fn shared() -> EgressShared {
    let subdomains = NetGrant { host: HostPattern::Subdomains("example".into()), ..grant("", 80) };
    let narrow = NetGrant { path: "/v1/".to_owned(), ..grant("127.0.0.1", 8080) };
    let names: Arc<dyn Resolver> = Arc::new(Names::default());
    EgressShared::new("weather", &[subdomains, narrow], names, tls::client(), Arc::default()).expect("usable")
}

/// Feeds bytes to the part that judges a request before anything is sent: lines of method, URL, and `name: value`.
///
/// # Panics
///
/// If something gets through that must not.
fn fuzz_request(shared: &EgressShared, bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let mut request = http::Request::builder().method(lines.next().unwrap_or_default()).uri(lines.next().unwrap_or_default());
    for line in lines {
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        request = request.header(&line[..colon], line.get(colon + 1..).unwrap_or_default());
    }
    let Ok((parts, ())) = request.body(()).map(http::Request::into_parts) else { return false };
    let Ok(prepared) = head::prepare(shared, &parts) else { return false };
    let (uri, headers, target) = (prepared.head.uri(), prepared.head.headers(), &prepared.target);
    assert!(uri.scheme().is_none() && uri.authority().is_none(), "{uri}");
    assert!(uri.path().starts_with('/') && !uri.path().starts_with("//") && !uri.path().contains("/../"), "{uri}");
    assert_eq!(headers.get_all("host").iter().count(), 1);
    assert!(headers.get_all("content-length").iter().count() <= 1);
    assert!(headers.keys().filter(|name| head::is_host_owned(name)).count() == 1, "{headers:?}");
    let granted = match target.port {
        80 => target.host.ends_with(".example"),
        8080 => target.host == "127.0.0.1" && target.path.starts_with("/v1/"),
        _ => false,
    };
    assert!(granted && matches!(parts.method.as_str(), "GET" | "POST"), "{} {target}", parts.method);
    true
}

#[test]
fn seeds() {
    let shared = shared();
    for (seed, sent) in [
        ("GET\nhttp://a.example/", true),
        ("GET\nhttp://127.1:8080/v1/x\naccept: */*", true),
        ("POST\nhttp://a.example/\ncontent-length: 1", false),
        ("POST\nhttp://a.example/\ncontent-length:1", true),
        ("GET\nhttp://example/", false),
        ("GET\nhttp://a.example:8080/", false),
        ("GET\nhttp://a.example/\nhost: b", false),
        ("GET\nhttp://127.0.0.1:8080/v1/../", false),
        ("", false),
    ] {
        assert_eq!(fuzz_request(&shared, seed.as_bytes()), sent, "{seed:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz_request(&shared(), &bytes);
    }

    #[test]
    fn nearly_right(
        method in "GET|POST|PUT|CONNECT|TRACE|get",
        scheme in "http|https|HTTP|ftp",
        user in "(u:p@)?",
        host in "a\\.example|example|127\\.(0\\.0\\.)?1|0x7f000001|\\[::1\\]|A\\.EXAMPLE\\.|[a-z.%@:\\[\\]]{1,12}",
        port in "(:80|:8080|:0|:)?",
        path in "(/v1/|/|//|)([a-z./%2e;\\\\]{0,12})(\\?[ -~]{0,8})?",
        headers in proptest::collection::vec("(host|te|x-a|content-length|connection|accept):[ -~]{0,6}", 0..4),
    ) {
        let text = format!("{method}\n{scheme}://{user}{host}{port}{path}\n{}", headers.join("\n"));
        fuzz_request(&shared(), text.trim_end().as_bytes());
    }
}
