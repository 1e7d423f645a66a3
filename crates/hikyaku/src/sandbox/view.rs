//! What the sandbox shows: a live table on a terminal, JSON lines elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::timestamp;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Sandbox;
use super::engine::Told;
use super::provider::Followed;
use crate::log;

/// How often the table's clock moves.
const REDRAW: Duration = Duration::from_millis(250);

/// What happened, as one JSON object.
pub fn line(told: &Told) -> Value {
    match told {
        Told::Event(at, event, faults) => json!({
            "at": timestamp::format(*at), "happened": "event", "type": event.event_type, "key": event.key, "deliveryId": event.id,
            "faults": faults,
        }),
        Told::Fault(at, fault, detail) => {
            json!({"at": timestamp::format(*at), "happened": "fault", "fault": fault, "detail": detail})
        }
        Told::Attempt { at, sent, outcome, followed } => json!({
            "at": timestamp::format(*at), "happened": sent.manner.as_str(), "webhook": sent.attempt.webhook,
            "deliveryId": sent.attempt.event.id, "type": sent.attempt.event.event_type, "key": sent.attempt.event.key,
            "attempt": sent.attempt.number, "httpStatus": outcome.http_status(), "next": followed.map(next),
        }),
    }
}

fn next(followed: Followed) -> String {
    match followed {
        Followed::Delivered => "delivered".to_owned(),
        Followed::RetryAt(at) => format!("retry at {}", timestamp::format(at)),
        Followed::SwitchedOff => "exhausted: the webhook is switched off".to_owned(),
        Followed::Exhausted => "exhausted".to_owned(),
        Followed::Forgotten => "none: a restart has forgotten it".to_owned(),
    }
}

/// Writes JSON lines until the sandbox has ended.
///
/// # Errors
/// When nobody reads them any more.
pub async fn lines(mut told: Receiver<Told>) -> io::Result<()> {
    loop {
        match told.recv().await {
            Ok(told) => log::print(format_args!("{}\n", line(&told)))?,
            Err(RecvError::Lagged(lost)) => {
                log::print(format_args!("{}\n", json!({"happened": "lines lost", "count": lost})))?
            }
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

/// What is counted for a webhook.
#[derive(Default)]
struct Row {
    attempts: u64,
    delivered: u64,
    failed: u64,
    last: String,
}

/// Shows a live table until the sandbox has ended.
pub async fn table(sandbox: Arc<Sandbox>, mut told: Receiver<Told>) {
    let bars = MultiProgress::new();
    let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = || bars.add(ProgressBar::new(1).with_style(style.clone()));
    let (head, titles) = (bar(), bar());
    titles.set_message(format!(
        "{:12} {:6} {:>9} {:>9} {:>7}  last",
        "webhook", "state", "attempts", "delivered", "failed"
    ));
    let mut rows: BTreeMap<String, (Row, ProgressBar)> = BTreeMap::new();
    let mut events = 0_u64;
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        tokio::select! {
            heard = told.recv() => match heard {
                Ok(Told::Event(..)) => events += 1,
                Ok(Told::Fault(at, fault, detail)) => { let _ = bars.println(format!("{}  {}: {detail}", timestamp::format(at), json!(fault).as_str().unwrap_or_default())); }
                Ok(told @ Told::Attempt { .. }) => note(&mut rows, &told, &bar),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => break,
            },
            _ = redraw.tick() => {
                let engine = sandbox.engine();
                head.set_message(format!(
                    "{}  x{}  events {events}, retries waiting {}, API calls {}",
                    timestamp::format(sandbox.now()), sandbox.time_scale(), engine.provider.waiting(), sandbox.calls(),
                ));
                for webhook in engine.provider.webhooks() {
                    let (row, line) = rows.entry(webhook.id.clone()).or_insert_with(|| (Row::default(), bar()));
                    let state = if webhook.active { "on" } else { "off" };
                    line.set_message(format!(
                        "{:12} {state:6} {:>9} {:>9} {:>7}  {}", webhook.id, row.attempts, row.delivered, row.failed, row.last,
                    ));
                }
            }
        }
    }
    // Else the last table would be wiped away.
    [&head, &titles].into_iter().chain(rows.values().map(|(_, line)| line)).for_each(ProgressBar::abandon);
}

fn note(rows: &mut BTreeMap<String, (Row, ProgressBar)>, told: &Told, bar: &impl Fn() -> ProgressBar) {
    let Told::Attempt { sent, outcome, followed, .. } = told else { return };
    let (row, _) = rows.entry(sent.attempt.webhook.clone()).or_insert_with(|| (Row::default(), bar()));
    row.attempts += 1;
    let is_delivered = *followed == Some(Followed::Delivered);
    row.delivered += u64::from(is_delivered);
    row.failed += u64::from(followed.is_some() && !is_delivered);
    let next = followed.map_or_else(|| sent.manner.as_str().to_owned(), next);
    row.last =
        format!("{} {} -> {} {next}", sent.attempt.event.event_type, sent.attempt.event.key, outcome.http_status());
}
