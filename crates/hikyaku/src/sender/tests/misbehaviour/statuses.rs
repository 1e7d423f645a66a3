//! Every class of status, and the odd ones of each.

use super::Step::{Hang, Read};
use super::*;
use crate::outbound::tests::script::send;

const ELSEWHERE: &str = "http://elsewhere.example.com/";

fn head(status: u16, headers: &str) -> Step {
    send(format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: 0\r\n\r\n"))
}

pub(super) fn all() -> Vec<Kind> {
    const SUCCESS: [u16; 9] = [200, 201, 202, 203, 204, 205, 206, 226, 299];
    const FAILURE: [u16; 30] = [
        101, 300, 304, 305, 306, 399, 400, 401, 403, 404, 408, 409, 410, 413, 418, 421, 425, 429, 451, 499, 500, 501,
        502, 503, 504, 511, 520, 599, 600, 999,
    ];
    let all = SUCCESS.into_iter().chain(FAILURE);
    all.map(|status| Kind::of(format!("status {status}"), vec![Read, head(status, ""), Hang], Ends::Answered(status)))
        .collect()
}

pub(super) fn redirects() -> Vec<Kind> {
    let itself = format!("http://{HOST}/hook/secret-path");
    let targets = [itself.as_str(), "/elsewhere", ELSEWHERE, "file:///etc/passwd", "http://169.254.169.254/", "\u{fc}"];
    let mut kinds = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        for target in targets {
            let script = vec![Read, head(status, &format!("Location: {target}\r\n")), Hang];
            kinds.push(Kind::of(format!("{status} to {target}"), script, Ends::Answered(status)));
        }
        let script = vec![Read, head(status, ""), Hang];
        kinds.push(Kind::of(format!("{status} to nowhere"), script, Ends::Answered(status)));
    }
    // A server that speaks of another in every way it can.
    let script = vec![Read, head(200, &format!("Refresh: 0; url={ELSEWHERE}\r\nAlt-Svc: h2=\":444\"\r\n")), Hang];
    kinds.push(Kind::of("200 that refers to elsewhere", script, Ends::Answered(200)));
    kinds
}
