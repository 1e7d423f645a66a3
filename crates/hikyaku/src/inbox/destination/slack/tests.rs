use std::sync::Arc;

use axum::http::header::RETRY_AFTER;
use hikyaku_core::delivery::FailureKind;

use super::*;
use crate::inbox::destination::testing::{Scripted, answered, row, tools};
use crate::inbox::destination::{Kind, Settings, build};

const URL: &str = "https://hooks.slack.example/services/T0/B0/sesame";

fn settings(template: &str) -> SlackSettings {
    SlackSettings {
        url: Secret::new(URL),
        template: Some(template.to_owned()),
        language: Language::default(),
        time_zone: TimeZone::default(),
    }
}

fn open(template: &str, transport: Arc<Scripted>) -> Arc<dyn Destination> {
    let settings = Settings { name: "chat".into(), kind: Kind::Slack(settings(template)) };
    build(settings, &tools(transport, Duration::from_secs(20))).unwrap()
}

fn sale(delivery: &str) -> WorkRow {
    row(delivery, "sale.created", "k", r#"{"data":{"id":"<k>"}}"#)
}

async fn effect_of(response: Response) -> Effect {
    let response = move |_: usize| response.clone();
    open("{{ data.id }}", Scripted::new(response)).apply(&sale("d1")).await
}

#[tokio::test]
async fn a_message_is_posted_as_json_and_ok_is_success() {
    let slack = Scripted::new(|_| answered(200, "ok"));
    let effect = open("*{{ data.id }}*\n", slack.clone()).apply(&sale("d1")).await;
    assert_eq!(effect, Effect::Done("Slack answered \"ok\"".into()));
    let requests = std::mem::take(&mut *slack.requests.lock().unwrap());
    assert_eq!(requests[0].url.as_str(), URL);
    assert_eq!(requests[0].headers[CONTENT_TYPE], "application/json");
    assert_eq!(&requests[0].body[..], br#"{"text":"*&lt;k&gt;*"}"#);
    assert_eq!(requests[0].timeout, Duration::from_secs(18), "it ends before the effect is given up");
    for ok in ["ok\n", r#"{"ok":true}"#] {
        assert!(matches!(effect_of(answered(200, ok)).await, Effect::Done(_)), "{ok}");
    }
}

#[tokio::test]
async fn c16_what_may_pass_is_tried_again() {
    for (response, error) in [
        (answered(500, "rollup_error"), "answered 500 rollup_error"),
        (answered(503, "<html>"), "answered 503"),
        (answered(302, ""), "answered 302"),
        (answered(408, ""), "answered 408"),
        (answered(200, "<html>sign in</html>"), "answered 200, but not with Slack's \"ok\""),
        (answered(200, r#"{"ok":false}"#), "answered 200, but not with Slack's \"ok\""),
    ] {
        assert_eq!(effect_of(response).await, Effect::Failed { error: error.into(), retry_after: None });
    }
    let broken =
        Response { outcome: Outcome::Failed(FailureKind::Timeout), error: "no answer".into(), ..answered(0, "") };
    assert_eq!(effect_of(broken).await, Effect::Failed { error: "no answer".into(), retry_after: None });
}

#[tokio::test]
async fn what_slack_refuses_is_dead_with_its_word_and_what_to_do() {
    for (status, body, said) in [
        (400, "invalid_payload", "Slack refused it: 400 invalid_payload; the message is not as Slack wants it"),
        (403, "action_prohibited", "403 action_prohibited; an administrator"),
        (404, "no_service", "404 no_service; the incoming webhook is gone: make a new one"),
        (410, "channel_is_archived", "410 channel_is_archived; the webhook's channel is gone"),
        (404, "<html>Not PRIVATE found", "Slack refused it: 404; look at the URL"),
        (401, "", "Slack refused it: 401; look"),
    ] {
        let Effect::Refused(reason) = effect_of(answered(status, body)).await else { panic!("{status} {body}") };
        assert!(reason.contains(said) && !reason.contains("PRIVATE"), "{reason}");
    }
}

#[tokio::test]
async fn a_template_that_fails_is_dead_and_one_that_gives_nothing_sends_nothing() {
    let slack = Scripted::new(|_| answered(200, "ok"));
    let failing = open("{{ data.id / 2 }}", slack.clone()).apply(&sale("d1")).await;
    assert!(matches!(&failing, Effect::Refused(reason) if reason.contains("line 1")), "{failing:?}");
    let filtered = open("{% if data.id == 'other' %}x{% endif %}\n", slack.clone()).apply(&sale("d1")).await;
    assert_eq!(filtered, Effect::Done("the template gave no text; nothing was sent".into()));
    assert!(slack.requests.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_message_a_second_and_who_comes_early_waits_without_a_failure() {
    let slack = Scripted::new(|_| answered(200, "ok"));
    let destination = open("x", slack.clone());
    assert!(matches!(destination.apply(&sale("d1")).await, Effect::Done(_)));
    let mut pauses = Vec::new();
    for delivery in ["d2", "d3"] {
        let Effect::Later { pause, reason } = destination.apply(&sale(delivery)).await else { panic!("{delivery}") };
        assert!(reason.contains("one message a second"));
        pauses.push(pause);
    }
    assert!(pauses[0] <= INTERVAL && pauses[1] > INTERVAL, "{pauses:?}");
    tokio::time::sleep(pauses[0]).await;
    assert!(matches!(destination.apply(&sale("d3")).await, Effect::Later { .. }), "it is d2's turn");
    assert!(matches!(destination.apply(&sale("d2")).await, Effect::Done(_)));
    tokio::time::sleep(INTERVAL).await;
    assert!(matches!(destination.apply(&sale("d3")).await, Effect::Done(_)));
    assert_eq!(slack.requests.lock().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_429_holds_every_row_of_the_destination_back() {
    for (header, seconds) in [(Some("7"), 7), (None, 30)] {
        let slack = Scripted::new(move |before| {
            let mut response =
                answered(if before == 0 { 429 } else { 200 }, if before == 0 { "rate_limited" } else { "ok" });
            response.headers.extend(header.map(|value| (RETRY_AFTER, value.parse().unwrap())));
            response
        });
        let destination = open("x", slack.clone());
        let pause = Duration::from_secs(seconds);
        let limited = Effect::Failed { error: "answered 429 rate_limited".into(), retry_after: Some(pause) };
        assert_eq!(destination.apply(&sale("d1")).await, limited);
        let second = destination.apply(&sale("d2")).await;
        assert!(matches!(second, Effect::Later { pause: wait, .. } if wait == pause), "{second:?}");
        assert_eq!(slack.requests.lock().unwrap().len(), 1);
        tokio::time::sleep(pause).await;
        assert!(matches!(destination.apply(&sale("d2")).await, Effect::Done(_)));
    }
}

#[test]
fn s19_the_url_is_said_nowhere() {
    assert!(!format!("{:?}", settings("x")).contains("sesame"));
    let tools = tools(Scripted::new(|_| answered(200, "ok")), Duration::from_secs(1));
    for url in ["sesame", "ftp://host/sesame", "https://sesame:sesame@host/"] {
        let settings = SlackSettings { url: Secret::new(url), ..settings("x") };
        let kind = Kind::Slack(settings);
        let Err(refused) = build(Settings { name: "chat".into(), kind }, &tools) else { panic!("{url} is taken") };
        let said = refused.to_string();
        assert!(said.starts_with("destination \"chat\": its url ") && !said.contains("sesame"), "{said}");
    }
}

#[test]
fn s19_a_preview_is_the_text_and_not_the_url() {
    let preview = |template: &str| open(template, Scripted::new(|_| answered(200, "ok"))).preview(&sale("d1"));
    assert_eq!(
        preview("*{{ data.id }}*\n").unwrap(),
        "posts through the incoming webhook at https://hooks.slack.example:\n*&lt;k&gt;*"
    );
    assert_eq!(preview(" ").unwrap(), "the template gives no text; nothing would be sent");
    assert!(preview("{{ data.id / 2 }}").unwrap_err().contains("line 1"));
}
