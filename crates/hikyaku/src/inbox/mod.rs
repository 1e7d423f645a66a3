//! The inbox: stores what others send before it answers, and works it off to destinations.

pub mod destination;
pub mod fetch;
mod import;
mod interventions;
mod metrics;
mod notices;
mod outlet;
mod process;
mod quarantine;
mod receive;
mod refresh;
mod refusals;
#[cfg(test)]
mod tests;
mod trial;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::provider::{Preset, Profile};
use hikyaku_core::retry::Backoff;
use hikyaku_core::signature::Secret;
use jiff::Timestamp;
use ring::digest;
use tokio::sync::{Mutex, Notify};

use crate::clock::SharedClock;
use crate::store::{Committer, Due, SharedStore};
use destination::Destination;
use fetch::Fetcher;
pub use import::{Import, Imported};
pub use interventions::{FoundRows, MAX_LOOKED_AT_ROWS, MAX_STEP_ROWS, Outcome, RowFilter, RowId, Wanted};
pub use notices::{NOTICES, Notice};
use outlet::Outlet;
pub use quarantine::{OnBadSignature, Room};
use receive::Intake;
pub use receive::Received;
use refusals::BodyHash;
pub use refusals::SourceState;
pub use trial::{Answer, Trial, Tried, TriedRoute};

/// Begins the ids that are hashes.
const HASH_PREFIX: &str = "sha256:";

/// Where deliveries come from: `POST /in/{name}`.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name in the path.
    pub name: String,
    /// Whose webhooks these are; ids are deduplicated over all sources of one provider (C9).
    pub provider: String,
    /// For whom.
    pub organization: OrganizationId,
    /// What the deliveries are signed with; several while one is being changed.
    pub secrets: Vec<Secret>,
    /// How its provider is asked for present states, if it can be.
    pub fetch: Option<fetch::Settings>,
    /// What becomes of deliveries that are not.
    pub on_bad_signature: OnBadSignature,
    /// Under which name the provider is known.
    pub preset: Preset,
    /// How the deliveries are signed, and where they say what: the preset's, or otherwise where that was set.
    pub profile: Profile,
    /// The destination that is told when nothing comes any more, because its provider has switched its webhook off or
    /// no signature verifies (T2, T4).
    pub notify: Option<String>,
}

/// Which rows of a source go to which destination.
#[derive(Debug, Clone)]
pub struct Route {
    /// Its name; unique.
    pub name: String,
    /// The sources' names, each once; they are of one organization and one provider, whose keys mean the same.
    pub sources: Vec<String>,
    /// Which event types.
    pub events: Vec<EventPattern>,
    /// The destination's name.
    pub destination: String,
    /// What order means to it.
    pub order: Order,
    /// What happens at most once.
    pub once: Once,
    /// How its failed effects are tried again; `None`: as the inbox's settings say.
    pub backoff: Option<Backoff>,
}

/// A route as it runs.
#[derive(Debug, Clone)]
pub struct RouteStatus {
    /// What is configured.
    pub route: Route,
    /// Keys that are worked on now.
    pub under_way: u32,
    /// The last failure since this process started.
    pub last_error: Option<LastError>,
}

/// A failure of an effect.
#[derive(Debug, Clone)]
pub struct LastError {
    /// When, by the wall clock.
    pub at: Timestamp,
    /// Of which delivery.
    pub delivery: String,
    /// For people.
    pub error: String,
}

/// What order means to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Every event takes effect, once.
    #[default]
    Every,
    /// An event older than one that took effect on the same key is skipped as stale (C4).
    Latest,
    /// An event says only that something changed: the key's state is read from the provider, once for all events that
    /// wait, and given to the destination in their place (C3).
    Fetch,
}

impl Order {
    /// The word used in the configuration and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Every => "every",
            Self::Latest => "latest",
            Self::Fetch => "fetch",
        }
    }
}

/// What a route does at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Once {
    /// Each delivery takes effect.
    #[default]
    Delivery,
    /// Each business key takes effect once, however many deliveries name it (T5).
    Key,
}

impl Once {
    /// The word used in the configuration and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivery => "delivery",
            Self::Key => "key",
        }
    }
}

/// How the inbox behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Largest body that is taken, in bytes (S11).
    pub max_body_bytes: usize,
    /// How failed effects are tried again.
    pub backoff: Backoff,
    /// Lanes of one route worked off at a time.
    pub in_flight_per_route: u32,
    /// How long one effect may take.
    pub effect_timeout: Duration,
    /// Whether this process works off what it receives; if not, others are told.
    pub works: bool,
    /// The loop looks in the store at least this often, so that no wrong time can park it.
    pub look_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_body_bytes: 1024 * 1024,
            backoff: Backoff::default(),
            in_flight_per_route: 16,
            effect_timeout: Duration::from_secs(30),
            works: true,
            look_every: Duration::from_secs(5),
        }
    }
}

/// The inbox of one process: [`Inbox::receive`] stores deliveries, [`Inbox::run`] works them off.
pub struct Inbox {
    store: SharedStore,
    committer: Committer,
    clock: SharedClock,
    owner: Arc<str>,
    settings: Settings,
    /// By the source's name.
    intakes: HashMap<String, Intake>,
    /// By the route's name; in one order, in which they are served.
    outlets: BTreeMap<String, Arc<Outlet>>,
    /// Says that there may be something to do. It carries no data: the loop looks in the store.
    wake: Arc<Notify>,
    /// Held by the one delivery that is being quarantined.
    quarantining: Mutex<()>,
}

impl Inbox {
    /// Puts an inbox together. `owner` names this process in leases and must be new at every start.
    ///
    /// `fetchers` go by the source's name. The configuration has checked that names are unique and that every route has its sources and its destination;
    /// a route that lacks one takes nothing.
    #[expect(clippy::too_many_arguments, reason = "called once, where everything is wired together")]
    pub fn new(
        store: SharedStore,
        committer: Committer,
        clock: SharedClock,
        owner: Arc<str>,
        settings: Settings,
        sources: Vec<Source>,
        routes: Vec<Route>,
        destinations: HashMap<String, Arc<dyn Destination>>,
        fetchers: HashMap<String, Arc<Fetcher>>,
    ) -> Arc<Self> {
        metrics::describe();
        let wake = Arc::new(Notify::new());
        let mut intakes: HashMap<_, _> = sources.into_iter().map(|s| (s.name.clone(), Intake::new(s))).collect();
        let mut outlets = BTreeMap::new();
        for (organization, route) in intakes.values().filter_map(Intake::notices) {
            let Some(destination) = destinations.get(&route.destination) else { continue };
            let outlet = Outlet::new(organization, route, destination.clone(), Vec::new());
            outlets.insert(outlet.name().to_owned(), Arc::new(outlet));
        }
        for route in routes {
            let organization = route.sources.iter().find_map(|name| Some(intakes.get(name)?.organization().clone()));
            let (Some(organization), Some(destination)) = (organization, destinations.get(&route.destination)) else {
                tracing::error!(
                    route = route.name,
                    "the route's source or destination does not exist; it takes nothing"
                );
                continue;
            };
            for source in &route.sources {
                intakes.get_mut(source).into_iter().for_each(|intake| intake.add_route(&route));
            }
            let fetcher = |source: &String| Some((source.clone(), fetchers.get(source)?.clone()));
            let fetchers = route.sources.iter().filter_map(fetcher).collect();
            let outlet = Outlet::new(organization, route, destination.clone(), fetchers);
            outlets.insert(outlet.name().to_owned(), Arc::new(outlet));
        }
        Arc::new(Self {
            store,
            committer,
            clock,
            owner,
            settings,
            intakes,
            outlets,
            wake,
            quarantining: Mutex::default(),
        })
    }

    /// Tells the loop to look into the store now.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Tells whoever works here that there is something to do.
    fn announce(&self) {
        if self.settings.works {
            self.wake();
        } else {
            self.store.nudge(Due::Lanes);
        }
    }

    /// The routes' names, each with its organization.
    pub fn route_names(&self) -> impl Iterator<Item = (&OrganizationId, &str)> {
        self.outlets.values().map(|outlet| (outlet.organization(), outlet.name()))
    }

    /// An organization's routes as they run, by name.
    pub fn routes(&self, organization: &OrganizationId) -> Vec<RouteStatus> {
        let own = self.outlets.values().filter(|outlet| outlet.organization() == organization);
        let mut routes: Vec<_> = own.map(|outlet| outlet.status()).collect();
        routes.sort_by(|a, b| a.route.name.cmp(&b.route.name));
        routes
    }

    /// Largest body that is taken, in bytes (S11).
    pub fn max_body_bytes(&self) -> usize {
        self.settings.max_body_bytes
    }

    /// The sources of an organization, by name, and how their signatures stand.
    pub fn sources(&self, organization: &OrganizationId) -> Vec<(&Source, SourceState)> {
        let ours = self.intakes.values().filter(|intake| intake.organization() == organization);
        let mut sources: Vec<_> = ours.map(|intake| (&intake.source, intake.state())).collect();
        sources.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        sources
    }
}

/// A stand-in for an id that cannot be used as it is: `sha256:` and the hash in hexadecimal.
fn hash_id(bytes: &[u8]) -> String {
    format!("{HASH_PREFIX}{}", HEXLOWER.encode(&hash(bytes)))
}

/// SHA-256.
fn hash(bytes: &[u8]) -> BodyHash {
    let mut hash = BodyHash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}
