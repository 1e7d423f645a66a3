//! `hikyaku webhooks missed` and `recover`: what a webhook did not get, and getting it after all.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::api::{Api, Document, Page, Paging, Query};
use super::failure::Failure;
use super::output;
use super::table::{Column, Table};

/// Pause between two looks at a recovery.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// How often a recovery's progress is told where no bar can be drawn.
const PROGRESS_LINES: u64 = 10;

const MISSED: &[Column] = &[("TIMESTAMP", "/timestamp"), ("WHICH", "/which"), ("TYPE", "/type"), ("EVENT", "/eventId")];

/// A stretch of time.
#[derive(Debug, Args)]
pub(super) struct Period {
    /// From this time on, as in 2026-11-30T18:00:00+09:00
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

impl Period {
    /// The query with this period.
    pub(super) fn add(self, query: Query) -> Query {
        query.with("from", self.from).with("to", self.to)
    }
}

/// What is to be recovered.
#[derive(Debug, Args)]
pub(super) struct RecoverArguments {
    /// The webhook
    id: String,
    /// Events from this time on, as in 2026-11-30T18:00:00+09:00
    #[arg(long, value_name = "TIME")]
    from: String,
    /// Events before this time [default: now]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Those that it missed while it was off, those whose attempts all failed, or both
    #[arg(long, value_enum, default_value_t = Which::All)]
    which: Which,
    /// Only begin it; it goes on at the server
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Which {
    Missed,
    Exhausted,
    All,
}

/// The counts of a whole period, which stand on every page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    count_missed: u64,
    count_exhausted: u64,
}

/// Shows what a recovery would bring. As JSON, each page is a line, because the counts stand on it.
pub(super) async fn missed(api: &Api, webhook: &str, period: Period, paging: Paging) -> Result<(), Failure> {
    let (mut table, mut counts) = (Table::new(MISSED), None);
    api.pages(&["webhooks", webhook, "missed"], &period.add(Query::default()), paging, |document| {
        let page: Page = document.read()?;
        if api.is_json() {
            document.print();
        } else {
            table.print(&page.rows());
            counts = Some(document.read::<Counts>()?);
        }
        Ok(page)
    })
    .await?;
    if let Some(Counts { count_missed, count_exhausted }) = counts {
        output::print(format_args!("{count_missed} missed, {count_exhausted} exhausted\n"));
    }
    Ok(())
}

/// How far a recovery is.
#[derive(Debug, Deserialize)]
struct Recovery {
    id: String,
    state: String,
    recovered: u64,
    total: u64,
}

/// Begins a recovery and watches it to its end.
pub(super) async fn recover(api: &Api, arguments: RecoverArguments) -> Result<(), Failure> {
    let RecoverArguments { id, from, to, which, no_wait } = arguments;
    let which = which.to_possible_value().map(|value| value.get_name().to_owned());
    let mut body = json!({"from": from, "which": which});
    if let Some(to) = to {
        body["to"] = json!(to);
    }
    let (_, begun) = api.post(&["webhooks", &id, "recover"], body.to_string()).await?;
    let last = if no_wait { begun } else { watch(api, &id, begun).await? };
    api.show(&last)?;
    let Recovery { id: recovery, state, .. } = last.read()?;
    match state.as_str() {
        "cancelled" => Err(format!("the recovery {recovery} was cancelled").into()),
        "paused" => Err(format!(
            "the recovery {recovery} is paused, because the webhook is off; it goes on after \"hikyaku webhooks enable \
             {id}\""
        )
        .into()),
        _ => Ok(()),
    }
}

/// Waits until a recovery runs no more.
async fn watch(api: &Api, webhook: &str, begun: Document) -> Result<Document, Failure> {
    let mut document = begun;
    let mut progress = None;
    loop {
        let recovery: Recovery = document.read()?;
        progress.get_or_insert_with(|| Progress::begin(webhook, &recovery)).show(&recovery);
        if recovery.state != "running" {
            return Ok(document);
        }
        sleep(LOOK_PAUSE).await;
        document = api.get(&["webhooks", webhook, "recoveries", &recovery.id], &Query::default()).await?;
    }
}

/// A bar that fits a narrow terminal, with its numbers.
fn style(end: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(&format!("{{bar:30}} {{pos}} of {{len}} due again {end}"));
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("rate", write_rate)
}

/// Events in a second; the bar's own word for it has four digits too many.
fn write_rate(state: &ProgressState, line: &mut dyn fmt::Write) {
    // A line that cannot be written is not worth an end.
    let _ = write!(line, "{:.0}/s", state.per_sec());
}

/// Tells a person how far it is, on standard error: with a bar on a terminal, else with some lines.
enum Progress {
    Bar(ProgressBar),
    /// The tenths that were told of.
    Lines(Option<u64>),
}

impl Progress {
    fn begin(webhook: &str, Recovery { id, total, .. }: &Recovery) -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines(None);
        }
        output::tell(format_args!(
            "It goes on without this command; \"hikyaku webhooks recovery {webhook} {id} --cancel\" ends it."
        ));
        Self::Bar(ProgressBar::new(*total).with_style(style("at {rate}, {eta} left")))
    }

    fn show(&mut self, Recovery { recovered, total, state, .. }: &Recovery) {
        match self {
            Self::Bar(bar) => {
                bar.set_position(*recovered);
                if state != "running" {
                    bar.set_style(style("in {elapsed}"));
                    bar.abandon();
                }
            }
            Self::Lines(told) => {
                let tenths = (recovered * PROGRESS_LINES).checked_div(*total).unwrap_or(PROGRESS_LINES);
                if *told != Some(tenths) {
                    *told = Some(tenths);
                    output::tell(format_args!("{recovered} of {total} due again"));
                }
            }
        }
    }
}
