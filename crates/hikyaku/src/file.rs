//! Whether a database that is open still stands at its path. SQLite goes on writing to a file that was deleted or
//! replaced, where nobody finds what was reported as stored.

use std::path::{Path, PathBuf};

/// A file in use.
#[derive(Debug)]
pub(crate) struct FileInUse {
    path: PathBuf,
    id: Option<FileId>,
}

impl FileInUse {
    /// The file that has just been opened at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), id: FileId::of(path) }
    }

    /// Whether it was neither deleted nor replaced by another.
    pub(crate) fn is_in_place(&self) -> bool {
        FileId::of(&self.path) == self.id
    }
}

/// Which file a path leads to, whatever names it has. It is no other's for as long as somebody has the file open.
#[derive(Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// `None` where there is no file.
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).ok().map(|found| Self { device: found.dev(), inode: found.ino() })
    }

    /// Elsewhere a file in use can be neither moved nor deleted.
    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}
