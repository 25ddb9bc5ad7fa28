//! TLS: the operating system's trust store, HTTP/1.1 only.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use wasmtime_wasi_http::Error;

/// Makes the TLS configuration that all plugins share. It costs milliseconds: make it once.
///
/// # Errors
///
/// Returns an error when the trust store of the operating system cannot be used.
pub(crate) fn client_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    // HTTP/2 multiplexes, and its empty frames are free of charge (GHSA-f8mm, open in wasmtime-wasi-http 48.0.8).
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A configuration that trusts nobody, for plugins without a grant: they have no rule that could use it.
///
/// # Errors
///
/// Returns an error when TLS cannot be used at all.
pub(crate) fn trust_nobody() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// What a guest is told about a failed handshake.
pub(super) fn handshake_error(error: &io::Error) -> Error {
    match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => Error::TlsCertificateError,
        Some(rustls::Error::AlertReceived(alert)) => {
            Error::TlsAlertReceived { alert_id: Some(u8::from(*alert)), alert_message: alert.as_str().map(str::to_owned) }
        }
        _ => Error::TlsProtocolError,
    }
}
