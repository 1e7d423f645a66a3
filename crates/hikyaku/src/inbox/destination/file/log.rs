//! The file behind the destination: whole lines only, every one on the disk before it counts, and a new file when it is full.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::file::FileInUse;

/// What every line of ours begins with.
const BEGINNING: &[u8] = br#"{"deliveryId":""#;
/// In steps of how many bytes the end of the last whole line is looked for.
const STEP_BYTES: u64 = 64 * 1024;

/// What stops the start, because no waiting mends it: a file of somebody else's, one in use, a directory.
const STOPPING: [ErrorKind; 3] = [ErrorKind::InvalidData, ErrorKind::ResourceBusy, ErrorKind::IsADirectory];

/// A file of lines, open for appending and ours alone.
pub(super) struct Log {
    path: PathBuf,
    max_bytes: u64,
    keep: u32,
    open: Option<Open>,
}

/// The file as it is open now.
struct Open {
    file: File,
    in_use: FileInUse,
    /// The length of all that is known to be on the disk.
    length: u64,
}

impl Log {
    /// Opens or makes the file. Trouble that may pass is logged, and the file opened for the first line after it (C16).
    pub(super) fn open(path: PathBuf, max_bytes: u64, keep: u32) -> Result<Self, String> {
        let mut log = Self { path, max_bytes, keep, open: None };
        match log.ready(0).map(drop) {
            Err(error) if STOPPING.contains(&error.kind()) => return Err(log.said(&error)),
            Err(error) => tracing::warn!("{}; what is for it waits", log.said(&error)),
            Ok(()) => {}
        }
        Ok(log)
    }

    /// Writes a line and brings it to the disk. After an error the file is opened anew, and what it holds of the line is
    /// mended away.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<(), String> {
        let appended = self.try_append(line);
        appended.map_err(|error| {
            self.open = None;
            self.said(&error)
        })
    }

    fn try_append(&mut self, line: &[u8]) -> io::Result<()> {
        let open = self.ready(line.len() as u64)?;
        if let Err(error) = open.file.write_all(line).and_then(|()| open.file.sync_data()) {
            // What was written of it would be half a line, or a line that is not known to last.
            let _ = open.file.set_len(open.length);
            return Err(error);
        }
        open.length += line.len() as u64;
        Ok(())
    }

    /// The file, with room for a line. One that somebody has moved away or deleted is let go.
    fn ready(&mut self, length: u64) -> io::Result<&mut Open> {
        let is_full = |open: &Open| open.length > 0 && open.length + length > self.max_bytes;
        let open = self.open.take().filter(|open| open.in_use.is_in_place());
        let mut open = open.map_or_else(|| self.open_file(), Ok)?;
        if is_full(&open) {
            // Let go of before it is moved, so that nobody writes to it any more.
            drop(open);
            self.rotate()?;
            open = self.open_file()?;
        }
        Ok(self.open.insert(open))
    }

    fn open_file(&self) -> io::Result<Open> {
        let is_new = !self.path.exists();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        // It will hold what customers bought.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&self.path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::new(ErrorKind::ResourceBusy, "somebody else writes to it"),
            TryLockError::Error(error) => error,
        })?;
        let length = mend(&mut file, &self.path)?;
        if is_new {
            sync_directory(&self.path)?;
        }
        Ok(Open { in_use: FileInUse::new(&self.path), file, length })
    }

    /// Moves `PATH` to `PATH.1`, `PATH.1` to `PATH.2` and so on, from the last one that has to move. A crash in between
    /// leaves a gap in the numbers, which the next time is filled first, so that nothing is lost to it.
    fn rotate(&self) -> io::Result<()> {
        let numbered = |number: u32| match number {
            0 => self.path.clone(),
            _ => PathBuf::from(format!("{}.{number}", self.path.display())),
        };
        let gap = (1..=self.keep).find(|number| !numbered(*number).exists());
        for number in (0..gap.unwrap_or(self.keep)).rev() {
            fs::rename(numbered(number), numbered(number + 1))?;
        }
        sync_directory(&self.path)
    }

    fn said(&self, error: &io::Error) -> String {
        let what_to_do = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room on its disk",
            ErrorKind::PermissionDenied => "; let this program's user write to it and to its directory",
            ErrorKind::ReadOnlyFilesystem => "; its disk can only be read",
            ErrorKind::NotFound => "; make its directory",
            ErrorKind::ResourceBusy => "; give every destination, and every process, a file of its own",
            _ => "",
        };
        format!("cannot write to {}: {error}{what_to_do}", self.path.display())
    }
}

/// Makes a file end with a whole line, and gives its length. What stands behind the last one was cut off by a crash before
/// its row counted as done; so its row comes again, and keeping the piece would only break the line that comes next.
fn mend(file: &mut File, path: &Path) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    let begins = starts_with_ours(file, 0, length)?;
    let whole = end_of_last_line(file, length)?;
    // A file of somebody else's is not ours to write to, and still less to cut.
    if !begins || !starts_with_ours(file, whole, length)? {
        let message = "it holds something else than lines of this destination; name another file";
        return Err(io::Error::new(ErrorKind::InvalidData, message));
    }
    if whole < length {
        file.set_len(whole)?;
        file.sync_data()?;
        tracing::warn!(
            path = %path.display(), bytes = length - whole,
            "cut off a line that a crash had left unfinished; its row is written again"
        );
    }
    Ok(whole)
}

/// Whether what stands from `from` on is the beginning of a line of ours, or nothing at all.
fn starts_with_ours(file: &mut File, from: u64, length: u64) -> io::Result<bool> {
    let mut begins = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take((length - from).min(BEGINNING.len() as u64)).read_to_end(&mut begins)?;
    Ok(BEGINNING.starts_with(&begins))
}

/// Where the last line ends that has an end.
fn end_of_last_line(file: &mut File, length: u64) -> io::Result<u64> {
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(STEP_BYTES);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        file.take(end - start).read_to_end(&mut bytes)?;
        if let Some(found) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + found as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Brings a new name in a directory to the disk, without which a power loss may take the whole file.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    #[cfg(unix)]
    File::open(directory)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = directory;
    Ok(())
}
