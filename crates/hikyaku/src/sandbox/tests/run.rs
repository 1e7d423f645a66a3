use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use bytes::Bytes;
use hikyaku_core::delivery::FailureKind;
use hikyaku_core::signature::receiptroller;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::sandbox::engine::{Manner, Told};
use crate::sandbox::provider::{Attempt, Followed};

const OK: Outcome = Outcome::Answered(200);

/// Runs for so much virtual time.
async fn run_for(sandbox: &Arc<Sandbox>, length: Duration) {
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(sandbox).run(stop.clone()));
    tokio::time::sleep(length).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r8_retries_come_at_1_11_and_71_minutes_and_then_the_webhook_is_off() {
    let sandbox = sandbox(settings(""), |_| Outcome::Answered(500));
    let mut watch = sandbox.watch();
    run_for(&sandbox, Duration::from_secs(2 * 3600)).await;
    let mut began: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    let mut off = Vec::new();
    while let Ok(told) = watch.try_recv() {
        if let Told::Attempt { at, sent, followed, .. } = told {
            off.extend((followed == Some(Followed::SwitchedOff)).then_some(at));
            began.entry(sent.attempt.event.id.clone()).or_default().push(at);
        }
    }
    assert_eq!(off.len(), 1, "R10: once");
    assert!(began.len() > 100 && began.values().all(|times| times[0] <= off[0]), "R12: nothing new comes any more");
    for times in began.values() {
        let minutes: Vec<_> = times.iter().map(|at| at.duration_since(times[0]).as_secs() / 60).collect();
        // What began less than 71 minutes before the end has retries to come.
        assert!([0, 1, 11, 71].starts_with(&minutes), "{minutes:?}");
    }
    assert!(began.values().any(|times| times.len() == 4));
}

/// What reached a receiver: event ids in the order of arrival, each with its attempt's number and body.
type Arrived = Arc<Mutex<Vec<(String, u32, Bytes)>>>;

/// Runs a quiet hour and a half with a receiver that answers the attempts of each event like this.
async fn arrivals(answer: impl Fn(u32) -> Outcome + Send + Sync + 'static) -> Vec<(String, u32, Bytes)> {
    let arrived = Arrived::default();
    let seeing = arrived.clone();
    let sandbox = sandbox(settings(""), move |outgoing| {
        let Attempt { event, number, .. } = &outgoing.attempt;
        seeing.lock().unwrap().push((event.id.clone(), *number, event.body.clone()));
        answer(*number)
    });
    run_for(&sandbox, Duration::from_secs(90 * 60)).await;
    std::mem::take(&mut *arrived.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn r1_what_was_not_accepted_comes_again_by_itself_late_and_after_later_events() {
    let arrived = arrivals(|number| if number == 1 { Outcome::Answered(500) } else { OK }).await;
    let place = |id: &str, number: u32| arrived.iter().position(|(other, of, _)| other == id && *of == number);
    let firsts: Vec<_> = arrived.iter().filter(|(_, number, _)| *number == 1).map(|(id, ..)| id.as_str()).collect();
    // What happened in the last minute has its second attempt to come.
    let twice = firsts.iter().filter(|id| place(id, 2).is_some()).count();
    assert!(twice > 100 && twice + 10 > firsts.len(), "{twice} of {}", firsts.len());
    assert!(arrived.iter().all(|(_, number, _)| *number <= 2), "what was accepted does not come again");
    let is_overtaken = |pair: &&[&str]| place(pair[0], 2) > place(pair[1], 1);
    assert!(firsts.windows(2).filter(is_overtaken).count() > 10);
}

#[tokio::test(start_paused = true)]
async fn r23_work_that_was_done_and_not_acknowledged_comes_again_under_the_same_id() {
    for answer in [Outcome::Failed(FailureKind::Timeout), Outcome::Answered(500)] {
        // Every arrival is work done; the sandbox cannot know.
        let arrived = arrivals(move |number| if number == 1 { answer } else { OK }).await;
        let mut work: BTreeMap<String, Vec<Bytes>> = BTreeMap::new();
        arrived.into_iter().for_each(|(id, _, body)| work.entry(id).or_default().push(body));
        let twice: Vec<_> = work.values().filter(|bodies| bodies.len() == 2).collect();
        assert!(twice.len() > 100 && twice.iter().all(|bodies| bodies[0] == bodies[1]), "{}", twice.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_fast_clock_makes_71_minutes_71_seconds() {
    let sandbox = sandbox(Settings { time_scale: 60, ..settings("") }, |_| Outcome::Answered(500));
    run_for(&sandbox, Duration::from_secs(75)).await;
    assert!(!sandbox.engine().provider.webhooks().next().unwrap().active);
    assert_eq!(sandbox.now().duration_since(start()).as_secs(), 75 * 60);
}

#[tokio::test(start_paused = true)]
async fn c11_strangers_never_verify_and_everything_else_does() {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let plan = ["tampered", "unsigned", "wrong-signature", "duplicate", "odd-json"];
    let plan: String = plan.iter().map(|kind| format!("[[fault]]\nkind = \"{kind}\"\nshare = 0.2\n")).collect();
    let seeing = Arc::clone(&seen);
    let sandbox = sandbox(settings(&plan), move |outgoing| {
        let (headers, body) = crate::sandbox::send::message(outgoing);
        let signature = headers.get("x-rr-signature").map(|value| value.as_bytes());
        let verifies = receiptroller::verify(&[Secret::new("a-secret")], signature, &body).is_ok();
        seeing.lock().unwrap().entry(outgoing.manner.as_str()).or_insert_with(BTreeSet::new).insert(verifies);
        OK
    });
    run_for(&sandbox, Duration::from_secs(12 * 3600)).await;
    let expected = [
        (Manner::Copy, true),
        (Manner::Plain, true),
        (Manner::Tampered, false),
        (Manner::Unsigned, false),
        (Manner::WrongSignature, false),
    ];
    let expected: BTreeMap<_, _> =
        expected.map(|(manner, verifies)| (manner.as_str(), BTreeSet::from([verifies]))).into();
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn one_seed_sends_the_same_and_another_does_not() {
    let sent = async |seed| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let seeing = Arc::clone(&seen);
        let base = settings("");
        let settings = Settings { world: world::Settings { seed, ..base.world }, plan: Plan::all(), ..base };
        let sandbox = sandbox(settings, move |outgoing| {
            seeing.lock().unwrap().push((
                outgoing.attempt.event.id.clone(),
                outgoing.attempt.number,
                outgoing.manner.as_str(),
            ));
            let fails = (outgoing.attempt.event.body.len() + outgoing.attempt.number as usize).is_multiple_of(3);
            if fails { Outcome::Answered(500) } else { OK }
        });
        run_for(&sandbox, Duration::from_secs(24 * 3600)).await;
        let mut seen = seen.lock().unwrap().clone();
        // Of one instant, the order is the runtime's.
        seen.sort();
        seen
    };
    let first = sent(3).await;
    assert!(first.len() > 2500);
    assert_eq!(first, sent(3).await);
    assert_ne!(first, sent(4).await);
}
