//! The program as a whole: the only place where its parts are wired together, and the only shutdown.

mod connections;
pub(crate) mod door;
mod files;
mod metrics;
mod nodes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use data_encoding::HEXLOWER;
use hikyaku_core::address::TargetPolicy;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clock::{self, SharedClock, SharedSchedule};
use crate::config::{self, Config, StoreLocation, shown_destinations};
use crate::heartbeat::Heartbeat;
use crate::http::{Access, LastBacklog, State};
use crate::inbox::destination::{self, BuildError, Destination, Origin, Tools};
use crate::inbox::fetch::Fetcher;
use crate::inbox::{self, Inbox, NOTICES};
use crate::outbound::{Client, SystemResolver, TlsError};
use crate::reconcile::{self, Reconciler};
use crate::retention::Retention;
use crate::role::Roles;
use crate::sender::Sender;
use crate::store::memory::MemoryStore;
use crate::store::postgres::{self, PostgresStore};
use crate::store::sqlite::{OpenError, SqliteStore};
use crate::store::{Committer, SharedStore, StoreError};
use crate::trace;
use nodes::{Duties, inbox_settings, sender_settings, shared_schedule, with_console};

/// How long a shutdown waits for requests that have come in. With [`DRAIN_WORK`] it stays below 15 seconds.
pub const DRAIN_REQUESTS: Duration = Duration::from_secs(3);
/// How long a shutdown then waits for attempts and effects under way; by default an attempt takes 10 seconds at most.
/// What has not ended by then is taken over as interrupted at the next start.
pub const DRAIN_WORK: Duration = Duration::from_secs(11);

/// How long a shutdown then waits for the last traces to be exported.
pub const DRAIN_TRACES: Duration = Duration::from_millis(500);

/// Random bytes in an owner's name.
const OWNER_RANDOM_BYTES: usize = 8;

/// Why the program cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its address cannot be had.
    #[error("cannot listen on {address}: {source}; choose another with --listen, or stop what listens there")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Anybody could call it: other machines reach the address, and no token keeps them out.
    #[error(
        "{0} can be reached by other machines and no API token exists; make one with \"hikyaku token create --admin\" \
         first, or set api.token, or listen on 127.0.0.1"
    )]
    OpenToOthers(SocketAddr),
    /// Its store does not say whether there are API tokens.
    #[error("cannot read the API tokens: {0}")]
    Tokens(StoreError),
    /// Its store cannot be opened.
    #[error("cannot open the store: {0}")]
    Store(#[from] OpenError),
    /// Its database cannot be used.
    #[error("cannot open the store: {0}")]
    Database(#[from] postgres::OpenError),
    /// The database does not tell its time.
    #[error("the store does not tell the time that its nodes schedule by: {0}")]
    SharedTime(StoreError),
    /// A destination cannot be used as configured.
    #[error(transparent)]
    Destination(#[from] destination::BuildError),
    /// Names cannot be resolved.
    #[error("cannot set up name resolution: {0}")]
    Resolver(String),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] TlsError),
    /// Opening something broke off.
    #[error("the start broke off: {0}")]
    BrokeOff(#[from] tokio::task::JoinError),
}

/// Why the program stopped by itself: a defect of ours.
#[derive(Debug, thiserror::Error)]
#[error("a part that runs for ever has ended ({0}); everything stored is safe: start again")]
pub struct PartEnded(String);

/// A program that has everything open and listens, but does not work yet.
pub struct App {
    listener: TcpListener,
    address: SocketAddr,
    max_connections: usize,
    router: Router,
    store: SharedStore,
    sender: Arc<Sender>,
    inbox: Arc<Inbox>,
    reconciler: Arc<Reconciler>,
    retention: Arc<Retention>,
    heartbeat: Arc<Heartbeat>,
    roles: Roles,
    duties: Duties,
    shared_schedule: Option<Arc<SharedSchedule>>,
    metrics: PrometheusHandle,
    exporter: Option<trace::Exporter>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("address", &self.address).finish_non_exhaustive()
    }
}

impl App {
    /// Opens the store and the destinations and takes the address. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// Says what could not be opened, and what to do.
    pub async fn start(config: Config, clock: SharedClock) -> Result<Self, StartError> {
        let metrics = metrics::recorder();
        let room = files::room(&config.sender, connections::MAX_CONNECTIONS);
        metrics::show_process(clock.now());
        let exporter = trace::start(&config.tracing, Arc::new(client(TargetPolicy::everywhere(), &clock)?));
        let store = open_store(&config, &clock).await?;
        let shared_schedule = shared_schedule(&store, &clock).await?;
        let clock = shared_schedule.clone().map_or(clock, |shared| shared as SharedClock);
        let access = open_access(&config, &store, &clock).await?;
        let committer = Committer::start(Arc::clone(&store));
        let owner = owner();
        let client = Arc::new(client(config.sender.targets.clone(), &clock)?);
        let sender = Sender::new(
            Arc::clone(&store),
            committer.clone(),
            Arc::clone(&clock),
            client.clone(),
            Arc::clone(&owner),
            sender_settings(&config, room.attempts),
        );
        let (destinations, shown) = (open_destinations(&config, &clock).await?, shown_destinations(&config));
        let fetchers = fetchers(&config, &clock)?;
        let inbox = Inbox::new(
            Arc::clone(&store),
            committer,
            Arc::clone(&clock),
            Arc::clone(&owner),
            inbox_settings(&config, shared_schedule.is_some()),
            config.sources.clone(),
            config.routes,
            destinations,
            fetchers,
        );
        let reconciler = reconciler(&config.reconciles, &store, &clock, &inbox, &sender)?;
        let retention = Retention::new(Arc::clone(&store), Arc::clone(&clock), config.retention);
        let heartbeat = Heartbeat::new(Arc::clone(&store), Arc::clone(&clock), config.heartbeat);
        let (listener, address) = listen(config.listen).await?;
        let state = State {
            store: Arc::clone(&store),
            sender: Arc::clone(&sender),
            inbox: Arc::clone(&inbox),
            reconciler: Arc::clone(&reconciler),
            client,
            backlog: LastBacklog::default(),
            clock: Arc::clone(&clock),
            metrics: metrics.clone(),
            access,
            roles: config.roles.clone(),
            sources: config.sources,
            destinations: shown,
            max_event_bytes: config.api.max_event_bytes,
        };
        Ok(Self {
            listener,
            address,
            max_connections: room.connections,
            router: with_console(state, &config.sender.policy),
            duties: Duties::new(&store, &clock, &owner),
            store,
            sender,
            inbox,
            reconciler,
            retention,
            heartbeat,
            roles: config.roles,
            shared_schedule,
            metrics,
            exporter,
        })
    }

    /// Where it listens: the real port, where the configured one was 0.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Works until `shutdown` comes. Then it takes no more connections, lets the requests under way be answered, claims
    /// nothing more, and lets the attempts and effects under way end; all of it within [`DRAIN_REQUESTS`] and
    /// [`DRAIN_WORK`].
    ///
    /// # Errors
    /// Only when one of its own parts ends before that.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), PartEnded> {
        let (stop_serving, stop_working) = (CancellationToken::new(), CancellationToken::new());
        let (mut server, mut workers, mut exporter) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let stop_exporting = CancellationToken::new();
        self.spawn_workers(&mut workers, &stop_working);
        if let Some(traces) = self.exporter {
            exporter.spawn(traces.run(stop_exporting.clone()));
        }
        server.spawn(connections::serve(self.listener, self.max_connections, self.router, stop_serving.clone()));
        tracing::info!(addr = %self.address, "listening");

        let ended = tokio::select! {
            () = shutdown => Ok(()),
            Some(ended) = server.join_next() => Err(("the server", ended)),
            Some(ended) = workers.join_next() => Err(("the sender, the inbox, reconciliation, retention or the heartbeat", ended)),
            () = metrics::upkeep(self.metrics) => Ok(()),
        };
        tracing::info!("stopping: no more is taken, what is under way may end");
        stop_serving.cancel();
        drain("requests", &mut server, DRAIN_REQUESTS).await;
        stop_working.cancel();
        drain("attempts and effects", &mut workers, DRAIN_WORK).await;
        stop_exporting.cancel();
        drain("traces", &mut exporter, DRAIN_TRACES).await;
        if let Err(error) = self.store.close().await {
            tracing::warn!(%error, "the store could not be tidied up; everything in it is safe");
        }
        tracing::info!("stopped");
        ended.map_err(|(part, ended)| {
            PartEnded(ended.err().map_or_else(|| part.to_owned(), |error| format!("{part}: {error}")))
        })
    }
}

/// Waits for tasks to end, and aborts those that do not.
async fn drain(what: &str, tasks: &mut JoinSet<()>, longest: Duration) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if timeout(longest, all).await.is_err() {
        tracing::warn!(seconds = longest.as_secs(), "{what} were still under way and are cut off");
        tasks.shutdown().await;
    }
}

async fn open_store(config: &Config, clock: &SharedClock) -> Result<SharedStore, StartError> {
    if config.seal.keys().is_empty() && config.store != StoreLocation::Memory {
        tracing::warn!("no `sealing_key` is set: the webhooks' secrets stand in the store as they are");
    }
    match config.store.clone() {
        StoreLocation::Memory => {
            tracing::warn!("the store is in memory: nothing survives the end of this process");
            Ok(Arc::new(MemoryStore::new()))
        }
        StoreLocation::Sqlite(path) => {
            let (clock, seal) = (Arc::clone(clock), config.seal.clone());
            let store = spawn_blocking(move || SqliteStore::open(&path, seal, &*clock)).await??;
            Ok(Arc::new(store))
        }
        StoreLocation::Postgres(database) => {
            let config::Database { url, migrate, connections, notify } = database;
            let options = postgres::Options { migrate, connections, notify };
            let store = PostgresStore::open(url.reveal(), config.seal.clone(), &**clock, options).await?;
            Ok(Arc::new(store))
        }
    }
}

/// Whoever can reach the API can publish and read, so without any token it is open to this machine only.
async fn open_access(config: &Config, store: &SharedStore, clock: &SharedClock) -> Result<Access, StartError> {
    let access = Access::start(config.api.token.clone(), Arc::clone(store), Arc::clone(clock));
    let access = access.await.map_err(StartError::Tokens)?;
    if access.is_open() {
        if !config.listen.ip().is_loopback() {
            return Err(StartError::OpenToOthers(config.listen));
        }
        tracing::warn!(
            "no API token exists: every program on this machine can use the API; \"hikyaku token create --admin\" \
             makes one"
        );
    }
    Ok(access)
}

async fn open_destinations(
    config: &Config,
    clock: &SharedClock,
) -> Result<HashMap<String, Arc<dyn Destination>>, StartError> {
    let tools = Tools {
        transport: Arc::new(client(TargetPolicy::everywhere(), clock)?),
        clock: Arc::clone(clock),
        effect_timeout: config.inbox.effect_timeout,
        origins: Arc::new(config.sources.iter().map(origin).chain(origin_of_notices(config)).collect()),
    };
    let settings = config.destinations.clone();
    let open = move || {
        let named = settings.into_iter().map(|settings| (settings.name.clone(), settings));
        let built = named.map(|(name, settings)| Ok((name, destination::build(settings, &tools)?)));
        built.collect::<Result<_, BuildError>>()
    };
    let destinations: HashMap<_, Arc<dyn Destination>> = spawn_blocking(open).await??;
    for (name, destination) in &destinations {
        destination.ready().await.map_err(|reason| BuildError { name: name.clone(), reason })?;
    }
    Ok(destinations)
}

/// What completes the inbox from providers' lists.
fn reconciler(
    settings: &[reconcile::Settings],
    store: &SharedStore,
    clock: &SharedClock,
    inbox: &Arc<Inbox>,
    sender: &Arc<Sender>,
) -> Result<Arc<Reconciler>, StartError> {
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    let exchange = Arc::new(client(TargetPolicy::everywhere(), &clock)?);
    let (inbox, sender) = (Arc::clone(inbox), Arc::clone(sender));
    let door = Arc::new(door::OpenDoor { inbox, sender, store: Arc::clone(&store), clock: Arc::clone(&clock) });
    Ok(Reconciler::new(settings.to_vec(), &reconcile::Tools { store, clock, exchange, door }))
}

/// What reads present states, by the source's name.
fn fetchers(config: &Config, clock: &SharedClock) -> Result<HashMap<String, Arc<Fetcher>>, StartError> {
    if config.sources.iter().all(|source| source.fetch.is_none()) {
        return Ok(HashMap::new());
    }
    let exchange = Arc::new(client(TargetPolicy::everywhere(), clock)?);
    let named = config.sources.iter().filter_map(|source| {
        let fetcher = Fetcher::of(source, exchange.clone(), Arc::clone(clock))?;
        Some((source.name.clone(), Arc::new(fetcher)))
    });
    Ok(named.collect())
}

fn origin(source: &inbox::Source) -> (String, Origin) {
    let (organization, provider) = (source.organization.clone(), source.provider.clone());
    (source.name.clone(), Origin { organization, provider })
}

/// Whose notices there are, where it is one organization's alone.
fn origin_of_notices(config: &Config) -> Option<(String, Origin)> {
    let mut organizations = config.sources.iter().filter(|source| source.notify.is_some()).map(|of| &of.organization);
    let organization = organizations.next()?.clone();
    let is_alone =
        organizations.all(|other| *other == organization) && !config.sources.iter().any(|of| of.name == NOTICES);
    is_alone.then(|| (NOTICES.to_owned(), Origin { organization, provider: NOTICES.to_owned() }))
}

fn client(policy: TargetPolicy, clock: &SharedClock) -> Result<Client, StartError> {
    let resolver = SystemResolver::new().map_err(|error| StartError::Resolver(error.to_string()))?;
    Ok(Client::new(policy, Arc::new(resolver), Arc::clone(clock), &[])?)
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    listen.await.map_err(|source| StartError::Listen { address, source })
}

/// A name for this process in its leases, new at every start.
fn owner() -> Arc<str> {
    HEXLOWER.encode(&clock::random::<OWNER_RANDOM_BYTES>()).into()
}
