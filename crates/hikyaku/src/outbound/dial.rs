//! From an address to a stream of bytes; a seam, so that a whole attempt can be made without a network.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Where connections come from; a seam for tests.
#[async_trait]
pub(crate) trait Dial: Send + Sync + 'static {
    /// Connects to an address, which has been vetted. It may take as long as it likes: whoever dials has a deadline.
    async fn dial(&self, peer: SocketAddr) -> io::Result<Box<dyn Stream>>;
}

/// The network.
pub(super) struct Tcp;

#[async_trait]
impl Dial for Tcp {
    async fn dial(&self, peer: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(peer).await?;
        // The whole request is written at once; waiting to fill packets would only delay it.
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}
