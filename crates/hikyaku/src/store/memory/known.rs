//! What is known of business keys.

use hikyaku_core::ids::OrganizationId;

use super::inbox::{Inbox, Row};
use crate::store::{KnownKey, KnownKeysQuery, RowState, TimedKey, TimedKeysQuery};

impl Inbox {
    pub(super) fn known_keys(&self, query: &KnownKeysQuery) -> Vec<Option<KnownKey>> {
        let newest = |key: &String| {
            let ours = self.of_key(&query.organization, &query.provider, key).filter(|row| counts(row));
            ours.filter(|_| !key.is_empty()).max_by(|a, b| a.new.version.cmp(&b.new.version))
        };
        let of_row = |row: &Row| KnownKey {
            micros: Some(row.new.version.micros),
            body: Some(row.new.body.clone()).filter(|body| body.len() <= query.max_body_bytes as usize),
        };
        let had_effect = |key| self.has_effect(&query.organization, &query.provider, key).then(KnownKey::default);
        query.keys.iter().map(|key| newest(key).map(of_row).or_else(|| had_effect(key))).collect()
    }

    /// The rows of a business key.
    fn of_key(&self, organization: &OrganizationId, provider: &str, key: &str) -> impl Iterator<Item = &Row> {
        let place = |id: &str| (organization.clone(), provider.to_owned(), id.to_owned());
        let ids = self.by_key.get(&place(key)).into_iter().flatten();
        ids.filter_map(move |id| self.rows.get(&place(id)))
    }

    /// Whether it is remembered that a key took effect.
    fn has_effect(&self, organization: &OrganizationId, provider: &str, key: &str) -> bool {
        let place = (organization.clone(), provider.to_owned(), format!("k:{key}"));
        !key.is_empty() && self.applied.contains_key(&place)
    }

    pub(super) fn timed_keys(&self, query: &TimedKeysQuery) -> Vec<TimedKey> {
        let period = query.from_micros..query.to_micros;
        let rows = self.rows.values().filter(|row| period.contains(&row.new.version.micros)).filter(|row| {
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
