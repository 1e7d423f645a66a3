//! What only one process does at a time.

use super::fixture::*;
use crate::store::*;

fn claim(name: &'static str, owner: &str, seconds: i64) -> DutyClaim {
    DutyClaim { name, lease: lease(owner), now: at(seconds) }
}

pub(crate) async fn a_duty_has_one_holder_until_its_lease_ends(store: &dyn Store) {
    let take = async |owner, seconds| store.take_duty(claim("retention", owner, seconds)).await.unwrap();
    assert!(take("a", 0).await);
    assert!(!take("b", LEASE_SECONDS - 1).await);
    assert!(take("a", 10).await, "it is renewed");
    assert!(!take("b", LEASE_SECONDS + 9).await);
    assert!(store.take_duty(claim("reconcile", "b", 0)).await.unwrap(), "another duty is another's");
    assert!(take("b", LEASE_SECONDS + 10).await, "its lease has ended");
    assert!(!take("a", LEASE_SECONDS + 11).await);
}

pub(crate) async fn a_duty_that_was_given_up_is_free_at_once(store: &dyn Store) {
    let take = async |owner| store.take_duty(claim("retention", owner, 0)).await.unwrap();
    assert!(take("a").await);
    store.leave_duty("retention", "b").await.unwrap();
    assert!(!take("b").await, "nobody gives up what is another's");
    store.leave_duty("retention", "a").await.unwrap();
    assert!(take("b").await);
}
