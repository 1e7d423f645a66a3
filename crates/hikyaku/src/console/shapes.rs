//! The API's answers, as far as pages show them.

use minijinja::value::Serde;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A list, or a page of one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<T> {
    /// What it has.
    pub(super) items: Vec<T>,
    /// Where it goes on.
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
    /// How far a search came whose page is not full.
    #[serde(default)]
    pub(super) searched_to: Option<String>,
}

impl<T> List<T> {
    /// Of nothing.
    pub(super) fn empty() -> Self {
        Self { items: Vec::new(), next_cursor: None, searched_to: None }
    }
}

/// What the visitor may reach.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Caller {
    pub(super) organization: Option<String>,
    pub(super) organizations: Vec<String>,
}

/// A webhook.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Webhook {
    pub(super) id: String,
    pub(super) url: String,
    pub(super) events: Vec<String>,
    pub(super) description: String,
    pub(super) active: bool,
    pub(super) created_at: String,
    #[serde(default)]
    pub(super) off_since: Option<String>,
    #[serde(default)]
    pub(super) off_reason: Option<String>,
    #[serde(default)]
    pub(super) off_event: Option<String>,
    pub(super) retry_delays: Option<Vec<f64>>,
    pub(super) timeout_seconds: Option<f64>,
    pub(super) max_in_flight: Option<u32>,
    pub(super) rate_limit: Option<Value>,
    pub(super) disable_after: Value,
    pub(super) while_inactive: String,
    pub(super) signature: String,
    pub(super) headers: Value,
    #[serde(default)]
    pub(super) previous_secret_until: Option<String>,
    /// Only where it was made or rotated just now.
    #[serde(default)]
    pub(super) secret: Option<String>,
}

/// An attempt, of a delivery or in a log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attempt {
    pub(super) run: u32,
    pub(super) attempt: u32,
    pub(super) http_status: u16,
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) error_kind: Option<String>,
    pub(super) started_at: String,
    pub(super) duration_ms: u64,
    pub(super) response_body: String,
    /// Only in a log.
    #[serde(default)]
    pub(super) delivery_id: Option<String>,
    /// Only in a log.
    #[serde(default)]
    pub(super) event_type: Option<String>,
}

impl Attempt {
    /// Whether it was accepted (R2).
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.http_status)
    }
}

/// An event for one webhook.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delivery {
    pub(super) webhook_id: String,
    pub(super) state: String,
    pub(super) run: u32,
    pub(super) in_flight: bool,
    pub(super) next_attempt_at: Option<String>,
    pub(super) attempts: Vec<Attempt>,
}

/// An event.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) r#type: String,
    pub(super) timestamp: String,
    /// To the byte.
    pub(super) data: Box<RawValue>,
    pub(super) deliveries: Vec<Delivery>,
}

/// Why a webhook got an event, or did not.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explained {
    pub(super) webhook_id: String,
    pub(super) code: String,
    pub(super) sentence: String,
}

/// The last attempt of a delivery, in short.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LastAttempt {
    pub(super) http_status: u16,
    #[serde(default)]
    pub(super) error_kind: Option<String>,
    pub(super) started_at: String,
    pub(super) duration_ms: u64,
}

/// A delivery in a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FoundDelivery {
    pub(super) delivery_id: String,
    pub(super) event_type: String,
    pub(super) webhook_id: String,
    pub(super) created_at: String,
    pub(super) state: String,
    pub(super) next_attempt_at: Option<String>,
    pub(super) attempts: u32,
    pub(super) last_attempt: Option<LastAttempt>,
}

/// An event that a webhook did not get.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MissedItem {
    pub(super) event_id: String,
    pub(super) r#type: String,
    pub(super) timestamp: String,
    pub(super) which: String,
}

/// What a webhook did not get, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Missed {
    pub(super) items: Vec<MissedItem>,
    pub(super) count_missed: u64,
    pub(super) count_exhausted: u64,
}

/// How far missed events are sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Recovery {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) total: u64,
    pub(super) recovered: u64,
    pub(super) created_at: String,
}

/// What an endpoint said to a test.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Trial {
    pub(super) event_id: String,
    pub(super) delivered: bool,
    pub(super) http_status: u16,
    #[serde(default)]
    pub(super) error_kind: Option<String>,
    #[serde(default)]
    pub(super) error: Option<String>,
    pub(super) duration_ms: u64,
    pub(super) response_body: String,
    pub(super) advice: String,
}

/// A received event.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) source: String,
    pub(super) delivery_id: String,
    pub(super) event_type: String,
    pub(super) key: String,
    pub(super) timestamp: String,
    pub(super) received_at: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// What a route did with a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Effect {
    pub(super) route: String,
    pub(super) state: String,
    pub(super) failures: u32,
    pub(super) next_attempt_at: Option<String>,
    pub(super) ended_at: Option<String>,
    pub(super) detail: String,
}

/// A received event in full.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RowDetail {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) body: String,
    pub(super) body_encoding: String,
    pub(super) effects: Vec<Effect>,
}

/// What became of a row that somebody did something to.
#[derive(Debug, Deserialize)]
pub(super) struct Intervened {}

/// A row that stays as it is, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unchanged {
    pub(super) source: String,
    pub(super) delivery_id: String,
    pub(super) detail: String,
}

/// What became of many, or would.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Many {
    pub(super) matched: u64,
    pub(super) changed: u64,
    pub(super) rows: Vec<Row>,
    pub(super) unchanged: Vec<Unchanged>,
    pub(super) next_cursor: Option<String>,
}

/// A source, and how its signatures stand.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) provider: String,
    pub(super) last_good_at: Option<String>,
    #[serde(default)]
    pub(super) last_row_at: Option<String>,
    pub(super) last_refused_at: Option<String>,
    pub(super) last_refused_because: Option<String>,
    pub(super) refused_since: Option<String>,
    pub(super) switched_off_at: Option<String>,
}

/// The last failure of a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LastError {
    pub(super) at: String,
    pub(super) error: String,
}

/// A route as it runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Route {
    pub(super) name: String,
    pub(super) destination: String,
    pub(super) waiting: u64,
    pub(super) failing: u64,
    pub(super) oldest_seconds: Option<f64>,
    pub(super) last_error: Option<LastError>,
}

/// A half-open period.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Period {
    pub(super) from: String,
    pub(super) to: String,
}

/// What one comparison found.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cycle {
    pub(super) number: i64,
    pub(super) period: Period,
    pub(super) done_to: String,
    pub(super) started_at: String,
    pub(super) ended_at: Option<String>,
    pub(super) listed: u64,
    pub(super) known: u64,
    pub(super) missing: u64,
    pub(super) repaired: u64,
    pub(super) different: u64,
    pub(super) unknown: u64,
    pub(super) calls: u32,
    pub(super) problem: String,
}

/// How a comparison stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reconciliation {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) compared_to: Option<String>,
    pub(super) wanted: Option<Period>,
    pub(super) calls: u32,
    pub(super) call_budget: u32,
    #[serde(default)]
    pub(super) not_active_since: Option<String>,
    pub(super) cycle: Option<Cycle>,
}

/// What a template shows.
macro_rules! shown {
    ($($shape:ty),* $(,)?) => {
        $(
            impl From<$shape> for minijinja::Value {
                fn from(shape: $shape) -> Self {
                    Self::from(Serde(shape))
                }
            }

            impl From<&$shape> for minijinja::Value {
                fn from(shape: &$shape) -> Self {
                    Self::from(Serde(shape))
                }
            }
        )*
    };
}

shown!(
    Webhook,
    Attempt,
    Delivery,
    Explained,
    LastAttempt,
    FoundDelivery,
    MissedItem,
    Missed,
    Recovery,
    Trial,
    Row,
    Effect,
    RowDetail,
    Unchanged,
    Many,
    Source,
    LastError,
    Route,
    Period,
    Cycle,
    Reconciliation
);
