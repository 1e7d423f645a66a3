//! Searching deliveries and logs, by looking at every one.

use hikyaku_core::ids::{DeliveryKey, EventId};

use super::deliveries::Deliveries;
use crate::store::{
    AttemptRecord, DeliveryPosition, DeliveryQuery, DeliveryRow, Found, LastAttempt, LogEntry, LogPosition, LogQuery,
    NewEvent, UndeliveredKind,
};

impl Deliveries {
    pub(super) fn search(&self, query: &DeliveryQuery) -> Found<DeliveryRow, DeliveryPosition> {
        let held = self.undelivered.iter().filter(|(_, one)| one.kind == UndeliveredKind::Held).map(|(key, _)| key);
        let keys = self
            .waiting
            .keys()
            .chain(self.ended.keys())
            .chain(held)
            .filter(|key| key.organization == query.organization);
        let mut rows: Vec<_> = keys.filter_map(|key| self.row(key, query)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.position()));
        rows.truncate(query.limit as usize);
        Found { rows, searched_to: None }
    }

    /// The delivery as a row, if it is asked for.
    fn row(&self, key: &DeliveryKey, query: &DeliveryQuery) -> Option<DeliveryRow> {
        let event = &self.events.get(&(key.organization.clone(), key.event.clone()))?.event;
        let view = self.view(key);
        let short = |line: &AttemptRecord| LastAttempt {
            started_at: line.started_at,
            duration: line.duration,
            outcome: line.outcome,
        };
        let row = DeliveryRow {
            event: key.event.clone(),
            event_type: event.event_type.clone(),
            created_at: event.created_at,
            webhook: key.webhook.clone(),
            state: view.state,
            next_attempt_at: view.next_attempt_at,
            in_flight: view.in_flight,
            reason: view.reason,
            attempts: view.attempts.len() as u32,
            last: view.attempts.last().map(short),
        };
        let wanted = query.webhook.as_ref().is_none_or(|webhook| *webhook == row.webhook)
            && query.event.as_ref().is_none_or(|event| *event == row.event)
            && query.event_type.as_ref().is_none_or(|pattern| pattern.matches(row.event_type.as_str()))
            && query.state.is_none_or(|state| state == row.state)
            && (query.last.is_empty() || row.last.is_some_and(|last| query.last.takes(last.outcome)))
            && (query.key.is_none() || query.key == event.key)
            && query.from.is_none_or(|from| row.created_at >= from)
            && query.to.is_none_or(|to| row.created_at < to)
            && query.after.as_ref().is_none_or(|after| row.position() < *after);
        wanted.then_some(row)
    }

    pub(super) fn log(&self, query: &LogQuery) -> Found<LogEntry, LogPosition> {
        let of_webhook = |key: &DeliveryKey| key.organization == query.organization && key.webhook == query.webhook;
        let place =
            |event: &EventId, attempt: &AttemptRecord| (attempt.started_at, event.clone(), attempt.run, attempt.number);
        let before = query
            .before
            .as_ref()
            .map(|LogPosition { started_at, event, run, number }| (*started_at, event.clone(), *run, *number));
        let mut lines: Vec<_> = self
            .attempts
            .iter()
            .filter(|(key, _)| of_webhook(key))
            .flat_map(|(key, lines)| lines.values().map(|attempt| (place(&key.event, attempt), attempt)))
            .filter(|(place, _)| before.as_ref().is_none_or(|before| place < before))
            .filter(|(_, attempt)| {
                query.from.is_none_or(|from| attempt.started_at >= from)
                    && query.to.is_none_or(|to| attempt.started_at < to)
                    && query.outcome.takes(attempt.outcome)
            })
            .collect();
        lines.sort_by(|(a, _), (b, _)| b.cmp(a));
        let entry = |((_, event, ..), attempt): ((_, EventId, _, _), &AttemptRecord)| {
            let NewEvent { id, event_type, .. } = self.events.get(&(query.organization.clone(), event))?.event.clone();
            let wanted = query.event_type.as_ref().is_none_or(|pattern| pattern.matches(event_type.as_str()));
            wanted.then(|| LogEntry { event: id, event_type, attempt: attempt.clone() })
        };
        let rows = lines.into_iter().filter_map(entry).take(query.limit as usize).collect();
        Found { rows, searched_to: None }
    }
}
