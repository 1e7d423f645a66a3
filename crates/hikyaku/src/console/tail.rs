//! What happens, while it happens: server-sent events, each with a line of the page.
//!
//! It looks every second at the newest deliveries and rows, and tells what is new or has changed among them. So it costs the
//! same however much happens, and tells of what any node does; it is for looking on, not for keeping count.

use std::collections::HashMap;
use std::convert::Infallible;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Extension, State as Shared};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use minijinja::{Value, context};

use super::page::{Failure, Page};
use super::path::{InPath, below};
use super::session::Visitor;
use super::shapes::{FoundDelivery, List, Row};
use super::{Console, text};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The newest deliveries, and the newest rows, that it looks at. Of more than that between two looks the rest is not told.
const NEWEST: &str = "100";
/// Most browsers that are told at a time: each costs two short queries a second.
const MAX_WATCHERS: usize = 64;
/// Most of them of one organization, so that none keeps the others out.
const MAX_WATCHERS_OF_ONE: usize = 16;
/// Lines that the page begins with.
const FIRST_LINES: usize = 50;

/// The page, with what is there; a script goes on.
pub(super) async fn show(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
) -> Result<Page, Failure> {
    let mut watch = Watch::new(console, visitor, &path);
    let mut lines = watch.look().await?;
    lines.sort_by(|a, b| b.at.cmp(&a.at));
    lines.truncate(FIRST_LINES);
    let lines: Vec<_> = lines.into_iter().map(|line| line.value).collect();
    Ok(Page::of(path.organization(), "tail", "tail.html", context! { lines }))
}

/// Goes on telling, until the browser leaves.
pub(super) async fn stream(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Failure> {
    let place = Watchers::sit_down(&console.watchers, path.organization()).ok_or(Failure::Busy)?;
    let mut watch = Watch::new(console, visitor, &path);
    // The page has shown these.
    watch.look().await?;
    let events =
        stream::unfold((watch, place), |(mut watch, place)| async { Some((Ok(watch.next().await?), (watch, place))) });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// How many browsers are told at present, by organization.
#[derive(Debug, Default)]
pub(super) struct Watchers(Mutex<HashMap<String, usize>>);

impl Watchers {
    /// A place among them, until it is dropped; `None` where all are taken.
    fn sit_down(watchers: &Arc<Self>, organization: String) -> Option<Place> {
        let mut taken = watchers.taken();
        let of_it = taken.get(&organization).copied().unwrap_or_default();
        if of_it >= MAX_WATCHERS_OF_ONE || taken.values().sum::<usize>() >= MAX_WATCHERS {
            return None;
        }
        taken.insert(organization.clone(), of_it + 1);
        Some(Place { watchers: Arc::clone(watchers), organization })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A browser's place among those that are told.
struct Place {
    watchers: Arc<Watchers>,
    organization: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.watchers.taken();
        if let Some(count) = taken.get_mut(&self.organization) {
            *count -= 1;
        }
        taken.retain(|_, count| *count > 0);
    }
}

/// Something that happened.
struct Line {
    at: String,
    value: Value,
}

/// What one visitor watches.
struct Watch {
    console: Arc<Console>,
    visitor: Visitor,
    base: String,
    deliveries: String,
    rows: String,
    /// How everything stood that is among the newest.
    seen: HashMap<(String, String), String>,
    /// What is to be told, the last first.
    told: Vec<Line>,
}

impl Watch {
    fn new(console: Arc<Console>, visitor: Visitor, path: &InPath) -> Self {
        let list = |name: &str| format!("{}?limit={NEWEST}", path.api(&[name]));
        let (deliveries, rows) = (list("deliveries"), list("inbox"));
        let base = path.console(&[]);
        Self { console, visitor, base, deliveries, rows, seen: HashMap::new(), told: Vec::new() }
    }

    /// The next event, when there is one; `None` where the visitor may not look any more. A store that does not answer is
    /// asked again.
    async fn next(&mut self) -> Option<Event> {
        while self.told.is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.look().await {
                Ok(mut lines) => {
                    lines.sort_by(|a, b| b.at.cmp(&a.at));
                    self.told = lines;
                }
                Err(Failure::SignIn) => return None,
                Err(failure) => tracing::debug!(?failure, "somebody watches, and the API does not answer"),
            }
        }
        let line = self.told.pop()?;
        let values = context! { line => line.value, lang => self.visitor.language.code(), base => self.base.as_str(), form_token => "", here => "" };
        let html = text::render("part/line.html", &values);
        // A line break would end the event.
        Some(Event::default().data(html.unwrap_or_default().replace(['\n', '\r'], " ")))
    }

    /// What is new or has changed.
    async fn look(&mut self) -> Result<Vec<Line>, Failure> {
        let (deliveries, rows) = tokio::try_join!(
            self.console.api.get::<List<FoundDelivery>>(&self.visitor, &self.deliveries),
            self.console.api.get::<List<Row>>(&self.visitor, &self.rows),
        )?;
        let before = mem::take(&mut self.seen);
        let mut lines = Vec::new();
        let mut see = |id: (String, String), mark: String, at: &str, value: Value| {
            if before.get(&id) != Some(&mark) {
                lines.push(Line { at: at.to_owned(), value });
            }
            self.seen.insert(id, mark);
        };
        for item in deliveries.items {
            let at = item.last_attempt.as_ref().map_or(&item.created_at, |last| &last.started_at).clone();
            let href = below(&self.base, &["events", &item.delivery_id]);
            let (id, state, mark) = (item.delivery_id, item.state, item.attempts);
            let mark = format!("{state} {mark}");
            let value = context! {
                at => at.as_str(), kind => "sent", id => id.as_str(), type => item.event_type, state,
                last => item.last_attempt, href,
            };
            see((item.webhook_id, id), mark, &at, value);
        }
        for row in rows.items {
            let href = below(&self.base, &["inbox", &row.source, &row.delivery_id]);
            let value = context! {
                at => row.received_at.as_str(), kind => "received", id => row.delivery_id.as_str(),
                type => row.event_type, state => row.state.as_str(), last => (), href,
            };
            see((row.source, row.delivery_id), row.state, &row.received_at, value);
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_organization_takes_every_place() {
        let watchers = Arc::<Watchers>::default();
        let sit_down = |organization: usize| Watchers::sit_down(&watchers, organization.to_string());
        let mut own: Vec<_> = (0..MAX_WATCHERS_OF_ONE).map(|_| sit_down(0).unwrap()).collect();
        assert!(sit_down(0).is_none() && sit_down(1).is_some());
        own.pop();
        own.push(sit_down(0).unwrap());
        let others: Vec<_> = (MAX_WATCHERS_OF_ONE..MAX_WATCHERS).map(|other| sit_down(other).unwrap()).collect();
        assert!(sit_down(1).is_none());
        drop((own, others));
        assert!(watchers.taken().is_empty());
    }
}
