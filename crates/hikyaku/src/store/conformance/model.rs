//! Random operations are applied to the store under test and to the memory store, side by side; every answer, and all
//! that can be read afterwards, must be the same. Which of several due deliveries a claim takes when slots are short is
//! left to the cases in [`claim`](super::claim): here a webhook or a route has room for all or for none.

use std::collections::HashMap;
use std::fmt::Debug;

use hikyaku_core::delivery::{Decision, FailureKind, Outcome};
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::{DeliveryKey, OrganizationId};
use hikyaku_core::ordering::Version;
use hikyaku_core::webhook::{Settings, WhileInactive};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::fixture::*;
use super::{notices, recovery};
use crate::store::memory::MemoryStore;
use crate::store::*;

/// Random lists of operations, unless a test is slow.
pub(crate) const CASES: u32 = 32;
const OPERATIONS: std::ops::Range<usize> = 20..60;
const ORGANIZATIONS: [&str; 2] = ["acme", "rival"];
// Wherever one of these stood in a statement's text, it would end it (S22).
const WEBHOOKS: [&str; 3] = ["w0'", "w1';--", "w2'\""];
pub(crate) const EVENTS: [&str; 5] = ["e0'", "e1'", "e2'", "e3'", "e4'"];
const OWNERS: [&str; 2] = ["a'", "b'"];
const PROVIDERS: [&str; 2] = ["receiptroller", "stripe'"];
const ROUTES: [&str; 2] = ["books'", "chat'"];
const KEYS: [&str; 3] = ["", "k1'", "k2'"];
const RECOVERY: &str = "r'";

/// One thing that is done to both stores. The numbers pick from the lists above, or from what is leased.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    CreateWebhook { organization: usize, webhook: usize },
    SetActive { organization: usize, webhook: usize, active: bool },
    DeleteWebhook { organization: usize, webhook: usize },
    Commit(Vec<Write>),
    Resend { organization: usize, event: usize, webhook: usize },
    Recover { webhook: usize, which: usize, from: i64 },
    CancelRecovery { webhook: usize },
    StepRecoveries { most_due: u32 },
    Claim { owner: usize, closed: Option<usize> },
    ClaimLanes { owner: usize, open: [bool; 2], rows_each: u32 },
    Pass { seconds: i64 },
}

/// One part of a group.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Publish { organization: usize, first: usize, count: usize, content: u8, room: u32 },
    Record { organization: usize, provider: usize, delivery: usize, key: usize, seconds: i64, routes: [bool; 2] },
    FinishAttempt { which: usize, outcome: Outcome, decision: u8 },
    FinishLane { which: usize, ended: usize, retry: bool, applied: bool },
}

fn write() -> impl Strategy<Value = Write> {
    let outcome = prop_oneof![Just(OK), Just(ERROR), Just(INTERRUPTED), Just(Outcome::Failed(FailureKind::Dns))];
    prop_oneof![
        (0..2usize, 0..5usize, 1..4usize, 0..2u8, 0..3u32).prop_map(|(organization, first, count, content, room)| {
            // Mostly the same content, or there would be little else than conflicts.
            let content = if first == 4 { content } else { 0 };
            Write::Publish { organization, first, count, content, room }
        }),
        (0..2usize, 0..2usize, 0..6usize, 0..3usize, 0..5i64, any::<[bool; 2]>()).prop_map(
            |(organization, provider, delivery, key, seconds, routes)| {
                Write::Record { organization, provider, delivery, key, seconds, routes }
            }
        ),
        (0..50usize, outcome, 0..4u8).prop_map(|(which, outcome, decision)| Write::FinishAttempt {
            which,
            outcome,
            decision
        }),
        (0..50usize, 0..4usize, any::<bool>(), any::<bool>())
            .prop_map(|(which, ended, retry, applied)| Write::FinishLane { which, ended, retry, applied }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let webhook = || (0..2usize, 0..3usize);
    prop_oneof![
        2 => webhook().prop_map(|(organization, webhook)| Operation::CreateWebhook { organization, webhook }),
        1 => (webhook(), any::<bool>()).prop_map(|((organization, webhook), active)| {
            Operation::SetActive { organization, webhook, active }
        }),
        1 => webhook().prop_map(|(organization, webhook)| Operation::DeleteWebhook { organization, webhook }),
        8 => proptest::collection::vec(write(), 1..5).prop_map(Operation::Commit),
        3 => (0..2usize, proptest::option::of(0..3usize))
            .prop_map(|(owner, closed)| Operation::Claim { owner, closed }),
        3 => (0..2usize, any::<[bool; 2]>(), 1..4u32)
            .prop_map(|(owner, open, rows_each)| Operation::ClaimLanes { owner, open, rows_each }),
        2 => (0..2usize, 0..5usize, 0..3usize)
            .prop_map(|(organization, event, webhook)| Operation::Resend { organization, event, webhook }),
        1 => (0..3usize, 0..3usize, 0..3i64)
            .prop_map(|(webhook, which, from)| Operation::Recover { webhook, which, from }),
        1 => (0..3usize).prop_map(|webhook| Operation::CancelRecovery { webhook }),
        2 => (1..4u32).prop_map(|most_due| Operation::StepRecoveries { most_due }),
        2 => (1..25i64).prop_map(|seconds| Operation::Pass { seconds }),
    ]
}

/// Runs many random lists of operations, and shrinks one that is answered differently.
pub(crate) fn check(cases: u32, run: impl AsyncFn(Vec<Operation>) -> Result<(), TestCaseError>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, max_shrink_iters: 1000, failure_persistence: None, ..Config::default() };
    // Every store starts with somebody to deliver to; the rest is drawn.
    let operations = proptest::collection::vec(operation(), OPERATIONS).prop_map(|drawn| {
        let create = |webhook| Operation::CreateWebhook { organization: 0, webhook };
        [create(0), create(1)].into_iter().chain(drawn).collect()
    });
    TestRunner::new(config).run(&operations, |operations| runtime.block_on(run(operations))).unwrap();
}

/// Applies the operations to `store` and to the model, and compares all that can be read.
pub(crate) async fn compare(store: &dyn Store, operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let model = apply(store, operations).await?;
    compare_all(&model, store).await
}

/// Applies the operations to `store` and to a model, which it gives.
pub(crate) async fn apply(store: &dyn Store, operations: Vec<Operation>) -> Result<MemoryStore, TestCaseError> {
    let model = MemoryStore::new();
    let mut pair = Pair { model: &model, store, seconds: 0, leased: Vec::new(), lanes: Vec::new() };
    for operation in operations {
        pair.apply(&operation).await?;
        pair.compare_backlog().await?;
    }
    Ok(model)
}

/// Compares all that can be read.
pub(crate) async fn compare_all(model: &MemoryStore, store: &dyn Store) -> Result<(), TestCaseError> {
    Pair { model, store, seconds: 0, leased: Vec::new(), lanes: Vec::new() }.compare_all().await
}

struct Pair<'a> {
    model: &'a dyn Store,
    store: &'a dyn Store,
    seconds: i64,
    /// All that was ever leased, so that late finishes come too.
    leased: Vec<(&'static str, ClaimedDelivery)>,
    /// The same for lanes; a claim's number may differ from the model's, so both are kept.
    lanes: Vec<(&'static str, ClaimedLane, ClaimedLane)>,
}

fn same(what: &str, model: impl Debug, store: impl Debug) -> Result<(), TestCaseError> {
    let (model, store) = (format!("{model:?}"), format!("{store:?}"));
    prop_assert_eq!(model, store, "{}: the model is left, the store right", what);
    Ok(())
}

impl Pair<'_> {
    async fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        // Time passes with every operation, so that no two are at the same instant.
        self.seconds += 1;
        let now = at(self.seconds);
        match operation {
            Operation::CreateWebhook { organization, webhook: id } => {
                let organization = self::organization(ORGANIZATIONS[*organization]);
                let while_inactive = if *id == 1 { WhileInactive::Hold } else { WhileInactive::Drop };
                let settings = Settings { while_inactive, ..Settings::default() };
                // One of them watches the others; `*` alone means no operational events.
                let patterns = ["*", "webhook.*", "delivery.*"].into_iter().take(if *id == 2 { 3 } else { 1 });
                let events = patterns.map(|pattern| EventPattern::parse(pattern).unwrap()).collect();
                let new = Webhook { organization, created_at: now, settings, events, ..webhook(WEBHOOKS[*id]) };
                let model = self.model.create_webhook(new.clone()).await.is_ok();
                same("create", model, self.store.create_webhook(new).await.is_ok())
            }
            Operation::SetActive { organization, webhook, active } => {
                let (organization, id) =
                    (self::organization(ORGANIZATIONS[*organization]), webhook_id(WEBHOOKS[*webhook]));
                let change = notices::switch(*active, &format!("n'{}", self.seconds), self.seconds);
                let model = self.model.update_webhook(&organization, &id, change.clone(), now).await.unwrap();
                same("update", model, self.store.update_webhook(&organization, &id, change, now).await.unwrap())
            }
            Operation::DeleteWebhook { organization, webhook } => {
                let (organization, id) =
                    (self::organization(ORGANIZATIONS[*organization]), webhook_id(WEBHOOKS[*webhook]));
                let model = self.model.delete_webhook(&organization, &id, now).await.unwrap();
                same("delete", model, self.store.delete_webhook(&organization, &id, now).await.unwrap())
            }
            Operation::Resend { organization, event, webhook } => {
                let organization = self::organization(ORGANIZATIONS[*organization]);
                let key = DeliveryKey { organization, ..recovery::key(EVENTS[*event], WEBHOOKS[*webhook]) };
                let model = self.model.resend(&key, now).await.unwrap();
                same("resend", model, self.store.resend(&key, now).await.unwrap())
            }
            Operation::Recover { webhook, which, from } => self.recover(*webhook, Which::ALL[*which], *from).await,
            Operation::CancelRecovery { webhook } => {
                let key = (acme(), webhook_id(WEBHOOKS[*webhook]), recovery::recovery_id(RECOVERY));
                let model = self.model.cancel_recovery(&key).await.unwrap();
                same("cancel", model, self.store.cancel_recovery(&key).await.unwrap())
            }
            Operation::StepRecoveries { most_due } => {
                let step = RecoveryStep { limit: 2, ..recovery::step_of(self.seconds, *most_due) };
                let model = self.model.step_recoveries(step.clone()).await.unwrap();
                same("step", model, self.store.step_recoveries(step).await.unwrap())
            }
            Operation::Commit(writes) => self.commit(writes).await,
            Operation::Claim { owner, closed } => self.claim(OWNERS[*owner], *closed).await,
            Operation::ClaimLanes { owner, open, rows_each } => {
                self.claim_lanes(OWNERS[*owner], open, *rows_each).await
            }
            Operation::Pass { seconds } => {
                self.seconds += seconds;
                Ok(())
            }
        }
    }

    async fn recover(&self, webhook: usize, which: Which, from: i64) -> Result<(), TestCaseError> {
        let webhook = webhook_id(WEBHOOKS[webhook]);
        let new = NewRecovery { webhook, from: at(from), at: at(self.seconds), ..recovery::recovery(RECOVERY, which) };
        let model = self.model.recover(new.clone()).await.unwrap();
        same("recover", model, self.store.recover(new).await.unwrap())
    }

    async fn commit(&mut self, writes: &[Write]) -> Result<(), TestCaseError> {
        // Groups cannot be copied, so each store gets one of its own.
        let (model, store) = (self.group(writes, false), self.group(writes, true));
        let (model, store) = (self.model.commit(model).await.unwrap(), self.store.commit(store).await.unwrap());
        same("commit", &model, &store)?;
        for outcome in model.publish {
            let PublishOutcome::Stored(events) = outcome else { continue };
            self.leased.extend(events.into_iter().flat_map(|event| event.leased).map(|leased| ("publisher", leased)));
        }
        Ok(())
    }

    fn group(&self, writes: &[Write], for_store: bool) -> Group {
        let mut group = Group::default();
        for write in writes {
            match *write {
                Write::Publish { organization, first, count, content, room } => {
                    let events = EVENTS[first..].iter().take(count);
                    let events = events
                        .map(|id| NewEvent {
                            content_hash: [content; 32],
                            timestamp: at(i64::from(id.as_bytes()[1]) % 3),
                            ..event(id)
                        })
                        .collect();
                    let organization = self::organization(ORGANIZATIONS[organization]);
                    let room = WEBHOOKS.iter().map(|id| (webhook_id(id), room)).collect();
                    let due_at = at(self.seconds);
                    group.publish.push(Publish { organization, room, due_at, ..publish(events) });
                }
                Write::Record { organization, provider, delivery, key, seconds, routes } => {
                    let routes = ROUTES.iter().zip(routes).filter(|(_, taken)| *taken);
                    group.record.push(NewRow {
                        organization: self::organization(ORGANIZATIONS[organization]),
                        provider: PROVIDERS[provider].into(),
                        routes: routes.map(|(route, _)| (*route).to_owned()).collect(),
                        due_at: at(self.seconds),
                        ..row(&format!("d'{delivery}"), KEYS[key], seconds)
                    });
                }
                Write::FinishAttempt { which, outcome, decision } => {
                    let Some((owner, claimed)) = pick(&self.leased, which) else { continue };
                    let decision = match decision {
                        0 => Decision::Delivered,
                        1 => SWITCH_OFF,
                        _ => retry(self.seconds + i64::from(decision) * 10),
                    };
                    let notices = notices::notices(&format!("n'{}", self.seconds), self.seconds);
                    let finish = finish_of(claimed, owner, self.seconds, outcome, decision);
                    group.finish_attempts.push(FinishAttempt { notices, ..finish });
                }
                Write::FinishLane { which, ended, retry, applied } => {
                    let Some((owner, model, store)) = pick(&self.lanes, which) else { continue };
                    let lane = if for_store { store } else { model };
                    group.finish_lanes.push(self.finish_lane(owner, lane, ended, retry, applied));
                }
            }
        }
        group
    }

    /// Ends the first `count` rows of a lane, each in another way, and tries the next one again where `retry` says so.
    fn finish_lane(&self, owner: &str, lane: &ClaimedLane, count: usize, retry: bool, applied: bool) -> FinishLane {
        use EffectState::{Dead, Discarded, Done, Stale};
        let rows = lane.rows.iter().zip([Done, Stale, Dead, Discarded]).take(count);
        let ended = rows.map(|(row, state)| ended(&row.delivery, state)).collect();
        let mut finish = finish_lane_of(lane, owner, self.seconds, ended);
        finish.retry = lane.rows.get(count).filter(|_| retry).map(|row| RetryRow {
            delivery: row.delivery.clone(),
            failures: row.failures + 1,
            error: "it's failed".into(),
            due_at: at(self.seconds + 20),
        });
        finish.applied = lane.rows.first().filter(|_| applied).map(|row| Version::clone(&row.version));
        finish
    }

    async fn claim(&mut self, owner: &'static str, closed: Option<usize>) -> Result<(), TestCaseError> {
        let closed = closed.map(|webhook| ((acme(), webhook_id(WEBHOOKS[webhook])), 0));
        let claim = DeliveryClaim { slots: HashMap::from_iter(closed), ..claim_of(owner, self.seconds) };
        let sorted = |mut claims: DeliveryClaims| {
            claims.deliveries.sort_by(|a, b| a.key.cmp(&b.key));
            claims.saturated.sort();
            claims
        };
        let model = sorted(self.model.claim_deliveries(claim.clone()).await.unwrap());
        same("claim", &model, sorted(self.store.claim_deliveries(claim).await.unwrap()))?;
        self.leased.extend(model.deliveries.into_iter().map(|claimed| (owner, claimed)));
        Ok(())
    }

    async fn claim_lanes(
        &mut self,
        owner: &'static str,
        open: &[bool; 2],
        rows_each: u32,
    ) -> Result<(), TestCaseError> {
        let all =
            ORGANIZATIONS.iter().flat_map(|organization| ROUTES.iter().zip(open).map(move |of| (organization, of)));
        let slots = all.map(|(name, (route, open))| (organization(name), (*route).to_owned(), u32::from(*open) * 1000));
        let claim = LaneClaim { slots: slots.collect(), rows_each, ..lane_claim(owner, self.seconds) };
        let model = self.model.claim_lanes(claim.clone()).await.unwrap();
        let store = self.store.claim_lanes(claim).await.unwrap();
        same("lanes", model.next_due, store.next_due)?;
        let sorted = |mut lanes: Vec<ClaimedLane>| {
            lanes.sort_by(|a, b| a.key.cmp(&b.key));
            lanes
        };
        let (model, store) = (sorted(model.lanes), sorted(store.lanes));
        let shown = |lanes: &[ClaimedLane]| {
            lanes.iter().map(|lane| format!("{:?}", ClaimedLane { claim: 0, ..lane.clone() })).collect::<Vec<_>>()
        };
        same("lanes", shown(&model), shown(&store))?;
        self.lanes.extend(model.into_iter().zip(store).map(|(model, store)| (owner, model, store)));
        Ok(())
    }

    async fn compare_backlog(&self) -> Result<(), TestCaseError> {
        same("backlog", self.model.backlog().await.unwrap(), self.store.backlog().await.unwrap())
    }

    async fn compare_all(&self) -> Result<(), TestCaseError> {
        for organization in ORGANIZATIONS.map(organization) {
            same(
                "webhooks",
                self.model.webhooks(&organization).await.unwrap(),
                self.store.webhooks(&organization).await.unwrap(),
            )?;
            for id in EVENTS.map(event_id) {
                same(
                    "event",
                    self.model.event(&organization, &id).await.unwrap(),
                    self.store.event(&organization, &id).await.unwrap(),
                )?;
            }
            for id in WEBHOOKS {
                let query = LogQuery { organization: organization.clone(), ..log_query(id, None, 1000) };
                same("log", self.model.log(query.clone()).await.unwrap(), self.store.log(query).await.unwrap())?;
                self.compare_missed(&organization, id).await?;
            }
            let query = InboxQuery { organization, ..inbox_query() };
            same("inbox", inbox(self.model, query.clone()).await, inbox(self.store, query).await)?;
        }
        Ok(())
    }

    async fn compare_missed(&self, organization: &OrganizationId, id: &str) -> Result<(), TestCaseError> {
        let (organization, webhook) = (organization.clone(), webhook_id(id));
        for recovery in [RECOVERY, "held"] {
            let key = (organization.clone(), webhook.clone(), recovery::recovery_id(recovery));
            let model = self.model.recovery(&key).await.unwrap();
            same("recovery", model, self.store.recovery(&key).await.unwrap())?;
        }
        let (from, to) = (Some(at(1)), Some(at(2)));
        let query = MissedQuery { organization, webhook, from: None, to, after: None, limit: 2, count_to: 3 };
        for query in [MissedQuery { from, to: None, ..query.clone() }, query] {
            let model = self.model.missed(query.clone()).await.unwrap();
            same("missed", model, self.store.missed(query).await.unwrap())?;
        }
        Ok(())
    }
}

/// The inbox in full. Positions may differ from store to store, only their order counts.
async fn inbox(store: &dyn Store, query: InboxQuery) -> Vec<InboxRowDetail> {
    let mut rows = Vec::new();
    for row in store.inbox(query.clone()).await.unwrap().rows {
        let mut detail = store.inbox_row(&query.organization, &row.provider, &row.delivery).await.unwrap().unwrap();
        assert_eq!(format!("{row:?}"), format!("{:?}", detail.row));
        detail.row.position = RowPosition(0);
        rows.push(detail);
    }
    rows
}

fn pick<T>(from: &[T], which: usize) -> Option<&T> {
    // The newest are the likeliest to be still leased.
    from.iter().rev().nth(which % from.len().max(1))
}
