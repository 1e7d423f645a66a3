//! `hikyaku-bench`: what Hikyaku can do on this machine, beside what the machine itself can do. It starts the program as a process, plays
//! publishers, providers and endpoints, and reads CPU times from `/proc`, so it needs Linux.

mod cluster;
mod compare;
mod endpoint;
mod lab;
mod load;
mod machine;
mod report;
mod rows;
mod server;
mod stock;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use hikyaku::clock::{Clock, SystemClock};

use crate::lab::{Lab, Scale};
use crate::report::Report;
use crate::rows::Kind;

/// What stops a measurement, for people.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Measures what Hikyaku can do on this machine; docs/performance.md says what the rows mean.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// What to measure; everything, where nothing is named.
    rows: Vec<Kind>,
    /// How often each row is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds for which a load lasts.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: Option<u16>,
    /// How much a large store holds: events, deliveries that wait, deliveries that were received.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    stored: Option<u64>,
    /// Only see that it works: short loads, small stores.
    #[arg(long)]
    quick: bool,
    /// Measure a history of ten million events too; takes a quarter of an hour and 30 GB.
    #[arg(long)]
    long: bool,
    /// Write what was measured to a file, after every row.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The program to measure; the one beside this one, if not given.
    #[arg(long)]
    binary: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Names what is slower in the second file, beyond the spread of both; exits with 1 if anything is.
    Compare {
        /// What `--json` wrote before.
        before: PathBuf,
        /// What it wrote after.
        after: PathBuf,
    },
    /// A bare server, for the machine's own limit.
    #[command(hide = true)]
    Bare,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hikyaku-bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match &arguments.command {
        Some(Command::Compare { before, after }) => compare(before, after),
        Some(Command::Bare) => runtime.block_on(rows::limits::serve_bare()).map(|()| ExitCode::SUCCESS),
        None => runtime.block_on(measure(arguments)).map(|()| ExitCode::SUCCESS),
    }
}

fn compare(before: &Path, after: &Path) -> Result<ExitCode, Error> {
    let read = |path: &Path| -> Result<Report, Error> { Ok(serde_json::from_slice(&std::fs::read(path)?)?) };
    let found = compare::regressions(&read(before)?, &read(after)?);
    found.iter().for_each(|regression| println!("{regression}"));
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(arguments: Arguments) -> Result<(), Error> {
    machine::raise_open_files()?;
    let mut scale =
        if arguments.quick { Scale::QUICK } else { Scale { rounds: arguments.rounds.into(), ..Scale::FULL } };
    scale.many = arguments.stored.unwrap_or(scale.many);
    scale.huge = arguments.long.then_some(10 * scale.many);
    if let Some(seconds) = arguments.seconds {
        scale.load = Duration::from_secs(seconds.into());
    }
    let beside = || Ok::<_, Error>(std::env::current_exe()?.with_file_name("hikyaku"));
    let binary = std::path::absolute(arguments.binary.map_or_else(beside, Ok)?)?;
    if !binary.exists() {
        return Err(format!("{} is not there; build it, or name another with --binary", binary.display()).into());
    }
    let mut lab = Lab::new(binary, scale);
    let mut report = Report {
        date: SystemClock::start().now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: machine::Machine::read()?,
        rows: Vec::new(),
    };
    let all = Kind::ALL.iter().filter(|kind| arguments.rows.is_empty() || arguments.rows.contains(kind));
    // The others are told beside it.
    for kind in std::iter::once(&Kind::Http).chain(all.filter(|kind| **kind != Kind::Http)) {
        eprintln!("measuring {kind:?}");
        report.rows.extend(kind.measure(&mut lab).await?);
        if let Some(path) = &arguments.json {
            std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
        }
    }
    println!("{report}");
    Ok(())
}
