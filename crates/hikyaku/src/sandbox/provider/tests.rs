use std::time::Duration;

use hikyaku_core::delivery::FailureKind;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::*;

const OK: Outcome = Outcome::Answered(200);
const NO: Outcome = Outcome::Answered(500);

fn at(seconds: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH.checked_add(Duration::from_secs(1_800_000_000 + seconds)).unwrap()
}

fn webhook(id: &str) -> Webhook {
    Webhook {
        id: id.to_owned(),
        url: Url::parse("http://127.0.0.1:1/hook").unwrap(),
        events: vec![EventPattern::All],
        active: true,
        secret: Secret::new("a-secret"),
        memo: String::new(),
    }
}

fn provider(ids: &[&str]) -> Provider {
    let mut provider = Provider::new(RetrySchedule::default(), 1);
    for id in ids {
        assert!(provider.put(webhook(id)));
    }
    provider
}

fn sale(provider: &mut Provider, seconds: u64) -> Vec<Attempt> {
    let data = to_raw_value(&json!({"id": "T1|2026-11|1"})).unwrap();
    let event = provider.event("sale.created", "T1|2026-11|1", &data, at(seconds)).unwrap();
    provider.send(&event)
}

/// Ends an attempt where it began and says what followed.
fn end(provider: &mut Provider, attempt: &Attempt, outcome: Outcome, seconds: u64) -> Followed {
    provider.ended(attempt, outcome, at(seconds), at(seconds))
}

/// Fails an attempt and all its retries; the time after the first of each.
fn exhaust(provider: &mut Provider, first: Attempt) -> (Vec<Attempt>, Followed) {
    let (mut attempts, mut now) = (vec![first], at(0));
    loop {
        let attempt = attempts.last().unwrap().clone();
        match provider.ended(&attempt, NO, now, now) {
            Followed::RetryAt(due) => {
                assert!(provider.take_due(due.checked_sub(Duration::from_millis(1)).unwrap()).is_none());
                now = due;
                attempts.push(provider.take_due(due).unwrap());
            }
            end => return (attempts, end),
        }
    }
}

#[test]
fn r7_r8_four_attempts_over_71_minutes() {
    let mut provider = provider(&["a"]);
    let first = sale(&mut provider, 0).pop().unwrap();
    let mut due = Vec::new();
    let mut attempt = first;
    let mut now = 0;
    while let Followed::RetryAt(next) = end(&mut provider, &attempt, NO, now) {
        now = next.duration_since(at(0)).as_secs() as u64;
        due.push(now);
        attempt = provider.take_due(next).unwrap();
    }
    assert_eq!((due, attempt.number), (vec![60, 660, 4260], 4));
}

#[test]
fn r8_a_pause_counts_from_the_end_of_the_attempt_before() {
    let mut provider = provider(&["a"]);
    let first = sale(&mut provider, 0).pop().unwrap();
    let timeout = Outcome::Failed(FailureKind::Timeout);
    assert_eq!(provider.ended(&first, timeout, at(0), at(10)), Followed::RetryAt(at(70)));
    assert_eq!(provider.log_of("a").next().unwrap().http_status, 0, "R6");
}

#[test]
fn r9_r20_r21_a_retry_is_the_same_to_the_byte_even_under_a_new_secret() {
    let mut provider = provider(&["a"]);
    let first = sale(&mut provider, 0).pop().unwrap();
    provider.put(Webhook { secret: Secret::new("another"), ..webhook("a") });
    let (attempts, _) = exhaust(&mut provider, first);
    for retry in &attempts[1..] {
        assert_eq!((&retry.signature, &retry.event.body), (&attempts[0].signature, &attempts[0].event.body));
    }
    let body = hikyaku_core::envelope::Envelope::read(&attempts[3].event.body);
    assert_eq!((body.id, body.timestamp), (Some(attempts[0].event.id.clone()), Some(at(0))));
}

#[test]
fn r10_r11_r12_one_event_switches_off_and_nothing_is_held() {
    let mut provider = provider(&["a"]);
    let first = sale(&mut provider, 0).pop().unwrap();
    let (attempts, end) = exhaust(&mut provider, first);
    assert_eq!((attempts.len(), end), (4, Followed::SwitchedOff));
    assert!(!provider.webhook("a").unwrap().active);
    assert!(sale(&mut provider, 5000).is_empty(), "R12");
    provider.put(webhook("a"));
    assert_eq!(provider.waiting(), 0, "what happened meanwhile does not come");
}

#[test]
fn r14_a_pause_does_not_stop_retries_and_a_late_success_switches_nothing_on() {
    let mut provider = provider(&["a"]);
    let first = sale(&mut provider, 0).pop().unwrap();
    assert_eq!(end(&mut provider, &first, NO, 0), Followed::RetryAt(at(60)));
    provider.put(Webhook { active: false, ..webhook("a") });
    let retry = provider.take_due(at(60)).unwrap();
    assert_eq!(end(&mut provider, &retry, OK, 60), Followed::Delivered);
    assert!(!provider.webhook("a").unwrap().active);
}

#[test]
fn r15_r16_r17_r18_a_restart_forgets_what_waits_and_what_is_under_way() {
    let mut provider = provider(&["a"]);
    let waiting = sale(&mut provider, 0).pop().unwrap();
    end(&mut provider, &waiting, NO, 0);
    let under_way = sale(&mut provider, 1).pop().unwrap();
    assert_eq!(provider.restart(), 1);
    assert_eq!(end(&mut provider, &under_way, NO, 2), Followed::Forgotten);
    assert_eq!((provider.waiting(), provider.next_due()), (0, None));
    assert!(provider.webhook("a").unwrap().active, "R17");
    let log: Vec<_> = provider.log_of("a").map(|line| (line.delivery.clone(), line.attempt)).collect();
    assert_eq!(log, [(under_way.event.id.clone(), 1), (waiting.event.id.clone(), 1)], "R18");
}

#[test]
fn r22_webhooks_of_one_event_share_its_id_and_fail_each_for_itself() {
    let mut provider = provider(&["a", "b"]);
    let attempts = sale(&mut provider, 0);
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].event.id, attempts[1].event.id);
    assert_eq!(end(&mut provider, &attempts[1], OK, 0), Followed::Delivered);
    exhaust(&mut provider, attempts[0].clone());
    assert_eq!(provider.webhooks().map(|w| w.active).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn r2_r3_any_2xx_is_success_and_everything_else_is_not() {
    for (status, delivered) in
        [(200, true), (204, true), (299, true), (301, false), (401, false), (404, false), (500, false)]
    {
        let mut provider = provider(&["a"]);
        let first = sale(&mut provider, 0).pop().unwrap();
        let followed = end(&mut provider, &first, Outcome::Answered(status), 0);
        assert_eq!(followed == Followed::Delivered, delivered, "{status}");
    }
}

#[test]
fn the_log_and_the_retries_are_bounded() {
    let mut provider = provider(&["a"]);
    for n in 0..MAX_LOG_LINES as u64 + 5 {
        let first = sale(&mut provider, n).pop().unwrap();
        end(&mut provider, &first, OK, n);
    }
    assert_eq!(provider.log_of("a").count(), MAX_LOG_LINES);
    for n in 0..2 * MAX_WEBHOOKS {
        provider.put(webhook(&n.to_string()));
    }
    assert_eq!(provider.webhooks().count(), MAX_WEBHOOKS);
}
