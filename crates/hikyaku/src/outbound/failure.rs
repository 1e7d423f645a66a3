//! Why an attempt brought no status: its kind, read off typed errors, and one sentence for a person.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::time::Duration;

use hikyaku_core::address::Refusal;
use hikyaku_core::delivery::FailureKind;
use hikyaku_core::timestamp;
use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError};

use super::resolve::ResolveError;

/// Longest sentence, in bytes; parts of some come from a server.
const MAX_SENTENCE_BYTES: usize = 300;

/// An attempt that brought no status.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    /// Names the host at most, never a path or a query (S19).
    pub(super) sentence: String,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, sentence: impl Display) -> Self {
        Self { kind, sentence: printable(&sentence.to_string()) }
    }

    pub(super) fn timeout(timeout: Duration) -> Self {
        Self::new(FailureKind::Timeout, format_args!("no answer within {timeout:?}"))
    }

    /// A status came, but more of a body than was to be read.
    pub(super) fn too_large(max_bytes: usize) -> Self {
        Self::new(FailureKind::Protocol, format_args!("the answer is larger than {max_bytes} bytes"))
    }

    /// A status came, but not the whole of its body.
    pub(super) fn cut_off(timeout: Duration) -> Self {
        Self::new(FailureKind::Protocol, format_args!("the answer broke off, or did not end within {timeout:?}"))
    }

    pub(super) fn refused(host: &str, refusal: &Refusal) -> Self {
        Self::new(FailureKind::TargetRefused, format_args!("{host} may not be delivered to: {refusal}"))
    }

    pub(super) fn resolve(name: &str, error: &ResolveError) -> Self {
        let kind = match error {
            ResolveError::NoAddress | ResolveError::NoAnswer(_) => FailureKind::Dns,
            ResolveError::Local(_) => FailureKind::Local,
        };
        Self::new(kind, format_args!("the name {name} could not be resolved: {error}"))
    }

    pub(super) fn connect(peer: impl Display, error: &io::Error) -> Self {
        match error.kind() {
            _ if is_local(error) => Self::local(error),
            // Accepted and thrown out at once, before we had even noticed the first.
            io::ErrorKind::ConnectionReset => {
                Self::new(FailureKind::Reset, format_args!("the connection was reset by {peer}"))
            }
            io::ErrorKind::ConnectionRefused => {
                Self::new(FailureKind::Connect, format_args!("the connection was refused by {peer}"))
            }
            _ => Self::new(FailureKind::Connect, format_args!("no connection to {peer}: {error}")),
        }
    }

    /// The handshake ended in `error`.
    pub(super) fn handshake(host: &str, error: &io::Error) -> Self {
        match source::<rustls::Error>(error) {
            Some(tls) => Self::new(FailureKind::Tls, tls_sentence(host, tls)),
            None if is_local(error) => Self::local(error),
            None => {
                Self::new(FailureKind::Reset, format_args!("{host} broke the connection in the TLS handshake: {error}"))
            }
        }
    }

    /// The connection stood, and ended in `error` before a status came.
    pub(super) fn exchange(host: &str, error: &hyper::Error) -> Self {
        let error = innermost(error);
        if let Some(io) = source::<io::Error>(error) {
            return match source::<rustls::Error>(io) {
                Some(tls) => Self::new(FailureKind::Tls, tls_sentence(host, tls)),
                None if is_local(io) => Self::local(io),
                None => Self::new(FailureKind::Reset, format_args!("{host} broke the connection: {io}")),
            };
        }
        if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            return Self::new(FailureKind::Reset, format_args!("{host} closed the connection before a status came"));
        }
        if error.is_parse_too_large() {
            return Self::new(FailureKind::Protocol, format_args!("the headers of {host}'s answer are too large"));
        }
        Self::new(FailureKind::Protocol, format_args!("what {host} answered is not HTTP/1.1: {error}"))
    }

    fn local(error: &io::Error) -> Self {
        Self::new(FailureKind::Local, format_args!("this machine could not open a connection: {error}"))
    }
}

/// A request that was never written carries the error of its connection inside.
fn innermost(error: &hyper::Error) -> &hyper::Error {
    let mut innermost = error;
    while let Some(inner) = innermost.source().and_then(|source| source.downcast_ref()) {
        innermost = inner;
    }
    innermost
}

/// The first error of type `T` among an error and its causes.
fn source<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An I/O error hides the error it was made of from `source`, and shows that error's cause instead.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Whether the error says that this machine has run out of something or is not connected; a receiver is not to blame
/// for it.
pub(super) fn is_local(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = if cfg!(target_os = "linux") { 105 } else { 55 };
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOBUFS))
        || matches!(
            error.kind(),
            io::ErrorKind::OutOfMemory
                | io::ErrorKind::AddrNotAvailable
                | io::ErrorKind::NetworkDown
                | io::ErrorKind::NetworkUnreachable
        )
}

fn tls_sentence(host: &str, error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(certificate) => certificate_sentence(host, certificate),
        rustls::Error::InvalidMessage(_) => format!("{host} does not speak TLS on this port"),
        rustls::Error::AlertReceived(alert) => format!("{host} refused the TLS handshake: {}", alert_words(*alert)),
        rustls::Error::PeerIncompatible(_) => {
            format!("the TLS handshake with {host} failed: it offers no version or cipher that is taken here")
        }
        rustls::Error::PeerMisbehaved(_) | rustls::Error::InappropriateHandshakeMessage { .. } => {
            format!("the TLS handshake with {host} failed: it does not keep to the protocol")
        }
        _ => format!("the TLS handshake with {host} failed"),
    }
}

/// What a server means by its alert, for people who do not know the protocol's names.
fn alert_words(alert: AlertDescription) -> String {
    let words = match alert {
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "it takes no version or cipher that is offered here"
        }
        AlertDescription::ProtocolVersion => "it takes neither TLS 1.2 nor TLS 1.3",
        AlertDescription::UnrecognisedName => "it does not serve this name",
        AlertDescription::NoApplicationProtocol => "it does not offer HTTP/1.1",
        AlertDescription::CertificateRequired | AlertDescription::BadCertificate => "it asks for a client certificate",
        AlertDescription::InternalError => "it failed inside",
        other => return format!("alert {}", u8::from(other)),
    };
    words.to_owned()
}

fn certificate_sentence(host: &str, error: &CertificateError) -> String {
    match error {
        CertificateError::NotValidForNameContext { presented, .. } => {
            // They come as `DnsName("other.example")`.
            let names: Vec<_> = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name)).collect();
            let names = if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") };
            format!("the certificate is for {names}, not for {host}")
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("the certificate of {host} has expired; it was good until {}", date(*not_after))
        }
        CertificateError::Expired => format!("the certificate of {host} has expired"),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("the certificate of {host} is not valid yet, but from {} on", date(*not_before))
        }
        CertificateError::NotValidYet => format!("the certificate of {host} is not valid yet"),
        CertificateError::UnknownIssuer => format!(
            "the certificate of {host} is signed by nobody this machine trusts; it is self-signed, its intermediate \
             certificate is missing, or its authority must be added here"
        ),
        CertificateError::BadSignature => format!(
            "the certificate of {host} is not signed by the authority that it names; the server sends the wrong chain, or \
             an authority of that name has another key here"
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("the certificate of {host} is not meant for a server")
        }
        CertificateError::Revoked => format!("the certificate of {host} was revoked"),
        CertificateError::BadEncoding => format!("the certificate of {host} cannot be read"),
        // The library's word for it is not for people; mostly it is an authority that was made its own server.
        _ => format!("the certificate of {host} is not fit for a server; it may be an authority's own"),
    }
}

fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).ok();
    let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| "an impossible date".to_owned(), timestamp::format)
}

/// Escapes what a server could have put into a sentence to disturb a terminal or a log, and cuts it to length.
fn printable(sentence: &str) -> String {
    let mut printable = String::with_capacity(sentence.len().min(MAX_SENTENCE_BYTES));
    for character in sentence.chars() {
        if printable.len() >= MAX_SENTENCE_BYTES {
            printable.push('…');
            break;
        }
        match character {
            c if c.is_control() => printable.extend(c.escape_default()),
            c => printable.push(c),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_shortages_are_not_the_receivers_fault() {
        let emfile = io::Error::from_raw_os_error(24);
        assert_eq!(Failure::connect("127.0.0.1:9", &emfile).kind, FailureKind::Local);
        assert_eq!(Failure::handshake("shop.example", &emfile).kind, FailureKind::Local);
        let no_port = io::Error::from(io::ErrorKind::AddrNotAvailable);
        assert_eq!(Failure::connect("127.0.0.1:9", &no_port).kind, FailureKind::Local);
        for offline in [io::ErrorKind::NetworkDown, io::ErrorKind::NetworkUnreachable] {
            assert_eq!(Failure::connect("192.0.2.1:443", &offline.into()).kind, FailureKind::Local, "{offline}");
        }
        let local = ResolveError::Local(emfile.to_string());
        assert_eq!(Failure::resolve("shop.example", &local).kind, FailureKind::Local);
        let unreachable = io::Error::from(io::ErrorKind::HostUnreachable);
        assert_eq!(Failure::connect("127.0.0.1:9", &unreachable).kind, FailureKind::Connect);
    }

    #[test]
    fn a_tls_error_is_found_inside_an_io_error() {
        let error = io::Error::other(rustls::Error::InvalidCertificate(CertificateError::Expired));
        let failure = Failure::handshake("shop.example", &error);
        assert_eq!(failure.kind, FailureKind::Tls);
        assert_eq!(failure.sentence, "the certificate of shop.example has expired");
    }

    #[test]
    fn a_servers_text_cannot_disturb_a_terminal_or_fill_a_log() {
        let failure = Failure::new(FailureKind::Tls, "for \u{1b}[2J\0\n".to_owned() + &"é".repeat(10_000));
        assert!(failure.sentence.starts_with("for \\u{1b}[2J\\u{0}\\né"), "{}", failure.sentence);
        assert!(failure.sentence.len() <= MAX_SENTENCE_BYTES + "é…".len());
    }
}
