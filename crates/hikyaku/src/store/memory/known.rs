//! What is known of business keys.

use std::collections::{BTreeMap, BTreeSet};

use super::inbox::{Inbox, Row};
use crate::store::{KnownKey, KnownKeysQuery, RowState, TimedKey, TimedKeysQuery};

impl Inbox {
    pub(super) fn known_keys(&self, query: &KnownKeysQuery) -> Vec<Option<KnownKey>> {
        let asked: BTreeSet<&str> = query.keys.iter().map(String::as_str).filter(|key| !key.is_empty()).collect();
        let mut newest: BTreeMap<&str, &Row> = BTreeMap::new();
        let ours = self.rows.values().filter(|row| {
            let new = &row.new;
            new.organization == query.organization && new.provider == query.provider && asked.contains(&*new.key)
        });
        for row in ours.filter(|row| counts(row)) {
            let place = |row: &Row| (row.new.version.micros, row.position.0);
            let best = newest.entry(&row.new.key).or_insert(row);
            if place(row) > place(best) {
                *best = row;
            }
        }
        let of_row = |row: &&Row| KnownKey {
            micros: Some(row.new.version.micros),
            body: Some(row.new.body.clone()).filter(|body| body.len() <= query.max_body_bytes as usize),
        };
        let had_effect = |key| self.has_effect(&query.organization, &query.provider, key).then(KnownKey::default);
        query.keys.iter().map(|key| newest.get(&**key).map(of_row).or_else(|| had_effect(key))).collect()
    }

    pub(super) fn timed_keys(&self, query: &TimedKeysQuery) -> Vec<TimedKey> {
        let rows = self.rows.values().filter(|row| {
            let new = &row.new;
            let is_asked = new.organization == query.organization && new.provider == query.provider;
            is_asked && !new.key.is_empty() && counts(row)
        });
        let mut keys: Vec<_> = rows
            .map(|row| TimedKey {
                place: (row.new.version.micros, row.position.0),
                key: row.new.key.clone(),
                event_type: row.new.event_type.clone(),
            })
            .filter(|key| (query.from_micros..query.to_micros).contains(&key.place.0))
            .filter(|key| query.after.is_none_or(|after| key.place > after))
            .collect();
        keys.sort_by_key(|key| key.place);
        keys.truncate(query.limit as usize);
        keys
    }
}

/// Whether it could ever take effect.
fn counts(row: &Row) -> bool {
    !matches!(row.state(), RowState::Parked | RowState::Quarantined)
}
