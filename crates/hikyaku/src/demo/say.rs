//! What the demo prints, for a person to follow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use crate::clock::SharedClock;
use crate::log;

/// Prints lines with the seconds since the demo began, and knows what every event is about.
#[derive(Clone)]
pub(super) struct Say {
    clock: SharedClock,
    began: Timestamp,
    events: Arc<Mutex<HashMap<String, (usize, String)>>>,
}

impl Say {
    /// Starts counting now.
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { began: clock.schedule(), clock, events: Arc::default() }
    }

    /// Prints one line.
    pub(super) fn line(&self, text: &str) {
        let since = self.clock.schedule().duration_since(self.began);
        // Whoever reads no more loses the lines, and not the demo.
        let _ = log::print(format_args!("{:6.1} s  {text}\n", since.as_secs_f64()));
    }

    /// Remembers the `n`-th event's label before it is published.
    pub(super) fn introduce(&self, id: &str, n: usize, label: &str) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), (n, label.to_owned()));
    }

    /// Which event this is, in the order of publishing.
    pub(super) fn number(&self, id: &str) -> usize {
        self.get(id).map_or(usize::MAX, |(n, _)| n)
    }

    /// What an event is about; its id if it is not known.
    pub(super) fn label(&self, id: &str) -> String {
        self.get(id).map_or_else(|| id.to_owned(), |(_, label)| label)
    }

    fn get(&self, id: &str) -> Option<(usize, String)> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

impl std::fmt::Debug for Say {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Say")
    }
}
