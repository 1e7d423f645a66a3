//! What a person does about rows: one by one, or by a filter, page by page.
//!
//! Nothing of it runs by itself: a call does a bounded piece, and says where the next one goes on.

use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::provider::Refusal;
use jiff::Timestamp;

use super::Inbox;
use super::quarantine::unkept;
use super::receive::fields;
use crate::store::{
    Act, EffectState, InboxQuery, InboxRowDetail, InboxRowView, Intervened, Intervention, RowPosition, RowState,
    StoreError,
};

/// Most rows that one call for many does something about.
pub const MAX_STEP_ROWS: u32 = 200;
/// Most rows that one call for many looks at.
pub const MAX_LOOKED_AT_ROWS: u32 = 10_000;

/// Which row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowId {
    /// Whose.
    pub organization: OrganizationId,
    /// From which provider.
    pub provider: String,
    /// The provider's id of the delivery.
    pub delivery: String,
}

/// What is wanted of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Effects that have ended shall take place again: that of one route, or (`None`) those that are dead, and where
    /// none is, all of them. Routes that the configuration does not have are left out.
    Replay {
        /// The route.
        route: Option<String>,
    },
    /// A parked row shall go to the routes of today's configuration. A quarantined one is verified again first, with
    /// today's secrets.
    Release,
    /// What waits or is dead shall have no effect: through one route, or (`None`) at all.
    Discard {
        /// The route.
        route: Option<String>,
        /// Why, for people.
        reason: String,
    },
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Nothing can use it still, for this reason: it is parked as before.
    StillParked(String),
    /// The quarantined delivery had come by itself since; its copy is gone.
    Duplicate,
    /// An effect of it may be taking place now. Nothing was changed.
    UnderWay,
    /// A row in this state has nothing that this could be done to.
    Unfit(RowState),
    /// Its signature does not verify with today's secrets either.
    Unverified(Refusal),
    /// Its source is not in the configuration any more.
    SourceGone(String),
    /// There is no such row.
    NoSuchRow,
}

/// Which rows.
#[derive(Debug, Clone)]
pub struct RowFilter {
    /// Whose.
    pub organization: OrganizationId,
    /// In which state: of the row and, where a route is named, of its effect too.
    pub state: RowState,
    /// Only of this source.
    pub source: Option<String>,
    /// Only of these types.
    pub event_type: Option<EventPattern>,
    /// Only of this business key.
    pub key: Option<String>,
    /// Only with an effect through this route.
    pub route: Option<String>,
    /// Only what was received from then on.
    pub from: Option<Timestamp>,
    /// Only what was received before then.
    pub to: Option<Timestamp>,
}

impl RowFilter {
    fn has(&self, row: &InboxRowView) -> bool {
        self.event_type.as_ref().is_none_or(|pattern| pattern.matches(&row.event_type))
            && self.from.is_none_or(|from| row.received_at >= from)
            && self.to.is_none_or(|to| row.received_at < to)
    }

    /// Whether every row that the store finds is meant.
    fn is_of_the_store(&self) -> bool {
        self.event_type.is_none() && self.from.is_none() && self.to.is_none()
    }
}

/// Rows that a filter found.
#[derive(Debug)]
pub struct FoundRows {
    /// The rows, newest first.
    pub rows: Vec<InboxRowView>,
    /// Where the next call goes on; `None` where everything has been looked at.
    pub next: Option<RowPosition>,
}

impl Inbox {
    /// Whether the configuration has this route for the organization.
    pub fn has_route(&self, organization: &OrganizationId, route: &str) -> bool {
        self.outlets.get(route).is_some_and(|outlet| outlet.organization() == organization)
    }

    /// Does something about one row.
    ///
    /// # Errors
    /// The store's.
    pub async fn intervene(&self, id: &RowId, wanted: &Wanted) -> Result<Outcome, StoreError> {
        let RowId { organization, provider, delivery } = id.clone();
        let Some(row) = self.store.inbox_row(&organization, &provider, &delivery).await? else {
            return Ok(Outcome::NoSuchRow);
        };
        let act = match self.act(&organization, &row, wanted) {
            Ok(act) => act,
            Err(outcome) => return Ok(outcome),
        };
        let park_reason = match &act {
            Act::Release { park_reason, .. } => park_reason.clone(),
            _ => String::new(),
        };
        let (at, now) = (self.clock.now(), self.clock.schedule());
        let asked = Intervention { organization, provider, delivery, act, at, now };
        let intervened = self.store.intervene(vec![asked]).await?.pop();
        self.announce();
        Ok(match intervened {
            Some(Intervened::Done) => Outcome::Done,
            Some(Intervened::StillParked) => Outcome::StillParked(park_reason),
            Some(Intervened::Duplicate) => Outcome::Duplicate,
            Some(Intervened::UnderWay) => Outcome::UnderWay,
            Some(Intervened::Unfit(state)) => Outcome::Unfit(state),
            Some(Intervened::NoSuchRow) | None => Outcome::NoSuchRow,
        })
    }

    /// What the store is to do, by the configuration of today; or why nothing.
    fn act(&self, organization: &OrganizationId, row: &InboxRowDetail, wanted: &Wanted) -> Result<Act, Outcome> {
        match wanted {
            Wanted::Replay { route } => {
                let is_ours = |name: &str| self.has_route(organization, name);
                let wanted = |name: &str| is_ours(name) && route.as_ref().is_none_or(|route| route == name);
                let ended = row.effects.iter().filter(|effect| effect.state != EffectState::Waiting);
                let ended = ended.filter(|effect| wanted(&effect.route));
                let mut effects: Vec<_> = ended.map(|effect| (effect.route.clone(), effect.state)).collect();
                if effects.iter().any(|(_, state)| *state == EffectState::Dead) {
                    effects.retain(|(_, state)| *state == EffectState::Dead);
                }
                Ok(Act::Replay { effects })
            }
            Wanted::Discard { route, reason } => Ok(Act::Discard { route: route.clone(), reason: reason.clone() }),
            Wanted::Release => self.release(organization, row),
        }
    }

    fn release(&self, organization: &OrganizationId, row: &InboxRowDetail) -> Result<Act, Outcome> {
        let state = row.row.state;
        if !matches!(state, RowState::Parked | RowState::Quarantined) {
            return Err(Outcome::Unfit(state));
        }
        let source = &row.row.source;
        let intake = self.intakes.get(source).filter(|intake| intake.organization() == organization);
        let Some(intake) = intake else { return Err(Outcome::SourceGone(source.clone())) };
        if state == RowState::Parked {
            let (routes, park_reason) = intake.routes_again(row);
            return Ok(Act::Release { routes, park_reason });
        }
        let kept = unkept(&row.headers);
        let headers = fields(&kept);
        intake.verify(&headers, &row.body, row.row.received_at).map_err(Outcome::Unverified)?;
        let mut admitted = intake.row(&headers, row.body.clone(), &*self.clock);
        admitted.received_at = row.row.received_at;
        Ok(Act::Admit(Box::new(admitted)))
    }

    /// The rows that a filter means, newest first, from `before` on: at most `most` of them, among at most
    /// [`MAX_LOOKED_AT_ROWS`].
    ///
    /// # Errors
    /// The store's.
    pub async fn find(
        &self,
        filter: &RowFilter,
        before: Option<RowPosition>,
        most: u32,
    ) -> Result<FoundRows, StoreError> {
        let limit = if filter.is_of_the_store() { most } else { MAX_LOOKED_AT_ROWS };
        let query = InboxQuery {
            source: filter.source.clone(),
            state: Some(filter.state),
            key: filter.key.clone(),
            route: filter.route.clone(),
            before,
            look_at: MAX_LOOKED_AT_ROWS,
            ..InboxQuery::newest(filter.organization.clone(), limit)
        };
        let found = self.store.inbox(query).await?;
        let full = found.rows.last().filter(|_| found.rows.len() == limit as usize).map(|row| row.position);
        let mut next = full.or(found.searched_to.map(|place| place.position));
        let mut rows: Vec<_> = found.rows.into_iter().filter(|row| filter.has(row)).collect();
        if rows.len() > most as usize {
            rows.truncate(most as usize);
            next = rows.last().map(|row| row.position);
        }
        Ok(FoundRows { rows, next })
    }
}
