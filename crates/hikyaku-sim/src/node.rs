//! A node: the real sender, inbox and reconciliation, with the simulation on the other side of each of their seams.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use hikyaku::clock::SharedClock;
use hikyaku::inbox::destination::Destination;
use hikyaku::inbox::{self, Import, Imported, Inbox, OnBadSignature, Once, Order, Route, Source};
use hikyaku::reconcile::adapter::Item;
use hikyaku::reconcile::{Door, Entered, Reconciler, Seen, Tools};
use hikyaku::sender::{self, Sender};
use hikyaku::store::{Committer, SharedStore, StoreError};
use hikyaku_core::event::EventPattern;
use hikyaku_core::gap::Entry;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::provider::Preset;
use hikyaku_core::signature::Secret;

use crate::books::Books;
use crate::fate::Fate;
use crate::ledger::{CALLS, ORDERS, SALES};
use crate::plant::Plant;
use crate::road::Road;
use crate::shop::{self, Api, SECRET, SOURCE};
use crate::wire::Wire;
use crate::world::Stage;

/// The only organization.
pub(crate) fn organization() -> OrganizationId {
    OrganizationId::parse("default").expect("it is a good name")
}

/// One life of a node.
pub(crate) struct Node {
    pub(crate) fate: Arc<Fate>,
    /// The store, by the node's own road.
    pub(crate) store: SharedStore,
    pub(crate) sender: Arc<Sender>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) reconciler: Arc<Reconciler>,
}

impl Node {
    /// Begins a life over the common store.
    pub(crate) fn start(stage: &Arc<Stage>, name: String) -> Arc<Self> {
        let fate = Fate::new(name, stage.trace.clone());
        stage.trace.note(format_args!("{} starts", fate.name));
        let road = Road {
            fate: fate.clone(),
            weather: stage.weather.clone(),
            dice: stage.dice.clone(),
            trace: stage.trace.clone(),
            witness: stage.witness.clone(),
        };
        let store: SharedStore = Arc::new(stage.store.by_way_of(Arc::new(road)));
        let clock: SharedClock = stage.clock.clone();
        let committer = Committer::start(store.clone());
        let transport = Arc::new(Wire { stage: stage.clone(), fate: fate.clone() });
        let sender = Sender::new(
            store.clone(),
            committer.clone(),
            clock.clone(),
            transport,
            fate.name.clone(),
            sender::Settings { look_every: stage.look_every, ..sender::Settings::default() },
        );
        let inbox = inbox(stage, &fate, &store, committer, &clock);
        let door = Arc::new(ToInbox { inbox: inbox.clone(), stage: stage.clone() });
        let exchange = Arc::new(Api { stage: stage.clone(), fate: fate.clone() });
        let tools = Tools { store: store.clone(), clock: clock.clone(), exchange, door };
        let reconciler = Reconciler::new(vec![shop::reconciliation()], &tools);
        let node = Arc::new(Self { fate, store, sender, inbox, reconciler });
        node.run();
        node
    }

    /// Everything at once. Every node reconciles: that only one does at a time is economy, and nothing may depend on it.
    fn run(&self) {
        let stop = &self.fate.stop;
        tokio::spawn(self.sender.clone().run(stop.clone()));
        tokio::spawn(self.inbox.clone().run(stop.clone()));
        tokio::spawn(self.reconciler.clone().run(stop.clone()));
    }
}

fn inbox(
    stage: &Arc<Stage>,
    fate: &Arc<Fate>,
    store: &SharedStore,
    committer: Committer,
    clock: &SharedClock,
) -> Arc<Inbox> {
    let routes = vec![
        route(SALES, EventPattern::Prefix("sale.".into()), Order::Every, Once::Key),
        route(ORDERS, EventPattern::Prefix("order.".into()), Order::Latest, Once::Delivery),
        route(CALLS, EventPattern::All, Order::Every, Once::Delivery),
    ];
    let books = |route| {
        let books: Arc<dyn Destination> = Arc::new(Books { stage: stage.clone(), fate: fate.clone(), route });
        (route.to_owned(), books)
    };
    Inbox::new(
        store.clone(),
        committer,
        clock.clone(),
        fate.name.clone(),
        inbox::Settings { look_every: stage.look_every, ..inbox::Settings::default() },
        vec![source()],
        routes,
        HashMap::from([SALES, ORDERS, CALLS].map(books)),
        HashMap::new(),
    )
}

fn source() -> Source {
    Source {
        name: SOURCE.into(),
        provider: shop::PROVIDER.into(),
        organization: organization(),
        secrets: vec![Secret::new(SECRET)],
        fetch: None,
        on_bad_signature: OnBadSignature::Refuse,
        preset: Preset::ReceiptRoller,
        profile: Preset::ReceiptRoller.profile(),
        notify: None,
    }
}

fn route(name: &str, events: EventPattern, order: Order, once: Once) -> Route {
    Route {
        name: name.into(),
        sources: vec![SOURCE.into()],
        events: vec![events],
        destination: name.into(),
        order,
        once,
        backoff: None,
    }
}

/// Reconciliation's way into the inbox of its node.
struct ToInbox {
    inbox: Arc<Inbox>,
    stage: Arc<Stage>,
}

#[async_trait]
impl Door for ToInbox {
    async fn enter(&self, source: &str, item: &Item, entry: Entry) -> Result<Entered, StoreError> {
        if self.stage.plants_into(Plant::RepairForgotten, &item.key) {
            return Ok(Entered::Stored);
        }
        let of_nobody = self.stage.plants(Plant::RepairInvented).then(|| format!("{}-of-nobody", item.key));
        let import = Import {
            event_type: &item.event_type,
            key: of_nobody.as_ref().unwrap_or(&item.key),
            changed_at: item.changed_at,
            item: &item.data,
            is_event: item.is_event,
            entry,
        };
        Ok(match self.inbox.import(source, &import).await? {
            Imported::Stored => Entered::Stored,
            Imported::Parked => Entered::Parked,
            Imported::Nothing => Entered::Known,
        })
    }

    async fn is_healthy(&self, source: &str) -> bool {
        self.inbox.has_source(source)
    }

    async fn switched_off(&self, _: &OrganizationId, _: &Seen) -> Result<(), StoreError> {
        Ok(())
    }
}
