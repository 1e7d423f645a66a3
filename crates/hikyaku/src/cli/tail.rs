//! `hikyaku events tail`: deliveries as they come and change.
//!
//! The server is asked once a second. Time is the server's: what is older than its newest delivery at the start is not
//! shown, and no clock of this machine is read.

use std::collections::HashMap;
use std::time::Duration;

use hikyaku::client::ClientError;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{MissedTickBehavior, interval};

use super::api::{Api, MAX_PAGE_ROWS, Page, Query};
use super::deliveries::DELIVERIES;
use super::failure::Failure;
use super::output;
use super::table::{Table, cell};

/// How often the server is asked.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// Most pages that are read at a time.
const MAX_PAGES: usize = 5;

/// Usual widths of the columns: times, types, ids, states.
const WIDTHS: [usize; 9] = [24, 16, 36, 35, 9, 8, 6, 7, 24];

/// The event and the webhook of a delivery.
type Key = (String, String);

/// Follows the organization's deliveries; ends only with the process, or when the server refuses. A server that is
/// started again is followed on.
pub(super) async fn tail(api: &Api, event_type: Option<String>, webhook: Option<String>) -> Result<(), Failure> {
    let newest: Page = api.page(&["deliveries"], &Query::default(), 1, None).await?.read()?;
    let since = newest.rows().first().map(|row| cell(row.get("createdAt")));
    let query = Query::default().with("type", event_type).with("webhook", webhook).with("from", since);
    let mut followed = Followed::default();
    followed.changes(read(api, &query, &followed).await?);
    let mut table = Table::new(DELIVERIES).at_least(&WIDTHS);
    if !api.is_json() {
        table.print([]);
    }
    let mut ticks = interval(ASK_PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_away = false;
    loop {
        ticks.tick().await;
        let rows = match read(api, &query, &followed).await {
            Err(failure) if is_no_answer(&failure) => {
                if !std::mem::replace(&mut is_away, true) {
                    output::tell(format_args!("The server gives no answer; it is asked again until it does."));
                }
                continue;
            }
            rows => rows?,
        };
        is_away = false;
        let changed = followed.changes(rows);
        if api.is_json() {
            changed.iter().for_each(|row| output::print(format_args!("{row}\n")));
        } else {
            table.print(&changed.iter().filter_map(|row| serde_json::from_str(row.get()).ok()).collect::<Vec<_>>());
        }
    }
}

fn is_no_answer(failure: &Failure) -> bool {
    matches!(failure.downcast_ref(), Some(ClientError::NoAnswer { .. }))
}

/// The newest deliveries, newest first, at least down to those that are known.
async fn read(api: &Api, query: &Query, followed: &Followed) -> Result<Vec<Box<RawValue>>, Failure> {
    let (mut rows, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let page: Page = api.page(&["deliveries"], query, MAX_PAGE_ROWS, cursor.as_deref()).await?.read()?;
        let reaches_known = page.items.last().is_none_or(|row| followed.knows(row));
        rows.extend(page.items);
        cursor = page.next_cursor;
        if reaches_known || cursor.is_none() {
            return Ok(rows);
        }
    }
    output::tell(format_args!("More than {} deliveries came since the last look; some are not shown.", rows.len()));
    Ok(rows)
}

/// The deliveries of the last look, as they were then.
#[derive(Default)]
struct Followed(HashMap<Key, String>);

impl Followed {
    fn knows(&self, row: &RawValue) -> bool {
        key(row).is_some_and(|key| self.0.contains_key(&key))
    }

    /// Takes the deliveries of the next look, newest first, and gives those that are new or have changed, oldest first.
    fn changes(&mut self, rows: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
        let mut now = HashMap::with_capacity(rows.len());
        let mut changed = Vec::new();
        for row in rows {
            let Some(key) = key(&row) else { continue };
            let known = self.0.get(&key).is_some_and(|known| known == row.get());
            now.insert(key, row.get().to_owned());
            if !known {
                changed.push(row);
            }
        }
        self.0 = now;
        changed.reverse();
        changed
    }
}

fn key(row: &RawValue) -> Option<Key> {
    let row: Value = serde_json::from_str(row.get()).ok()?;
    Some((row["deliveryId"].as_str()?.to_owned(), row["webhookId"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, &str)]) -> Vec<Box<RawValue>> {
        let row = |(event, state): &(&str, &str)| {
            let json = format!(r#"{{"deliveryId":"{event}","webhookId":"w","state":"{state}"}}"#);
            RawValue::from_string(json).unwrap()
        };
        rows.iter().map(row).collect()
    }

    fn texts(rows: Vec<Box<RawValue>>) -> Vec<String> {
        rows.iter().map(|row| row.get().to_owned()).collect()
    }

    #[test]
    fn what_is_new_or_changed_is_given_once_and_oldest_first() {
        let mut followed = Followed::default();
        let first = rows(&[("b", "waiting"), ("a", "waiting")]);
        assert_eq!(texts(followed.changes(first.clone())), texts(rows(&[("a", "waiting"), ("b", "waiting")])));
        assert!(followed.changes(first.clone()).is_empty());
        assert!(followed.knows(&first[0]) && !followed.knows(&rows(&[("c", "waiting")])[0]));
        let next = rows(&[("c", "waiting"), ("b", "delivered"), ("a", "waiting")]);
        assert_eq!(texts(followed.changes(next)), texts(rows(&[("b", "delivered"), ("c", "waiting")])));
    }
}
