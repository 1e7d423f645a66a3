//! Taking due deliveries.
//!
//! A claim goes from webhook to webhook, so that a queue of any length costs the others nothing, and takes of each what
//! is due and not just being taken by another node: whoever is second passes over it, and waits for nobody. What is due is
//! looked for without a lock or a transaction first, which is all that most claims do; and it is looked for where something
//! may have become due since the last look, not among all that ever was.

pub(super) mod queues;
pub(super) mod take;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use hikyaku_core::ids::OrganizationId;
use hikyaku_core::webhook::Webhook;

use super::database::Database;
use super::looks::Written;
use super::removals::{self, WebhookKey};
use super::transaction::Transaction;
use super::webhooks::{self, Webhooks};
use crate::store::{ClaimedDelivery, DeliveryClaim, DeliveryClaims, StoreError};
use queues::Queues;

/// What a node remembers between its claims.
#[derive(Debug, Default)]
pub(super) struct Memory {
    queues: Mutex<Queues>,
    pub(super) written: Written,
}

/// Takes due deliveries.
pub(super) async fn deliveries(
    db: &Database,
    memory: &Memory,
    claim: DeliveryClaim,
) -> Result<DeliveryClaims, StoreError> {
    let before = memory.queues.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let written = memory.written.take();
    let claimed = claim_from(db, before, written, claim).await;
    let (claims, queues) = claimed.inspect_err(|_| memory.written.give_back(written))?;
    *memory.queues.lock().unwrap_or_else(PoisonError::into_inner) = queues;
    Ok(claims)
}

async fn claim_from(
    db: &Database,
    before: Queues,
    written: Option<i64>,
    claim: DeliveryClaim,
) -> Result<(DeliveryClaims, Queues), StoreError> {
    let asked = (claim, before, written);
    let found =
        db.look(&asked, |transaction, (claim, before, written)| Box::pin(look(transaction, claim, before, *written)));
    match found.await? {
        (Some(nothing), queues) => Ok((nothing, queues)),
        (None, queues) => {
            let asked = (asked.0, queues);
            let taken =
                db.write(asked, |transaction, (claim, queues)| Box::pin(take(transaction, claim, queues.clone())));
            taken.await
        }
    }
}

/// The answer to a claim when nothing is due, or `None` when something may be; and of which webhooks.
pub(super) async fn look(
    transaction: &Transaction<'_>,
    claim: &DeliveryClaim,
    before: &Queues,
    written: Option<i64>,
) -> Result<(Option<DeliveryClaims>, Queues), StoreError> {
    let queues = before.look(transaction, claim.now, written).await?;
    if !queues.is_empty() {
        return Ok((None, queues));
    }
    let next_due = queues.next_due(transaction, claim).await?;
    Ok((Some(DeliveryClaims { next_due, ..DeliveryClaims::default() }), queues))
}

/// Takes what is due of these webhooks; of which of them something is left.
pub(super) async fn take(
    transaction: &Transaction<'_>,
    claim: &DeliveryClaim,
    queues: Queues,
) -> Result<(DeliveryClaims, Queues), StoreError> {
    let mut walk = Walk { transaction, claim, queues, claims: DeliveryClaims::default() };
    // Those after the one at which the last claim stopped, then from the first up to that one.
    for (mut from, until) in [(claim.after.clone(), None), (None, claim.after.as_ref())] {
        loop {
            let mut due = walk.queues.after(from.as_ref());
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
    walk.claims.next_due = walk.queues.next_due(transaction, claim).await?;
    Ok((walk.claims, walk.queues))
}

/// The way along the webhooks of which something is due.
struct Walk<'a> {
    transaction: &'a Transaction<'a>,
    claim: &'a DeliveryClaim,
    queues: Queues,
    claims: DeliveryClaims,
}

/// What may be taken of one webhook.
struct Turn {
    webhook: Arc<Webhook>,
    /// Before when nothing is due of it.
    since: i64,
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
            for (turn, (count, first)) in turns.iter().zip(&counts) {
                if left == 0 {
                    break;
                }
                let key = key_of(&turn.webhook);
                self.queues.set(&key, *first);
                if *count > turn.slots {
                    self.claims.saturated.push(key);
                }
                most.push((*count).min(turn.slots).min(left));
                left -= (*count).min(turn.slots).min(left);
            }
            let served: Vec<_> = turns.drain(..most.len()).collect();
            let taken = take::take(self.transaction, self.claim, &served, &most).await?;
            self.forget_emptied(&served, &counts, &taken);
            self.claims.deliveries.extend(taken);
            if self.left() == 0 {
                self.claims.stopped_at = served.last().map(|last| key_of(&last.webhook));
            }
        }
        Ok(())
    }

    /// Of a webhook of which all was taken that was due, nothing is left. What somebody else was just taking may come back.
    fn forget_emptied(&mut self, served: &[Turn], counts: &[(u32, Option<i64>)], taken: &[ClaimedDelivery]) {
        let mut left: HashMap<_, u32> =
            served.iter().zip(counts).map(|(turn, (count, _))| (key_of(&turn.webhook), *count)).collect();
        for delivery in taken {
            if let Some(left) = left.get_mut(&key_of(&delivery.webhook)) {
                *left = left.saturating_sub(1);
            }
        }
        left.iter().filter(|(_, left)| **left == 0).for_each(|(key, _)| self.queues.set(key, None));
    }

    /// What may be taken of these webhooks. One without a free slot is saturated, and of one that is gone what waits is to
    /// be cancelled.
    async fn turns(&mut self, due: Vec<WebhookKey>) -> Result<Vec<Turn>, StoreError> {
        let organizations: BTreeSet<_> = due.iter().map(|(organization, _)| organization.clone()).collect();
        let known = webhooks::of_each(self.transaction, &organizations).await?;
        let (mut turns, mut gone) = (Vec::new(), Vec::new());
        for key in due {
            let Some(webhook) = find(&known, &key) else {
                self.queues.set(&key, None);
                gone.push(key);
                continue;
            };
            let since = self.queues.since(&key);
            let own_share = webhook.settings.claim_share(self.claim.slots_each).min(self.claim.most_each);
            match self.claim.slots.get(&key).copied().unwrap_or(own_share) {
                0 => self.claims.saturated.push(key),
                slots => turns.push(Turn { webhook, since, slots }),
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
