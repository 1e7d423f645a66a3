use std::time::Duration;

use hikyaku_core::daily::{Daily, parse_time};

use super::rig::{Rig, before, settings, watched};
use crate::reconcile::{Settings, Watch};
use crate::store::{Beat, Outage, ReconcileState, Store};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn t4_a_webhook_that_is_off_is_told_switched_on_and_what_it_missed_is_read() {
    let every = 20 * HOUR;
    let rig = Rig::new(&[("a", 10)], Settings { every, ..watched() });
    rig.run();
    rig.ended(1).await;
    *rig.provider.active.lock().unwrap() = false;
    rig.provider.sales.lock().unwrap().insert("missed".into(), before(30));
    tokio::time::sleep(3 * HOUR + Duration::from_secs(5)).await;
    assert!(*rig.provider.active.lock().unwrap(), "only ours is switched on");
    let told = rig.door.told.lock().unwrap().clone();
    assert_eq!(told.len(), 1);
    assert!(told[0].webhook == "wh-1" && told[0].is_reenabled && told[0].active_at.is_some(), "{told:?}");
    assert_eq!(rig.ended(2).await.counts.missing, 1, "long before the next cycle is due");
    tokio::time::sleep(6 * HOUR).await;
    assert_eq!(rig.door.told.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn t4_without_leave_nothing_is_switched_on() {
    let watch = watched().watch.map(|watch| Watch { reenable: false, ..watch });
    let rig = Rig::new(&[("a", 10)], Settings { watch, ..settings() });
    *rig.provider.active.lock().unwrap() = false;
    rig.run();
    rig.ended(2).await;
    assert!(!*rig.provider.active.lock().unwrap());
    let told = rig.door.told.lock().unwrap().clone();
    assert!(told.len() == 1 && !told[0].is_reenabled, "{told:?}");
    assert_eq!(rig.entered(), ["a"]);
}

/// Heartbeats tell of it; the schedule would have waited for two days.
#[tokio::test(start_paused = true)]
async fn t4_an_outage_that_the_heart_noticed_is_followed_by_a_cycle_at_once() {
    for was_away in [true, false] {
        let rig = Rig::new(&[("a", 100)], Settings { every: 48 * HOUR, ..settings() });
        let state = ReconcileState { mark: Some(before(3 * 60)), ..Default::default() };
        assert!(rig.store.save_reconcile(&super::shop::key("sales"), &ReconcileState::default(), state).await.unwrap());
        let outage = was_away.then(|| Outage { from: before(2 * 60), to: before(0) });
        rig.store.beat(Beat { at: before(0), outage }).await.unwrap();
        rig.run();
        tokio::time::sleep(HOUR).await;
        let ended = rig.cycles().await.iter().filter(|cycle| cycle.ended_at.is_some()).count();
        assert_eq!(ended, usize::from(was_away), "once, or not before the schedule says");
        if was_away {
            assert_eq!(rig.ended(1).await.period.from, before(5 * 60));
            // Another one, while it runs.
            let now = rig.clock.now();
            let outage = Some(Outage { from: before(0), to: now });
            rig.store.beat(Beat { at: now, outage }).await.unwrap();
            tokio::time::sleep(HOUR).await;
            assert_eq!(rig.cycles().await.len(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cycles_begin_at_the_times_of_day_that_are_set() {
    let times = ["09:30", "21:30"].map(|time| parse_time(time).unwrap());
    // The test begins at midnight (UTC), nine o'clock in Japan.
    let daily = Daily::new(times.into(), hikyaku_core::provider::receiptroller::shop_zone());
    let rig = Rig::new(&[("a", 10)], Settings { daily, ..settings() });
    rig.run();
    for (number, minutes) in [(1, 0), (2, 30), (3, 12 * 60 + 30), (4, 24 * 60 + 30)] {
        let begun = rig.ended(number).await.started_at.duration_since(super::shop::start());
        assert_eq!(begun.as_mins(), minutes, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn t4_after_an_outage_of_ours_the_gap_is_compared_at_once() {
    let rig = Rig::new(&[("a", 10), ("then", 5 * 24 * 60)], settings());
    // The last life ended six days ago.
    let state = ReconcileState { mark: Some(before(6 * 24 * 60)), ..Default::default() };
    assert!(rig.store.save_reconcile(&super::shop::key("sales"), &ReconcileState::default(), state).await.unwrap());
    rig.run();
    let cycle = rig.ended(1).await;
    assert_eq!(cycle.period.from, before(6 * 24 * 60 + 2 * 60));
    assert_eq!(rig.entered(), ["a", "then"]);
}
