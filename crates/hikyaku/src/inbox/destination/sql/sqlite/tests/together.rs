//! Rows that are committed together take effect as if each were alone.

use super::*;

fn sale(delivery: &str, second: i64, id: &str, total: &str) -> WorkRow {
    row(delivery, second, &format!(r#"{{"id":"{id}","total":{total}}}"#))
}

fn done() -> Effect {
    Effect::Done("written".into())
}

/// Hands these to the destination while it is held, so that they are taken together.
async fn at_once(rig: &Rig, rows: &[WorkRow]) -> Vec<Effect> {
    let held = rig.destination.place.lock().await;
    let answers: Vec<_> = rows.iter().map(|row| rig.destination.ask(row)).collect();
    drop(held);
    // Whoever comes next takes them all.
    rig.destination.apply(&sale("last", 1, "last", "1")).await;
    let mut effects = Vec::new();
    for mut answer in answers {
        effects.push(answer.try_recv().unwrap());
    }
    effects
}

#[tokio::test]
async fn c8_what_is_refused_or_stale_among_others_leaves_nothing_and_takes_nothing_with_it() {
    let rig = Rig::new("CREATE TABLE sales (id TEXT PRIMARY KEY, total INTEGER CHECK (total > 0))", "sales", SALES);
    assert_eq!(rig.apply("d9", 9, r#"{"id":"b","total":9}"#).await, done());
    let rows = [sale("d1", 1, "a", "1"), sale("d2", 2, "b", "2"), sale("d3", 3, "c", "0"), sale("d4", 4, "d", "4")];
    let effects = at_once(&rig, &rows).await;
    assert_eq!((&effects[0], &effects[3]), (&done(), &done()));
    assert!(matches!(effects[1], Effect::Stale(_)), "{effects:?}");
    assert!(
        matches!(&effects[2], Effect::Refused(reason) if reason.contains("CHECK constraint failed")),
        "{effects:?}"
    );
    assert_eq!(rig.totals(), ["a=1", "b=9", "d=4", "last=1"]);
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed ORDER BY 1"), ["d1", "d4", "d9", "last"]);
}

#[tokio::test]
async fn a_row_that_fails_only_at_the_commit_fails_alone() {
    let schema = "CREATE TABLE shops (id TEXT PRIMARY KEY);
        CREATE TABLE sales (id TEXT PRIMARY KEY, total TEXT REFERENCES shops (id) DEFERRABLE INITIALLY DEFERRED);
        INSERT INTO shops VALUES ('1')";
    let rig = Rig::new(schema, "sales", SALES);
    let rows = [sale("d1", 1, "a", r#""1""#), sale("d2", 2, "b", r#""2""#), sale("d3", 3, "c", r#""1""#)];
    let effects = at_once(&rig, &rows).await;
    assert_eq!((&effects[0], &effects[2]), (&done(), &done()));
    assert!(is_failed(&effects[1]), "{effects:?}");
    assert_eq!(rig.seen("SELECT id FROM sales ORDER BY 1"), ["a", "c", "last"]);
}

#[tokio::test]
async fn a_trigger_that_rolls_all_back_costs_the_others_nothing() {
    let schema = "CREATE TABLE sales (id TEXT PRIMARY KEY, total INTEGER);
        CREATE TRIGGER never BEFORE INSERT ON sales WHEN NEW.id = 'b' BEGIN SELECT RAISE (ROLLBACK, 'never b'); END";
    let rig = Rig::new(schema, "sales", SALES);
    let effects = at_once(&rig, &[sale("d1", 1, "a", "1"), sale("d2", 2, "b", "2"), sale("d3", 3, "c", "3")]).await;
    assert_eq!((&effects[0], &effects[2]), (&done(), &done()));
    assert!(matches!(&effects[1], Effect::Refused(reason) if reason.contains("never b")), "{effects:?}");
    assert_eq!(rig.totals(), ["a=1", "c=3", "last=1"]);
}

/// A database that somebody else holds is waited for once, and not once for each row.
#[tokio::test]
async fn c16_what_passes_fails_all_of_them_at_once() {
    let rig = Rig::new("", "sales", SALES);
    rig.destination.place.lock().await.ready().unwrap().connection.busy_timeout(std::time::Duration::ZERO).unwrap();
    let other = Connection::open(&rig.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let rows: Vec<_> = (0..3).map(|n| sale(&format!("d{n}"), n, &format!("k{n}"), "1")).collect();
    let effects = at_once(&rig, &rows).await;
    assert!(effects.iter().all(is_failed), "{effects:?}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(at_once(&rig, &rows).await, [done(), done(), done()]);
}

/// Of a caller that has given up waiting nothing is kept, and the others get their answers.
#[tokio::test]
async fn whoever_has_gone_is_forgotten() {
    let rig = Rig::new("", "sales", SALES);
    drop(rig.destination.ask(&sale("gone", 1, "gone", "1")));
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, done());
    assert_eq!(rig.totals(), ["a=1"]);
    assert!(rig.destination.asked().is_empty());
}

#[tokio::test]
async fn more_than_are_committed_together_take_effect_all_the_same() {
    let rig = Rig::new("", "sales", SALES);
    let destination = Arc::new(rig.destination);
    let held = destination.place.clone().lock_owned().await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..2 * MAX_EFFECTS_PER_COMMIT + 1 {
        let destination = destination.clone();
        let row = sale(&format!("d{n}"), 1, &format!("k{n}"), "1");
        tasks.spawn(async move { destination.apply(&row).await });
    }
    tokio::task::yield_now().await;
    drop(held);
    assert!(tasks.join_all().await.iter().all(|effect| *effect == done()));
    let rows: i64 =
        Connection::open(&rig.path).unwrap().query_row("SELECT count(*) FROM sales", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 2 * MAX_EFFECTS_PER_COMMIT as i64 + 1);
}
