use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use hikyaku_core::signature::receiptroller;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::sandbox::engine::{Manner, Told};
use crate::sandbox::provider::Followed;

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
