//! Reconciliations as the API shows them, and what can be asked of them.

use hikyaku_core::gap::Period;
use serde_json::json;

use super::*;
use crate::store::{Cycle, CycleCounts, ReconcileKey, ReconcileState, Store};

fn key() -> ReconcileKey {
    ReconcileKey { organization: OrganizationId::parse("acme").unwrap(), name: "sales".into() }
}

#[tokio::test]
async fn how_far_a_list_was_compared_is_shown_with_what_was_found() {
    let api = Api::start().await;
    let at = |seconds| jiff::Timestamp::from_second(seconds).unwrap();
    let counts = CycleCounts { listed: 6, known: 1, missing: 2, repaired: 4, different: 3, unknown: 5 };
    for number in 1..=3 {
        let cycle = Cycle {
            number,
            period: Period { from: at(0), to: at(10) },
            done_to: at(10),
            started_at: at(11),
            ended_at: Some(at(12)),
            counts,
            calls: 7,
            problem: String::new(),
        };
        let state = ReconcileState { mark: Some(at(10)), calls: 7, cycle: Some(cycle), ..ReconcileState::default() };
        let before = api.store.reconcile_state(&key()).await.unwrap();
        assert!(api.store.save_reconcile(&key(), &before, state).await.unwrap());
    }
    let item = &api.get(&format!("{ACME}/reconcile")).await.json()["items"][0];
    assert_eq!((&item["name"], &item["comparedTo"]), (&json!("sales"), &json!("1970-01-01T00:00:10.000Z")));
    assert_eq!(
        (&item["callBudget"], &item["wanted"], &item["cycle"]["unknown"]),
        (&json!(1000), &json!(null), &json!(5))
    );
    let first = api.get(&format!("{ACME}/reconcile/sales/cycles?limit=2")).await.json();
    assert_eq!((&first["items"][0]["number"], &first["items"][1]["repaired"]), (&json!(3), &json!(4)));
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = api.get(&format!("{ACME}/reconcile/sales/cycles?limit=2&cursor={cursor}")).await.json();
    assert_eq!((&second["items"][0]["number"], &second["nextCursor"]), (&json!(1), &json!(null)));
}

#[tokio::test]
async fn a_period_is_noted_and_periods_that_wait_become_one() {
    let api = Api::start().await;
    let path = format!("{ACME}/reconcile/sales/run");
    let asked = json!({"from": "2026-11-01T00:00:00.5Z", "to": "2026-11-02T00:00:00+09:00"}).to_string();
    let answer = api.post(&path, asked).await;
    assert_eq!(answer.status.as_u16(), 202);
    let wanted = json!({"from": "2026-11-01T00:00:00.000Z", "to": "2026-11-01T15:00:00.000Z"});
    assert_eq!(answer.json()["wanted"], wanted);
    let asked = json!({"from": "2026-10-30T00:00:00Z", "to": "2026-10-31T00:00:00Z"}).to_string();
    assert_eq!(api.post(&path, asked).await.json()["wanted"]["from"], "2026-10-30T00:00:00.000Z");
    assert_eq!(api.store.reconcile_state(&key()).await.unwrap().wanted.unwrap().to.as_second(), 1793545200);
    for bad in
        [json!({"to": "2026-11-01T00:00:00Z"}), json!({"from": "2026-11-02T00:00:00Z", "to": "2026-11-01T00:00:00Z"})]
    {
        assert_eq!(api.post(&path, bad.to_string()).await.status.as_u16(), 400, "{bad}");
    }
}

#[tokio::test]
async fn s17_a_reconciliation_of_another_organization_does_not_exist() {
    let api = Api::start().await;
    let other = "/v1/organizations/other/reconcile";
    assert_eq!(api.get(other).await.json()["items"], json!([]));
    assert_eq!(api.get(&format!("{other}/sales/cycles")).await.status.as_u16(), 404);
    assert_eq!(api.post(&format!("{other}/sales/run"), "{}").await.status.as_u16(), 404);
}
