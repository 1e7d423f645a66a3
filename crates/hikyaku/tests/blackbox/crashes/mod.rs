//! One program that publishes, delivers, receives and reconciles under load, and dies again and again: at every point that
//! has a name, and at random times. What it lived through is judged once, at the end.
//!
//! `HIKYAKU_TEST_KILLS` says how often it is killed at random times, `CRASH_SEED` when, and `HIKYAKU_TEST_POINTS` (names
//! with a comma between them) at which points alone it dies.

mod life;
mod world;

use std::time::Duration;

use hikyaku::crash::{POINTS, VARIABLE};

use crate::crash::{draws_of, seed};
use crate::harness::{Books, XorShift, on_postgres, report};
use life::Chores;
use world::World;

/// How often it is killed at random times in each of the two tests, unless `HIKYAKU_TEST_KILLS` says otherwise.
const KILLS: usize = 18;
/// Kills after which the ledgers are compared and everything begins anew.
const KILLS_PER_WORLD: usize = 50;
/// Most answers, and the longest time, that a kill is waited for; one of the two, by turns.
const MOST_ANSWERS: usize = 60;
const LONGEST_LIFE: Duration = Duration::from_millis(500);
/// Which commits of a life are its last: the first ones are of its start.
const COMMITS: [u64; 9] = [1, 2, 3, 5, 8, 13, 21, 34, 55];
/// Points that a start passes, on a store that is not there yet.
const OF_A_FIRST_START: [&str; 3] = ["sqlite.created", "sqlite.migrated", "postgres.migrating"];
/// Points that a life may pass only once or twice.
const RARE: [&str; 5] =
    ["recovery.stepped", "removal.stepped", "reconcile.entered", "reconcile.saved", "retention.stepped"];

/// The passings of points at which the program is to die, each of them once.
fn deaths() -> Vec<(&'static str, u64)> {
    let only = std::env::var("HIKYAKU_TEST_POINTS").ok();
    let is_meant = |point: &&str| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == *point));
    let other_store = if on_postgres() { "sqlite." } else { "postgres." };
    let points = POINTS.into_iter().filter(|point| !point.starts_with(other_store)).filter(is_meant);
    points
        .flat_map(|point| match point {
            _ if OF_A_FIRST_START.contains(&point) || RARE.contains(&point) => vec![(point, 1)],
            "sqlite.uncommitted" | "sqlite.committed" | "postgres.uncommitted" | "postgres.committed" => {
                COMMITS.map(|commit| (point, commit)).to_vec()
            }
            _ => vec![(point, 1), (point, 2 + draws_of(point).below(15) as u64)],
        })
        .collect()
}

/// The user's database, of the same kind as the store.
async fn books() -> Books {
    if on_postgres() { Books::postgres().await } else { Books::sqlite().await }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dies_at_every_named_point_and_loses_nothing() {
    let (first, later): (Vec<_>, Vec<_>) =
        deaths().into_iter().partition(|(point, _)| OF_A_FIRST_START.contains(point));
    let mut world = World::before_its_first_start(books().await).await;
    for (point, _) in first {
        world.dies_at_its_start(point).await;
    }
    world.start().await;
    for (point, passing) in later {
        let chores = match point {
            "recovery.stepped" => Chores::Recovery,
            "removal.stepped" => Chores::Removal,
            _ if point.starts_with("reconcile.") => Chores::Reconciliation,
            _ => Chores::None,
        };
        world.dies_at(point, passing, chores).await;
    }
    world.judge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill9_at_random_times_loses_nothing() {
    let kills = std::env::var("HIKYAKU_TEST_KILLS").map_or(KILLS, |kills| kills.parse().expect("it is a number"));
    let (mut random, mut left) = (XorShift::new(seed()), kills);
    while left > 0 {
        let here = left.min(KILLS_PER_WORLD);
        let mut world = World::before_its_first_start(books().await).await;
        world.start().await;
        for _ in 0..here {
            let (answers, time) = match random.below(2) {
                0 => (random.below(MOST_ANSWERS), Duration::MAX),
                _ => (usize::MAX, LONGEST_LIFE.mul_f64(random.below(1000) as f64 / 1000.0)),
            };
            let chores = [Chores::Recovery, Chores::Reconciliation, Chores::None][random.below(3)];
            world.is_killed_after(answers, time, chores).await;
        }
        world.judge().await;
        left -= here;
        let (store, done) = (if on_postgres() { "postgres" } else { "sqlite" }, kills - left);
        let line = format!("{done} kills at random times over {store}, none with a loss; CRASH_SEED={}", seed());
        report(&format!("kills-{store}"), &line);
    }
}
