//! A stream that is read to its end even where the other side has stopped reading.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::dial::Stream;

/// A stream whose writes do not fail because the other side takes no more: those bytes are dropped. A server may answer a
/// request that it has not read to its end, and close. What it said can still be read then, and the status decides (S9);
/// an error of the write would hide it. If it said nothing, reading tells that the connection has ended.
pub(super) struct Listening(pub(super) Box<dyn Stream>);

/// Takes the bytes as written where the other side takes no more.
fn or_dropped(written: Poll<io::Result<usize>>, len: usize) -> Poll<io::Result<usize>> {
    written.map(|written| match written {
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Ok(len),
        written => written,
    })
}

impl AsyncRead for Listening {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Listening {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        or_dropped(Pin::new(&mut self.0).poll_write(cx, buf), buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        or_dropped(Pin::new(&mut self.0).poll_write_vectored(cx, bufs), len)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
