//! Servers that answer before they have read the request.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use hikyaku_core::delivery::{FailureKind, Outcome};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Step::{ReadStart, Reset, Stop};
use super::*;
use crate::outbound::dial::{Dial, Stream};

const TOO_LARGE: &[u8] = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
/// More than a connection takes up unread.
const LARGE_BYTES: usize = 32 * 1024 * 1024;

#[tokio::test]
async fn s9_an_answer_before_the_request_was_read_counts() {
    for end in [&[Stop][..], &[], &[Reset]] {
        let script = [&[ReadStart, send(TOO_LARGE)], end].concat();
        let endpoint = Endpoint::start(&[&script]).await;
        let request = Request { body: vec![b'x'; LARGE_BYTES].into(), ..request(&endpoint.url(), AMPLE) };
        let response = client().post(request).await;
        assert_eq!(response.outcome, Outcome::Answered(413), "{end:?}: {}", response.error);
    }
}

/// A connection to a server that closed after it had said this. Its words arrive just after the client has looked for
/// some and in vain, so that the first thing which it notices is that writing fails.
struct Closed {
    said: &'static [u8],
    fails_with: ErrorKind,
    has_failed: bool,
    reader: Option<Waker>,
}

impl AsyncRead for Closed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.has_failed {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (now, later) = self.said.split_at(self.said.len().min(buf.remaining()));
        buf.put_slice(now);
        self.said = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Closed {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.has_failed = true;
        self.reader.take().iter().for_each(Waker::wake_by_ref);
        Poll::Ready(Err(self.fails_with.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Whoever connects gets a connection that is closed like this.
struct Closes(&'static [u8], ErrorKind);

#[async_trait]
impl Dial for Closes {
    async fn dial(&self, _: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let Self(said, fails_with) = *self;
        Ok(Box::new(Closed { said, fails_with, has_failed: false, reader: None }))
    }
}

#[tokio::test]
async fn s9_an_answer_is_read_though_writing_the_request_fails() {
    const RESET: Outcome = Outcome::Failed(FailureKind::Reset);
    for fails_with in [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe] {
        let cases: [(&[u8], Outcome); 4] = [
            (TOO_LARGE, Outcome::Answered(413)),
            (b"HTTP/1.1 200 OK\r\n\r\nok", Outcome::Answered(200)),
            (b"HTTP/1.1 20", RESET),
            (b"", RESET),
        ];
        for (said, expected) in cases {
            let client = client().over(Arc::new(Closes(said, fails_with)));
            let response = client.post(request("http://127.0.0.1/", AMPLE)).await;
            assert_eq!(response.outcome, expected, "{fails_with}, {:?}: {}", said.escape_ascii(), response.error);
        }
    }
}

#[tokio::test]
async fn a_write_that_fails_for_want_of_something_here_is_our_failure() {
    let client = client().over(Arc::new(Closes(b"HTTP/1.1 200 OK\r\n\r\n", ErrorKind::NetworkDown)));
    let response = client.post(request("http://127.0.0.1/", AMPLE)).await;
    assert_eq!(response.outcome, Outcome::Failed(FailureKind::Local), "{}", response.error);
}
