//! TLS for outgoing connections: the machine's own roots, and HTTP/1.1 only (S24).

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tracing::warn;

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No certificate authority to trust.
    #[error("no certificate authority is trusted ({0}); install ca-certificates, or set SSL_CERT_FILE")]
    NoRoots(String),
    /// A certificate that was given to be trusted is none.
    #[error("a certificate given to be trusted cannot be read: {0}")]
    BadRoot(rustls::Error),
    /// The TLS library refuses our settings.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

/// TLS for a protocol of its own: it trusts the machine's authorities and names no protocol.
///
/// # Errors
/// Without any authority to trust.
pub(crate) fn tls_settings() -> Result<ClientConfig, TlsError> {
    settings(roots(&[])?)
}

/// TLS that trusts the machine's authorities and `extra_roots`. Without any of them it is an error, unless TLS is not
/// `required`: then every handshake will fail, and a warning says so.
pub(super) fn connector(extra_roots: &[CertificateDer<'static>], required: bool) -> Result<TlsConnector, TlsError> {
    let roots = match roots(extra_roots) {
        Err(error @ TlsError::NoRoots(_)) if !required => {
            warn!(%error, "https cannot be delivered to");
            RootCertStore::empty()
        }
        roots => roots?,
    };
    let mut config = settings(roots)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn settings(roots: RootCertStore) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(TlsError::Setup)?.with_root_certificates(roots).with_no_client_auth())
}

fn roots(extra: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let machine = rustls_native_certs::load_native_certs();
    for error in &machine.errors {
        warn!(%error, "a trusted certificate of this machine cannot be read and is left out");
    }
    let mut roots = RootCertStore::empty();
    // Trust stores carry odd old certificates; those that cannot be used are left out, as everywhere.
    roots.add_parsable_certificates(machine.certs);
    for root in extra {
        roots.add(root.clone()).map_err(TlsError::BadRoot)?;
    }
    if roots.is_empty() {
        let errors: Vec<_> = machine.errors.iter().map(ToString::to_string).collect();
        return Err(TlsError::NoRoots(if errors.is_empty() { "none found".into() } else { errors.join("; ") }));
    }
    Ok(roots)
}
