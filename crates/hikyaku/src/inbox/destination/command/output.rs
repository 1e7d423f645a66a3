//! What a program says: its first bytes are kept, the rest is read and let go, so that the program is never held up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Most bytes of one output that are kept.
pub(super) const MAX_OUTPUT_BYTES: usize = 4096;
/// How long the end of an output is waited for when the program is gone: somebody outside of its group may hold it open.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// One output of a program.
pub(super) struct Output {
    name: &'static str,
    kept: Arc<Mutex<Vec<u8>>>,
    reading: Option<AbortOnDropHandle<()>>,
}

impl Output {
    pub(super) fn of(name: &'static str, stream: Option<impl AsyncRead + Unpin + Send + 'static>) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let reading = stream.map(|stream| AbortOnDropHandle::new(tokio::spawn(read(stream, kept.clone()))));
        Self { name, kept, reading }
    }

    /// What was said, on lines of its own after an explanation; empty if nothing was. Bytes that are no text, and
    /// characters that no store and no terminal should get, are replaced.
    pub(super) async fn text(&mut self) -> String {
        if let Some(reading) = self.reading.take() {
            // Whatever came by then is kept.
            let _ = timeout(MAX_WAIT, reading).await;
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let text = text.trim_end();
        if text.is_empty() {
            return String::new();
        }
        let printable = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
        format!("\n{}: {}", self.name, text.chars().map(printable).collect::<String>())
    }
}

async fn read(mut stream: impl AsyncRead + Unpin, kept: Arc<Mutex<Vec<u8>>>) {
    let mut bytes = [0; MAX_OUTPUT_BYTES];
    while let Ok(length @ 1..) = stream.read(&mut bytes).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..length.min(room)]);
    }
}
