//! The judgements, by table.

use std::time::Duration;

use hikyaku_core::delivery::Outcome;
use jiff::Timestamp;

use super::bodies;
use super::duplicates::{self, RETRIES_TAKE};
use super::order::{self, Pair, Right};
use super::signature::{self, Stranger};
use super::speed;
use super::trouble::{self, Fate};
use crate::check::finding::Text;
use crate::check::finding::Verdict::{self, CannotTell, Fail, Pass};
use crate::check::lab::{Answer, Draft, Seen, Unseen};
use crate::check::probe::Effects;

const NAME: Text = Text { en: "it", ja: "それ" };

fn draft(key: &str, amount: u64) -> Draft {
    let at = Timestamp::UNIX_EPOCH;
    Draft { id: format!("id-{key}"), key: key.to_owned(), amount, event_type: "order.created", at }
}

fn answer(status: u16) -> Answer {
    Answer { status, text: String::new(), took: Duration::from_millis(status.into()) }
}

fn seen(text: &str) -> Seen {
    Ok(Effects::parse(text).unwrap())
}

fn blind() -> Seen {
    Err(Unseen::NoProbe)
}

#[test]
fn c4_the_newer_state_stands_at_the_end() {
    let judged = |right, statuses: [u16; 2], effects: Seen| -> Verdict {
        let notices = [(draft("k", 1), answer(statuses[0])), (draft("k", 2), answer(statuses[1]))];
        order::judge(&[Pair { name: NAME, notices, right }], &effects).verdict
    };
    for (right, statuses, effects, verdict) in [
        (Right::First, [200, 200], seen(r#"{"k":1}"#), Pass),
        (Right::First, [200, 200], seen(r#"{"k":2}"#), Fail),
        (Right::Second, [200, 200], seen(r#"{"k":2}"#), Pass),
        (Right::Second, [200, 200], seen(r#"{"k":1}"#), Fail),
        (Right::Either, [200, 200], seen(r#"{"k":1}"#), Pass),
        (Right::Either, [200, 200], seen(r#"{"k":2}"#), Pass),
        (Right::Either, [200, 200], seen(r#"{"k":3}"#), Fail),
        (Right::First, [200, 409], seen(r#"{"k":1}"#), Fail),
        (Right::First, [200, 200], seen("{}"), Fail),
        (Right::First, [200, 200], blind(), CannotTell),
        (Right::First, [500, 200], blind(), Fail),
    ] {
        assert_eq!(judged(right, statuses, effects.clone()), verdict, "{right:?} {statuses:?} {effects:?}");
    }
}

#[test]
fn c5_c6_c9_one_copy_takes_effect_and_how_the_others_are_answered_is_c12s() {
    let copies = |statuses: [u16; 2]| [(draft("a", 1), answer(statuses[0])), (draft("b", 2), answer(statuses[1]))];
    for (statuses, effects, verdict) in [
        ([200, 202], seen(r#"{"a":1}"#), Pass),
        ([200, 200], seen(r#"{"b":2}"#), Pass),
        ([200, 200], seen(r#"{"a":1,"b":2}"#), Fail),
        ([200, 200], seen("{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\",\"value\":1}"), Fail),
        ([200, 200], seen("{}"), Fail),
        ([200, 409], seen(r#"{"a":1}"#), Pass),
        ([409, 500], seen(r#"{"a":1}"#), Fail),
        ([500, 0], blind(), Fail),
        ([200, 200], blind(), CannotTell),
    ] {
        assert_eq!(duplicates::judge(&copies(statuses), &effects).verdict, verdict, "{statuses:?} {effects:?}");
    }
}

#[test]
fn c12_a_known_delivery_is_accepted_and_changes_nothing() {
    let copies = |status| [(draft("a", 1), answer(200)), (draft("a", 1), answer(status))];
    for (status, effects, verdict) in [
        (200, seen(r#"{"a":1}"#), Pass),
        (200, seen(r#"{"a":2}"#), Fail),
        (200, seen("{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\",\"value\":1}"), Fail),
        (409, seen(r#"{"a":1}"#), Fail),
        (200, blind(), CannotTell),
        (503, blind(), Fail),
    ] {
        assert_eq!(duplicates::judge_same(&copies(status), &effects).verdict, verdict, "{status} {effects:?}");
    }
}

#[test]
fn c7_only_a_wait_longer_than_the_retries_tells() {
    let short = RETRIES_TAKE - Duration::from_secs(1);
    for (passed, effects, verdict) in [
        (RETRIES_TAKE, seen("{}"), Pass),
        (short, seen("{}"), CannotTell),
        (short, seen(r#"{"a":1}"#), Fail),
        (RETRIES_TAKE, seen(r#"{"a":1}"#), Fail),
        (RETRIES_TAKE, blind(), CannotTell),
    ] {
        let judged = duplicates::judge_late(&draft("a", 1), passed, true, &effects);
        assert_eq!(judged.verdict, verdict, "{passed:?} {effects:?}");
    }
}

#[test]
fn c11_strangers_are_refused_and_use_up_nothing() {
    for (stranger, after, effects, verdict) in [
        (401, 200, seen(r#"{"after":2}"#), Pass),
        (400, 200, seen(r#"{"after":2}"#), Pass),
        (200, 200, seen(r#"{"after":2}"#), Fail),
        (500, 200, seen(r#"{"after":2}"#), Fail),
        (0, 200, seen(r#"{"after":2}"#), Fail),
        (401, 200, seen(r#"{"after":2,"stranger":1}"#), Fail),
        (401, 200, seen("{}"), Fail),
        (401, 401, seen(r#"{"after":2}"#), Fail),
        (401, 200, blind(), CannotTell),
        (200, 200, blind(), Fail),
    ] {
        let strangers = [Stranger { name: NAME, draft: draft("stranger", 1), answer: answer(stranger) }];
        let judged = signature::judge(&strangers, (&draft("after", 2), &answer(after)), &effects);
        assert_eq!(judged.verdict, verdict, "{stranger} {after} {effects:?}");
    }
}

#[test]
fn t2_a_wrong_secret_is_refused_and_a_refused_right_one_named() {
    for (status, verdict) in [(401, Pass), (403, Pass), (200, Fail), (500, Fail), (0, Fail)] {
        assert_eq!(signature::judge_secret(&answer(status)).verdict, verdict, "{status}");
    }
    for (status, verdict) in [(401, Some(Fail)), (403, Some(Fail)), (500, None), (404, None)] {
        assert_eq!(signature::judge_plain(&answer(status)).map(|judged| judged.verdict), verdict, "{status}");
    }
}

#[test]
fn t6_whatever_is_signed_is_accepted() {
    for (status, afterwards, verdict) in [
        (200, seen("{}"), Pass),
        (204, blind(), Pass),
        (400, seen("{}"), Fail),
        (0, blind(), Fail),
        (200, Err(Unseen::Silent), Pass),
        (200, Err(Unseen::FellSilent), Fail),
    ] {
        assert_eq!(bodies::judge(&[(NAME, answer(status))], &afterwards).verdict, verdict, "{status}");
    }
}

#[test]
fn t7_a_late_retry_is_accepted_and_takes_effect() {
    for (status, effects, verdict) in
        [(200, seen(r#"{"k":1}"#), Pass), (200, seen("{}"), Fail), (400, seen("{}"), Fail), (200, blind(), CannotTell)]
    {
        assert_eq!(bodies::judge_late(&draft("k", 1), &answer(status), &effects).verdict, verdict, "{status}");
    }
}

#[test]
fn c14_one_slow_answer_in_a_hundred_is_forgiven_and_none_refused() {
    let timed = |slow: usize, status: u16| -> Verdict {
        let mut answers: Vec<_> = (0..100)
            .map(|n| Answer { took: Duration::from_secs(if n < slow { 9 } else { 1 }), ..answer(200) })
            .collect();
        answers[99].status = status;
        speed::judge(&answers, Duration::from_secs(2)).verdict
    };
    for (slow, status, verdict) in [(0, 200, Pass), (1, 200, Pass), (2, 200, Fail), (0, 503, Fail), (0, 0, Fail)] {
        assert_eq!(timed(slow, status), verdict, "{slow} {status}");
    }
}

#[test]
fn c16_t1_what_is_accepted_in_trouble_is_not_lost() {
    for (first, again, effects, outage, crash) in [
        (200, None, seen(r#"{"k":1}"#), Pass, Pass),
        (200, None, seen("{}"), Fail, Fail),
        (503, Some(200), seen(r#"{"k":1}"#), Fail, Pass),
        (0, Some(200), seen("{}"), Fail, Fail),
        (0, Some(503), seen("{}"), Fail, Fail),
        (200, None, blind(), CannotTell, CannotTell),
    ] {
        let fates = [Fate { draft: draft("k", 1), first: answer(first), again: again.map(answer) }];
        assert_eq!(trouble::judge_outage(&fates, &effects).verdict, outage, "{first} {again:?} {effects:?}");
        assert_eq!(trouble::judge_crash(&fates, &effects).verdict, crash, "{first} {again:?} {effects:?}");
    }
}

#[test]
fn every_rule_has_its_texts_in_both_languages() {
    assert!(!Outcome::Answered(302).is_success(), "R3: a redirect is no success, so it is none here");
    let is_japanese = |text: &str| text.chars().any(|c| ('\u{3040}'..'\u{a000}').contains(&c));
    for rule in super::ALL {
        for text in [rule.title, rule.sent, rule.fix, rule.needs] {
            assert!(
                is_japanese(text.ja) && !is_japanese(text.en) && !text.en.contains("  "),
                "{}: {text:?}",
                rule.code
            );
        }
    }
    let codes: std::collections::BTreeSet<_> = super::ALL.iter().map(|rule| rule.code).collect();
    assert_eq!(codes.len(), super::ALL.len());
}
