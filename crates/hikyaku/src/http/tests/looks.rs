//! Routes, destinations and outages as the API shows them.

use serde_json::json;

use super::*;
use crate::store::{Beat, Outage, Store};

#[tokio::test]
async fn outages_are_read_page_by_page() {
    let api = Api::start().await;
    for hour in [1, 3, 5] {
        let at = |minutes: i64| jiff::Timestamp::from_second((hour * 60 + minutes) * 60).unwrap();
        api.store.beat(Beat { at: at(100), outage: Some(Outage { from: at(0), to: at(100) }) }).await.unwrap();
    }
    let first = api.get("/v1/outages?limit=2").await.json();
    let item = json!({"from": "1970-01-01T05:00:00.000Z", "to": "1970-01-01T06:40:00.000Z", "seconds": 6000});
    assert_eq!((first["items"].as_array().unwrap().len(), &first["items"][0]), (2, &item));
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = api.get(&format!("/v1/outages?limit=2&cursor={cursor}")).await.json();
    assert_eq!(
        (&second["items"][0]["from"], &second["nextCursor"]),
        (&json!("1970-01-01T01:00:00.000Z"), &json!(null))
    );
    api.get("/v1/outages?before=x").await.is_problem(400, "invalid-query", &["before"]);
}

#[tokio::test]
async fn s17_an_organization_without_routes_sees_none() {
    let api = Api::start().await;
    for path in ["routes", "destinations"] {
        let shown = api.get(&format!("{ACME}/{path}")).await;
        assert_eq!((shown.status.as_u16(), &shown.json()["items"]), (200, &json!([])), "{path}");
    }
}
