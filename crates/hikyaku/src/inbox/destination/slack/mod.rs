//! Posts messages into a Slack channel through an incoming webhook: one a second, as Slack asks, and at least once.
//!
//! The webhook's URL is all that a stranger needs to write into the channel, so it is kept as a secret, and nothing that is
//! logged or shown says more of it than scheme and host (S19).

mod json;
mod message;
#[cfg(test)]
mod tests;
mod turns;

use std::time::Duration;

use async_trait::async_trait;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use hikyaku_core::delivery::Outcome;
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::WebhookUrl;
use serde_json::value::RawValue;
use url::Url;

use super::http::retry_after;
use super::{Destination, Effect, Tools};
use crate::outbound::{Request, Response};
use crate::store::WorkRow;
use message::Message;
pub use message::{Language, TimeZone, check_template};
use turns::Turns;

/// Slack takes one message a second through one incoming webhook.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a 429 that does not say how long it is to be.
const PAUSE_AFTER_429: Duration = Duration::from_secs(30);
/// Longest word of Slack's that is passed on, in bytes.
const MAX_WORD_BYTES: usize = 64;

/// A Slack destination as configured.
#[derive(Debug, Clone)]
pub struct SlackSettings {
    /// The incoming webhook's URL.
    pub url: Secret,
    /// The message as a template of minijinja; `None` takes the language's own.
    pub template: Option<String>,
    /// The language of messages without a template.
    pub language: Language,
    /// In which zone times are shown.
    pub time_zone: TimeZone,
}

/// Posts messages.
pub(super) struct SlackDestination {
    url: Url,
    message: Message,
    turns: Turns,
    tools: Tools,
}

impl SlackDestination {
    /// Reads URL and template. The error says what is wrong, and never the URL.
    pub(super) fn open(settings: SlackSettings, tools: Tools) -> Result<Self, String> {
        let url = WebhookUrl::parse(settings.url.reveal()).map_err(|error| format!("its url {error}"))?;
        let zone = settings.time_zone;
        let message = match settings.template {
            Some(template) => Message::new(template, zone)?,
            None => Message::in_language(settings.language, zone)?,
        };
        Ok(Self { url: url.as_url().clone(), message, turns: Turns::new(INTERVAL), tools })
    }

    fn request(&self, text: &str) -> Request {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = Bytes::from(serde_json::json!({ "text": text }).to_string());
        Request { url: self.url.clone(), headers, body, timeout: self.tools.patience() }
    }

    fn effect(&self, response: &Response) -> Effect {
        match response.outcome {
            Outcome::Answered(200..=299) if says_ok(&response.body) => Effect::Done("Slack answered \"ok\"".to_owned()),
            Outcome::Answered(status @ 200..=299) => failed(format!("answered {status}, but not with Slack's \"ok\"")),
            Outcome::Answered(429) => {
                let now = self.tools.clock.now();
                let pause = retry_after(429, response, now).unwrap_or(PAUSE_AFTER_429);
                self.turns.close(pause, self.tools.clock.schedule());
                Effect::Failed { error: format!("answered 429{}", word(response)), retry_after: Some(pause) }
            }
            Outcome::Answered(status @ 400..=499) if !matches!(status, 408 | 425) => {
                Effect::Refused(format!("Slack refused it: {status}{}{}", word(response), what_to_do(response)))
            }
            Outcome::Answered(status) => failed(format!("answered {status}{}", word(response))),
            Outcome::Failed(_) => failed(response.error.clone()),
        }
    }
}

#[async_trait]
impl Destination for SlackDestination {
    async fn apply(&self, row: &WorkRow) -> Effect {
        let text = match self.message.render(row) {
            Ok(text) if text.is_empty() => {
                return Effect::Done("the template gave no text; nothing was sent".to_owned());
            }
            Ok(text) => text,
            Err(error) => return Effect::Refused(error),
        };
        let id = format!("{}:{}", row.source, row.delivery);
        if let Some(pause) = self.turns.take(&id, self.tools.clock.schedule()) {
            return Effect::Later { pause, reason: "waits for its turn: Slack takes one message a second".to_owned() };
        }
        let response = self.tools.transport.post(self.request(&text)).await;
        self.effect(&response)
    }

    fn preview(&self, row: &WorkRow) -> Result<String, String> {
        let text = self.message.render(row)?;
        if text.is_empty() {
            return Ok("the template gives no text; nothing would be sent".to_owned());
        }
        Ok(format!("posts through the incoming webhook at {}:\n{text}", self.url.origin().ascii_serialization()))
    }
}

fn failed(error: String) -> Effect {
    Effect::Failed { error, retry_after: None }
}

/// Incoming webhooks answer `ok`, webhooks of workflows `{"ok":true}`. Anything else comes from somebody in between.
fn says_ok(body: &[u8]) -> bool {
    body.trim_ascii() == b"ok" || hikyaku_core::json::pointer(body, "/ok").map(RawValue::get) == Some("true")
}

/// Slack's own word for what is wrong, if it is one.
fn slack_word(response: &Response) -> Option<&str> {
    let word = std::str::from_utf8(response.body.trim_ascii()).ok()?;
    let is_word =
        (1..=MAX_WORD_BYTES).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_word.then_some(word)
}

fn word(response: &Response) -> String {
    slack_word(response).map_or_else(String::new, |word| format!(" {word}"))
}

fn what_to_do(response: &Response) -> &'static str {
    match slack_word(response) {
        Some("no_service" | "no_active_hooks" | "invalid_token" | "no_team" | "team_disabled") => {
            "; the incoming webhook is gone: make a new one in Slack, set its URL as `url`, and replay the row"
        }
        Some("channel_is_archived" | "channel_not_found" | "user_not_found") => {
            "; the webhook's channel is gone: make a webhook for another one, set its URL as `url`, and replay the row"
        }
        Some("action_prohibited" | "posting_to_general_channel_denied") => {
            "; an administrator of the workspace does not allow this; replay the row when it is allowed"
        }
        Some("invalid_payload" | "no_text" | "too_many_attachments") => {
            "; the message is not as Slack wants it: mend the template and replay the row"
        }
        _ => "; look at the URL and at the app in Slack, and replay the row",
    }
}
