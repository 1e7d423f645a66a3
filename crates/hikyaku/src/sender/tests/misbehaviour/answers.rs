//! What comes back over a connection that stands.

use super::Step::{Hang, Read, ReadStart, Repeat, Reset, SendSlowly, Stop, Wait};
use super::*;
use crate::outbound::tests::script::send;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const OOPS: &str = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
const FULL: &str = "HTTP/1.1 503 Full\r\nConnection: close\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const MIB: usize = 1024 * 1024;
/// Endless bytes come at this pace: virtual time passes only while everybody waits.
const BREATH: Duration = Duration::from_millis(50);

fn endless(bytes: impl AsRef<[u8]>) -> Step {
    Repeat(bytes.as_ref().to_vec(), BREATH)
}

fn byte_by_byte(bytes: &str) -> Step {
    SendSlowly(bytes.into(), secs(1))
}

/// Answers that all begin with the request having been read, and end the same way.
fn all_end(ends: &Ends, answers: Vec<(&str, Vec<Step>)>) -> Vec<Kind> {
    let kind = |(what, answer)| Kind::of(what, [vec![Read], answer].concat(), ends.clone());
    answers.into_iter().map(kind).collect()
}

pub(super) fn without_a_status() -> Vec<Kind> {
    let broken = vec![
        ("closes after the request", vec![]),
        ("resets after the request", vec![Reset]),
        ("closes in the status line", vec![send("HTTP/1.1 20")]),
        ("resets in the status line", vec![send("HTTP/1.1 20"), Reset]),
        ("closes in the headers", vec![send("HTTP/1.1 200 OK\r\nServer: x\r\n")]),
        ("resets in the headers", vec![send("HTTP/1.1 200 OK\r\nServer: x\r\n"), Reset]),
        ("closes before the last line end", vec![send("HTTP/1.1 200 OK\r\nServer: x\r\n\r")]),
        ("closes after an interim answer", vec![send("HTTP/1.1 100 Continue\r\n\r\n")]),
        ("resets after an interim answer", vec![send("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), Reset]),
        ("closes after 9 s", vec![Wait(secs(9))]),
    ];
    let silent = vec![
        ("never answers", vec![Hang]),
        ("never answers and reads no more", vec![Stop]),
        ("stops in the status line", vec![send("HTTP/1.1 200"), Hang]),
        ("stops in the headers", vec![send("HTTP/1.1 200 OK\r\nServer: x\r\n"), Hang]),
        ("stops before the last byte", vec![send("HTTP/1.1 200 OK\r\n\r"), Hang]),
        ("a lone 100 and silence", vec![send("HTTP/1.1 100 Continue\r\n\r\n"), Hang]),
        ("interim answers without end", vec![endless("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")]),
        ("a flood of interim answers", vec![endless("HTTP/1.1 100 Continue\r\n\r\n".repeat(500))]),
        ("a status line of one byte a second", vec![byte_by_byte("HTTP/1.1 200 OK\r\n\r\n"), Hang]),
        ("headers of one byte a second", vec![send("HTTP/1.1 200 OK\r\n"), byte_by_byte("Server: x\r\n\r\n"), Hang]),
        ("one header after another", vec![send("HTTP/1.1 200 OK\r\n"), Repeat(b"X: y\r\n".into(), secs(1))]),
        ("line ends before the status line, without end", vec![Repeat(b"\r\n".into(), secs(1))]),
    ];
    let mut kinds = all_end(&Ends::Fails(FailureKind::Reset), broken);
    kinds.extend(all_end(&Ends::Fails(FailureKind::Timeout), silent));
    let by_the_contract =
        Kind::of("never answers, four times within 71 min", vec![Hang], Ends::Fails(FailureKind::Timeout));
    kinds.push(by_the_contract.changed(|kind| kind.pauses = None));
    kinds
}

pub(super) fn around_the_deadline() -> Vec<Kind> {
    let after = |ms: u64, answer: &str| vec![Wait(Duration::from_millis(ms)), send(answer), Hang];
    let stages = |what, each: Duration, ends| {
        // The deadline is one for all of them: name, connection, answer.
        Kind::of(what, vec![Read, Wait(each), send(OK), Hang], ends).changed(|kind| {
            kind.behaviour.resolves = Some((each, Ok(addresses(&[ADDRESS]))));
            kind.behaviour.dials = vec![Dialed::After(each)];
        })
    };
    let timeout = Ends::Fails(FailureKind::Timeout);
    let mut kinds = all_end(
        &Ends::Answered(200),
        vec![
            ("200 after 9.9 s", after(9900, OK)),
            (
                "headers that end after 9.9 s",
                vec![send("HTTP/1.1 200 OK\r\n"), Wait(Duration::from_millis(9900)), send("\r\n")],
            ),
        ],
    );
    kinds.extend(all_end(&Ends::Answered(500), vec![("500 after 9.9 s", after(9900, OOPS))]));
    kinds.extend(all_end(
        &timeout,
        vec![
            ("200 after 10.1 s", after(10_100, OK)),
            ("500 after 10.1 s", after(10_100, OOPS)),
            ("200 after an hour", after(3_600_000, OK)),
            (
                "headers that end after 10.1 s",
                vec![send("HTTP/1.1 200 OK\r\n"), Wait(Duration::from_millis(10_100)), send("\r\n")],
            ),
        ],
    ));
    kinds.push(stages("3.3 s at every stage", Duration::from_millis(3300), Ends::Answered(200)));
    kinds.push(stages("3.4 s at every stage", Duration::from_millis(3400), timeout));
    kinds
}

pub(super) fn not_http() -> Vec<Kind> {
    let large = format!("HTTP/1.1 200 OK\r\nX-Large: {}\r\n\r\n", "x".repeat(MIB));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(500));
    let ok_with = |header: &str| vec![send(format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n")), Hang];
    let line = |line: &str| vec![send(format!("{line}\r\n\r\n")), Hang];
    let strange = vec![
        ("garbage", vec![send("\x01\x02\x03 what?\r\n\r\n"), Hang]),
        ("zeros", vec![send([0; 4096]), Hang]),
        ("HTTP/0.9", vec![send("<html>thanks</html>\r\n")]),
        ("HTTP/1.2", line("HTTP/1.2 200 OK")),
        ("HTTP/2.0 in a status line", line("HTTP/2.0 200 OK")),
        ("http in small letters", line("http/1.1 200 OK")),
        ("another protocol", line("ICY 200 OK")),
        ("a request", line("POST / HTTP/1.1")),
        ("HTTP/2's preface", vec![send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Hang]),
        ("HTTP/2's settings", vec![send(b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80"), Hang]),
        ("a TLS alert at an http port", vec![send(b"\x15\x03\x01\0\x02\x02\x46"), Hang]),
        ("status 000", line("HTTP/1.1 000 Zero")),
        ("status 099", line("HTTP/1.1 099 Low")),
        ("status 20", line("HTTP/1.1 20 Short")),
        ("status 1000", line("HTTP/1.1 1000 Long")),
        ("status -200", line("HTTP/1.1 -200 Negative")),
        ("a status that is no number", line("HTTP/1.1 2x0 Letters")),
        ("NUL in the reason", line("HTTP/1.1 200 a\0b")),
        ("NUL in a header", ok_with("X: a\0b")),
        ("a header without a colon", ok_with("no colon")),
        ("a header without a name", ok_with(": nameless")),
        ("a folded header", ok_with("X: one\r\n two")),
        ("a space before the colon", ok_with("X : y")),
        ("a negative length", ok_with("Content-Length: -1")),
        ("a length that is no number", ok_with("Content-Length: five")),
        ("a length beyond all numbers", ok_with("Content-Length: 99999999999999999999999")),
        ("a length beyond all bodies", ok_with("Content-Length: 18446744073709551615")),
        ("two lengths", ok_with("Content-Length: 1\r\nContent-Length: 2")),
        ("two lengths in one", ok_with("Content-Length: 1, 2")),
        ("a header of 1 MiB", vec![send(large), Hang]),
        ("500 headers", vec![send(many), Hang]),
        ("headers without end", vec![send("HTTP/1.1 200 OK\r\n"), endless("X-More: and more\r\n".repeat(50))]),
        ("a header without end", vec![send("HTTP/1.1 200 OK\r\nX: "), endless([b'x'; 4096])]),
        ("a reason without end", vec![send("HTTP/1.1 200 "), endless([b'x'; 4096])]),
    ];
    let mut kinds = all_end(&Ends::Fails(FailureKind::Protocol), strange);
    let greeting = vec![send("SSH-2.0-OpenSSH_9.9\r\n"), Hang];
    kinds.push(Kind::of("a greeting before the request", greeting, Ends::Fails(FailureKind::Protocol)));
    kinds
}

pub(super) fn bodies() -> Vec<Kind> {
    let ok_with =
        |headers: &str, body: &[u8]| send([format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n").as_bytes(), body].concat());
    let fine = vec![
        ("an endless body", vec![send("HTTP/1.1 200 OK\r\n\r\n"), endless([b'x'; 4096])]),
        ("endless chunks", vec![send(CHUNKED), endless("1\r\nx\r\n")]),
        ("endless chunk extensions", vec![send(CHUNKED), send("1;"), endless([b'x'; 4096])]),
        ("endless trailers", vec![send(CHUNKED), send("0\r\n"), endless("X: y\r\n")]),
        ("a body of one byte a second", vec![send("HTTP/1.1 200 OK\r\n\r\n"), Repeat(b"x".into(), secs(1))]),
        ("a body that never comes", vec![ok_with("Content-Length: 10", b""), Hang]),
        ("a body that stalls", vec![ok_with("Content-Length: 10", b"abc"), Hang]),
        ("a body shorter than its length", vec![ok_with("Content-Length: 10", b"abc")]),
        ("a body longer than its length", vec![ok_with("Content-Length: 2", b"okHTTP/1.1 500 Oops\r\n\r\n"), Hang]),
        ("a length of almost all numbers", vec![ok_with("Content-Length: 9223372036854775807", b"abc"), Hang]),
        ("a body that is reset", vec![ok_with("Content-Length: 10", b"abc"), Reset]),
        ("the same length twice", vec![ok_with("Content-Length: 2\r\nContent-Length: 2", b"ok"), Hang]),
        ("chunks and a length", vec![ok_with("Transfer-Encoding: chunked\r\nContent-Length: 3", b"0\r\n\r\n"), Hang]),
        ("a bad chunk size", vec![send(CHUNKED), send("zz\r\nabc\r\n"), Hang]),
        ("a chunk size beyond all numbers", vec![send(CHUNKED), send("fffffffffffffffffff\r\nabc\r\n"), Hang]),
        ("chunks cut off", vec![send(CHUNKED), send("5\r\nab")]),
        ("an unknown transfer encoding", vec![ok_with("Transfer-Encoding: gzip", b"abc")]),
        ("a body that is gzip", vec![ok_with("Content-Encoding: gzip\r\nContent-Length: 4", b"\x1f\x8b\x08\0"), Hang]),
        ("a body that lies about gzip", vec![ok_with("Content-Encoding: gzip", b"plain")]),
        ("a binary body with NUL", vec![ok_with("Content-Length: 5", b"\0\xff\xfe\0\x80"), Hang]),
        ("a header that is no ASCII", vec![ok_with("X: \u{9818}\r\nContent-Length: 0", b""), Hang]),
        ("HTTP/1.0", vec![send("HTTP/1.0 200 OK\r\n\r\nok")]),
        ("no reason", vec![send("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"), Hang]),
        ("bare line feeds", vec![send("HTTP/1.1 200 OK\nContent-Length: 0\n\n"), Hang]),
        ("line ends before the status line", vec![send("\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), Hang]),
        ("an interim answer first", vec![send("HTTP/1.1 100 Continue\r\n\r\n"), send(OK), Hang]),
        ("five interim answers first", vec![send("HTTP/1.1 103 X\r\nA: b\r\n\r\n".repeat(5)), send(OK), Hang]),
        ("two answers", vec![send(OK), send(OOPS), Hang]),
    ];
    let with_body = |status: u16| {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 24\r\n\r\nHTTP/1.1 500 Oops\r\n\r\n...");
        Kind::of(format!("a {status} with a body"), vec![Read, send(answer), Hang], Ends::Answered(status))
    };
    let mut kinds = all_end(&Ends::Answered(200), fine);
    kinds.extend([204, 205, 304].map(with_body));
    let oops = send("HTTP/1.1 500 Oops\r\n\r\n");
    let failing = vec![
        ("500 with an endless body", vec![oops.clone(), endless([b'x'; 4096])]),
        ("500 with a body of one byte a second", vec![oops, Repeat(b"x".into(), secs(1))]),
    ];
    kinds.extend(all_end(&Ends::Answered(500), failing));
    kinds.extend(before_the_request_was_read());
    kinds
}

fn before_the_request_was_read() -> Vec<Kind> {
    let too_large = send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    vec![
        Kind::of("413 before the request was read", vec![ReadStart, too_large.clone(), Stop], Ends::Answered(413)),
        Kind::of(
            "413 before the request was read, and closes",
            vec![ReadStart, too_large.clone()],
            Ends::Answered(413),
        ),
        Kind::of("413 before the request was read, and resets", vec![ReadStart, too_large, Reset], Ends::Answered(413)),
        Kind::of("200 before the request was read", vec![ReadStart, send(OK), Stop], Ends::Answered(200)),
        Kind::of("200 before the request was read, and closes", vec![ReadStart, send(OK)], Ends::Answered(200)),
        // After as long as its bytes are on their way, so that the request has been begun.
        Kind::of("503 to whoever connects", vec![Wait(Duration::from_millis(1)), send(FULL)], Ends::Answered(503)),
    ]
}

/// Pauses so short that a connection is still kept when the next attempt comes.
pub(super) fn kept_connections() -> Vec<Kind> {
    const FAILED: Outcome = Outcome::Answered(500);
    const BROKEN: Outcome = Outcome::Failed(FailureKind::Reset);
    let kept = |what, script: Vec<Step>, outcomes: [Outcome; 4]| {
        Kind::of(what, script, Ends::As(outcomes.into())).changed(|kind| kind.pauses = Some(vec![secs(1); 3]))
    };
    let alternating = [FAILED, BROKEN, FAILED, BROKEN];
    vec![
        kept("answers on the same connection", vec![[Read, send(OOPS)]; 4].concat(), [FAILED; 4]),
        kept("closes on the second request", vec![Read, send(OOPS), Read], alternating),
        kept("resets on the second request", vec![Read, send(OOPS), Read, Reset], alternating),
        kept("closes within the second request", vec![Read, send(OOPS), ReadStart], alternating),
        kept("closes while nobody asks", vec![Read, send(OOPS), Wait(Duration::from_millis(500))], [FAILED; 4]),
        kept("closes as it answers", vec![Read, send(OOPS)], [FAILED; 4]),
        kept(
            "says that it will close",
            vec![Read, send("HTTP/1.1 500 X\r\nConnection: close\r\n\r\n"), Hang],
            [FAILED; 4],
        ),
        kept(
            "answers again before it is asked",
            vec![Read, send(OOPS), Wait(Duration::from_millis(500)), send(OK), Hang],
            [FAILED; 4],
        ),
        kept("answers twice at once", vec![Read, send(OOPS), send(OK), Hang], [FAILED; 4]),
        kept(
            "never answers the second request",
            vec![Read, send(OOPS), Read, Hang],
            [FAILED, Outcome::Failed(FailureKind::Timeout), FAILED, Outcome::Failed(FailureKind::Timeout)],
        ),
    ]
}
