//! One reading of a piece of a list, page by page, each compared as it comes: no more than a page is in memory, and a
//! number per item.
//!
//! A list may change while it is read: an item that slips in before the present page moves another one beyond it. So a
//! reading of several pages counts only if they fit together. If not, the piece is read in halves, where one page is
//! enough at last; a single second is read again.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use hikyaku_core::gap::{Entry, Known, Period, Standing, compare};
use hikyaku_core::json;
use jiff::Timestamp;
use serde_json::Value;

use super::adapter::{Item, Page};
use super::{Entered, Stop, Worker};
use crate::crash;
use crate::store::{Cycle, CycleCounts, KnownKey, KnownKeysQuery, StoreError, TimedKeysQuery};

/// Readings of a piece that cannot be cut before it is left for later.
const MAX_READINGS: u32 = 5;
/// Items of one reading, if the piece can be cut: what a crash in the middle costs.
const MAX_ITEMS_PER_READING: u64 = 10_000;
/// Pages of one reading, whatever the list says.
const MAX_PAGES_PER_READING: u32 = 10_000;
/// Keys that the store is asked for at a time.
const KEYS_PER_QUERY: usize = 100;
/// Largest body that is compared with what the list says, in bytes.
const MAX_COMPARED_BYTES: u32 = 64 * 1024;
/// Rows of ours that are looked for in the list at a time.
const ROWS_PER_QUERY: u32 = 1000;
/// How much later than listed an event may be sent out: so long after its beginning a period is not asked which of our keys
/// its list has not.
const SENT_AFTER: Duration = Duration::from_secs(10 * 60);

/// The keys that a cycle has seen, as numbers.
pub(super) struct Seen {
    /// The cycle's number.
    cycle: i64,
    period: Period,
    /// Of the slice before.
    before: HashSet<u64>,
    /// Of the present slice.
    now: HashSet<u64>,
    /// Keys that are not in the list.
    unknown: HashSet<u64>,
}

impl Seen {
    /// Nothing yet, of a cycle's period.
    pub(super) fn of(cycle: &Cycle) -> Self {
        let (cycle, period) = (cycle.number, cycle.period);
        Self { cycle, period, before: HashSet::new(), now: HashSet::new(), unknown: HashSet::new() }
    }

    /// The slice is done.
    pub(super) fn turn(&mut self) {
        self.before = std::mem::take(&mut self.now);
        self.unknown.clear();
    }
}

/// How a reading ended.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// It holds.
    Steady,
    /// The list is longer than is read at a time.
    TooLong,
    /// The list changed meanwhile.
    Changed,
}

impl Worker {
    /// Compares a slice, whole or in pieces.
    pub(super) async fn compare(&self, slice: Period, seen: &mut Seen) -> Result<(), Stop> {
        let (mut pieces, mut readings) = (vec![slice], 0);
        while let Some(piece) = pieces.pop() {
            let mut counts = CycleCounts::default();
            let read = self.read(piece, seen, &mut counts).await;
            if let Ok(Read::Steady) = read {
                counts.unknown = self.unknown(piece, seen).await?;
                self.done(seen.cycle, piece.to, &counts).await?;
                readings = 0;
                continue;
            }
            // What was found is found, though the piece is not done: it will be known at the next reading.
            self.done(seen.cycle, Timestamp::MIN, &CycleCounts { listed: 0, known: 0, ..counts }).await?;
            read?;
            readings += 1;
            match piece.halves().filter(|_| self.adapter.can_split()) {
                Some((first, second)) => pieces.extend([second, first]),
                None if readings < MAX_READINGS => pieces.push(piece),
                None => return Err(Stop::Unsteady(piece)),
            }
        }
        Ok(())
    }

    async fn read(&self, piece: Period, seen: &mut Seen, counts: &mut CycleCounts) -> Result<Read, Stop> {
        let (mut keys, mut listed, mut total, mut next) = (HashSet::new(), 0, None, None);
        for number in 0..MAX_PAGES_PER_READING {
            let page = self.page(piece, next.as_deref()).await?;
            let is_long = page.total.is_some_and(|total| total > MAX_ITEMS_PER_READING);
            if number == 0 && is_long && self.adapter.can_split() && piece.halves().is_some() {
                return Ok(Read::TooLong);
            }
            if number > 0 && page.total != total {
                return Ok(Read::Changed);
            }
            total = page.total;
            listed += page.items.len() as u64 + page.unreadable.0;
            let fresh = page.items.iter().filter(|item| keys.insert(hash(&item.key))).count() as u64;
            self.take(piece, &page, seen, counts).await?;
            // An item that comes twice has moved, and another one has moved out of sight.
            if page.next.is_some() && (fresh < page.items.len() as u64 || page.next == next) {
                return Ok(Read::Changed);
            }
            if page.next.is_none() {
                let is_whole =
                    total.is_none_or(|total| total == listed && keys.len() as u64 + page.unreadable.0 <= total);
                return Ok(if number == 0 || is_whole { Read::Steady } else { Read::Changed });
            }
            next = page.next;
        }
        Err(Stop::List(format!("the list has more than {MAX_PAGES_PER_READING} pages")))
    }

    async fn page(&self, piece: Period, next: Option<&str>) -> Result<Page, Stop> {
        let call = self.adapter.call(piece, next).map_err(Stop::List)?;
        let response = self.ask(&call).await?;
        let page = self.adapter.page(&call, &response.headers, &response.body).map_err(Stop::List)?;
        if page.unreadable.0 > 0 {
            let (count, reason) = &page.unreadable;
            tracing::warn!(reconcile = self.key.name, count, reason, "items of the provider's list cannot be compared");
        }
        Ok(page)
    }

    /// Compares a page's items with what is here, and lets in what is not.
    async fn take(&self, piece: Period, page: &Page, seen: &mut Seen, counts: &mut CycleCounts) -> Result<(), Stop> {
        let within = page.items.iter().filter(|item| piece.holds(item.listed_at));
        let items: Vec<_> = within.filter(|item| seen.now.insert(hash(&item.key))).collect();
        for items in items.chunks(KEYS_PER_QUERY) {
            let query = KnownKeysQuery {
                organization: self.key.organization.clone(),
                provider: self.settings.provider.clone(),
                keys: items.iter().map(|item| item.key.clone()).collect(),
                max_body_bytes: MAX_COMPARED_BYTES,
            };
            let known = match self.tools.store.known_keys(query).await {
                Ok(known) => known,
                Err(error) => return Err(self.unsee(items, seen, error)),
            };
            for (item, known) in items.iter().zip(known) {
                if let Err(error) = self.judge(item, known, counts).await {
                    return Err(self.unsee(items, seen, error));
                }
            }
        }
        Ok(())
    }

    /// What was not compared is not seen.
    fn unsee(&self, items: &[&Item], seen: &mut Seen, error: StoreError) -> Stop {
        for item in items {
            seen.now.remove(&hash(&item.key));
        }
        Stop::Store(error)
    }

    async fn judge(&self, item: &Item, known: Option<KnownKey>, counts: &mut CycleCounts) -> Result<(), StoreError> {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let of_known = |known: KnownKey| Known {
            micros: known.micros,
            data: known.body.and_then(|body| {
                json::pointer(&body, if item.is_event { "" } else { "/data" }).map(|data| read(data.get()))
            }),
        };
        counts.listed += 1;
        if known.as_ref().is_some_and(|known| is_verbatim(item, known)) {
            counts.known += 1;
            return Ok(());
        }
        let standing = compare(&read(item.data.get()), item.changed_at, known.map(of_known).as_ref());
        let entry = match standing {
            Standing::Known => {
                counts.known += 1;
                return Ok(());
            }
            Standing::Missing => Entry::AtItsTime,
            // Events have an order of their own among those of one time.
            Standing::Different(Entry::After(_)) if item.is_event => Entry::AtItsTime,
            Standing::Different(entry) => entry,
        };
        let entered = self.tools.door.enter(&self.settings.source, item, entry).await?;
        crash::point("reconcile.entered");
        match (standing, entered) {
            (Standing::Different(_), _) => counts.different += 1,
            // It is parked since an earlier cycle: nobody takes it.
            (_, Entered::Known) => counts.known += 1,
            _ => counts.missing += 1,
        }
        counts.repaired += u64::from(entered == Entered::Stored);
        Ok(())
    }

    /// How many keys that came within a piece are not in its list.
    async fn unknown(&self, piece: Period, seen: &mut Seen) -> Result<u64, StoreError> {
        let first = seen.period.from.saturating_add(SENT_AFTER).unwrap_or(Timestamp::MAX).max(piece.from);
        let mut query = TimedKeysQuery {
            organization: self.key.organization.clone(),
            provider: self.settings.provider.clone(),
            from_micros: first.as_microsecond(),
            to_micros: piece.to.as_microsecond(),
            after: None,
            limit: ROWS_PER_QUERY,
        };
        let mut count = 0;
        loop {
            let rows = self.tools.store.timed_keys(query.clone()).await?;
            for row in rows.iter().filter(|row| self.adapter.must_list(&row.event_type)) {
                let key = hash(&row.key);
                let is_unknown = !seen.now.contains(&key) && !seen.before.contains(&key) && seen.unknown.insert(key);
                count += u64::from(is_unknown);
            }
            match rows.last().filter(|_| rows.len() == ROWS_PER_QUERY as usize) {
                Some(last) => query.after = Some(last.place),
                None => return Ok(count),
            }
        }
    }
}

/// Whether what came is, byte for byte, what is listed: as nearly always where a provider writes both alike.
fn is_verbatim(item: &Item, known: &KnownKey) -> bool {
    let listed = item.data.get().as_bytes();
    let is_end = |body: &[u8]| body.strip_suffix(b"}").is_some_and(|body| body.ends_with(listed));
    known.body.as_deref().is_some_and(|body| body == listed || is_end(body))
}

/// A number in a key's place: two of a million keys share one with a chance of one in tens of millions, and then one of
/// them is not counted.
fn hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
