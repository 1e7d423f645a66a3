//! Signs of life, and the times without any.

use super::fixture::*;
use crate::store::*;

async fn beat(store: &dyn Store, seconds: i64, outage: Option<(i64, i64)>) {
    let outage = outage.map(|(from, to)| Outage { from: at(from), to: at(to) });
    store.beat(Beat { at: at(seconds), outage }).await.unwrap();
}

async fn outages(store: &dyn Store, before: Option<i64>, limit: u32) -> Vec<(i64, i64)> {
    let found = store.outages(OutageQuery { before: before.map(at), limit }).await.unwrap();
    let seconds = |time: jiff::Timestamp| time.duration_since(at(0)).as_secs();
    found.iter().map(|outage| (seconds(outage.from), seconds(outage.to))).collect()
}

pub(crate) async fn the_last_sign_of_life_is_the_last_written(store: &dyn Store) {
    assert_eq!(store.last_beat().await.unwrap(), None);
    for seconds in [5, 9, 7] {
        beat(store, seconds, None).await;
        assert_eq!(store.last_beat().await.unwrap(), Some(at(seconds)), "also when the clock was set back");
    }
    assert_eq!(outages(store, None, 10).await, []);
}

pub(crate) async fn outages_are_listed_newest_first(store: &dyn Store) {
    for outage in [(10, 20), (50, 60), (30, 40)] {
        beat(store, outage.1, Some(outage)).await;
    }
    assert_eq!(outages(store, None, 10).await, [(50, 60), (30, 40), (10, 20)]);
    assert_eq!(outages(store, None, 2).await, [(50, 60), (30, 40)]);
    assert_eq!(outages(store, Some(30), 2).await, [(10, 20)]);
    assert_eq!(store.last_beat().await.unwrap(), Some(at(40)));
}

pub(crate) async fn an_outage_that_began_at_the_same_time_is_replaced(store: &dyn Store) {
    beat(store, 20, Some((10, 20))).await;
    beat(store, 30, Some((10, 30))).await;
    assert_eq!(outages(store, None, 10).await, [(10, 30)]);
}
