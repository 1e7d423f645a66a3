//! Where a request's body ends must be said once (S23). A proxy before us may have believed the other of two lengths, and
//! what it thinks is the body's end would be read here as a request of its own.
//!
//! hyper takes a Transfer-Encoding and hides the Content-Length beside it. So the bytes of a connection are watched on
//! their way to hyper, for that pair only.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::http::header::{CONNECTION, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::problem::{Kind, Problem};

/// Longest line of a head that is watched, in bytes; hyper is to refuse heads of this size.
pub const MAX_LINE_BYTES: usize = 32 * 1024;

/// Whether the request in chunks that a connection brought, its last, says its length as well. An extension of each of
/// the connection's requests.
#[derive(Debug, Clone, Default)]
pub struct HasTwoLengths(Arc<AtomicBool>);

/// A connection whose requests' heads are looked at as they pass.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    heads: Heads,
}

impl<S> Watched<S> {
    /// Watches a connection, and what will be found.
    pub fn new(stream: S) -> (Self, HasTwoLengths) {
        let found = HasTwoLengths::default();
        (Self { stream, heads: Heads::new(found.clone()) }, found)
    }
}

/// The lines of one head after another.
#[derive(Debug)]
struct Heads {
    place: Place,
    line: Vec<u8>,
    has_begun: bool,
    is_chunked: bool,
    length: Option<u64>,
    found: HasTwoLengths,
}

/// What the next byte belongs to.
#[derive(Debug)]
enum Place {
    Head,
    /// A body of which so many bytes are left.
    Body(u64),
    /// A body in chunks, after which the connection ends, or what hyper refuses.
    Rest,
}

impl Heads {
    fn new(found: HasTwoLengths) -> Self {
        Self { place: Place::Head, line: Vec::new(), has_begun: false, is_chunked: false, length: None, found }
    }

    fn see(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.place {
                Place::Head => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    self.line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
                    bytes = end.map_or(&[], |end| &bytes[end + 1..]);
                    if self.line.len() > MAX_LINE_BYTES {
                        self.place = Place::Rest;
                    } else if end.is_some() {
                        self.end_line();
                    }
                }
                Place::Body(left) => {
                    let passed = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[passed..];
                    let left = left - passed as u64;
                    self.place = if left == 0 { Place::Head } else { Place::Body(left) };
                }
                Place::Rest => return,
            }
        }
    }

    fn end_line(&mut self) {
        let line = mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            // Empty lines before a request are passed over, by hyper too.
            if mem::take(&mut self.has_begun) {
                self.end_head();
            }
            return;
        }
        self.has_begun = true;
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            // What is no number is refused by hyper, unless it hides the header: then it counts as one.
            let number = str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
            self.length = Some(number.unwrap_or(0));
        }
    }

    fn end_head(&mut self) {
        let length = self.length.take();
        self.place = if self.is_chunked {
            self.found.0.store(length.is_some(), Ordering::Release);
            Place::Rest
        } else {
            length.filter(|length| *length > 0).map_or(Place::Head, Place::Body)
        };
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        self.heads.see(&into.filled()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Refuses a request whose body's end is in doubt, or coded otherwise than in chunks (S10, S23), and ends the connection
/// after every request that came in chunks.
pub(super) async fn check<F: Future<Output = Response>>(
    request: Request,
    serve: impl FnOnce(Request) -> F,
) -> Response {
    if !request.headers().contains_key(TRANSFER_ENCODING) {
        return serve(request).await;
    }
    let found = request.extensions().get::<HasTwoLengths>();
    let has_two_lengths = found.is_some_and(|found| found.0.load(Ordering::Acquire));
    let mut response = if has_two_lengths || !is_chunked_once(request.headers()) {
        let detail = "The body's end must be told once: by one \"content-length\", or by one \"transfer-encoding: \
                      chunked\" and nothing else. Nothing was read; the connection ends.";
        Problem::new(Kind::AmbiguousLength, detail).into_response()
    } else {
        serve(request).await
    };
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn is_chunked_once(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    codings.next().is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked")) && codings.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(bytes: &[u8], piece: usize) -> bool {
        let found = HasTwoLengths::default();
        let mut heads = Heads::new(found.clone());
        bytes.chunks(piece).for_each(|piece| heads.see(piece));
        found.0.load(Ordering::Acquire)
    }

    #[test]
    fn s23_two_lengths_are_seen_in_any_order_and_however_the_bytes_come() {
        let both = "content-length: 5\r\ntransfer-encoding: chunked\r\n";
        let turned = "Transfer-Encoding: chunked\r\nCONTENT-LENGTH: x\r\n";
        let bare = "Transfer-Encoding: chunked\nContent-Length:0\n";
        let chunked = "transfer-encoding: chunked\r\n";
        let before = format!("\r\nPOST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{both}\r\n", both.len() + 2);
        for piece in [1, 2, 7, 4096] {
            for pair in [both, turned, bare] {
                let request = format!("{before}POST / HTTP/1.1\r\nhost: x\r\n{pair}\r\n0\r\n\r\n");
                assert!(is_found(request.as_bytes(), piece), "{pair}");
            }
            // In a body, of a length or in chunks, it is content.
            let request = format!("{before}POST / HTTP/1.1\r\n{chunked}\r\n40\r\nPOST / HTTP/1.1\r\n{both}\r\n");
            assert!(!is_found(request.as_bytes(), piece));
        }
    }
}
