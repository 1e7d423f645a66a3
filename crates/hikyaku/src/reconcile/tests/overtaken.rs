//! Two processes at one cycle.

use super::super::tests::two_processes;
use super::*;

/// A process that was stopped in the middle of a cycle, and goes on when another has ended that one and begun the next.
#[tokio::test(start_paused = true)]
async fn t4_who_was_overtaken_ends_no_cycle_that_is_not_compared() {
    let (one, other) = two_processes();
    let first = one.begin().await.unwrap().unwrap();
    assert_eq!(other.begin().await.unwrap().unwrap(), first, "both are at it");
    other.end(first.number).await.unwrap();
    let mark = other.state().await.unwrap().mark;
    other.change(|state| state.wanted = Period::around(first.period.from, first.period.to)).await.unwrap();
    let second = other.begin().await.unwrap().unwrap();
    assert_eq!(second.number, first.number + 1);
    one.done(first.number, first.period.to, &CycleCounts::default()).await.unwrap();
    one.end(first.number).await.unwrap();
    let state = other.state().await.unwrap();
    assert_eq!((state.mark, state.cycle), (mark, Some(second)));
}
