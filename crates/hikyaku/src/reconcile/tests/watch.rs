use std::time::Duration;

use super::rig::{Rig, before, settings, watched};
use crate::reconcile::{Settings, Watch};

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

#[tokio::test(start_paused = true)]
async fn t4_after_an_outage_of_ours_the_gap_is_compared_at_once() {
    let rig = Rig::new(&[("a", 10), ("then", 5 * 24 * 60)], settings());
    // The last life ended six days ago.
    let state = crate::store::ReconcileState { mark: Some(before(6 * 24 * 60)), ..Default::default() };
    crate::store::Store::save_reconcile(&*rig.store, &super::shop::key("sales"), state).await.unwrap();
    rig.run();
    let cycle = rig.ended(1).await;
    assert_eq!(cycle.period.from, before(6 * 24 * 60 + 2 * 60));
    assert_eq!(rig.entered(), ["a", "then"]);
}
