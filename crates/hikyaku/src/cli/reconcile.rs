//! `hikyaku reconcile`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use hikyaku_core::timestamp;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::api::{Api, Document, Paging, Query, Target};
use super::failure::Failure;
use super::table::Column;

/// Pause between two looks at a cycle.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

const STATUS: &[Column] = &[
    ("NAME", "/name"),
    ("SOURCE", "/source"),
    ("COMPARED TO", "/comparedTo"),
    ("CALLS", "/calls"),
    ("BUDGET", "/callBudget"),
    ("WEBHOOK ON AT", "/activeAt"),
    ("NOT ON SINCE", "/notActiveSince"),
    ("CYCLE", "/cycle/number"),
    ("MISSING", "/cycle/missing"),
    ("REPAIRED", "/cycle/repaired"),
    ("DIFFERENT", "/cycle/different"),
    ("UNKNOWN", "/cycle/unknown"),
    ("PROBLEM", "/cycle/problem"),
];

const CYCLES: &[Column] = &[
    ("CYCLE", "/number"),
    ("FROM", "/period/from"),
    ("TO", "/period/to"),
    ("ENDED", "/endedAt"),
    ("LISTED", "/listed"),
    ("KNOWN", "/known"),
    ("MISSING", "/missing"),
    ("REPAIRED", "/repaired"),
    ("DIFFERENT", "/different"),
    ("UNKNOWN", "/unknown"),
    ("CALLS", "/calls"),
    ("PROBLEM", "/problem"),
];

const EXAMPLES: &str = "Examples:
  hikyaku reconcile status
  hikyaku reconcile run --name sales
  hikyaku reconcile run --name sales --from 2026-11-01T00:00:00+09:00 --to 2026-12-01T00:00:00+09:00
  hikyaku reconcile cycles sales";

/// `hikyaku reconcile`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Reconcile {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show how far providers' lists were compared
    Status,
    /// Show what each comparison found, newest first
    Cycles {
        /// The reconciliation
        name: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Compare a period now, or begin the next cycle, and watch it to its end
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// The reconciliation [default: the only one]
    #[arg(long)]
    name: Option<String>,
    /// From this time on, as in 2026-11-30T18:00:00+09:00 [default: what the next cycle would compare]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Before this time [default: now]
    #[arg(long, value_name = "TIME", requires = "from")]
    to: Option<String>,
    /// Only begin it; it goes on at the server
    #[arg(long)]
    no_wait: bool,
}

impl Reconcile {
    pub(super) fn run(self) -> ExitCode {
        let command = self.command;
        self.target.run(async |api| match command {
            Command::Status => api.show_items(&status(api).await?, STATUS),
            Command::Cycles { name, paging } => {
                api.list(&["reconcile", &name, "cycles"], &Query::default(), paging, CYCLES).await
            }
            Command::Run(run) => begin(api, run).await,
        })
    }
}

async fn status(api: &Api) -> Result<Document, Failure> {
    api.get(&["reconcile"], &Query::default()).await
}

/// How reconciliations stand, as far as it matters here.
#[derive(Debug, Deserialize)]
struct All {
    items: Vec<One>,
}

#[derive(Debug, Deserialize)]
struct One {
    name: String,
    wanted: Option<serde_json::Value>,
    cycle: Option<Cycle>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cycle {
    number: i64,
    period: Period,
    done_to: String,
    ended_at: Option<String>,
    missing: u64,
    problem: String,
}

#[derive(Debug, Deserialize)]
struct Period {
    from: String,
    to: String,
}

async fn begin(api: &Api, run: Run) -> Result<(), Failure> {
    let all: All = status(api).await?.read()?;
    let before = match (&run.name, all.items) {
        (Some(name), items) => items.into_iter().find(|one| one.name == *name),
        (None, mut items) if items.len() == 1 => items.pop(),
        (None, items) if items.is_empty() => return Err("the configuration has no [[reconcile]]".into()),
        (None, items) => {
            let names: Vec<_> = items.into_iter().map(|one| one.name).collect();
            return Err(
                format!("there are several reconciliations; say --name with one of {}", names.join(", ")).into()
            );
        }
    };
    let Some(before) = before else {
        return Err(format!("there is no reconciliation {:?}", run.name.unwrap_or_default()).into());
    };
    let mut body = json!({});
    for (name, time) in [("from", run.from), ("to", run.to)] {
        if let Some(time) = time {
            body[name] = json!(time);
        }
    }
    let (_, begun) = api.post(&["reconcile", &before.name, "run"], body.to_string()).await?;
    if run.no_wait {
        return api.show(&begun);
    }
    // What runs already goes on first.
    let first = before.cycle.map_or(1, |cycle| cycle.number + 1);
    watch(api, &before.name, first).await
}

/// Waits until a cycle from this number on has ended and nothing more is wanted, and shows it.
async fn watch(api: &Api, name: &str, first: i64) -> Result<(), Failure> {
    let bar = if io::stderr().is_terminal() { ProgressBar::new(1) } else { ProgressBar::hidden() };
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {percent}% {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut told = String::new();
    loop {
        let document = status(api).await?;
        let all: All = document.read()?;
        let Some(One { wanted, cycle, .. }) = all.items.into_iter().find(|one| one.name == name) else {
            return Err(format!("the reconciliation {name:?} is gone").into());
        };
        if let Some(cycle) = cycle {
            // One before it that waits keeps it waiting.
            if cycle.problem != told {
                told.clone_from(&cycle.problem);
                if !told.is_empty() {
                    bar.suspend(|| eprintln!("it waits: {told}"));
                }
            }
            if cycle.number >= first {
                show_progress(&bar, &cycle);
                if cycle.ended_at.is_some() && wanted.is_none() {
                    bar.finish_and_clear();
                    return api.show_first(&["reconcile", name, "cycles"], CYCLES).await;
                }
            }
        }
        sleep(LOOK_PAUSE).await;
    }
}

fn show_progress(bar: &ProgressBar, cycle: &Cycle) {
    let second = |text: &str| timestamp::parse(text).map_or(0, |at| at.as_second());
    let since = |text: &str| u64::try_from(second(text) - second(&cycle.period.from)).unwrap_or_default();
    bar.set_length(since(&cycle.period.to).max(1));
    bar.set_position(since(&cycle.done_to));
    bar.set_message(format!("{} missing", cycle.missing));
}
