//! `hikyaku inbox`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::api::{Api, Paging, Query, Target};
use super::failure::Failure;
use super::output;
use super::table::{Column, Members, print_members, print_table};

const ROWS: &[Column] = &[
    ("RECEIVED", "/receivedAt"),
    ("SOURCE", "/source"),
    ("DELIVERY", "/deliveryId"),
    ("TYPE", "/eventType"),
    ("KEY", "/key"),
    ("STATE", "/state"),
    ("REASON", "/reason"),
];

const EFFECTS: &[Column] = &[
    ("ROUTE", "/route"),
    ("STATE", "/state"),
    ("FAILURES", "/failures"),
    ("NEXT ATTEMPT", "/nextAttemptAt"),
    ("ENDED", "/endedAt"),
    ("DETAIL", "/detail"),
];

const EXAMPLES: &str = "Examples:
  hikyaku inbox list --state parked
  hikyaku inbox show receiptroller sale-1";

/// `hikyaku inbox`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Inbox {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what was received, newest first
    List {
        /// Only from this source
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        /// Only in this state: waiting, done, stale, parked, dead
        #[arg(long)]
        state: Option<String>,
        /// Only with this business key
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one row with its body and what became of it
    Show { source: String, delivery: String },
}

impl Inbox {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        self.target.run(async |api| match self.command {
            Command::List { source, state, key, paging } => {
                let query = Query::default().with("source", source).with("state", state).with("key", key);
                api.list(&["inbox"], &query, paging, ROWS).await
            }
            Command::Show { source, delivery } => show(api, &source, &delivery).await,
        })
    }
}

async fn show(api: &Api, source: &str, delivery: &str) -> Result<(), Failure> {
    let row = api.get(&["inbox", source, delivery], &Query::default()).await?;
    if api.is_json() {
        row.print();
        return Ok(());
    }
    let row: Members = row.read()?;
    print_members(&row, &["effects"]);
    if let Value::Array(effects) = row.value("effects")
        && !effects.is_empty()
    {
        output::print("\n");
        print_table(EFFECTS, &effects);
    }
    Ok(())
}
