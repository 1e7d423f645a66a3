//! The table of ids: what it looks like, what an id is, how long it is kept.

use std::time::Duration;

use crate::Verified;

/// Most ids that one call of `prune` removes.
pub const PRUNE_ROWS: u64 = 10_000;

/// What the functions run, for migrations of your own and for libraries that have no feature here.
pub mod sql {
    /// For SQLite 3.38 and newer.
    pub mod sqlite {
        /// Makes the table and its index where they are missing. Two statements.
        pub const CREATE_TABLE: &str = "
            CREATE TABLE IF NOT EXISTS hikyaku_received (
                organization TEXT NOT NULL,
                provider TEXT NOT NULL,
                delivery_id TEXT NOT NULL,
                received_at INTEGER NOT NULL DEFAULT (unixepoch()), -- seconds since 1970
                PRIMARY KEY (organization, provider, delivery_id)
            ) STRICT, WITHOUT ROWID;
            CREATE INDEX IF NOT EXISTS hikyaku_received_by_time ON hikyaku_received (received_at);";
        /// Takes organization, provider and delivery id. One row is changed if the id was absent, none if it was there.
        pub const INSERT_IF_ABSENT: &str = "
            INSERT INTO hikyaku_received (organization, provider, delivery_id) VALUES (?1, ?2, ?3)
            ON CONFLICT DO NOTHING";
        /// Takes how long to keep ids, in whole seconds; see [`Keep`](crate::Keep).
        pub const PRUNE: &str = "
            DELETE FROM hikyaku_received WHERE (organization, provider, delivery_id) IN (
                SELECT organization, provider, delivery_id FROM hikyaku_received
                WHERE received_at < unixepoch() - ?1 ORDER BY received_at LIMIT 10000)";
    }

    /// For PostgreSQL.
    pub mod postgres {
        /// Makes the table and its index where they are missing. Two statements.
        pub const CREATE_TABLE: &str = r#"
            CREATE TABLE IF NOT EXISTS hikyaku_received (
                organization text COLLATE "C" NOT NULL,
                provider text COLLATE "C" NOT NULL,
                delivery_id text COLLATE "C" NOT NULL,
                received_at timestamptz NOT NULL DEFAULT now(),
                PRIMARY KEY (organization, provider, delivery_id)
            );
            CREATE INDEX IF NOT EXISTS hikyaku_received_by_time ON hikyaku_received (received_at);"#;
        /// Takes organization, provider and delivery id. One row is changed if the id was absent, none if it was there.
        pub const INSERT_IF_ABSENT: &str = "
            INSERT INTO hikyaku_received (organization, provider, delivery_id) VALUES ($1, $2, $3)
            ON CONFLICT DO NOTHING";
        /// Takes how long to keep ids, in whole seconds (`bigint`); see [`Keep`](crate::Keep).
        pub const PRUNE: &str = "
            DELETE FROM hikyaku_received WHERE (organization, provider, delivery_id) IN (
                SELECT organization, provider, delivery_id FROM hikyaku_received
                WHERE received_at < now() - $1::bigint * interval '1 second' ORDER BY received_at LIMIT 10000)";
    }
}

/// What a delivery is known by (C5, C9). One table may serve several organizations and providers; where there is only one
/// of each, the delivery id alone will do: every function takes a [`Verified`] or a text as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryId<'a> {
    /// For whom it came; empty unless you have several (S17).
    pub organization: &'a str,
    /// Who sent it; empty unless you have several: two providers may use the same id.
    pub provider: &'a str,
    /// The provider's id of it.
    pub delivery: &'a str,
}

impl<'a> From<&'a str> for DeliveryId<'a> {
    fn from(delivery: &'a str) -> Self {
        Self { organization: "", provider: "", delivery }
    }
}

impl<'a> From<&'a Verified> for DeliveryId<'a> {
    fn from(delivery: &'a Verified) -> Self {
        Self::from(delivery.delivery_id.as_str())
    }
}

/// What `insert_if_absent` found (C6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only what was inserted may be worked off"]
pub enum Insertion {
    /// The id was absent and is recorded now, once this transaction is committed. Save the work in the same transaction.
    Inserted,
    /// The id was there: this is a duplicate. Do nothing, and answer 200 (C12).
    Present,
}

impl Insertion {
    /// What a count of changed rows means.
    #[cfg(any(feature = "rusqlite", feature = "sqlx", feature = "tokio-postgres"))]
    pub(crate) fn of(rows: u64) -> Self {
        if rows == 0 { Self::Present } else { Self::Inserted }
    }
}

/// How long ids are kept, 7 days unless you say otherwise. Never less than two hours: retries come for 71 minutes, and an
/// id that is forgotten by then is processed twice (C7, T5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keep(Duration);

/// The time is too short to keep ids for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ids must be kept for at least 2 hours, not {0:?}: retries come for 71 minutes")]
pub struct TooShort(Duration);

impl Keep {
    /// The shortest time.
    pub const SHORTEST: Self = Self(Duration::from_secs(2 * 60 * 60));
    /// The longest that is told from "for ever".
    const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

    /// Keeps ids for `time`; more than a hundred years count as a hundred.
    ///
    /// # Errors
    /// If it is less than [`Keep::SHORTEST`].
    pub fn new(time: Duration) -> Result<Self, TooShort> {
        if time < Self::SHORTEST.0 { Err(TooShort(time)) } else { Ok(Self(time.min(Self::LONGEST))) }
    }

    /// The time in whole seconds, rounded up.
    pub fn seconds(self) -> i64 {
        let whole = self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self(Duration::from_secs(7 * 24 * 60 * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c7_case26_ids_are_kept_for_two_hours_at_least() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert!(Keep::new(hours(2) - Duration::from_nanos(1)).is_err());
        assert_eq!(Keep::new(hours(2)), Ok(Keep::SHORTEST));
        assert_eq!(Keep::default().seconds(), 7 * 24 * 3600);
        assert_eq!(Keep::new(hours(2) + Duration::from_nanos(1)).unwrap().seconds(), 7201);
        assert_eq!(Keep::new(Duration::MAX).unwrap().seconds(), 100 * 366 * 24 * 3600);
    }

    #[test]
    fn a_call_of_prune_removes_as_many_as_it_says() {
        for statement in [sql::sqlite::PRUNE, sql::postgres::PRUNE] {
            assert!(statement.contains(&format!("LIMIT {PRUNE_ROWS})")), "{statement}");
        }
    }
}
