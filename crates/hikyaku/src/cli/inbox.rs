//! `hikyaku inbox`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::api::{Api, Paging, Query, Target};
use super::dry_run::DryRun;
use super::failure::Failure;
use super::intervene::{Rows, intervene};
use super::output;
use super::table::{Column, Members, print_members, print_table};

/// How rows are shown.
pub(super) const ROWS: &[Column] = &[
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

const ROUTES: &[Column] = &[
    ("ROUTE", "/name"),
    ("SOURCES", "/sources"),
    ("DESTINATION", "/destination"),
    ("ORDER", "/order"),
    ("ONCE", "/once"),
    ("WAITING", "/waiting"),
    ("FAILING", "/failing"),
    ("OLDEST (S)", "/oldestSeconds"),
    ("LAST ERROR", "/lastError/error"),
];

const DESTINATIONS: &[Column] =
    &[("DESTINATION", "/name"), ("KIND", "/kind"), ("ROUTES", "/routes"), ("SETTINGS", "/settings")];

const OUTAGES: &[Column] = &[("FROM", "/from"), ("TO", "/to"), ("SECONDS", "/seconds")];

const SOURCES: &[Column] = &[
    ("SOURCE", "/name"),
    ("PROVIDER", "/provider"),
    ("BAD SIGNATURES", "/onBadSignature"),
    ("LAST GOOD", "/lastGoodAt"),
    ("LAST ROW", "/lastRowAt"),
    ("LAST REFUSED", "/lastRefusedAt"),
    ("REFUSED SINCE", "/refusedSince"),
    ("SWITCHED OFF AT", "/switchedOffAt"),
    ("BECAUSE", "/lastRefusedBecause"),
];

const EXAMPLES: &str = "Examples:
  hikyaku inbox list --state parked
  hikyaku inbox show receiptroller sale-1
  hikyaku inbox replay receiptroller sale-1
  hikyaku inbox replay --state dead --route receiptroller-books --preview
  hikyaku inbox release --state quarantined --yes
  hikyaku inbox discard --state parked --type 'test.*' --reason 'tests of the till'
  hikyaku inbox routes
  hikyaku inbox try --source receiptroller --headers headers.txt body.json";

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
        /// Only in this state: waiting, done, stale, parked, dead, discarded, quarantined
        #[arg(long)]
        state: Option<String>,
        /// Only with this business key
        #[arg(long)]
        key: Option<String>,
        /// Only with an effect through this route; with --state, one that stands so too
        #[arg(long, value_name = "NAME")]
        route: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one row with its body and what became of it
    Show { source: String, delivery: String },
    /// List the routes, what waits for them, and their last failures
    Routes,
    /// List the destinations that the routes lead to
    Destinations,
    /// List the times in which nothing could be received for longer than providers repeat; takes an admin token
    Outages(Paging),
    /// Say what would become of a delivery; needs no server, and stores and sends nothing
    Try(Box<DryRun>),
    /// Let effects take place again: of a row those that are dead, or else all that have ended
    Replay {
        #[command(flatten)]
        rows: Rows,
    },
    /// Give parked rows to the routes of now; verify quarantined ones again, with the secrets of now
    Release {
        #[command(flatten)]
        rows: Rows,
    },
    /// End rows that wait, are dead, parked or quarantined without effect
    Discard {
        #[command(flatten)]
        rows: Rows,
        /// Why, for whoever finds it
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// List the sources: whether their signatures verify, and when a provider will switch its webhook off
    Sources,
}

impl Inbox {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        let command = match self.command {
            Command::Try(dry_run) => return dry_run.run(self.target.is_json()),
            command => command,
        };
        self.target.run(async |api| match command {
            Command::List { source, state, key, route, paging } => {
                let query = Query::default().with("source", source).with("state", state);
                let query = query.with("key", key).with("route", route);
                api.list(&["inbox"], &query, paging, ROWS).await
            }
            Command::Show { source, delivery } => show(api, &source, &delivery).await,
            Command::Routes => api.show_items(&api.get(&["routes"], &Query::default()).await?, ROUTES),
            Command::Destinations => {
                api.show_items(&api.get(&["destinations"], &Query::default()).await?, DESTINATIONS)
            }
            Command::Outages(paging) => {
                api.of_everything().list(&["outages"], &Query::default(), paging, OUTAGES).await
            }
            Command::Replay { rows } => intervene(api, "replay", rows, None).await,
            Command::Release { rows } => intervene(api, "release", rows, None).await,
            Command::Discard { rows, reason } => intervene(api, "discard", rows, Some(reason)).await,
            Command::Sources => api.show_items(&api.get(&["sources"], &Query::default()).await?, SOURCES),
            Command::Try(_) => Ok(()),
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
