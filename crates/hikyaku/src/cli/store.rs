//! `hikyaku store copy`: everything that is kept, moved from one store to another.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use hikyaku::clock::SystemClock;
use hikyaku::config::StoreLocation;
use hikyaku::store::transfer::{self, Compared, Progress, Side};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::failure::{FAILED, Failure, WrongUse, failed};
use super::{in_runtime, output, variables};

/// How often it is told how far a copy is where no bar can be drawn.
const PROGRESS_LINES: u64 = 10;
/// Digits of a hash that are shown.
const HASH_DIGITS: usize = 16;

/// What can be done with a store.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Copy a store into a new one, from SQLite to PostgreSQL or back, and compare the two; while no server uses either
    #[command(after_help = URLS)]
    Copy {
        /// The store to copy
        from: String,
        /// Where to copy it: a file that is not there yet, or a database without tables of its own
        to: String,
    },
}

const URLS: &str = "Both are given as the setting `store` is: sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, or \
                    env:NAME or file:PATH for where one of these stands, which keeps a password out of the list of \
                    processes.\n\nAn unfinished copy is opened by no server. Secrets go as they stand: the new store \
                    needs the same sealing_key.";

impl StoreCommand {
    pub(super) fn run(self) -> ExitCode {
        let Self::Copy { from, to } = self;
        in_runtime(async move {
            match copy(&from, &to).await {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::from(FAILED),
                Err(failure) => failed(&*failure),
            }
        })
    }
}

/// Copies a store; whether the copy is the same.
async fn copy(from: &str, to: &str) -> Result<bool, Failure> {
    let environment = variables();
    let (from, to) = (location("FROM", from, &environment)?, location("TO", to, &environment)?);
    let (from, to) = (open(from, false).await?, open(to, true).await?);
    let bar = Bar::new();
    let compared = transfer::copy(&from, &to, |progress| bar.show(progress)).await;
    bar.end();
    let compared = compared?;
    output::print(Report(&compared));
    let is_same = compared.iter().all(Compared::is_same);
    match is_same {
        true => output::tell(format_args!("Both hold the same. Only one of them may be served from now on.")),
        false => output::tell(format_args!(
            "hikyaku: the copy differs from what was copied, so no server will open it; drop it and copy again"
        )),
    }
    Ok(is_same)
}

fn location(name: &str, url: &str, environment: &BTreeMap<String, String>) -> Result<StoreLocation, WrongUse> {
    StoreLocation::parse(url, environment).map_err(|reason| WrongUse(format!("{name} {reason}")))
}

async fn open(store: StoreLocation, may_be_new: bool) -> Result<Side, Failure> {
    let clock = Arc::new(SystemClock::start());
    match store {
        StoreLocation::Sqlite(path) => Ok(Side::sqlite(&path, may_be_new, clock).await?),
        StoreLocation::Postgres(database) => Ok(Side::postgres(database.url.reveal(), clock).await?),
        StoreLocation::Memory => {
            Err(WrongUse("what is in memory ends with its process and cannot be copied".into()).into())
        }
    }
}

/// Tells a person how far it is, on standard error: with a bar on a terminal, else with some lines.
enum Bar {
    Drawn(ProgressBar),
    Lines { rows: Cell<u64>, total: Cell<u64> },
}

impl Bar {
    fn new() -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines { rows: Cell::new(0), total: Cell::new(0) };
        }
        let style = ProgressStyle::with_template("{bar:30} {percent}% at {rate}, {eta} left: {msg}");
        Self::Drawn(
            ProgressBar::no_length()
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("rate", write_rate)),
        )
    }

    fn show(&self, progress: Progress) {
        match (self, progress) {
            (Self::Drawn(bar), Progress::Begun(total)) => bar.set_length(total),
            (Self::Drawn(bar), Progress::Copying(table)) => bar.set_message(format!("copying {table}")),
            (Self::Drawn(bar), Progress::Comparing(table)) => bar.set_message(format!("comparing {table}")),
            (Self::Drawn(bar), Progress::Rows(rows)) => bar.inc(rows),
            (Self::Lines { total, .. }, Progress::Begun(rows)) => total.set(rows),
            (Self::Lines { rows, total }, Progress::Rows(more)) => {
                let tenths = |rows: u64| (rows.saturating_mul(PROGRESS_LINES)).checked_div(total.get());
                let before = rows.replace(rows.get().saturating_add(more));
                if tenths(before) != tenths(rows.get()) {
                    output::tell(format_args!("{} of {} rows read to copy and to compare", rows.get(), total.get()));
                }
            }
            (Self::Lines { .. }, Progress::Copying(_) | Progress::Comparing(_)) => {}
        }
    }

    fn end(&self) {
        if let Self::Drawn(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Rows in a second; the bar's own word for it has four digits too many.
fn write_rate(state: &ProgressState, line: &mut dyn fmt::Write) {
    // A line that cannot be written is not worth an end.
    let _ = write!(line, "{:.0}/s", state.per_sec());
}

/// Every table with its rows and its hash; both of each side, where they differ.
struct Report<'a>(&'a [Compared]);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:16}  {:>12}  HASH", "TABLE", "ROWS")?;
        for Compared { table, from, to } in self.0 {
            let hash = |sum: &transfer::Sum| sum.to_string().chars().take(HASH_DIGITS).collect::<String>();
            writeln!(f, "{table:16}  {:>12}  {}", from.rows(), hash(from))?;
            if from != to {
                writeln!(f, "{:16}  {:>12}  {}  DIFFERS in the copy", "", to.rows(), hash(to))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_copied_is_said_with_its_name() {
        let environment = BTreeMap::from([("STORE".to_owned(), "postgres://u:hunter2@db.example/books".to_owned())]);
        assert!(matches!(location("FROM", "env:STORE", &environment), Ok(StoreLocation::Postgres(_))));
        assert!(matches!(location("FROM", "sqlite:a.db", &environment), Ok(StoreLocation::Sqlite(_))));
        for wrong in ["a.db", "env:OTHER", "mysql://x"] {
            let error = location("TO", wrong, &environment).unwrap_err().to_string();
            assert!(error.starts_with("TO "), "{error}");
        }
    }
}
