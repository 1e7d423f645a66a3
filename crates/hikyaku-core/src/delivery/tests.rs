//! The decision, by table and by property.

use super::*;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn after(attempts: u32) -> History {
    History { attempts, ..History::default() }
}

#[test]
fn r2_r3_only_a_2xx_is_success() {
    for status in 100..=599 {
        let decision = decide(&Policy::default(), History::default(), Outcome::Answered(status), None, NOW);
        assert_eq!(decision == Decision::Delivered, (200..300).contains(&status), "{status}");
    }
}

/// The words stand in stores and in answers, so that none may ever change.
#[test]
fn r4_r5_states_and_failures_have_their_words() {
    let states = DeliveryState::ALL.map(DeliveryState::as_str);
    assert_eq!(states, ["waiting", "delivered", "exhausted", "cancelled", "held"]);
    assert_eq!(states.map(|word| DeliveryState::parse(word).unwrap()), DeliveryState::ALL);
    let kinds = FailureKind::ALL.map(FailureKind::as_str);
    let words = ["timeout", "dns", "connect", "tls", "reset", "protocol", "targetRefused", "local", "interrupted"];
    assert_eq!(kinds, words);
    assert_eq!(kinds.map(|word| FailureKind::parse(word).unwrap()), FailureKind::ALL);
    assert_eq!(FailureKind::ALL.map(|kind| kind.to_string()), words);
    assert_eq!((DeliveryState::parse("Waiting"), FailureKind::parse("")), (None, None));
}

#[test]
fn r3_all_failures_are_treated_alike() {
    let policy = Policy::default();
    let expected = decide(&policy, after(1), Outcome::Answered(500), None, NOW);
    for outcome in [
        Outcome::Answered(301),
        Outcome::Answered(401),
        Outcome::Answered(404),
        Outcome::Answered(410),
        Outcome::Failed(FailureKind::Timeout),
        Outcome::Failed(FailureKind::Dns),
        Outcome::Failed(FailureKind::Tls),
        Outcome::Failed(FailureKind::Interrupted),
    ] {
        assert_eq!(decide(&policy, after(1), outcome, None, NOW), expected, "{outcome:?}");
    }
}

#[test]
fn r7_r8_r10_r11_the_fourth_failure_ends_it_and_switches_off() {
    let policy = Policy::default();
    let due = |ended| match decide(&policy, after(ended), Outcome::Answered(500), None, NOW) {
        Decision::Retry { at } => at.as_second(),
        other => panic!("{other:?}"),
    };
    assert_eq!([due(0), due(1), due(2)], [60, 600, 3600]);
    let last = decide(&policy, after(3), Outcome::Answered(500), None, NOW);
    assert_eq!(last, Decision::Exhausted { switch_off: true });
}

#[test]
fn r8_a_due_time_is_never_rounded_to_before_the_delay() {
    for (ended, due) in [(0, 60_000_000), (1, 60_001_000), (999, 60_001_000), (1000, 60_001_000)] {
        let ended = Timestamp::from_microsecond(ended).unwrap();
        let decision = decide(&Policy::default(), History::default(), Outcome::Answered(500), None, ended);
        assert_eq!(decision, Decision::Retry { at: Timestamp::from_microsecond(due).unwrap() });
    }
}

#[test]
fn r17_an_attempt_spoiled_by_us_counts_but_switches_nothing_off() {
    let policy = Policy::default();
    let spoiled_last = decide(&policy, after(3), Outcome::Failed(FailureKind::Interrupted), None, NOW);
    let spoiled_before = History { spoiled_by_us: 1, ..after(3) };
    let failed_last = decide(&policy, spoiled_before, Outcome::Answered(500), None, NOW);
    assert_eq!(spoiled_last, Decision::Exhausted { switch_off: false });
    assert_eq!(failed_last, Decision::Exhausted { switch_off: false });
}

#[test]
fn r13_a_run_that_somebody_asked_for_switches_nothing_off() {
    let asked = History { on_request: true, ..after(3) };
    let failed = |history| decide(&Policy::default(), history, Outcome::Answered(500), None, NOW);
    assert_eq!(failed(asked), Decision::Exhausted { switch_off: false });
    assert_eq!(failed(History { attempts: 0, ..asked }), failed(History::default()));
}

#[test]
fn r8_retry_after_may_postpone_and_never_shortens() {
    let respects = Policy { respect_retry_after: true, ..Policy::default() };
    let due = |policy: &Policy, status, seconds| {
        let asked = Some(Duration::from_secs(seconds));
        match decide(policy, after(1), Outcome::Answered(status), asked, NOW) {
            Decision::Retry { at } => at.as_second(),
            other => panic!("{other:?}"),
        }
    };
    for (status, asked, expected) in [
        (429, 700, 700),
        (503, 700, 700),
        (429, 10, 600),
        (503, 0, 600),
        (500, 700, 600),
        (301, 700, 600),
        (429, u64::MAX, 24 * 3600),
    ] {
        assert_eq!(due(&respects, status, asked), expected, "{status} {asked}");
        assert_eq!(due(&Policy::default(), status, asked), 600, "off by default");
    }
    let last = decide(&respects, after(3), Outcome::Answered(429), Some(Duration::from_secs(1)), NOW);
    assert_eq!(last, Decision::Exhausted { switch_off: true }, "no attempt is added");
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    use FailureKind::*;
    let kinds = [Timeout, Dns, Connect, Tls, Reset, Protocol, TargetRefused, Local, Interrupted];
    prop_oneof![
        (100u16..600).prop_map(Outcome::Answered),
        proptest::sample::select(kinds.to_vec()).prop_map(Outcome::Failed)
    ]
}

proptest! {
    /// Whatever happens, a delivery ends after at most its schedule's attempts, no attempt is due early, and it
    /// ends as delivered exactly if the last attempt was a 2xx.
    #[test]
    fn every_course_of_events_ends(
        outcomes in proptest::collection::vec(any_outcome(), 21),
        delays in proptest::collection::vec(0u64..100_000, 0..20),
    ) {
        let schedule = RetrySchedule::new(delays.iter().map(|d| Duration::from_secs(*d)).collect()).unwrap();
        let policy = Policy { schedule, respect_retry_after: false };
        let (mut history, mut now) = (History::default(), NOW);
        for (n, outcome) in outcomes.into_iter().enumerate() {
            match decide(&policy, history, outcome, None, now) {
                Decision::Delivered => { prop_assert!(outcome.is_success()); return Ok(()); }
                Decision::Retry { at } => {
                    prop_assert_eq!(at.as_second() - now.as_second(), delays[n] as i64);
                    now = at;
                    history = history.after(outcome);
                }
                Decision::Exhausted { switch_off } => {
                    prop_assert_eq!(n as u32 + 1, policy.schedule.max_attempts());
                    prop_assert_eq!(switch_off, history.after(outcome).spoiled_by_us == 0);
                    return Ok(());
                }
            }
        }
        prop_assert!(false, "a delivery outlived its schedule");
    }
}
