//! Where a program is, found once at the start: what runs is then not decided by a directory of the moment.

use std::env::split_paths;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The absolute path of a program. A name without a slash is looked up in `path`.
pub(super) fn find(program: &str, path: Option<&OsStr>) -> Result<PathBuf, String> {
    if Path::new(program).components().count() > 1 || program.starts_with('.') {
        let found = std::path::absolute(program).map_err(|error| format!("its program {program:?}: {error}"))?;
        return check(&found).map(|()| found);
    }
    let mut places = split_paths(path.unwrap_or_default()).map(|directory| directory.join(program));
    let found = places.find(|place| place.is_absolute() && check(place).is_ok());
    found.ok_or_else(|| {
        format!("its program {program:?} is in no directory of PATH, or not executable; write its whole path")
    })
}

fn check(program: &Path) -> Result<(), String> {
    let shown = program.display();
    let found = program.metadata().map_err(|error| format!("its program {shown} cannot be found: {error}"))?;
    if !found.is_file() {
        return Err(format!("its program {shown} is no file"));
    }
    if !is_executable(&found) {
        return Err(format!("its program {shown} is not executable; chmod +x makes it so"));
    }
    Ok(())
}

#[cfg(unix)]
fn is_executable(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    found.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    true
}
