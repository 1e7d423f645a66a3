//! Appends a line of JSON per row to a file, on the disk before the row counts as done. At least once: after a crash or an
//! error a line may stand there twice, with the same `deliveryId`.

mod log;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use data_encoding::BASE64;
use hikyaku_core::{json, timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use super::{Destination, Effect, sent_at};
use crate::store::WorkRow;
use log::Log;

/// A file destination as configured.
#[derive(Debug, Clone)]
pub struct FileSettings {
    /// The file that is written to.
    pub path: PathBuf,
    /// The size in bytes at which the next line begins a new file. A single line may be larger.
    pub max_bytes: u64,
    /// How many full files are kept beside it, the newest as `PATH.1`.
    pub keep: u32,
}

/// Appends lines.
pub(super) struct FileDestination {
    log: Arc<Mutex<Log>>,
}

impl FileDestination {
    /// Opens the file and mends its end. The error says what is in the way and will not pass.
    pub(super) fn open(settings: FileSettings) -> Result<Self, String> {
        let FileSettings { path, max_bytes, keep } = settings;
        Ok(Self { log: Arc::new(Mutex::new(Log::open(path, max_bytes, keep)?)) })
    }
}

#[async_trait]
impl Destination for FileDestination {
    async fn apply(&self, row: &WorkRow) -> Effect {
        // Waiting for the line before here keeps the waiting off the blocking threads.
        let mut log = self.log.clone().lock_owned().await;
        let line = line(row);
        // If the caller gives up waiting, the line is still written, and the next try writes it again.
        let work = tokio::task::spawn_blocking(move || log.append(&line)).await;
        match work {
            Ok(Ok(())) => Effect::Done("written".to_owned()),
            Ok(Err(error)) => Effect::Failed { error, retry_after: None },
            Err(_) => Effect::Failed {
                error: "the file destination panicked, which is a defect of this program".to_owned(),
                retry_after: None,
            },
        }
    }
}

/// The line that a row would bring, told without opening the file.
pub(super) fn preview(path: &Path, row: &WorkRow) -> String {
    format!("appends to {}:\n{}", path.display(), String::from_utf8_lossy(line(row).trim_ascii_end()))
}

/// One line. `deliveryId` comes first: by it a file is known as ours.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    delivery_id: &'a str,
    r#type: &'a str,
    key: &'a str,
    timestamp: String,
    received_at: String,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
    /// A body that is no JSON, in Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

/// A row as a line with its end. A body of JSON stands in it as it came, numbers and all; only line breaks, which JSON has
/// nowhere but between its parts, become spaces.
fn line(row: &WorkRow) -> Vec<u8> {
    let body = json::pointer(&row.body, "");
    let line = Line {
        delivery_id: &row.delivery,
        r#type: &row.event_type,
        key: &row.key,
        timestamp: sent_at(row),
        received_at: timestamp::format(row.received_at),
        source: &row.source,
        body,
        body_base64: body.is_none().then(|| BASE64.encode(&row.body)),
    };
    let mut line = serde_json::to_vec(&line).expect("texts and JSON can always be written as JSON");
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    line
}
