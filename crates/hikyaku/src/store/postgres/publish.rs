//! Storing events with their deliveries, a whole group at once.
//!
//! Whoever inserts an id first has it; others wait there for the end of that transaction. So all ids of a group are
//! inserted first, what was there already is read, and what every publish comes to is decided in memory. An id that
//! only a conflicting publish wanted is given back.

pub(super) mod rows;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use hikyaku_core::event::CONTENT_HASH_BYTES;
use hikyaku_core::ids::{EventId, OrganizationId};

use super::columns::{self, millis};
use super::transaction::Transaction;
use super::webhooks::{self, Webhooks};
use crate::store::{Publish, PublishOutcome, PublishedEvent, StoreError, UndeliveredKind};
use rows::NewRows;

const TAKE_IDS: &str = "INSERT INTO event_ids (organization, id, created_at)
    SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[])
    ON CONFLICT DO NOTHING RETURNING organization, id";
const GIVE_BACK: &str = "DELETE FROM event_ids i USING UNNEST($1::TEXT[], $2::TEXT[]) k (organization, id)
    WHERE i.organization = k.organization AND i.id = k.id";
const FIND: &str = "SELECT k.place, e.type, e.timestamp, e.deliveries, e.content_hash, e.created_at
    FROM UNNEST($1::TEXT[], $2::TEXT[]) WITH ORDINALITY k (organization, id, place),
        LATERAL (SELECT created_at FROM event_ids i
            WHERE i.organization = k.organization AND i.id = k.id LIMIT 1) i,
        LATERAL (SELECT type, timestamp, deliveries, content_hash, created_at FROM events e
            WHERE e.organization = k.organization AND e.created_at = i.created_at AND e.id = k.id LIMIT 1) e";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[TAKE_IDS, GIVE_BACK, FIND];

/// Stores all events of a publish, or none where one conflicts.
pub(super) async fn publish(transaction: &Transaction<'_>, publish: &Publish) -> Result<PublishOutcome, StoreError> {
    let mut outcomes = publish_all(transaction, std::slice::from_ref(publish)).await?;
    outcomes.pop().ok_or_else(|| StoreError::Damaged("a publish came to nothing".to_owned()))
}

/// Stores all events of each publish, or none of one of whose events one conflicts.
pub(super) async fn publish_all(
    transaction: &Transaction<'_>,
    all: &[Publish],
) -> Result<Vec<PublishOutcome>, StoreError> {
    let wanted = wanted(all);
    if wanted.is_empty() {
        return Ok(all.iter().map(|_| PublishOutcome::Stored(Vec::new())).collect());
    }
    // Before the ids, so that nobody waits for an id of one who waits for the webhooks.
    let webhooks = webhooks_of(transaction, all).await?;
    let taken = take_ids(transaction, &wanted).await?;
    let mut known = find(transaction, wanted.keys().filter(|key| !taken.contains(*key)).copied().collect()).await?;
    let mut rows = NewRows::default();
    let decided = all.iter().map(|publish| decide(publish, &webhooks, &mut known, &mut rows));
    let outcomes = decided.collect();
    give_back(transaction, &wanted, &taken, &known).await?;
    rows.write(transaction).await?;
    Ok(outcomes)
}

/// An event of an organization.
type Key<'a> = (&'a OrganizationId, &'a EventId);

/// What is stored under an id, or will be.
struct Stored {
    event: PublishedEvent,
    content_hash: [u8; CONTENT_HASH_BYTES],
    created_at: i64,
}

/// The ids of all events, each with the time of the first event that has it; in the order in which everybody takes them.
fn wanted(all: &[Publish]) -> BTreeMap<Key<'_>, i64> {
    let mut wanted = BTreeMap::new();
    for publish in all {
        for event in &publish.events {
            wanted.entry((&publish.organization, &event.id)).or_insert(millis(event.created_at));
        }
    }
    wanted
}

/// The webhooks of every organization. Where one that is off has an event held, they stay as they are until the commit:
/// otherwise it could be switched on meanwhile, and would never hear of what is noted as held then.
async fn webhooks_of(
    transaction: &Transaction<'_>,
    all: &[Publish],
) -> Result<HashMap<OrganizationId, Webhooks>, StoreError> {
    let organizations: BTreeSet<_> = all.iter().map(|publish| publish.organization.clone()).collect();
    let mut found = webhooks::of_each(transaction, &organizations).await?;
    let holds = |publish: &&Publish| {
        let holding = found.get(&publish.organization).into_iter().flat_map(|webhooks| webhooks.iter());
        let mut holding = holding.filter(|webhook| UndeliveredKind::of_absence(webhook) == UndeliveredKind::Held);
        holding.any(|webhook| publish.events.iter().any(|event| webhook.misses(event.event_type.as_str())))
    };
    let held: BTreeSet<_> = all.iter().filter(holds).map(|publish| publish.organization.clone()).collect();
    for organization in held {
        let webhooks = webhooks::locked(transaction, &organization).await?;
        found.insert(organization, webhooks);
    }
    Ok(found)
}

/// Takes those of the ids that are free, and tells which.
async fn take_ids<'a>(
    transaction: &Transaction<'_>,
    wanted: &BTreeMap<Key<'a>, i64>,
) -> Result<BTreeSet<Key<'a>>, StoreError> {
    let (organizations, ids) = names(wanted.keys());
    let times: Vec<_> = wanted.values().copied().collect();
    let mut taken = Vec::new();
    for row in transaction.query(TAKE_IDS, &[&organizations, &ids, &times]).await? {
        taken.push((columns::organization(&row, 0)?, columns::event_id(&row, 1)?));
    }
    let taken: HashSet<Key<'_>> = taken.iter().map(|(organization, id)| (organization, id)).collect();
    Ok(wanted.keys().filter(|key| taken.contains(*key)).copied().collect())
}

fn names<'k, 'a: 'k>(keys: impl Iterator<Item = &'k Key<'a>>) -> (Vec<&'a str>, Vec<&'a str>) {
    keys.map(|(organization, id)| (organization.as_str(), id.as_str())).unzip()
}

/// What is stored under ids that are taken.
async fn find<'a>(transaction: &Transaction<'_>, keys: Vec<Key<'a>>) -> Result<HashMap<Key<'a>, Stored>, StoreError> {
    let mut known = HashMap::new();
    if keys.is_empty() {
        return Ok(known);
    }
    let (organizations, ids) = names(keys.iter());
    for row in transaction.query(FIND, &[&organizations, &ids]).await? {
        let key = keys[columns::place(&row, 0)?];
        let event = PublishedEvent {
            id: key.1.clone(),
            event_type: columns::event_type(&row, 1)?,
            timestamp: columns::time(&row, 2)?,
            deliveries: columns::number(&row, 3)?,
            repeated: true,
            leased: Vec::new(),
        };
        let content_hash = row.try_get::<_, Vec<u8>>(4)?.try_into().map_err(|_| "has another length");
        let content_hash = columns::sound("events.content_hash", content_hash)?;
        known.insert(key, Stored { event, content_hash, created_at: row.try_get(5)? });
    }
    match keys.iter().find(|key| !known.contains_key(*key)) {
        None => Ok(known),
        Some((_, id)) => {
            Err(StoreError::Unavailable(format!("the event {id} is just being dropped; publish it again")))
        }
    }
}

/// What a publish comes to, with the rows that it adds.
fn decide<'a>(
    publish: &'a Publish,
    webhooks: &HashMap<OrganizationId, Webhooks>,
    known: &mut HashMap<Key<'a>, Stored>,
    rows: &mut NewRows<'a>,
) -> PublishOutcome {
    if let Some(conflict) = conflict(publish, known) {
        return PublishOutcome::Conflict(conflict.clone());
    }
    let webhooks = webhooks.get(&publish.organization).map(|webhooks| &webhooks[..]).unwrap_or_default();
    let webhooks = webhooks.iter().filter(|webhook| Some(&webhook.id) != publish.about.as_ref());
    let webhooks: Vec<_> = webhooks.cloned().collect();
    let mut room = publish.room.clone();
    let mut stored = Vec::with_capacity(publish.events.len());
    for event in &publish.events {
        let key = (&publish.organization, &event.id);
        if let Some(known) = known.get(&key) {
            stored.push(known.event.clone());
            continue;
        }
        let new = rows.add(publish, event, &webhooks, &mut room);
        let again = PublishedEvent { repeated: true, leased: Vec::new(), ..new.clone() };
        let created_at = millis(event.created_at);
        known.insert(key, Stored { event: again, content_hash: event.content_hash, created_at });
        stored.push(new);
    }
    PublishOutcome::Stored(stored)
}

/// The first event whose id is taken by another content, in the store or earlier in the same publish.
fn conflict<'a>(publish: &'a Publish, known: &HashMap<Key<'a>, Stored>) -> Option<&'a EventId> {
    let mut hashes = HashMap::with_capacity(publish.events.len());
    for event in &publish.events {
        let first = *hashes.entry(&event.id).or_insert(event.content_hash);
        let stored = known.get(&(&publish.organization, &event.id)).map_or(first, |stored| stored.content_hash);
        if stored != event.content_hash {
            return Some(&event.id);
        }
    }
    None
}

/// Gives back the ids that were taken for a publish that conflicts; one that another publish has used all the same is
/// taken again, for its own day.
async fn give_back<'a>(
    transaction: &Transaction<'_>,
    wanted: &BTreeMap<Key<'a>, i64>,
    taken: &BTreeSet<Key<'a>>,
    known: &HashMap<Key<'a>, Stored>,
) -> Result<(), StoreError> {
    let used = |key: &Key<'a>| known.get(key).map(|stored| stored.created_at);
    let wrong: Vec<_> = taken.iter().filter(|key| used(key) != wanted.get(*key).copied()).copied().collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let (organizations, ids) = names(wrong.iter());
    transaction.execute(GIVE_BACK, &[&organizations, &ids]).await?;
    let again: BTreeMap<_, _> = wrong.into_iter().filter_map(|key| Some((key, used(&key)?))).collect();
    take_ids(transaction, &again).await?;
    Ok(())
}
