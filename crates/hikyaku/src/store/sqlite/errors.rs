//! What SQLite's errors mean to the caller of a store.

use rusqlite::ErrorCode;

use crate::store::StoreError;

impl From<rusqlite::Error> for StoreError {
    /// An error before COMMIT: the transaction is rolled back, nothing was written.
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(code) if passes(code) => Self::Unavailable(error.to_string()),
            _ => Self::Damaged(error.to_string()),
        }
    }
}

/// An error of COMMIT itself. When the disk is full or the file is locked the commit record is not in the log; after
/// any other failure, of an fsync say, it may be there or not.
pub(super) fn of_commit(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Unavailable(error.to_string())
        }
        _ => StoreError::Unknown(error.to_string()),
    }
}

/// Whether an error comes from the surroundings, so that the same statement may succeed later.
fn passes(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::NoLargeFileSupport
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn what_may_pass_is_unavailable_and_the_rest_is_damage() {
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_BUSY_SNAPSHOT] {
            assert!(matches!(failure(code).into(), StoreError::Unavailable(_)), "{code}");
        }
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_CONSTRAINT_UNIQUE, ffi::SQLITE_ERROR] {
            assert!(matches!(failure(code).into(), StoreError::Damaged(_)), "{code}");
        }
    }

    #[test]
    fn a_commit_that_fails_on_its_way_to_the_disk_is_unknown() {
        assert!(matches!(of_commit(&failure(ffi::SQLITE_FULL)), StoreError::Unavailable(_)));
        assert!(matches!(of_commit(&failure(ffi::SQLITE_IOERR_FSYNC)), StoreError::Unknown(_)));
    }
}
