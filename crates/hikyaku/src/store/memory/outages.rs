//! Signs of life, and the times without any.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::store::{Beat, Outage, OutageQuery};

#[derive(Debug, Clone, Default)]
pub(super) struct Outages {
    last_beat: Option<Timestamp>,
    outages: BTreeMap<Timestamp, Outage>,
}

impl Outages {
    pub(super) fn last_beat(&self) -> Option<Timestamp> {
        self.last_beat
    }

    pub(super) fn beat(&mut self, beat: Beat) {
        self.last_beat = Some(beat.at);
        self.outages.extend(beat.outage.map(|outage| (outage.from, outage)));
    }

    pub(super) fn list(&self, query: &OutageQuery) -> Vec<Outage> {
        let older = |outage: &&Outage| query.before.is_none_or(|before| outage.from < before);
        self.outages.values().rev().filter(older).take(query.limit as usize).copied().collect()
    }
}
