//! The business side: books that are written in a transaction with the delivery's id, and calls that are only made.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hikyaku::inbox::destination::{Destination, Effect};
use hikyaku::store::WorkRow;
use hikyaku_core::ordering::Version;
use tokio::time::sleep;

use crate::dice::lock;
use crate::fate::{Fate, Point};
use crate::ledger::{self, CALLS, LISTED, ORDERS, SALES};
use crate::plant::Plant;
use crate::world::Stage;

/// A share of the effects that go wrong on a good day.
const BAD_LUCK: f64 = 0.08;

/// What a database would hold, by route.
#[derive(Debug, Default)]
pub(crate) struct Shelves {
    done: BTreeSet<(&'static str, String)>,
    newest: BTreeMap<(&'static str, String), Version>,
}

/// One node's way to one destination.
pub(crate) struct Books {
    pub(crate) stage: Arc<Stage>,
    pub(crate) fate: Arc<Fate>,
    pub(crate) route: &'static str,
}

/// What goes wrong, and when.
enum Trouble {
    None,
    FailsBefore,
    HangsBefore,
    FailsAfter,
    HangsAfter,
}

impl Books {
    fn trouble(&self) -> Trouble {
        let is_down = self.stage.trace.millis() < *lock(&self.stage.books_down_until);
        if !is_down && !self.stage.dice.hits(BAD_LUCK) {
            return Trouble::None;
        }
        match self.stage.dice.below(if is_down { 2 } else { 4 }) {
            0 => Trouble::FailsBefore,
            1 => Trouble::HangsBefore,
            2 => Trouble::FailsAfter,
            _ => Trouble::HangsAfter,
        }
    }

    /// What a transaction of the books does: the id and the guard are in it.
    fn write(&self, row: &WorkRow) -> Effect {
        if self.stage.plants(Plant::EffectForgotten) {
            return done();
        }
        let mut shelves = lock(&self.stage.shelves);
        if self.route != CALLS {
            let is_known = !shelves.done.insert((self.route, row.delivery.clone()));
            if is_known {
                return done();
            }
            let newest = shelves.newest.get(&(self.route, row.key.clone()));
            if newest.is_some_and(|newest| row.version < *newest) {
                return Effect::Stale("the books know something newer".to_owned());
            }
            shelves.newest.insert((self.route, row.key.clone()), row.version.clone());
        }
        drop(shelves);
        self.took_effect(row);
        if (self.route == SALES && self.stage.plants(Plant::EffectTwice))
            || (self.route == CALLS && self.stage.plants(Plant::CallTwice))
            || (self.route == SALES && row.delivery.starts_with(LISTED) && self.stage.plants(Plant::RepairTwice))
        {
            self.took_effect(row);
        }
        done()
    }

    fn took_effect(&self, row: &WorkRow) {
        let mut delivery = row.delivery.clone();
        if self.stage.plants(Plant::EffectInvented) {
            delivery.push_str("-of-nobody");
        }
        self.stage.trace.note(format_args!("{}: {} on {} has {delivery}", self.fate.name, self.route, row.key));
        let (route, key, version) = (self.route, row.key.clone(), row.version.clone());
        let mut ledgers = lock(&self.stage.ledgers);
        let effects = &mut ledgers.effects;
        let older = effects.iter().rposition(|e| e.route == route && e.key == key && e.version < version);
        effects.push(ledger::Effect { route, key, delivery, version });
        if let Some(older) = older.filter(|_| route == ORDERS && self.stage.plants(Plant::EffectOutOfOrder)) {
            let newer = effects.len() - 1;
            effects.swap(older, newer);
        }
    }
}

fn done() -> Effect {
    Effect::Done("written".to_owned())
}

fn failed() -> Effect {
    Effect::Failed { error: "the simulation's books".to_owned(), retry_after: None }
}

#[async_trait]
impl Destination for Books {
    async fn apply(&self, row: &WorkRow) -> Effect {
        self.fate.pass(Point::Applying).await;
        let trouble = self.trouble();
        sleep(self.stage.dice.between(Duration::ZERO, Duration::from_millis(200))).await;
        self.fate.reach(Point::Applying).await;
        match trouble {
            Trouble::FailsBefore => return failed(),
            Trouble::HangsBefore => pending().await,
            _ => {}
        }
        let effect = self.write(row);
        self.fate.pass(Point::Applied).await;
        match trouble {
            Trouble::FailsAfter => failed(),
            Trouble::HangsAfter => pending().await,
            _ => effect,
        }
    }

    fn rows_at_a_time(&self) -> u32 {
        if self.route == CALLS { 1 } else { 32 }
    }
}
