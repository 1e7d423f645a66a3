//! Turns at a server that takes one request per interval, handed out in the order of asking.
//!
//! Nobody waits here: whoever comes too early is told when its turn is, and its row is left until then. So a wait holds no
//! task and no slot of a route, and is over at a restart as it would be without one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// Most turns that are kept for rows: those of a day, in some ten megabytes. Further rows get no turn yet; they ask again
/// when the first turn comes that nobody has.
const MAX_KEPT: usize = 100_000;
/// A turn that nobody came for is forgotten after this time, when the place is needed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// The store keeps due times in microseconds, and may bring a row back earlier by less than one.
const EARLY: Duration = Duration::from_millis(1);

/// Hands out turns.
pub(super) struct Turns {
    interval: Duration,
    state: Mutex<State>,
}

struct State {
    /// When the first turn is that nobody has.
    free: Timestamp,
    /// Until when the server wants to be left alone.
    closed_until: Timestamp,
    /// The turns of rows that will come again.
    kept: HashMap<String, Timestamp>,
}

impl Turns {
    pub(super) fn new(interval: Duration) -> Self {
        let state = State { free: Timestamp::MIN, closed_until: Timestamp::MIN, kept: HashMap::new() };
        Self { interval, state: Mutex::new(state) }
    }

    /// Takes the turn of a row; `Some` says how long it has to stay away before it asks again. `now` is of the schedule
    /// clock.
    pub(super) fn take(&self, row: &str, now: Timestamp) -> Option<Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = state.kept.remove(row);
        let turn = kept.unwrap_or(state.free.max(now));
        let wait = Duration::try_from(turn.duration_since(now)).unwrap_or_default();
        let is_now = wait < EARLY;
        if kept.is_none() && (is_now || state.has_room(now)) {
            state.free = turn.checked_add(self.interval).unwrap_or(turn);
        }
        if is_now {
            return None;
        }
        if state.has_room(now) {
            state.kept.insert(row.to_owned(), turn);
        }
        Some(wait)
    }

    /// Lets nobody through for a while, because the server said so. All turns are void, and rows get new ones when they
    /// come: some of the old ones are in that while, and the others would meet those.
    pub(super) fn close(&self, pause: Duration, now: Timestamp) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let until = now.checked_add(pause).unwrap_or(now);
        if until > state.closed_until {
            state.closed_until = until;
            state.free = until;
            state.kept.clear();
        }
    }
}

impl State {
    /// Whether one more turn can be kept.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.kept.len() >= MAX_KEPT {
            let oldest = now.checked_sub(FORGOTTEN_AFTER).unwrap_or(now);
            self.kept.retain(|_, turn| *turn > oldest);
        }
        self.kept.len() < MAX_KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn wait(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    #[test]
    fn each_second_has_one_turn_in_the_order_of_asking() {
        let turns = Turns::new(SECOND);
        assert_eq!(turns.take("a", at(0)), None);
        assert_eq!(turns.take("b", at(100)), wait(900));
        assert_eq!(turns.take("c", at(200)), wait(1800));
        assert_eq!(turns.take("b", at(500)), wait(500), "it came early, and keeps its turn");
        assert_eq!(turns.take("d", at(1000)), wait(2000), "a turn that is somebody's is nobody else's");
        assert_eq!(turns.take("b", at(1000)), None);
        assert_eq!(turns.take("c", at(2000)), None);
        assert_eq!(turns.take("d", at(3600)), None);
    }

    #[test]
    fn a_quiet_time_is_not_made_up_for() {
        let turns = Turns::new(SECOND);
        assert_eq!(turns.take("a", at(0)), None);
        assert_eq!(turns.take("b", at(60_000)), None);
        assert_eq!(turns.take("c", at(60_000)), wait(1000));
    }

    #[test]
    fn a_closed_server_gives_every_row_a_new_turn_and_still_one_a_second() {
        let turns = Turns::new(SECOND);
        assert_eq!(turns.take("a", at(0)), None);
        for (row, millis) in [("b", 1000), ("c", 2000), ("d", 3000)] {
            assert_eq!(turns.take(row, at(0)), wait(millis));
        }
        turns.close(Duration::from_millis(2000), at(500));
        // Another request that was under way is told the same, but shorter.
        turns.close(SECOND, at(600));
        for (row, asks, millis) in [("b", 1000, 1500), ("c", 2000, 1500), ("d", 3000, 1500)] {
            assert_eq!(turns.take(row, at(asks)), wait(millis), "{row}");
        }
        for (row, asks) in [("b", 2500), ("c", 3500), ("d", 4500)] {
            assert_eq!(turns.take(row, at(asks)), None, "{row}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_turns_that_nobody_came_for_make_room() {
        let turns = Turns::new(SECOND);
        for n in 0..=MAX_KEPT {
            turns.take(&n.to_string(), at(0));
        }
        // Who finds no room uses no turn up: the next one is still the next.
        let next = wait((MAX_KEPT as u64 + 1) * 1000);
        assert_eq!((turns.take("x", at(0)), turns.take("y", at(0))), (next, next));
        assert_eq!(turns.state.lock().unwrap().kept.len(), MAX_KEPT);
        let much_later = at((MAX_KEPT as i64 + 10) * 1000 + 600_000);
        assert_eq!(turns.take("x", much_later), None);
        assert_eq!(turns.take("y", much_later), wait(1000));
        turns.take("z", much_later);
        assert_eq!(turns.take("y", much_later), wait(1000));
    }
}
