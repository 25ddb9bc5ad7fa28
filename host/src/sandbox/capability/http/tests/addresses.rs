//! Names and addresses: looked up once, all of the answer vetted, only what was vetted dialled.

use super::*;

const PUBLIC: &str = "93.184.215.14";

#[tokio::test]
async fn a_name_with_any_prohibited_address_is_refused_without_a_packet() {
    let answers: [&[&str]; 22] = [
        &["127.0.0.1"],
        &["127.8.8.8"],
        &["0.0.0.0"],
        &["10.0.0.1"],
        &["172.16.0.1"],
        &["192.168.1.1"],
        &["100.64.0.1"],
        &["169.254.169.254"],
        &["100.100.100.200"],
        &["224.0.0.1"],
        &["::"],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["::ffff:10.0.0.1"],
        &["::127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["fe80::1"],
        &["fd00:ec2::254"],
        &[PUBLIC, "10.0.0.1"],
        &["10.0.0.1", PUBLIC],
        &[PUBLIC, "2606:2800:21f:cb07::1", "::ffff:169.254.169.254"],
    ];
    let server = Server::ok().await;
    let grant = NetGrant { private: Vec::new(), ..grant("api.example", server.port) };
    for answer in answers {
        let world = World::new(std::slice::from_ref(&grant), Names::default().with("api.example", &[answer]));
        let error = world.get(&format!("http://api.example:{}/", server.port)).await.expect_err("prohibited");
        assert!(matches!(error, Error::DestinationIpProhibited), "{answer:?}: {error:?}");
        let denial = world.denial();
        assert_eq!(denial.code.as_str(), "http.ip_prohibited", "{answer:?}");
        assert!(denial.hint.expect("a hint").contains("add to the rule at policy.toml:12:\nprivate = [\""), "{answer:?}");
        assert!(world.meter.counts().dialled.is_empty(), "{answer:?}");
    }
    assert_eq!(server.accepts().await, 0);
}

#[tokio::test]
async fn an_address_as_a_host_is_vetted_however_it_is_spelled() {
    for (host, canonical) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("[::1]", "::1"),
        ("[::]", "::"),
        ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
        ("[::ffff:7f00:1]", "::ffff:127.0.0.1"),
        ("169.254.169.254", "169.254.169.254"),
    ] {
        let server = Server::ok().await;
        let url = format!("http://{host}:{}/", server.port);
        // No rule for it: denied.
        let world = World::new(&[grant("api.example", server.port)], Names::default());
        assert!(matches!(world.get(&url).await, Err(Error::HttpRequestDenied)), "{host}");
        // A rule for it, but not for private addresses: prohibited.
        let public = NetGrant { private: Vec::new(), ..grant(canonical, server.port) };
        let world = World::new(&[public], Names::default());
        assert!(matches!(world.get(&url).await, Err(Error::DestinationIpProhibited)), "{host}");
        assert_eq!(server.accepts().await, 0, "{host}");
        assert_eq!(world.names.lookups(), [""; 0], "{host}");
    }
}

#[tokio::test]
async fn odd_spellings_of_a_granted_address_reach_it_under_its_canonical_name() {
    for host in ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1."] {
        let mut server = Server::ok().await;
        let world = World::new(&[grant("127.0.0.1", server.port)], Names::default());
        world.get(&format!("http://{host}:{}/", server.port)).await.expect(host);
        let request = server.next_request().await.to_ascii_lowercase();
        assert!(request.contains(&format!("\r\nhost: 127.0.0.1:{}\r\n", server.port)), "{request}");
    }
}

#[tokio::test]
async fn zones_and_escapes_in_a_host_are_refused() {
    for host in ["[fe80::1%25eth0]", "[fe80::1%eth0]", "api%2eexample", "[127.0.0.1]", "[::1", "::1"] {
        // What the `http` crate does not even parse cannot be sent either.
        let Ok(uri) = format!("http://{host}:80/").parse::<http::Uri>() else { continue };
        let world = World::new(&[grant("fe80::1", 80), grant("api.example", 80)], Names::loopback(&["api.example"]));
        let request = http::Request::builder().uri(uri).body(text_body("")).expect("a request");
        assert!(matches!(world.fetch(request, None).await, Err(Error::HttpRequestUriInvalid)), "{host}");
        assert_eq!(world.names.lookups(), [""; 0]);
    }
}

#[tokio::test]
async fn a_name_server_that_changes_its_answer_changes_nothing() {
    let server = Server::ok().await;
    let grant =
        NetGrant { private: vec![Cidr { address: [127, 0, 0, 1].into(), prefix: 32 }], ..grant("api.example", server.port) };
    let world =
        World::new(&[grant], Names::default().with("api.example", &[&["127.0.0.1"], &["127.0.0.2"], &["169.254.169.254"]]));
    let url = format!("http://api.example:{}/", server.port);
    // One lookup for a request, and what it said is what is dialled.
    world.get(&url).await.expect("granted");
    assert_eq!(world.names.lookups().len(), 1);
    assert_eq!(world.meter.counts().dialled, [("api.example".into(), loopback(server.port))]);
    // Each request has its own lookup, and each is vetted.
    for _ in 0..2 {
        assert!(matches!(world.get(&url).await, Err(Error::DestinationIpProhibited)));
    }
    assert_eq!((world.names.lookups().len(), world.meter.counts().dialled.len(), server.accepts().await), (3, 1, 1));
}

#[tokio::test]
async fn the_next_vetted_address_is_tried_when_one_does_not_answer() {
    let server = Server::ok().await;
    let world =
        World::new(&[grant("api.example", server.port)], Names::default().with("api.example", &[&["127.0.0.2", "127.0.0.1"]]));
    world.get(&format!("http://api.example:{}/", server.port)).await.expect("the second answers");
    let dialled: Vec<_> = world.meter.counts().dialled.iter().map(|(_, address)| address.ip().to_string()).collect();
    assert_eq!(dialled, ["127.0.0.2", "127.0.0.1"]);
    assert_eq!(world.meter.counts().http_requests, 1);
}

#[tokio::test]
async fn a_mapped_address_is_dialled_as_what_it_is() {
    let server = Server::ok().await;
    let world = World::new(&[grant("api.example", server.port)], Names::default().with("api.example", &[&["::ffff:127.0.0.1"]]));
    world.get(&format!("http://api.example:{}/", server.port)).await.expect("loopback is granted");
    assert_eq!(world.meter.counts().dialled[0].1, loopback(server.port));
}

#[tokio::test]
async fn failed_lookups_have_their_own_errors_and_end_in_time() {
    let names = || Names::default().with("empty.example", &[&[]]);
    let grants = ["gone.example", "empty.example", "hangs.example"].map(|host| grant(host, 80));
    let options = RequestOptions { connect_timeout: Some(Duration::from_millis(30)), ..RequestOptions::default() };
    for (host, expected) in [("gone.example", "DnsError"), ("empty.example", "DnsError"), ("hangs.example", "DnsTimeout")] {
        let world = World::new(&grants, names());
        let fetched = world.fetch(request("GET", &format!("http://{host}/")), Some(options));
        let error = tokio::time::timeout(LONG, fetched).await.expect("in time").expect_err(host);
        assert_eq!(name_of(&error), expected, "{host}");
        assert!(world.meter.counts().denials.is_empty(), "a failing network denies nothing");
    }
}

#[tokio::test]
async fn the_narrowest_rule_opens_private_addresses() {
    let server = Server::ok().await;
    let wide = NetGrant { private: Vec::new(), ..grant("api.example", server.port) };
    let narrow = NetGrant { path: "/open/".to_owned(), ..grant("api.example", server.port) };
    for grants in [[wide.clone(), narrow.clone()], [narrow, wide]] {
        let world = World::new(&grants, Names::loopback(&["api.example"]));
        world.get(&format!("http://api.example:{}/open/x", server.port)).await.expect("opened");
        let other = world.get(&format!("http://api.example:{}/other", server.port)).await;
        assert!(matches!(other, Err(Error::DestinationIpProhibited)));
    }
}

#[tokio::test]
async fn the_system_resolver_answers() {
    let resolver = super::super::SystemResolver::new();
    let addresses = resolver.resolve("localhost").await.expect("every system has it");
    assert!(addresses.iter().all(IpAddr::is_loopback) && !addresses.is_empty(), "{addresses:?}");
    assert!(resolver.resolve("no-such-host.invalid").await.is_err());
}
