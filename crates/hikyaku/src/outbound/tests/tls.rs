//! Certificates, good and bad.

use hikyaku_core::delivery::{FailureKind, Outcome};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;

use super::Step::{Hang, Read, Reset};
use super::*;
use crate::outbound::Response;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A certificate authority of a test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn root(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A server whose certificate is for `name`, signed by this authority.
    pub(crate) fn server(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        config(certificate.der().clone(), &key)
    }
}

pub(crate) fn config(certificate: CertificateDer<'static>, key: &KeyPair) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

async fn post(ca: &Authority, endpoint: &Endpoint, origin: &str) -> Response {
    let names = Arc::new(Names::default());
    names.set("shop.example", &["127.0.0.1"]);
    let url = format!("{origin}:{}/secret", endpoint.address.port());
    client_with(names, &[ca.root()]).post(request(&url, AMPLE)).await
}

#[tokio::test]
async fn s4_s24_the_names_own_certificate_over_http_1() {
    let ca = Authority::new("A test's authority");
    let endpoint = Endpoint::serve(&[&[Read, send(OK), Hang]], Some(ca.server("shop.example", |_| {}))).await;
    let response = post(&ca, &endpoint, "https://shop.example").await;
    assert_eq!(response.outcome, Outcome::Answered(200), "{}", response.error);
    let agreed = (Some("shop.example".to_owned()), Some(b"http/1.1".to_vec()));
    assert_eq!(endpoint.seen.borrow().tls, [agreed]);
    let wire = String::from_utf8(endpoint.requests().remove(0)).unwrap();
    assert!(wire.contains(&format!("\r\nhost: shop.example:{}\r\n", endpoint.address.port())), "{wire}");
}

#[tokio::test]
async fn an_address_can_have_a_certificate_too() {
    let ca = Authority::new("A test's authority");
    let endpoint = Endpoint::serve(&[&[Read, send(OK), Hang]], Some(ca.server("127.0.0.1", |_| {}))).await;
    let response = post(&ca, &endpoint, "https://127.0.0.1").await;
    assert_eq!(response.outcome, Outcome::Answered(200), "{}", response.error);
}

#[tokio::test]
async fn case8_a_bad_certificate_is_told_by_what_is_wrong_with_it() {
    let ca = Authority::new("A test's authority");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["shop.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "Itself");
    let self_signed = params.self_signed(&key).unwrap();
    let (own_key, mut own) =
        (KeyPair::generate().unwrap(), CertificateParams::new(vec!["shop.example".into()]).unwrap());
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = own.signed_by(&own_key, &ca.0).unwrap();
    let servers = [
        ("it may be an authority's own", config(authority.der().clone(), &own_key)),
        (
            "is not signed by the authority that it names",
            Authority::new("A test's authority").server("shop.example", |_| {}),
        ),
        ("signed by nobody this machine trusts", config(self_signed.der().clone(), &key)),
        ("signed by nobody this machine trusts", Authority::new("Another authority").server("shop.example", |_| {})),
        ("is for other.example, not for shop.example", ca.server("other.example", |_| {})),
        (
            "has expired; it was good until 2020-01-01T00:00:00.000Z",
            ca.server("shop.example", |params| params.not_after = date_time_ymd(2020, 1, 1)),
        ),
        (
            "not valid yet, but from 4000-01-01T00:00:00.000Z on",
            ca.server("shop.example", |params| params.not_before = date_time_ymd(4000, 1, 1)),
        ),
    ];
    for (wrong, server) in servers {
        let endpoint = Endpoint::serve(&[&[Read, send(OK)]], Some(server)).await;
        let response = post(&ca, &endpoint, "https://shop.example").await;
        assert_eq!(response.outcome, Outcome::Failed(FailureKind::Tls), "{wrong}");
        assert!(response.error.contains(wrong), "{wrong}: {}", response.error);
        assert!(!response.error.contains("secret"), "{}", response.error);
        let is_of_code = |word: &str| word.contains('(') || word.chars().skip(1).any(|c| c.is_ascii_uppercase());
        let words = response.error.split_whitespace().filter(|word| !word.contains("00.000Z"));
        assert_eq!(words.filter(|word| is_of_code(word)).count(), 0, "{}", response.error);
        assert_eq!(endpoint.requests().len(), 0, "{wrong}");
    }
}

#[tokio::test]
async fn plain_text_on_a_tls_port_and_the_reverse() {
    let ca = Authority::new("A test's authority");
    let plain = Endpoint::start(&[&[send("HTTP/1.1 400 Bad Request\r\n\r\n"), Hang]]).await;
    let response = post(&ca, &plain, "https://shop.example").await;
    assert_eq!(response.outcome, Outcome::Failed(FailureKind::Tls));
    assert_eq!(response.error, "shop.example does not speak TLS on this port");

    // The first bytes of the TLS alert with which servers answer plain text.
    let tls = Endpoint::start(&[&[Read, send(b"\x15\x03\x01\0\x02\x02\x46"), Hang]]).await;
    let response = post(&ca, &tls, "http://shop.example").await;
    assert_eq!(response.outcome, Outcome::Failed(FailureKind::Protocol), "{}", response.error);
}

#[tokio::test]
async fn r5_a_connection_that_breaks_in_the_handshake_is_a_reset() {
    let ca = Authority::new("A test's authority");
    for script in [&[][..], &[Reset]] {
        let endpoint = Endpoint::start(&[script]).await;
        let response = post(&ca, &endpoint, "https://shop.example").await;
        assert_eq!(response.outcome, Outcome::Failed(FailureKind::Reset), "{script:?}: {}", response.error);
    }
}

#[tokio::test]
async fn a_refused_handshake_is_a_tls_failure() {
    let ca = Authority::new("A test's authority");
    let endpoint = Endpoint::start(&[&[send(b"\x15\x03\x03\0\x02\x02\x28"), Hang]]).await;
    let response = post(&ca, &endpoint, "https://shop.example").await;
    assert_eq!(response.outcome, Outcome::Failed(FailureKind::Tls));
    let expected = "shop.example refused the TLS handshake: it takes no version or cipher that is offered here";
    assert_eq!(response.error, expected);
}
