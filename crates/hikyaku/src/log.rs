//! What the program says while it runs: to standard error, for people on a terminal and as JSON for machines. Bodies
//! and secrets never reach it (S19); the levels only decide how much else does.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// From which level on: `info`, or per module, as in `info,hikyaku::sender=debug`.
    pub level: String,
    /// In which form.
    pub format: Format,
}

impl Default for Settings {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: Format::Auto }
    }
}

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Takes a level, or a list of levels per module, and says what is wrong with it otherwise.
pub fn check_level(level: &str) -> Result<String, String> {
    // A bare word that is no level would be taken for a module, and nothing else would be logged.
    let is_whole = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    match EnvFilter::builder().parse(level) {
        Ok(_) if !level.is_empty() && level.split(',').all(is_whole) => Ok(level.to_owned()),
        _ => Err(format!("must be a level like \"info\" or \"info,hikyaku::sender=debug\", not {level:?}")),
    }
}

/// Starts logging for the whole process. Whoever comes second in one process changes nothing.
pub fn start(settings: &Settings) {
    let terminal = io::stderr().is_terminal();
    let filter = EnvFilter::builder().parse_lossy(&settings.level);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(terminal);
    // Saying on standard error that standard error is closed or its disk full would panic wherever something is logged.
    let log = log.log_internal_errors(false);
    let text = match settings.format {
        Format::Auto => terminal,
        Format::Text => true,
        Format::Json => false,
    };
    // It fails only where a log has been started already, as in a test that starts several programs.
    let _ = if text { log.try_init() } else { log.json().flatten_event(true).with_current_span(false).try_init() };
}

/// Prints to standard output, where `println!` panics once nobody reads any more (`| head`). Such a reader has what it
/// wants; every other error is one.
pub fn print(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_fmt(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Says something on standard error, beside the log. If nobody reads it any more, the exit code is all there is.
pub fn tell(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}
