//! What the commands print that talk to a server.

use std::fmt::{Arguments, Display};
use std::io::{self, ErrorKind, Write};
use std::process;

use hikyaku::log;

use super::failure::FAILED;

/// Writes a text to standard output, at once. A reader that has gone away (`hikyaku … | head`) has seen what it wanted:
/// the process ends quietly and well, where a tail or a long list would go on for nobody. Where the text cannot be
/// written for another reason, it ends as failed.
pub(super) fn print(text: impl Display) {
    let mut output = io::stdout().lock();
    let Err(error) = write!(output, "{text}").and_then(|()| output.flush()) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        process::exit(0);
    }
    tell(format_args!("hikyaku: cannot write to standard output: {error}"));
    process::exit(i32::from(FAILED));
}

/// Says a line to a person, on standard error.
pub(super) fn tell(line: Arguments<'_>) {
    log::tell(format_args!("{line}\n"));
}
