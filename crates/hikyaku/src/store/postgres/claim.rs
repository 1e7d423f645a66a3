//! Taking due deliveries.
//!
//! A claim goes from webhook to webhook, so that a queue of any length costs the others nothing, and takes of each what
//! is due and not just being taken by another node: whoever is second passes over it, and waits for nobody. What is due is
//! looked for without a lock or a transaction first, which is all that most claims do.

pub(super) mod queues;
pub(super) mod take;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hikyaku_core::ids::OrganizationId;
use hikyaku_core::webhook::Webhook;

use super::removals::{self, WebhookKey};
use super::transaction::Transaction;
use super::webhooks::{self, Webhooks};
use crate::store::{DeliveryClaim, DeliveryClaims, StoreError};
use queues::Queues;

/// The answer to a claim when nothing is due, or `None` when something is.
pub(super) async fn of_nothing(
    transaction: &Transaction<'_>,
    claim: &DeliveryClaim,
) -> Result<Option<DeliveryClaims>, StoreError> {
    if queues::is_any_due(transaction, claim.now).await? {
        return Ok(None);
    }
    let next_due = queues::next_due(transaction, claim.now).await?;
    Ok(Some(DeliveryClaims { next_due, ..DeliveryClaims::default() }))
}

/// Takes due deliveries.
pub(super) async fn deliveries(
    transaction: &Transaction<'_>,
    claim: &DeliveryClaim,
) -> Result<DeliveryClaims, StoreError> {
    let queues = Queues::find(transaction, claim.now).await?;
    let mut walk = Walk { transaction, claim, claims: DeliveryClaims::default() };
    // Those after the one at which the last claim stopped, then from the first up to that one.
    for (mut from, until) in [(claim.after.clone(), None), (None, claim.after.as_ref())] {
        loop {
            let mut due = queues.after(transaction, from.as_ref()).await?;
            let is_last = due.len() < queues::PIECE_WEBHOOKS;
            from = due.last().cloned();
            due.retain(|webhook| until.is_none_or(|until| webhook <= until));
            if due.is_empty() || walk.left() == 0 {
                break;
            }
            walk.visit(due).await?;
            if is_last {
                break;
            }
        }
        if claim.after.is_none() {
            break;
        }
    }
    walk.claims.next_due = queues::next_due(transaction, claim.now).await?;
    Ok(walk.claims)
}

/// The way along the webhooks of which something is due.
struct Walk<'a> {
    transaction: &'a Transaction<'a>,
    claim: &'a DeliveryClaim,
    claims: DeliveryClaims,
}

/// What may be taken of one webhook.
struct Turn {
    webhook: Arc<Webhook>,
    slots: u32,
}

impl Walk<'_> {
    /// How many more may be taken.
    fn left(&self) -> u32 {
        let taken = u32::try_from(self.claims.deliveries.len()).unwrap_or(u32::MAX);
        self.claim.limit.saturating_sub(taken)
    }

    /// Takes of these webhooks, in their order, what there are slots for.
    async fn visit(&mut self, due: Vec<WebhookKey>) -> Result<(), StoreError> {
        let mut turns = self.turns(due).await?;
        while self.left() > 0 && !turns.is_empty() {
            // So many that they fill the limit if nobody else takes them at this moment; else there is another round.
            let counts = queues::count_due(self.transaction, self.claim.now, &turns).await?;
            let mut left = self.left();
            let mut most = Vec::new();
            for (turn, count) in turns.iter().zip(counts) {
                if left == 0 {
                    break;
                }
                if count > turn.slots {
                    self.claims.saturated.push(key_of(&turn.webhook));
                }
                most.push(count.min(turn.slots).min(left));
                left -= count.min(turn.slots).min(left);
            }
            let served: Vec<_> = turns.drain(..most.len()).collect();
            let taken = take::take(self.transaction, self.claim, &served, &most).await?;
            self.claims.deliveries.extend(taken);
            if self.left() == 0 {
                self.claims.stopped_at = served.last().map(|last| key_of(&last.webhook));
            }
        }
        Ok(())
    }

    /// What may be taken of these webhooks. One without a free slot is saturated, and of one that is gone what waits is to
    /// be cancelled.
    async fn turns(&mut self, due: Vec<WebhookKey>) -> Result<Vec<Turn>, StoreError> {
        let organizations: BTreeSet<_> = due.iter().map(|(organization, _)| organization.clone()).collect();
        let known = webhooks::of_each(self.transaction, &organizations).await?;
        let (mut turns, mut gone) = (Vec::new(), Vec::new());
        for key in due {
            let Some(webhook) = find(&known, &key) else {
                gone.push(key);
                continue;
            };
            let own_share = webhook.settings.claim_share(self.claim.slots_each).min(self.claim.most_each);
            match self.claim.slots.get(&key).copied().unwrap_or(own_share) {
                0 => self.claims.saturated.push(key),
                slots => turns.push(Turn { webhook, slots }),
            }
        }
        if !gone.is_empty() {
            removals::note(self.transaction, &gone, self.claim.at).await?;
        }
        Ok(turns)
    }
}

fn key_of(webhook: &Webhook) -> WebhookKey {
    (webhook.organization.clone(), webhook.id.clone())
}

fn find(known: &HashMap<OrganizationId, Webhooks>, (organization, id): &WebhookKey) -> Option<Arc<Webhook>> {
    known.get(organization)?.iter().find(|webhook| webhook.id == *id).cloned()
}
