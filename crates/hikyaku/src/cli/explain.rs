//! `hikyaku explain`.

use std::process::ExitCode;

use clap::Args;

use super::api::{Query, Target};
use super::table::Column;

const EXPLANATIONS: &[Column] = &[("WEBHOOK", "/webhookId"), ("CODE", "/code"), ("WHY", "/sentence")];

/// `hikyaku explain`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  hikyaku explain sale-1 --webhook wh_01a2…")]
pub(super) struct Explain {
    #[command(flatten)]
    target: Target,
    /// The event
    event: String,
    /// Only for this webhook
    #[arg(long, value_name = "ID")]
    webhook: Option<String>,
}

impl Explain {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        let Self { target, event, webhook } = self;
        target.run(async |api| {
            let query = Query::default().with("webhook", webhook);
            api.show_items(&api.get(&["events", &event, "explain"], &query).await?, EXPLANATIONS)
        })
    }
}
