//! A door in front of a server: open, shut, or about to fall shut behind a commit whose answer then never comes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on in both directions.
pub(crate) struct Door {
    addr: SocketAddr,
    state: Arc<State>,
}

struct State {
    open: watch::Sender<bool>,
    /// How many commits still lose their answer.
    swallow: AtomicUsize,
    swallowed: AtomicUsize,
}

impl Door {
    /// An open door to `server`.
    pub(crate) async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            open: watch::channel(true).0,
            swallow: AtomicUsize::new(0),
            swallowed: AtomicUsize::new(0),
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *shared.open.borrow() {
                    tokio::spawn(pass(client, server.clone(), shared.clone()));
                }
            }
        });
        Self { addr, state }
    }

    /// Where it stands.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Cuts every connection, and lets nobody through.
    pub(crate) fn shut(&self) {
        self.state.open.send_replace(false);
    }

    /// Lets everybody through again.
    pub(crate) fn open(&self) {
        self.state.open.send_replace(true);
    }

    /// Cuts the connection of each of the next `commits` commits after the server has made it, before it is known.
    pub(crate) fn swallow_commits(&self, commits: usize) {
        self.state.swallow.store(commits, Ordering::SeqCst);
    }

    /// How many commits have lost their answer.
    pub(crate) fn swallowed(&self) -> usize {
        self.state.swallowed.load(Ordering::SeqCst)
    }
}

async fn pass(client: TcpStream, server: String, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    let cut = watch::channel(false).0;
    let mut open = state.open.subscribe();
    tokio::select! {
        () = requests(client_in, server_out, &state, &cut) => {}
        () = answers(server_in, client_out, &state, &cut) => {}
        _ = open.wait_for(|open| !open) => {}
    }
}

/// From the client; says when a commit is on its way that is to lose its answer.
async fn requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: &State,
    cut: &watch::Sender<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let commits = buffer[..read].windows(6).any(|bytes| bytes == b"COMMIT");
        let one_less = |left: usize| left.checked_sub(1);
        if commits && state.swallow.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            cut.send_replace(true);
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// From the server; what answers a swallowed commit is where the connection ends.
async fn answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: &State,
    cut: &watch::Sender<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if *cut.borrow() {
            state.swallowed.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
