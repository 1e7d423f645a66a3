//! Which of two events about one object is the newer (C4), when nothing about their arrival can be trusted (R19).

use jiff::Timestamp;

/// What an event does to its object; a later word in this list wins when two events carry the same timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rank {
    /// The object came to be.
    Created = 0,
    /// It changed; also every verb we do not know.
    Updated = 1,
    /// It ended: nothing of the same instant can come after.
    Ended = 2,
}

/// Last words of an event type that begin an object.
const CREATING: [&str; 5] = ["create", "created", "opened", "placed", "added"];
/// Last words of an event type that end an object.
const ENDING: [&str; 15] = [
    "delete",
    "deleted",
    "cancelled",
    "canceled",
    "voided",
    "refunded",
    "returned",
    "closed",
    "completed",
    "expired",
    "removed",
    "archived",
    "rejected",
    "failed",
    "ended",
];

impl Rank {
    /// The rank of an event type, by its last word.
    pub fn of(event_type: &str) -> Self {
        let verb = event_type.rsplit('.').next().unwrap_or_default();
        if CREATING.contains(&verb) {
            Self::Created
        } else if ENDING.contains(&verb) {
            Self::Ended
        } else {
            Self::Updated
        }
    }

    /// The rank that stands in the store as `number`.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Created, Self::Updated, Self::Ended].into_iter().find(|rank| *rank as i64 == number)
    }
}

/// The place of an event in the history of its object. Later is greater: by timestamp, then by rank, then by event id,
/// so that any two different events have an order, and everyone finds the same one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// When the provider sent the event out (R20), in microseconds since 1970; what is finer counts as a tie.
    pub micros: i64,
    /// What it does to the object.
    pub rank: Rank,
    /// The event's id: the delivery id.
    pub event: String,
}

impl Version {
    /// The version of an event of `event_type`, sent out `at`.
    pub fn new(at: Timestamp, event_type: &str, event: impl Into<String>) -> Self {
        Self { micros: at.as_microsecond(), rank: Rank::of(event_type), event: event.into() }
    }
}

/// What an event means to an object of which `applied` is the newest version that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is newer, or the first: it takes effect.
    Newer,
    /// It is the very event that took effect already.
    Same,
    /// It is older: it must not overwrite (C4).
    Stale,
}

/// Judges an event against the newest that took effect (C4).
pub fn judge(applied: Option<&Version>, candidate: &Version) -> Verdict {
    match applied.map(|applied| candidate.cmp(applied)) {
        None | Some(std::cmp::Ordering::Greater) => Verdict::Newer,
        Some(std::cmp::Ordering::Equal) => Verdict::Same,
        Some(std::cmp::Ordering::Less) => Verdict::Stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn version(micros: i64, event_type: &str, event: &str) -> Version {
        Version { micros, rank: Rank::of(event_type), event: event.into() }
    }

    #[test]
    fn c4_the_tie_rule_is_timestamp_then_rank_then_id() {
        let rising = [
            version(1, "order.deleted", "z"),
            version(2, "order.created", "a"),
            version(2, "order.created", "b"),
            version(2, "order.updated", "a"),
            version(2, "order.paid", "b"),
            version(2, "order.cancelled", "a"),
            version(3, "order.created", "a"),
        ];
        for (i, older) in rising.iter().enumerate() {
            assert_eq!(judge(None, older), Verdict::Newer);
            assert_eq!(judge(Some(older), older), Verdict::Same);
            for newer in &rising[i + 1..] {
                assert_eq!(judge(Some(older), newer), Verdict::Newer, "{older:?} {newer:?}");
                assert_eq!(judge(Some(newer), older), Verdict::Stale, "{older:?} {newer:?}");
            }
        }
    }

    #[test]
    fn an_unknown_verb_is_an_update() {
        for (event_type, rank) in [
            ("sale.created", Rank::Created),
            ("x.sparkled", Rank::Updated),
            ("", Rank::Updated),
            ("a.voided", Rank::Ended),
        ] {
            assert_eq!(Rank::of(event_type), rank, "{event_type}");
            assert_eq!(Rank::from_number(rank as i64), Some(rank));
        }
        assert_eq!(Rank::from_number(3), None);
    }

    fn events() -> impl Strategy<Value = Vec<(u8, Version)>> {
        let types = ["order.created", "order.updated", "order.cancelled"];
        let event = (0u8..3, 0i64..4, 0usize..3, 0u8..6)
            .prop_map(move |(key, micros, t, id)| (key, version(micros, types[t], &format!("e{id}"))));
        proptest::collection::vec(event, 0..24)
    }

    fn fold<'a>(events: impl IntoIterator<Item = &'a (u8, Version)>) -> BTreeMap<u8, Version> {
        let mut state: BTreeMap<u8, Version> = BTreeMap::new();
        for (key, candidate) in events {
            if judge(state.get(key), candidate) == Verdict::Newer {
                state.insert(*key, candidate.clone());
            }
        }
        state
    }

    proptest! {
        /// C4, C10: any order and repetition of the same events folds to the same state.
        #[test]
        fn any_order_and_repetition_folds_to_the_same_state(
            (events, shuffled, repeats) in events().prop_flat_map(|events| {
                let n = events.len().max(1);
                (Just(events.clone()), Just(events).prop_shuffle(), proptest::collection::vec(0..n, 0..12))
            })
        ) {
            let repeated = repeats.iter().filter_map(|i| events.get(*i));
            prop_assert_eq!(fold(&events), fold(shuffled.iter().chain(repeated)));
        }
    }
}
