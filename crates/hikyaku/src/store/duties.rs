//! The duties of a store that lives in one process: they end with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use super::DutyClaim;

/// Who holds which duty, and until when by the schedule clock.
#[derive(Debug, Default)]
pub(super) struct Duties(Mutex<HashMap<String, (Arc<str>, Timestamp)>>);

impl Clone for Duties {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }
}

impl Duties {
    /// Takes or renews a duty, if nobody else holds it.
    pub(super) fn take(&self, claim: &DutyClaim) -> bool {
        let DutyClaim { name, lease, now } = claim;
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = held.get(*name).is_none_or(|(owner, until)| *owner == lease.owner || until <= now);
        if is_free {
            let until = now.saturating_add(lease.duration).unwrap_or(Timestamp::MAX);
            held.insert((*name).to_owned(), (Arc::clone(&lease.owner), until));
        }
        is_free
    }

    /// Gives a duty up.
    pub(super) fn leave(&self, name: &str, owner: &str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(name).is_some_and(|(holder, _)| &**holder == owner) {
            held.remove(name);
        }
    }
}
