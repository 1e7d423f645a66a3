//! How far reconciliations have come.

use std::collections::BTreeMap;

use crate::store::{Cycle, ReconcileKey, ReconcileState};

#[derive(Debug, Clone, Default)]
pub(super) struct Reconciles {
    states: BTreeMap<ReconcileKey, ReconcileState>,
    cycles: BTreeMap<ReconcileKey, BTreeMap<i64, Cycle>>,
}

impl Reconciles {
    pub(super) fn state(&self, key: &ReconcileKey) -> ReconcileState {
        self.states.get(key).cloned().unwrap_or_default()
    }

    pub(super) fn save(&mut self, key: &ReconcileKey, before: &ReconcileState, state: ReconcileState) -> bool {
        if self.state(key) != *before {
            return false;
        }
        let cycles = self.cycles.entry(key.clone()).or_default();
        cycles.extend(state.cycle.clone().map(|cycle| (cycle.number, cycle)));
        self.states.insert(key.clone(), state);
        true
    }

    pub(super) fn cycles(&self, key: &ReconcileKey, before: Option<i64>, limit: u32) -> Vec<Cycle> {
        let of_key = self.cycles.get(key).into_iter().flat_map(|cycles| cycles.values().rev());
        let older = of_key.filter(|cycle| before.is_none_or(|before| cycle.number < before));
        older.take(limit as usize).cloned().collect()
    }
}
