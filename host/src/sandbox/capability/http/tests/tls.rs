//! TLS, with a certificate authority that only these tests trust (`tests/tls`, made with OpenSSL, valid for a century).

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::*;

const CA: &[u8] = include_bytes!("tls/ca.pem");
const KEY: &[u8] = include_bytes!("tls/server.key");
const GOOD: &[u8] = include_bytes!("tls/server.pem");
const EXPIRED: &[u8] = include_bytes!("tls/expired.pem");
const SELF_SIGNED: &[u8] = include_bytes!("tls/self-signed.pem");

/// A client that trusts the test authority only.
pub(super) fn client() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CA).expect("a certificate")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

async fn serve(certificate: &[u8]) -> Server {
    let certificate = CertificateDer::from_pem_slice(certificate).expect("a certificate");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(KEY).expect("a key"))
        .expect("they match");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Server::start(move |stream, requests| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let name = stream.get_ref().1.server_name().unwrap_or_default().to_owned();
            let request = read_request(&mut stream).await;
            let _ = requests.send(format!("{name}|{request}"));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            read_to_end(&mut stream).await;
        }
    })
    .await
}

fn https(host: &str, port: u16) -> NetGrant {
    NetGrant { scheme: Scheme::Https, ..grant(host, port) }
}

#[tokio::test]
async fn the_canonical_name_is_verified_and_sent() {
    let mut server = serve(GOOD).await;
    let world = World::new(&[https("tls.example", server.port)], Names::loopback(&["tls.example"]));
    let answer = world.get(&format!("https://TLS.Example.:{}/a", server.port)).await.expect("a valid certificate");
    assert_eq!(answer.body, "ok");
    let seen = server.next_request().await;
    assert!(seen.starts_with(&format!("tls.example|GET /a HTTP/1.1\r\nhost: tls.example:{}\r\n", server.port)), "{seen}");
}

#[tokio::test]
async fn certificates_for_others_or_for_nobody_are_refused() {
    for (certificate, host) in
        [(GOOD, "other.example"), (GOOD, "127.0.0.1"), (EXPIRED, "tls.example"), (SELF_SIGNED, "tls.example")]
    {
        let mut server = serve(certificate).await;
        let world = World::new(&[https(host, server.port)], Names::loopback(&["tls.example", "other.example"]));
        let error = world.get(&format!("https://{host}:{}/", server.port)).await.expect_err(host);
        assert!(matches!(error, Error::TlsCertificateError), "{host}: {error:?}");
        assert!(server.requests.try_recv().is_err(), "{host}: nothing was sent");
    }
}

#[tokio::test]
async fn a_handshake_that_stalls_ends_within_the_time_to_connect() {
    let server = Server::start(|mut stream, _| async move { read_to_end(&mut stream).await }).await;
    let world = World::new(&[https("tls.example", server.port)], Names::loopback(&["tls.example"]));
    let options = RequestOptions { connect_timeout: Some(Duration::from_millis(50)), ..RequestOptions::default() };
    let get = request("GET", &format!("https://tls.example:{}/", server.port));
    let error = tokio::time::timeout(LONG, world.fetch(get, Some(options))).await.expect("in time").expect_err("stalled");
    assert!(matches!(error, Error::ConnectionTimeout), "{error:?}");
    assert_eq!(server.accepts().await, 1);
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_an_error() {
    let server = Server::start(|mut stream, _| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    })
    .await;
    let world = World::new(&[https("tls.example", server.port)], Names::loopback(&["tls.example"]));
    let error = world.get(&format!("https://tls.example:{}/", server.port)).await.expect_err("no TLS");
    assert!(matches!(error, Error::TlsProtocolError | Error::TlsAlertReceived { .. }), "{error:?}");
}

#[test]
fn the_shared_configuration_speaks_http_1_only() {
    // A machine without any trusted certificate has no configuration either, and says so.
    if let Ok(config) = super::super::client_config() {
        assert_eq!(config.alpn_protocols, [b"http/1.1".to_vec()]);
    }
}
