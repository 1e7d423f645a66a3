//! Whether what waits can be come to.

use hikyaku_core::delivery::DeliveryState;

use super::State;
use crate::model::{Mutation, Promise};

impl State {
    /// Whatever waits for a webhook that is on, and is nobody's any more, can be claimed: no crash has lost it.
    pub(in crate::model) fn nothing_is_stuck(&self, mutation: Option<Mutation>) -> Result<(), Promise> {
        if !self.is_on() {
            return Ok(());
        }
        let mut rest = self.fork();
        let mut claims = self.held.len();
        rest.claim(0, mutation)?;
        while rest.held.len() > claims {
            claims = rest.held.len();
            rest.claim(0, mutation)?;
        }
        let is_passed_by = |interrupted: bool| interrupted && mutation == Some(Mutation::LeftBehindIsPassedBy);
        let claimed =
            rest.held[self.held.len()..].iter().filter(|held| !is_passed_by(held.claimed.interrupted.is_some()));
        let claimed: Vec<_> = claimed.map(|held| held.delivery).collect();
        let is_free = |delivery: &usize| self.seen[*delivery].lease.is_none_or(|(_, _, until)| until <= self.now);
        let mut waits = (0..self.seen.len()).filter(|one| self.view(*one).state == DeliveryState::Waiting);
        match waits.all(|delivery| !is_free(&delivery) || claimed.contains(&delivery)) {
            true => Ok(()),
            false => Err(Promise::NothingIsStuck),
        }
    }
}
