//! What a person does about inbox rows, and what is kept aside for one.

use bytes::Bytes;

use super::inbox::{Inbox, RowKey};
use crate::store::{
    Act, EffectState, Intervened, Intervention, LaneKey, QuarantineOutcome, Quarantined, RecordOutcome, RowState,
};

use EffectState::{Dead, Discarded, Waiting};

impl Inbox {
    pub(super) fn quarantine(&mut self, new: Quarantined) -> QuarantineOutcome {
        let row = &new.row;
        let key = (row.organization.clone(), row.provider.clone(), row.delivery.clone());
        if self.rows.contains_key(&key) {
            return QuarantineOutcome::Duplicate;
        }
        let of_source = |other: &&super::inbox::Row| {
            other.state() == RowState::Quarantined
                && other.new.organization == row.organization
                && other.new.source == row.source
        };
        let sizes =
            self.rows.values().filter(of_source).map(|other| (other.new.body.len() + other.headers.len()) as u64);
        let (rows, bytes) = sizes.fold((0, 0), |(rows, bytes), size| (rows + 1, bytes + size));
        if rows >= new.max_rows || bytes + new.bytes() > new.max_bytes {
            return QuarantineOutcome::Full;
        }
        self.put(key, new.row, RowState::Quarantined, new.headers);
        QuarantineOutcome::Kept
    }

    pub(super) fn intervene(&mut self, asked: Intervention) -> Intervened {
        let key = (asked.organization.clone(), asked.provider.clone(), asked.delivery.clone());
        let Some(state) = self.rows.get(&key).map(|row| row.state()) else { return Intervened::NoSuchRow };
        match &asked.act {
            Act::Replay { effects } => self.replay(&key, &asked, effects),
            Act::Release { routes, park_reason } if state == RowState::Parked => {
                self.release(&key, &asked, routes, park_reason)
            }
            Act::Admit(row) if state == RowState::Quarantined => {
                self.remove(&key);
                match self.record(*row.clone()) {
                    RecordOutcome::Stored => Intervened::Done,
                    RecordOutcome::Duplicate => Intervened::Duplicate,
                }
            }
            Act::Discard { route: None, reason } if matches!(state, RowState::Parked | RowState::Quarantined) => {
                let Some(row) = self.rows.get_mut(&key) else { return Intervened::NoSuchRow };
                (row.bare, row.headers, row.new.park_reason) = (RowState::Discarded, Bytes::new(), reason.clone());
                Intervened::Done
            }
            Act::Discard { route, reason } => self.discard(&key, &asked, route.as_deref(), reason),
            Act::Release { .. } | Act::Admit(_) => Intervened::Unfit(state),
        }
    }

    fn replay(&mut self, key: &RowKey, asked: &Intervention, effects: &[(String, EffectState)]) -> Intervened {
        let Some(row) = self.rows.get_mut(key) else { return Intervened::NoSuchRow };
        let stands = |route: &str, state| row.effects.get(route).is_some_and(|effect| effect.state == state);
        let ended = effects.iter().filter(|(route, state)| *state != Waiting && stands(route, *state));
        let ended: Vec<_> = ended.map(|(route, _)| route.clone()).collect();
        if ended.is_empty() {
            return Intervened::Unfit(row.state());
        }
        row.new.due_at = asked.now;
        self.begin(key, &ended, asked.now);
        Intervened::Done
    }

    fn release(&mut self, key: &RowKey, asked: &Intervention, routes: &[String], park_reason: &str) -> Intervened {
        let Some(row) = self.rows.get_mut(key) else { return Intervened::NoSuchRow };
        if routes.is_empty() {
            row.new.park_reason = park_reason.to_owned();
            return Intervened::StillParked;
        }
        row.new.park_reason.clear();
        row.new.due_at = asked.now;
        self.begin(key, routes, asked.now);
        Intervened::Done
    }

    fn discard(&mut self, key: &RowKey, asked: &Intervention, route: Option<&str>, reason: &str) -> Intervened {
        let Self { rows, lanes, .. } = self;
        let Some(row) = rows.get_mut(key) else { return Intervened::NoSuchRow };
        let lane_of = |route: &str| LaneKey::of(&row.new, route);
        let is_meant = |name: &str, state| route.is_none_or(|route| route == name) && matches!(state, Waiting | Dead);
        let meant: Vec<_> = row.effects.iter().filter(|(name, effect)| is_meant(name, effect.state)).collect();
        let waiting: Vec<_> =
            meant.iter().filter(|(_, effect)| effect.state == Waiting).map(|(name, _)| lane_of(name)).collect();
        let names: Vec<_> = meant.into_iter().map(|(name, _)| name.clone()).collect();
        if names.is_empty() {
            return Intervened::Unfit(row.state());
        }
        let place = (row.new.version.clone(), row.new.delivery.clone());
        let is_taken = |lane: &LaneKey| lanes.get(lane).is_some_and(|lane| lane.has_taken(&place, asked.now));
        if waiting.iter().any(is_taken) {
            return Intervened::UnderWay;
        }
        for name in names {
            if let Some(effect) = row.effects.get_mut(&name) {
                (effect.state, effect.detail, effect.ended_at) = (Discarded, reason.to_owned(), Some(asked.at));
            }
        }
        for key in waiting {
            let Some(lane) = lanes.get_mut(&key) else { continue };
            lane.work.remove(&place);
            lane.free(asked.now);
            if lane.work.is_empty() {
                lanes.remove(&key);
            }
        }
        Intervened::Done
    }
}
