//! Why a webhook got an event, or did not: one code for programs and one sentence for the person who asks, which says
//! what to do where there is something to do.

use jiff::Timestamp;
use serde::Serialize;

use crate::delivery::{DeliveryState, Outcome};
use crate::event::EventType;
use crate::timestamp;
use crate::webhook::{Off, OffReason, Webhook};

/// What is known of one event and one webhook.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The event's type.
    pub event_type: &'a EventType,
    /// When it was published. Its timestamp (R20) may be any.
    pub published_at: Timestamp,
    /// Whether it is an operational event about this very webhook.
    pub is_about_it: bool,
    /// The webhook, unless it is unknown or has been removed.
    pub webhook: Option<&'a Webhook>,
    /// The delivery, if the event ever was for this webhook.
    pub delivery: Option<Delivery<'a>>,
    /// Why the webhook was off when it missed the event, if it missed it (R12).
    pub missed: Option<&'a Off>,
}

/// How the delivery stands.
#[derive(Debug, Clone)]
pub struct Delivery<'a> {
    /// Its state.
    pub state: DeliveryState,
    /// Whether an attempt is under way.
    pub in_flight: bool,
    /// When the next attempt is due, by the wall clock.
    pub next_attempt_at: Option<Timestamp>,
    /// Why it was cancelled.
    pub reason: &'a str,
    /// What the attempts of the present run came to, in their order.
    pub outcomes: &'a [Outcome],
    /// The run before the present one that was delivered, if one was, and the answer's status.
    pub delivered_before: Option<(u32, u16)>,
}

/// The answer for programs. The words stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Code {
    /// There is no such webhook.
    UnknownWebhook,
    /// The webhook does not want events of this type.
    NotSubscribed,
    /// The event is news of the webhook itself, which it never gets.
    AboutItself,
    /// The webhook was created after the event's publish.
    CreatedLater,
    /// The webhook wants such events now, but did not when this one was published.
    SubscribedLater,
    /// It was off at the event's time, and is off still (R12).
    WebhookOff,
    /// It was off at the event's time, and is on again (R12).
    Missed,
    /// It was off, and the event waits until it is on.
    Held,
    /// An attempt is due, now or later.
    Waiting,
    /// An attempt is under way.
    InFlight,
    /// An attempt was answered 2xx (R2).
    Delivered,
    /// Every attempt failed (R7).
    Exhausted,
    /// It ended otherwise.
    Cancelled,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// For programs.
    pub code: Code,
    /// For people.
    pub sentence: String,
}

/// Explains why the webhook got the event, or did not.
pub fn explain(situation: &Situation<'_>) -> Explanation {
    let (code, sentence) = match (&situation.delivery, situation.webhook) {
        (Some(delivery), webhook) => {
            let (code, sentence) = of_delivery(delivery, webhook);
            after_an_earlier_run(delivery, code, sentence)
        }
        (None, None) => (
            Code::UnknownWebhook,
            "The organization has no such webhook: it was removed, or the id is mistyped.".to_owned(),
        ),
        (None, Some(webhook)) => of_nothing(situation, webhook),
    };
    Explanation { code, sentence }
}

/// What a run has delivered the webhook has, whatever became of a later one.
fn after_an_earlier_run(delivery: &Delivery<'_>, code: Code, sentence: String) -> (Code, String) {
    let Some((run, status)) = delivery.delivered_before else { return (code, sentence) };
    let had = format!("It was delivered in run {run}, with the answer {status}.");
    match code {
        Code::Exhausted => {
            let failed = attempts_failed(delivery.outcomes);
            (Code::Delivered, format!("{had} It was sent again since, and {failed}."))
        }
        Code::Delivered => (code, sentence),
        _ => (code, format!("{had} It was to be sent again since: {sentence}")),
    }
}

fn of_delivery(delivery: &Delivery<'_>, webhook: Option<&Webhook>) -> (Code, String) {
    let ended = u32::try_from(delivery.outcomes.len()).unwrap_or(u32::MAX);
    match delivery.state {
        DeliveryState::Waiting if delivery.in_flight => {
            (Code::InFlight, format!("Attempt {} is under way now{}.", ended + 1, so_far(delivery.outcomes)))
        }
        DeliveryState::Waiting => {
            let due = delivery
                .next_attempt_at
                .map_or_else(|| "now".to_owned(), |due| format!("at {}", timestamp::format(due)));
            (Code::Waiting, format!("Attempt {} is due {due}{}.", ended + 1, so_far(delivery.outcomes)))
        }
        DeliveryState::Delivered => {
            let status = delivery.outcomes.last().map_or(0, |outcome| outcome.http_status());
            (Code::Delivered, format!("It was delivered at attempt {ended}, with the answer {status}."))
        }
        DeliveryState::Exhausted => (Code::Exhausted, exhausted(delivery.outcomes)),
        DeliveryState::Held => {
            let sentence = match webhook.and_then(|webhook| webhook.off.as_ref()) {
                Some(off) => format!(
                    "It is held: the webhook is {}. What is held is sent when the webhook is switched on.",
                    being_off(off)
                ),
                None => {
                    "It was held and the webhook is on: its turn in the release comes by itself. If the release was \
                         cancelled, set \"active\": true once more, or resend this event."
                        .to_owned()
                }
            };
            (Code::Held, sentence)
        }
        DeliveryState::Cancelled => (Code::Cancelled, cancelled(delivery)),
    }
}

fn exhausted(outcomes: &[Outcome]) -> String {
    let failed = attempts_failed(outcomes);
    let what = "resend the delivery or recover the webhook";
    if outcomes.iter().all(|outcome| outcome.spoiled_by_us()) {
        // Nothing is known against the endpoint, which may even have got it.
        format!("It may not have arrived: {failed}, by no fault of the endpoint's. To send it once more, {what}.")
    } else {
        format!("It did not arrive: {failed}. Mend the endpoint, then {what}.")
    }
}

/// "all 4 attempts failed (500, timeout, …)".
fn attempts_failed(outcomes: &[Outcome]) -> String {
    match outcomes {
        [_] => format!("the only attempt failed ({})", listed(outcomes)),
        _ => format!("all {} attempts failed ({})", outcomes.len(), listed(outcomes)),
    }
}

fn cancelled(delivery: &Delivery<'_>) -> String {
    let reason = match delivery.reason {
        "webhookDeleted" => "the webhook was removed",
        other => other,
    };
    format!("It was cancelled because {reason}{}.", so_far(delivery.outcomes))
}

/// Of an event that was never to be delivered to this webhook.
fn of_nothing(situation: &Situation<'_>, webhook: &Webhook) -> (Code, String) {
    let resend = "Resend it if the webhook should have it all the same.";
    match (situation.missed, &webhook.off) {
        (Some(_), Some(off)) => {
            let sentence = format!(
                "It was missed: the webhook is {}. Switch it on, then recover what it missed, or resend this event.",
                being_off(off)
            );
            (Code::WebhookOff, sentence)
        }
        (Some(then), None) => {
            let sentence = format!(
                "It was missed: the webhook was {}. It is on again, so recover what it missed, or resend this event.",
                being_off(then)
            );
            (Code::Missed, sentence)
        }
        (None, _) if !webhook.subscribes_to(situation.event_type.as_str()) => {
            let sentence = format!(
                "The webhook does not subscribe to {:?}. Add the type to its events if it should get such events.",
                situation.event_type.as_str()
            );
            (Code::NotSubscribed, sentence)
        }
        (None, _) if situation.is_about_it => {
            let sentence =
                "It tells of this webhook itself, and no webhook gets news of itself. Others that subscribe to it did.";
            (Code::AboutItself, sentence.to_owned())
        }
        (None, _) if webhook.created_at > situation.published_at => {
            let created = timestamp::format(webhook.created_at);
            (
                Code::CreatedLater,
                format!("The webhook was created at {created}, after the event was published. {resend}"),
            )
        }
        (None, _) => {
            let sentence = format!("When it was published, the webhook did not subscribe to its type. {resend}");
            (Code::SubscribedLater, sentence)
        }
    }
}

/// Since when and why a webhook is or was off.
fn being_off(off: &Off) -> String {
    let since = timestamp::format(off.since);
    match &off.reason {
        OffReason::Paused => format!("off since {since} because somebody paused it"),
        OffReason::Exhausted(event) => {
            format!("off since {since} because every attempt of the event {event} failed")
        }
    }
}

/// What the attempts came to, to be added to a sentence.
fn so_far(outcomes: &[Outcome]) -> String {
    match outcomes.len() {
        0 => String::new(),
        1 => format!("; 1 attempt {} before it ({})", ended(outcomes), listed(outcomes)),
        many => format!("; {many} attempts {} before it ({})", ended(outcomes), listed(outcomes)),
    }
}

/// A success may be among the attempts of a delivery that was cancelled.
fn ended(outcomes: &[Outcome]) -> &'static str {
    if outcomes.iter().any(|outcome| outcome.is_success()) { "ended" } else { "failed" }
}

fn listed(outcomes: &[Outcome]) -> String {
    let word = |outcome: &Outcome| match outcome {
        Outcome::Answered(status) => status.to_string(),
        Outcome::Failed(kind) => kind.to_string(),
    };
    outcomes.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
