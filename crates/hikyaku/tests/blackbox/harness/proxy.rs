//! A way to PostgreSQL that can be cut: a proxy between a program and its database.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The message with which a transaction is committed.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
/// Bytes read at a time.
const BUFFER_BYTES: usize = 16 * 1024;

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// After so many bytes of the commit's message, which has 12: the server does not get it whole.
    Message(usize),
    /// When the server has all of it and has said nothing yet.
    Sent,
    /// After so many bytes of the server's answer.
    Answer(usize),
}

/// A proxy before a server, on a port of its own.
pub(crate) struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
}

struct Faults {
    server: String,
    /// Where the next commit is cut.
    cut: Mutex<Option<Cut>>,
    /// Whether the way is open; who is connected when it is closed is cut off.
    is_open: watch::Sender<bool>,
}

impl Proxy {
    /// A proxy before the server of a database's URL.
    pub(crate) async fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (server, is_open) = (server_of(url).to_owned(), watch::channel(true).0);
        let faults = Arc::new(Faults { server, cut: Mutex::default(), is_open });
        let shared = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&shared).serve(client));
            }
        });
        Self { address, faults }
    }

    /// The URL of the same database through this proxy.
    pub(crate) fn url(&self, url: &str) -> String {
        url.replace(server_of(url), &self.address.to_string())
    }

    /// Cuts the connection over which the next commit comes.
    pub(crate) fn cut_next_commit(&self, cut: Cut) {
        *self.faults.cut() = Some(cut);
    }

    /// Whether the next commit is still to be cut.
    pub(crate) fn has_cut_left(&self) -> bool {
        self.faults.cut().is_some()
    }

    /// Cuts every connection and lets nobody through until it is opened again.
    pub(crate) fn close(&self) {
        self.faults.is_open.send_replace(false);
    }

    /// Lets everybody through again.
    pub(crate) fn open(&self) {
        self.faults.is_open.send_replace(true);
    }
}

/// Host and port of a URL.
fn server_of(url: &str) -> &str {
    let rest = url.rsplit('@').next().unwrap();
    &rest[..rest.find('/').unwrap()]
}

impl Faults {
    async fn serve(self: Arc<Self>, mut client: TcpStream) {
        let mut is_open = self.is_open.subscribe();
        let Ok(mut server) = TcpStream::connect(&self.server).await else { return };
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (mut asked, mut answered) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
        loop {
            let (is_asked, read) = tokio::select! {
                read = client.read(&mut asked) => (true, read),
                read = server.read(&mut answered) => (false, read),
                () = async { _ = is_open.wait_for(|is_open| !is_open).await } => return,
            };
            let Ok(length @ 1..) = read else { return };
            let goes_on = if is_asked {
                self.forward(&asked[..length], &mut client, &mut server).await
            } else {
                client.write_all(&answered[..length]).await.is_ok()
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Gives the server what the client has sent, up to a cut; whether the connection lives on.
    async fn forward(&self, bytes: &[u8], client: &mut TcpStream, server: &mut TcpStream) -> bool {
        let commit = bytes.windows(COMMIT.len()).position(|part| part == COMMIT);
        let cut = commit.and_then(|at| Some((at, self.cut().take()?)));
        let Some((at, cut)) = cut else { return server.write_all(bytes).await.is_ok() };
        let whole = if let Cut::Message(length) = cut { at + length } else { bytes.len() };
        let sent = server.write_all(&bytes[..whole]).await;
        if let (Ok(()), Cut::Answer(length)) = (sent, cut) {
            // One byte at least, so that it is certain that there is an answer.
            let mut answer = vec![0; length.max(1)];
            if server.read_exact(&mut answer).await.is_ok() {
                // The client may be gone; it is cut off in any case.
                let _ = client.write_all(&answer[..length]).await;
            }
        }
        false
    }

    fn cut(&self) -> MutexGuard<'_, Option<Cut>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
