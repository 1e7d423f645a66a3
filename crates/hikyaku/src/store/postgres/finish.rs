//! Writing what attempts came to, under their leases, a whole group at once.

pub(super) mod wave;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use hikyaku_core::delivery::Decision;
use hikyaku_core::ids::{DeliveryKey, OrganizationId, WebhookId};
use jiff::Timestamp;

use super::columns::after;
use super::transaction::Transaction;
use super::{publish, webhooks};
use crate::store::{FinishAttempt, FinishNotices, FinishOutcome, StoreError};

/// Writes attempts and what follows from them; of those without the lease, the attempt only.
pub(super) async fn finish_attempts(
    transaction: &Transaction<'_>,
    finishes: &[FinishAttempt],
) -> Result<Vec<FinishOutcome>, StoreError> {
    let mut ends = vec![wave::End::Lost; finishes.len()];
    for wave in waves(finishes) {
        let of_wave: Vec<_> = wave.iter().map(|place| &finishes[*place]).collect();
        let written = wave::write(transaction, &of_wave).await?;
        for (place, end) in wave.into_iter().zip(written) {
            ends[place] = end;
        }
    }
    let mut outcomes = Vec::with_capacity(finishes.len());
    let mut successes = Successes::default();
    for (finish, end) in finishes.iter().zip(ends) {
        outcomes.push(match end {
            wave::End::Held => {
                FinishOutcome::Applied { switched_off: follow(transaction, finish, &mut successes).await? }
            }
            wave::End::Answered => {
                successes.add(&finish.key);
                FinishOutcome::Applied { switched_off: false }
            }
            wave::End::ArrivedAfterAll => FinishOutcome::Applied { switched_off: false },
            wave::End::Lost => FinishOutcome::LeaseLost,
        });
    }
    successes.note(transaction).await?;
    Ok(outcomes)
}

/// The places of the finishes, so that no delivery stands twice in one wave, and each has its finishes in their order.
fn waves(finishes: &[FinishAttempt]) -> Vec<Vec<usize>> {
    let mut seen: HashMap<&DeliveryKey, usize> = HashMap::with_capacity(finishes.len());
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for (place, finish) in finishes.iter().enumerate() {
        let wave = seen.entry(&finish.key).and_modify(|wave| *wave += 1).or_insert(0);
        match waves.get_mut(*wave) {
            Some(places) => places.push(place),
            None => waves.push(vec![place]),
        }
    }
    waves
}

/// When an attempt ended, by the wall clock.
fn ended_at(finish: &FinishAttempt) -> Timestamp {
    after(finish.attempt.started_at, finish.attempt.duration)
}

/// What the end of a delivery means to its webhook, and to those that want to hear of it; whether it switched the webhook
/// off.
async fn follow<'a>(
    transaction: &Transaction<'_>,
    finish: &'a FinishAttempt,
    successes: &mut Successes<'a>,
) -> Result<bool, StoreError> {
    let FinishAttempt { key, decision, notices, .. } = finish;
    let Decision::Exhausted { switch_off } = decision else {
        if *decision == Decision::Delivered {
            successes.add(key);
        }
        return Ok(false);
    };
    let mut switched_off = false;
    if *switch_off {
        // Failures are counted since the last success before.
        std::mem::take(successes).note(transaction).await?;
        let (organization, webhook) = (&key.organization, &key.webhook);
        switched_off =
            webhooks::note_exhausted(transaction, organization, webhook, &key.event, ended_at(finish)).await?;
    }
    if let Some(notices) = notices {
        let notices = FinishNotices::clone(notices).into_publish(key.clone(), switched_off);
        publish::publish(transaction, &notices).await?;
    }
    Ok(switched_off)
}

/// Webhooks of which a delivery succeeded.
#[derive(Default)]
struct Successes<'a>(BTreeMap<&'a OrganizationId, HashSet<&'a WebhookId>>);

impl<'a> Successes<'a> {
    fn add(&mut self, key: &'a DeliveryKey) {
        self.0.entry(&key.organization).or_default().insert(&key.webhook);
    }

    /// Forgets the failures of those that have any: few do.
    async fn note(self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let organizations: BTreeSet<_> = self.0.keys().map(|organization| (*organization).clone()).collect();
        let known = webhooks::of_each(transaction, &organizations).await?;
        for (organization, succeeded) in self.0 {
            let all = known.get(organization).into_iter().flat_map(|webhooks| webhooks.iter());
            let failed = all.filter(|webhook| webhook.exhausted > 0 && succeeded.contains(&webhook.id));
            let failed: Vec<_> = failed.map(|webhook| webhook.id.as_str()).collect();
            if !failed.is_empty() {
                webhooks::note_successes(transaction, organization, &failed).await?;
            }
        }
        Ok(())
    }
}
