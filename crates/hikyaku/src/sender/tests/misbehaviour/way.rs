//! The way to an endpoint: its name, its addresses, the handshake.

use std::io::ErrorKind;
use std::sync::LazyLock;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::ServerConfig;

use super::Step::{Hang, Read, ReadStart, Repeat, Reset, SendSlowly, Stop};
use super::*;
use crate::outbound::ResolveError;
use crate::outbound::tests::script::send;
use crate::outbound::tests::tls::config;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const SECOND_ADDRESS: &str = "93.184.215.15";
const FAR_TOO_LONG: Duration = secs(3600);
/// Too many open files, a shortage of ours.
const EMFILE: i32 = 24;

/// The authority that the client trusts.
pub(super) fn authority() -> &'static Authority {
    static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("The authority of these tests"));
    &AUTHORITY
}

fn fine() -> Vec<Step> {
    vec![Read, send(OK), Hang]
}

pub(super) fn names() -> Vec<Kind> {
    use FailureKind::{Dns, Local, TargetRefused, Timeout};
    let named = |what, after, found, ends| {
        Kind::of(what, fine(), ends).changed(|kind| kind.behaviour.resolves = Some((after, found)))
    };
    let leads = |what, to: &[&str], ends| named(what, Duration::ZERO, Ok(addresses(to)), ends);
    let no_answer = ResolveError::NoAnswer("SERVFAIL".into());
    let cannot_ask = ResolveError::Local("no socket".into());
    vec![
        named("a name that does not exist", Duration::ZERO, Err(ResolveError::NoAddress), Ends::Fails(Dns)),
        named("name servers that fail", secs(1), Err(no_answer), Ends::Fails(Dns)),
        named("name servers that cannot be asked", Duration::ZERO, Err(cannot_ask), Ends::Fails(Local)),
        leads("a name without addresses", &[], Ends::Fails(Dns)),
        Kind::of("a name that is never answered", fine(), Ends::Fails(Timeout))
            .changed(|kind| kind.behaviour.resolves = None),
        named("a name that takes an hour", FAR_TOO_LONG, Ok(addresses(&[ADDRESS])), Ends::Fails(Timeout)),
        named(
            "a name that does not exist after an hour",
            FAR_TOO_LONG,
            Err(ResolveError::NoAddress),
            Ends::Fails(Timeout),
        ),
        named("a name that takes 9.9 s", Duration::from_millis(9900), Ok(addresses(&[ADDRESS])), Ends::Answered(200)),
        leads("a private address", &["10.0.0.1"], Ends::Fails(TargetRefused)),
        leads("a public and a private address", &[ADDRESS, "192.168.0.1"], Ends::Fails(TargetRefused)),
        leads("loopback", &["127.0.0.1"], Ends::Fails(TargetRefused)),
        leads("the metadata service", &["169.254.169.254"], Ends::Fails(TargetRefused)),
        leads("a private address in IPv6's clothes", &["::ffff:10.0.0.1"], Ends::Fails(TargetRefused)),
    ]
}

pub(super) fn connections() -> Vec<Kind> {
    use FailureKind::{Connect, Local, Timeout};
    let one = |what, dialed, ends| Kind::of(what, fine(), ends).changed(|kind| kind.behaviour.dials = vec![dialed]);
    let two = |what, first, second, ends| {
        Kind::of(what, fine(), ends).changed(|kind| {
            kind.behaviour.resolves = Some((Duration::ZERO, Ok(addresses(&[ADDRESS, SECOND_ADDRESS]))));
            kind.behaviour.dials = vec![first, second];
        })
    };
    let (refused, at_once) = (Dialed::Fails(ErrorKind::ConnectionRefused), Dialed::After(Duration::ZERO));
    vec![
        one("refused", refused, Ends::Fails(Connect)),
        one("host unreachable", Dialed::Fails(ErrorKind::HostUnreachable), Ends::Fails(Connect)),
        one("the system gives up", Dialed::Fails(ErrorKind::TimedOut), Ends::Fails(Connect)),
        one("reset while it connects", Dialed::Fails(ErrorKind::ConnectionReset), Ends::Fails(FailureKind::Reset)),
        one("this machine is offline", Dialed::Fails(ErrorKind::NetworkUnreachable), Ends::Fails(Local)),
        one("no socket is left", Dialed::FailsWith(EMFILE), Ends::Fails(Local)),
        one("never connects", Dialed::Never, Ends::Fails(Timeout)),
        one("connects after an hour", Dialed::After(FAR_TOO_LONG), Ends::Fails(Timeout)),
        one("connects after 9.9 s", Dialed::After(Duration::from_millis(9900)), Ends::Answered(200)),
        two("one address refuses, one is fine", refused, at_once, Ends::Answered(200)),
        two("one address never connects, one is fine", Dialed::Never, at_once, Ends::Answered(200)),
        two("no address ever connects", Dialed::Never, Dialed::Never, Ends::Fails(Timeout)),
        two("both refuse", refused, refused, Ends::Fails(Connect)),
        two("one refuses, for one no socket is left", refused, Dialed::FailsWith(EMFILE), Ends::Fails(Connect)),
        Kind::of("closed at once", vec![], Ends::Fails(FailureKind::Reset)),
        Kind::of("reset at once", vec![Reset], Ends::Fails(FailureKind::Reset)),
        Kind::of("accepts and never reads", vec![Stop], Ends::Fails(Timeout)),
        Kind::of("reads the start and no more", vec![ReadStart, Stop], Ends::Fails(Timeout)),
        Kind::of("closes in the request", vec![ReadStart], Ends::Fails(FailureKind::Reset)),
        Kind::of("resets in the request", vec![ReadStart, Reset], Ends::Fails(FailureKind::Reset)),
    ]
}

fn secure(what: &str, script: Vec<Step>, tls: Option<Arc<ServerConfig>>, ends: Ends) -> Kind {
    Kind::of(what, script, ends).changed(|kind| {
        kind.scheme = "https";
        kind.behaviour.tls = tls;
    })
}

pub(super) fn handshakes() -> Vec<Kind> {
    use FailureKind::{Protocol, Reset as Broken, Timeout, Tls};
    let good = || Some(authority().server(HOST, |_| {}));
    let with = |change: fn(&mut CertificateParams)| Some(authority().server(HOST, change));
    let alert = |description: u8| send([0x15, 3, 3, 0, 2, 2, description]);
    let raw = |what, script, kind| secure(what, script, None, Ends::Fails(kind));
    let shown = |what, tls| secure(what, fine(), tls, Ends::Fails(Tls));
    vec![
        secure("a good certificate", fine(), good(), Ends::Answered(200)),
        shown("expired", with(|params| params.not_after = date_time_ymd(2020, 1, 1))),
        shown("not valid yet", with(|params| params.not_before = date_time_ymd(4000, 1, 1))),
        shown("self-signed", Some(self_signed())),
        shown("of an unknown authority", Some(Authority::new("Another").server(HOST, |_| {}))),
        shown("for another name", Some(authority().server("elsewhere.example.com", |_| {}))),
        raw("plain text at an https port", vec![ReadStart, send("HTTP/1.1 400 Bad Request\r\n\r\n"), Hang], Tls),
        raw("another greeting at an https port", vec![send("220 mail.example.com ESMTP\r\n"), Hang], Tls),
        raw("garbage at an https port", vec![ReadStart, send([0xff; 64]), Hang], Tls),
        raw("an alert: handshake failure", vec![ReadStart, alert(40), Hang], Tls),
        raw("an alert: protocol version", vec![ReadStart, alert(70)], Tls),
        raw("an alert: unrecognized name", vec![ReadStart, alert(112)], Tls),
        raw("a record of 64 KiB", vec![ReadStart, send([0x16, 3, 3, 0xff, 0xff]), Hang], Tls),
        raw("closes in the handshake", vec![ReadStart], Broken),
        raw("resets in the handshake", vec![ReadStart, Reset], Broken),
        raw("a handshake that never begins", vec![Stop], Timeout),
        raw("a handshake that is read and never answered", vec![Hang], Timeout),
        raw(
            "a handshake of one byte a second",
            vec![ReadStart, SendSlowly(vec![0x16, 3, 3, 0, 80, 2], secs(1)), Hang],
            Timeout,
        ),
        raw("a handshake of empty records", vec![ReadStart, Repeat(vec![0x16, 3, 3, 0, 0], secs(1))], Tls),
        secure("never answers, over TLS", vec![Read, Hang], good(), Ends::Fails(Timeout)),
        secure("closes after the handshake", vec![], good(), Ends::Fails(Broken)),
        secure("resets after the request, over TLS", vec![Read, Reset], good(), Ends::Fails(Broken)),
        secure("cut in the headers, over TLS", vec![Read, send("HTTP/1.1 200 OK\r\nX:")], good(), Ends::Fails(Broken)),
        secure("garbage over TLS", vec![Read, send("what?\r\n\r\n"), Hang], good(), Ends::Fails(Protocol)),
        secure("cut in the body, over TLS", vec![Read, send("HTTP/1.1 200 OK\r\n\r\nok")], good(), Ends::Answered(200)),
    ]
}

fn self_signed() -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![HOST.to_owned()]).unwrap().self_signed(&key).unwrap();
    config(certificate.der().clone(), &key)
}
