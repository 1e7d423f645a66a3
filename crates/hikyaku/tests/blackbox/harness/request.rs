//! An HTTP request as it was on the wire: read by hand, so that nothing between the socket and a test changes it.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Largest head that is read, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// One request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Its place among all that the endpoint got, from 0.
    pub(crate) order: usize,
    /// Which connection it came over, from 0.
    pub(crate) connection: usize,
    /// The request line and the headers, to the byte.
    pub(crate) head: String,
    /// The body, to the byte.
    pub(crate) body: Vec<u8>,
    /// Which attempt of its delivery at this path it is, from 1.
    pub(crate) attempt: usize,
}

impl Seen {
    /// The path with its query.
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The method.
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    /// A header's value; `None` if it is not there. A header that is there twice is an error of the sender.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        let value = values.next();
        assert_eq!(values.next(), None, "{name} stands there twice:\n{}", self.head);
        value
    }

    /// `X-RR-Delivery`, or nothing where there is none.
    pub(crate) fn delivery(&self) -> &str {
        self.header("x-rr-delivery").unwrap_or_default()
    }

    /// `X-RR-Signature`, or nothing where there is none.
    pub(crate) fn signature(&self) -> &str {
        self.header("x-rr-signature").unwrap_or_default()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Reads one request's head and body; `None` when the connection ends before a request begins.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            return if head.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        head.push(byte[0]);
        if head.len() > MAX_HEAD_BYTES {
            return Err(io::Error::other("the head is too long"));
        }
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let length = if head.starts_with("GET ") { length.or(Some(0)) } else { length };
    let mut body = vec![0; length.ok_or_else(|| io::Error::other("no content-length"))?];
    stream.read_exact(&mut body).await?;
    Ok(Some((head, body)))
}
