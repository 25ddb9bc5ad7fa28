use proptest::prelude::*;

use super::*;

fn grant() -> NetGrant {
    NetGrant {
        host: HostPattern::Exact("api.example.com".into()),
        scheme: Scheme::Https,
        port: 443,
        methods: vec!["GET".into(), "POST".into()],
        path: "/repos/".into(),
        private: Vec::new(),
        secret: None,
        ceiling: None,
        rule: RuleRef { file: "policy.toml".into(), line: 7 },
    }
}

fn mismatch(method: &str, url: &str) -> Option<String> {
    let target = NetTarget::from_url(url).expect(url);
    let request = target.request(method);
    let explained = grant().explain_mismatch(&request);
    assert_eq!(grant().allows(&request), explained.is_none(), "{method} {url}");
    explained
}

#[test]
fn every_field_of_a_rule_bites() {
    assert_eq!(mismatch("GET", "https://api.example.com/repos/x"), None);
    assert_eq!(mismatch("POST", "https://API.example.com.:443/repos/../repos/x?y"), None);
    for (method, url, expected) in [
        ("GET", "https://example.com/repos/x", "host `example.com` is not `api.example.com`"),
        ("GET", "https://api.example.com.evil.org/repos/x", "host `api.example.com.evil.org` is not `api.example.com`"),
        ("GET", "https://evil.example/.api.example.com/repos/x", "host `evil.example` is not `api.example.com`"),
        ("GET", "https://evil.example/?https://api.example.com/repos/x", "host `evil.example` is not `api.example.com`"),
        ("GET", "http://api.example.com/repos/x", "scheme `http` is not `https`"),
        ("GET", "https://api.example.com:8443/repos/x", "port 8443 is not 443"),
        ("DELETE", "https://api.example.com/repos/x", "method `DELETE` is not one of `GET`, `POST`"),
        ("get", "https://api.example.com/repos/x", "method `get` is not one of `GET`, `POST`"),
        ("GET", "https://api.example.com/repositories", "path `/repositories` is not within `/repos/`"),
        ("GET", "https://api.example.com/repos/../user", "path `/user` is not within `/repos/`"),
    ] {
        assert_eq!(mismatch(method, url).as_deref(), Some(expected));
    }
}

#[test]
fn subdomains_are_never_the_apex_nor_a_longer_word() {
    let pattern = HostPattern::Subdomains("example.com".into());
    for (host, expected) in [
        ("a.example.com", true),
        ("a.b.example.com", true),
        ("example.com", false),
        ("evilexample.com", false),
        (".example.com", false),
        ("a.example.com.evil.org", false),
        ("example.org", false),
    ] {
        assert_eq!(pattern.matches(host), expected, "{host}");
    }
}

#[test]
fn a_private_address_needs_its_range() {
    let mut grant = grant();
    let loopback = "127.0.0.1".parse().expect("valid");
    let mapped = "::ffff:127.0.0.1".parse().expect("valid");
    let metadata = "169.254.169.254".parse().expect("valid");
    assert!(grant.allows_address("8.8.8.8".parse().expect("valid")));
    assert!(!grant.allows_address(loopback) && !grant.allows_address(mapped));
    grant.private.push(Cidr::parse("127.0.0.1/32").expect("valid"));
    assert!(grant.allows_address(loopback) && grant.allows_address(mapped));
    assert!(!grant.allows_address(metadata));
}

#[test]
fn overlap_is_found_where_one_request_matches_both() {
    let base = grant();
    for (change, expected) in [
        ((|_| ()) as fn(&mut NetGrant), true),
        (|other| other.host = HostPattern::Subdomains("example.com".into()), true),
        (|other| other.host = HostPattern::Subdomains("api.example.com".into()), false),
        (|other| other.path = "/".into(), true),
        (|other| other.path = "/users".into(), false),
        (|other| other.methods = vec!["PUT".into()], false),
        (|other| other.port = 8443, false),
        (|other| other.scheme = Scheme::Http, false),
    ] {
        let mut other = base.clone();
        change(&mut other);
        assert_eq!(base.overlaps(&other), expected, "{other:?}");
        assert_eq!(other.overlaps(&base), expected, "{other:?}");
    }
}

/// The plainest possible matcher: compares labels from the right.
fn reference(pattern: &HostPattern, host: &str) -> bool {
    let labels = |text: &str| text.split('.').rev().map(str::to_owned).collect::<Vec<_>>();
    match pattern {
        HostPattern::Exact(exact) => labels(exact) == labels(host),
        HostPattern::Subdomains(domain) => {
            let (domain, host) = (labels(domain), labels(host));
            host.len() > domain.len() && host[..domain.len()] == domain[..]
        }
    }
}

proptest! {
    #[test]
    fn host_patterns_agree_with_the_reference(domain in "[ab]{1,2}(\\.[ab]{1,2}){0,2}", host in "[ab]{1,2}(\\.[ab]{1,2}){0,3}") {
        for pattern in [HostPattern::Exact(domain.clone()), HostPattern::Subdomains(domain.clone())] {
            prop_assert_eq!(pattern.matches(&host), reference(&pattern, &host), "{} {}", pattern, host);
        }
    }

    #[test]
    fn a_request_that_two_patterns_match_makes_them_overlap(
        a in "[ab]{1,2}(\\.[ab]{1,2}){0,2}", b in "[ab]{1,2}(\\.[ab]{1,2}){0,2}", host in "[ab]{1,2}(\\.[ab]{1,2}){0,3}"
    ) {
        let patterns = |text: String| [HostPattern::Exact(text.clone()), HostPattern::Subdomains(text)];
        for first in patterns(a) {
            for second in patterns(b.clone()) {
                if first.matches(&host) && second.matches(&host) {
                    prop_assert!(first.overlaps(&second), "{} {}", first, second);
                }
            }
        }
    }
}
