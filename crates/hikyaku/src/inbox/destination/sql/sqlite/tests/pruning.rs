use super::*;
use crate::clock::Clock;

/// C7: records are dropped when nothing can ask for them any more, a few at a time; the versions stay and keep out what
/// somebody replays after that.
#[tokio::test]
async fn c7_old_records_of_deliveries_are_dropped_and_their_events_stay_known() {
    let rig = Rig::new("", "sales", SALES);
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, Effect::Done("written".into()));
    let now = SystemClock::start().now().as_microsecond();
    let days = |days: i64| now - days * 24 * 3600 * 1_000_000;
    let records = format!(
        "UPDATE hikyaku_processed SET processed_at = {old};
         WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 300)
         INSERT INTO hikyaku_processed SELECT 'sales', 'shop', 'old' || n, {old} FROM counted;
         INSERT INTO hikyaku_processed VALUES ('sales', 'shop', 'young', {young})",
        old = days(46),
        young = days(44)
    );
    Connection::open(&rig.path).unwrap().execute_batch(&records).unwrap();
    let count = "SELECT CAST(count(*) AS TEXT) FROM hikyaku_processed";
    for n in 1..i64::from(EFFECTS_PER_PRUNING) {
        rig.apply(&format!("n{n}"), n, &format!(r#"{{"id":"k{n}"}}"#)).await;
    }
    assert_eq!(rig.seen(count), ["365"], "nothing is dropped before its turn");
    rig.apply("next", 1, r#"{"id":"next"}"#).await;
    assert_eq!(rig.seen(count), [(366 - MAX_PRUNED_ROWS).to_string()]);
    for n in 0..EFFECTS_PER_PRUNING {
        rig.apply(&format!("m{n}"), 1, &format!(r#"{{"id":"m{n}"}}"#)).await;
    }
    assert_eq!(rig.seen("SELECT count(*) || '' FROM hikyaku_processed WHERE delivery LIKE 'old%'"), ["0"]);
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed WHERE delivery = 'young'"), ["young"]);
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":9}"#).await, Effect::Done("it was written before".into()));
    assert_eq!(rig.totals()[0], "a=1");
}
