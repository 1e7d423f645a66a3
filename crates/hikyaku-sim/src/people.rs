//! Everybody and everything that interferes: crashes, storms, endpoints that are down, and people who press buttons.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hikyaku::clock::{self, Clock};
use hikyaku::inbox::{RowId, Wanted};
use hikyaku::store::{NewRecovery, Rotation, WebhookChange, Which};
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::{DeliveryKey, EventId, RecoveryId, WebhookId};
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Setting, Settings, Webhook, WebhookUrl, WhileInactive};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{sleep, timeout};

use crate::dice::lock;
use crate::fate::Point;
use crate::node::{Node, organization};
use crate::road::Storm;
use crate::shop::PROVIDER;
use crate::world::Stage;

/// How long somebody waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a former secret stays good: longer than the day.
const OVERLAP: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most webhooks at a time.
const MAX_WEBHOOKS: usize = 5;

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// Interferes until the day is over.
pub(crate) async fn interfere(stage: Arc<Stage>) {
    for _ in 0..3 {
        create(&stage).await;
    }
    while !stage.is_over() {
        sleep(stage.dice.between(Duration::from_secs(5), minutes(10))).await;
        revive(&stage);
        match stage.dice.below(24) {
            0 => stage.any_node().into_iter().for_each(|node| node.fate.die()),
            1..=3 => plan_crash(&stage),
            4 => stand_still(&stage),
            5 => storm(&stage),
            6 => close_the_road(&stage),
            7 | 8 => endpoint_down(&stage),
            9 => books_down(&stage),
            10 => set_the_clock(&stage),
            11 => create(&stage).await,
            12 => delete(&stage).await,
            13 => pause(&stage).await,
            14 | 15 => switch_on(&stage).await,
            16 => rotate(&stage).await,
            17 | 18 => resend(&stage).await,
            19 | 20 => recover(&stage).await,
            21 => replay(&stage).await,
            22 => discard(&stage).await,
            _ => hold(&stage).await,
        }
    }
}

/// Dead nodes begin another life.
pub(crate) fn revive(stage: &Arc<Stage>) {
    let dead = |node: &&Arc<Node>| node.fate.is_dead();
    let places: Vec<_> = lock(&stage.nodes).iter().enumerate().filter(|(_, n)| dead(n)).map(|(at, _)| at).collect();
    for place in places {
        let lives = stage.lives.fetch_add(1, Ordering::Relaxed);
        let node = Node::start(stage, format!("node{place}-{lives}"));
        stage.happened("crash");
        lock(&stage.nodes)[place] = node;
    }
}

fn plan_crash(stage: &Stage) {
    if let (Some(node), Some(point)) = (stage.any_node(), stage.dice.pick(&Point::ALL)) {
        node.fate.plan(*point);
    }
}

fn stand_still(stage: &Arc<Stage>) {
    let Some(node) = stage.any_node() else { return };
    let length = stage.dice.between(Duration::from_secs(5), Duration::from_secs(120));
    stage.trace.note(format_args!("{} stands still for {length:?}", node.fate.name));
    stage.happened("standstill");
    node.fate.stand_still(true);
    tokio::spawn(async move {
        sleep(length).await;
        node.fate.stand_still(false);
    });
}

fn storm(stage: &Stage) {
    let until = stage.later(Duration::from_secs(30), minutes(30));
    let shares = [0.0, 0.02, 0.2, 0.6];
    let share = || *stage.dice.pick(&shares).unwrap_or(&0.0);
    let storm = Storm { closed_until: 0, until, refused: share(), unknown: share(), slow: share() };
    stage.trace.note(format_args!("{storm:?}"));
    stage.happened("storm");
    *lock(&stage.weather) = storm;
}

fn close_the_road(stage: &Stage) {
    let closed_until = stage.later(Duration::from_secs(5), minutes(20));
    stage.trace.note(format_args!("the store is away until {closed_until}"));
    stage.happened("store away");
    lock(&stage.weather).closed_until = closed_until;
}

fn endpoint_down(stage: &Stage) {
    let names: Vec<_> = stage.webhooks().iter().map(|webhook| webhook.id.as_str().to_owned()).collect();
    let Some(name) = stage.dice.pick(&names) else { return };
    let until = stage.later(minutes(2), minutes(240));
    stage.trace.note(format_args!("{name} is down until {until}"));
    lock(&stage.down_until).insert(name.clone(), until);
}

fn books_down(stage: &Stage) {
    let until = stage.later(minutes(1), minutes(90));
    stage.trace.note(format_args!("the books are down until {until}"));
    *lock(&stage.books_down_until) = until;
}

fn set_the_clock(stage: &Stage) {
    let minutes = *stage.dice.pick(&[-1440, -71, -5, 0, 5, 71]).unwrap_or(&0);
    stage.trace.note(format_args!("the clock is {minutes} minutes off"));
    stage.happened("clock set");
    lock(&stage.ledgers).people.clock_was_set = true;
    stage.clock.set(SignedDuration::from_mins(minutes));
}

/// A webhook that is there, and a node to ask.
fn some_webhook(stage: &Stage, wanted: impl Fn(&Webhook) -> bool) -> Option<(Arc<Node>, WebhookId)> {
    let ids: Vec<_> = stage.webhooks().iter().filter(|one| wanted(one)).map(|webhook| webhook.id.clone()).collect();
    Some((stage.any_node()?, stage.dice.pick(&ids)?.clone()))
}

fn secret() -> String {
    format!("whsec_{:016x}", u64::from_le_bytes(clock::random()))
}

async fn create(stage: &Arc<Stage>) {
    let Some(node) = stage.any_node().filter(|_| stage.webhooks().len() < MAX_WEBHOOKS) else { return };
    let id = format!("wh-{}", stage.lives.fetch_add(1, Ordering::Relaxed));
    let patterns = [EventPattern::All, EventPattern::Prefix("sale.".into()), EventPattern::Prefix("order.".into())];
    let pattern = stage.dice.pick(&patterns).cloned().unwrap_or(EventPattern::All);
    let secret = secret();
    lock(&stage.ledgers).people.secrets.entry(id.clone()).or_default().push(secret.clone());
    let webhook = Webhook {
        organization: organization(),
        url: WebhookUrl::parse(&format!("https://{id}.example/hook")).expect("a good address"),
        id: WebhookId::parse(id).expect("a good id"),
        events: vec![pattern],
        description: String::new(),
        secret: Secret::new(secret),
        previous_secret: None,
        off: None,
        exhausted: 0,
        settings: Settings::default(),
        created_at: stage.clock.now(),
    };
    let created = timeout(PATIENCE, node.store.create_webhook(webhook)).await;
    stage.trace.note(format_args!("a webhook is created: {}", matches!(created, Ok(Ok(())))));
}

async fn delete(stage: &Arc<Stage>) {
    let Some((node, id)) = some_webhook(stage, |_| true).filter(|_| stage.dice.hits(0.4)) else { return };
    lock(&stage.ledgers).people.deleted.insert(id.as_str().to_owned());
    stage.happened("webhook deleted");
    let deleted = timeout(PATIENCE, node.sender.remove_webhook(&organization(), &id)).await;
    stage.trace.note(format_args!("{id} is deleted: {}", matches!(deleted, Ok(Ok(true)))));
}

async fn change(stage: &Arc<Stage>, found: Option<(Arc<Node>, WebhookId)>, change: WebhookChange) {
    let Some((node, id)) = found else { return };
    let (organization, at) = (organization(), stage.clock.now());
    let what = format!("active {:?}, rotation {}", change.active, change.rotation.is_some());
    let changed = timeout(PATIENCE, node.store.update_webhook(&organization, &id, change, at)).await;
    stage.trace.note(format_args!("{id} is changed ({what}): {}", matches!(changed, Ok(Ok(_)))));
    node.sender.wake_recoveries();
}

async fn pause(stage: &Arc<Stage>) {
    let found = some_webhook(stage, |webhook| webhook.off.is_none());
    change(stage, found, WebhookChange { active: Some(false), ..WebhookChange::default() }).await;
}

async fn switch_on(stage: &Arc<Stage>) {
    let found = some_webhook(stage, |webhook| webhook.off.is_some());
    change(stage, found, WebhookChange { active: Some(true), ..WebhookChange::default() }).await;
}

async fn hold(stage: &Arc<Stage>) {
    let way = if stage.dice.hits(0.5) { WhileInactive::Hold } else { WhileInactive::Drop };
    let settings = vec![Setting::WhileInactive(way)];
    change(stage, some_webhook(stage, |_| true), WebhookChange { settings, ..WebhookChange::default() }).await;
}

async fn rotate(stage: &Arc<Stage>) {
    // Only the last two secrets are good, so that one is rotated once.
    let found = some_webhook(stage, |webhook| webhook.previous_secret.is_none());
    let Some((_, id)) = &found else { return };
    let secret = secret();
    stage.happened("secret rotated");
    lock(&stage.ledgers).people.secrets.entry(id.as_str().to_owned()).or_default().push(secret.clone());
    let rotation = Some(Rotation { secret: Secret::new(secret), overlap: OVERLAP });
    change(stage, found, WebhookChange { rotation, ..WebhookChange::default() }).await;
}

async fn resend(stage: &Arc<Stage>) {
    let events: Vec<_> = stage.witness.seen().into_keys().collect();
    let (Some((node, webhook)), Some(event)) = (some_webhook(stage, |_| true), stage.dice.pick(&events)) else {
        return;
    };
    lock(&stage.ledgers).people.resent.insert((event.clone(), webhook.as_str().to_owned()));
    let Ok(id) = EventId::parse(event.clone()) else { return };
    let key = DeliveryKey { organization: organization(), event: id, webhook };
    let resent = timeout(PATIENCE, node.sender.resend(&key)).await;
    stage.trace.note(format_args!("{event} to {} is sent again: {resent:?}", key.webhook));
}

async fn recover(stage: &Arc<Stage>) {
    let Some((node, webhook)) = some_webhook(stage, |webhook| webhook.off.is_none()) else { return };
    lock(&stage.ledgers).people.recovered.insert(webhook.as_str().to_owned());
    stage.happened("recovery");
    let at = stage.clock.now();
    let recovery = NewRecovery {
        id: RecoveryId::generate(at, clock::random()),
        organization: organization(),
        webhook,
        which: *stage.dice.pick(&[Which::All, Which::Missed, Which::Exhausted]).unwrap_or(&Which::All),
        from: Timestamp::MIN,
        to: Timestamp::MAX,
        at,
    };
    let recovered = timeout(PATIENCE, node.sender.recover(recovery)).await;
    stage.trace.note(format_args!("a recovery: {}", matches!(recovered, Ok(Ok(_)))));
}

async fn intervene(stage: &Arc<Stage>, wanted: Wanted) -> Option<()> {
    let ids: Vec<_> = lock(&stage.ledgers).received.iter().map(|row| row.id.clone()).collect();
    let delivery = stage.dice.pick(&ids)?.clone();
    let node = stage.any_node()?;
    if matches!(wanted, Wanted::Replay { .. }) {
        lock(&stage.ledgers).people.replayed.insert(delivery.clone());
    }
    let row = RowId { organization: organization(), provider: PROVIDER.into(), delivery: delivery.clone() };
    let outcome = timeout(PATIENCE, node.inbox.intervene(&row, &wanted)).await;
    stage.trace.note(format_args!("{wanted:?} of {delivery}: {outcome:?}"));
    Some(())
}

async fn replay(stage: &Arc<Stage>) {
    stage.happened("replay");
    intervene(stage, Wanted::Replay { route: None }).await;
}

async fn discard(stage: &Arc<Stage>) {
    stage.happened("discard");
    intervene(stage, Wanted::Discard { route: None, reason: "the simulation".into() }).await;
}
