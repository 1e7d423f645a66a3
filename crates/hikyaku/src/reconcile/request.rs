//! A period that somebody wants to be compared beside the schedule.

use hikyaku_core::gap::Period;

use super::Worker;
use super::cycle::calls_until;
use crate::store::StoreError;

/// What became of a wish for a period to be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requested {
    /// It will be done.
    Noted,
    /// It would leave too little of the budget.
    BeyondBudget {
        /// How many calls it needs at least, counted up to the budget.
        needed: u32,
        /// How many are left in the present 30 days.
        left: u32,
    },
    /// There is no such reconciliation.
    Nowhere,
}

impl Worker {
    pub(super) async fn request(&self, period: Option<Period>) -> Result<Requested, StoreError> {
        let now = self.tools.clock.now();
        if let Some(period) = period {
            let (_, used) = calls_until(now, &self.state().await?);
            let left = self.settings.call_budget.saturating_sub(used);
            let needed = self.fewest_calls(period);
            // Half of them are the schedule's, which would stand still for weeks without.
            if needed > left / 2 {
                return Ok(Requested::BeyondBudget { needed, left });
            }
        }
        self.change(|state| {
            Self::want(state, period.unwrap_or_else(|| self.next_period(state.mark, now)));
            if period.is_none() {
                // As at the beginning of a cycle by the schedule.
                state.mark = state.mark.or(state.wanted.map(|wanted| wanted.from));
            }
        })
        .await?;
        // The node that compares may be another one; it looks every few seconds.
        self.wake.notify_one();
        Ok(Requested::Noted)
    }

    /// How many calls a period needs at least: one for each piece of it.
    fn fewest_calls(&self, period: Period) -> u32 {
        let (mut calls, mut rest) = (0, Some(period));
        while let Some(period) = rest.filter(|_| calls < self.settings.call_budget) {
            calls += 1;
            rest = Period::around(self.adapter.first_slice(period).to, period.to);
        }
        calls
    }
}
