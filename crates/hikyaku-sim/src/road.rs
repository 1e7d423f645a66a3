//! The road between a node and the store: storms on it, and times when it is closed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hikyaku::store::StoreError;
use hikyaku::store::memory::{Operation, Way};
use tokio::time::sleep;

use crate::dice::{Dice, Trace, lock};
use crate::fate::{Fate, Point};
use crate::witness::Witness;

/// The longest that a call takes in a storm: longer than a lease now and then.
const LONGEST_DELAY: Duration = Duration::from_secs(25);

/// What the calls of all nodes meet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Storm {
    /// The store is away until then, in virtual milliseconds.
    pub(crate) closed_until: i64,
    /// Calls fail until then.
    pub(crate) until: i64,
    /// A share of the calls that do nothing and fail.
    pub(crate) refused: f64,
    /// A share of the calls of which nobody hears whether they took effect.
    pub(crate) unknown: f64,
    /// A share of the calls that take long.
    pub(crate) slow: f64,
}

/// The weather, the same for all nodes.
pub(crate) type Weather = Mutex<Storm>;

/// One node's road.
pub(crate) struct Road {
    pub(crate) fate: Arc<Fate>,
    pub(crate) weather: Arc<Weather>,
    pub(crate) dice: Arc<Dice>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) witness: Arc<Witness>,
}

impl Road {
    fn storm(&self) -> Option<Storm> {
        let (storm, now) = (*lock(&self.weather), self.trace.millis());
        (now < storm.until.max(storm.closed_until)).then_some(storm)
    }

    async fn be_slow(&self, storm: Storm) {
        if self.dice.hits(storm.slow) {
            let longest = if self.dice.hits(0.1) { LONGEST_DELAY } else { LONGEST_DELAY / 50 };
            sleep(self.dice.between(Duration::ZERO, longest)).await;
        }
    }
}

#[async_trait]
impl Way for Road {
    async fn there(&self, operation: Operation) -> Result<(), StoreError> {
        self.fate.pass(Point::There(operation)).await;
        let Some(storm) = self.storm() else { return Ok(()) };
        if self.trace.millis() < storm.closed_until {
            return Err(StoreError::Unavailable("the road is closed".to_owned()));
        }
        self.be_slow(storm).await;
        self.fate.pass(Point::There(operation)).await;
        match self.dice.hits(storm.refused) {
            true => Err(StoreError::Unavailable("lost on the way there".to_owned())),
            false => Ok(()),
        }
    }

    async fn back(&self, operation: Operation) -> Result<(), StoreError> {
        // Before anything else, so that nothing has happened since.
        self.witness.look(operation);
        self.fate.pass(Point::Back(operation)).await;
        let Some(storm) = self.storm() else { return Ok(()) };
        self.be_slow(storm).await;
        self.fate.pass(Point::Back(operation)).await;
        match self.dice.hits(storm.unknown) {
            true => Err(StoreError::Unknown("lost on the way back".to_owned())),
            false => Ok(()),
        }
    }
}
