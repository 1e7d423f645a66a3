//! `hikyaku deliveries`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;

use super::api::{Api, Paging, Query, Target};
use super::failure::Failure;
use super::recover::Period;
use super::table::{Column, Members, print_members};

/// How deliveries are listed.
pub(super) const DELIVERIES: &[Column] = &[
    ("PUBLISHED", "/createdAt"),
    ("TYPE", "/eventType"),
    ("EVENT", "/deliveryId"),
    ("WEBHOOK", "/webhookId"),
    ("STATE", "/state"),
    ("ATTEMPTS", "/attempts"),
    ("STATUS", "/lastAttempt/httpStatus"),
    ("ERROR", "/lastAttempt/errorKind"),
    ("NEXT ATTEMPT", "/nextAttemptAt"),
];

const EXAMPLES: &str = "Examples:
  hikyaku deliveries list --state exhausted --from 2026-11-30T00:00:00Z
  hikyaku deliveries list --webhook wh_01a2… --http-status 5xx --all --json
  hikyaku deliveries resend sale-1 wh_01a2…";

/// `hikyaku deliveries`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Deliveries {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Search deliveries, those of the newest events first
    List(ListArguments),
    /// Send an event to a webhook again: the same bytes, and a new run of attempts
    Resend { event: String, webhook: String },
}

#[derive(Debug, Args)]
struct ListArguments {
    /// Only to this webhook
    #[arg(long, value_name = "ID")]
    webhook: Option<String>,
    /// Only of this event
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Only of events of this type, or pattern such as sale.*
    #[arg(long = "type", value_name = "PATTERN")]
    event_type: Option<String>,
    /// Only in this state: waiting, held, delivered, exhausted, cancelled
    #[arg(long)]
    state: Option<String>,
    /// Only of events with this business key
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    outcome: OutcomeFilter,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    paging: Paging,
}

/// What an attempt came to.
#[derive(Debug, Args)]
pub(super) struct OutcomeFilter {
    /// Only with this status of the attempt: 503, 5xx, or 0 where none came
    #[arg(long, value_name = "STATUS")]
    http_status: Option<String>,
    /// Only with this kind of error: timeout, dns, connect, tls, ...
    #[arg(long, value_name = "KIND")]
    error: Option<String>,
}

impl OutcomeFilter {
    /// The query with this filter.
    pub(super) fn add(self, query: Query) -> Query {
        query.with("httpStatus", self.http_status).with("error", self.error)
    }
}

impl Deliveries {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        self.target.run(async |api| match self.command {
            Command::List(arguments) => list(api, arguments).await,
            Command::Resend { event, webhook } => resend(api, &event, &webhook).await,
        })
    }
}

async fn list(api: &Api, arguments: ListArguments) -> Result<(), Failure> {
    let ListArguments { webhook, event, event_type, state, key, outcome, period, paging } = arguments;
    let query = Query::default().with("webhook", webhook).with("event", event).with("type", event_type);
    let query = period.add(outcome.add(query.with("state", state).with("key", key)));
    api.list(&["deliveries"], &query, paging, DELIVERIES).await
}

async fn resend(api: &Api, event: &str, webhook: &str) -> Result<(), Failure> {
    let delivery = api.send(Method::POST, &["deliveries", event, webhook, "resend"], None).await?;
    if api.is_json() {
        delivery.print();
    } else {
        // Of attempts, only earlier ones are there yet.
        print_members(&delivery.read::<Members>()?, &["attempts"]);
    }
    Ok(())
}
