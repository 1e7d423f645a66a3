//! Connections: a few, kept, each set up so that its commits last; and a short answer while there are none.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
    TimeoutType, Timeouts,
};
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::clock::{self, Stopwatch};
use crate::outbound::tls_settings;
use crate::postgres::{Target, described};
use crate::store::StoreError;

/// Connections of one node, unless it is told otherwise.
pub(super) const CONNECTIONS: usize = 16;
/// How long a call may wait for a free connection.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(2);
/// How long a call may take in all, once it has a connection.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// How long a statement may take: a little less, so that the database gives up before we do and says why.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(9);
/// How long a statement may wait for another's lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause before the database is tried again after it could not be reached; until then calls fail at once.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The first such pause; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The connections of one node.
pub(super) struct Connections {
    pool: Pool,
    reach: Mutex<Reach>,
}

/// A connection on loan. Dropped without [`Lent::give_back`] it is closed: what was cut short, by a caller who went away or
/// a deadline, may have left a transaction open, and whoever had the connection next would read its old state.
pub(super) struct Lent(Option<Object>);

impl Lent {
    /// Lets others use the connection.
    pub(super) fn give_back(mut self) {
        self.0.take();
    }
}

impl Deref for Lent {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.as_ref().expect("only giving it back takes it, and that ends the loan")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.take().map(Object::take);
    }
}

/// Whether the database can be reached, as far as is known.
#[derive(Default)]
struct Reach {
    failures: u32,
    /// Since when nobody is to try, and for how long.
    pause: Option<(Stopwatch, Duration)>,
}

impl Connections {
    /// Prepares to connect, at most `most` times; nothing is connected yet.
    pub(super) fn new(target: &Target, most: usize) -> Result<Self, String> {
        Ok(Self { pool: pool(writing(target), most)?, reach: Mutex::default() })
    }

    /// A connection for several statements, once one is free.
    pub(super) async fn lend(&self) -> Result<Lent, StoreError> {
        self.get().await.map(|connection| Lent(Some(connection)))
    }

    /// A connection for one statement, once one is free.
    pub(super) async fn get(&self) -> Result<Object, StoreError> {
        self.check_reach()?;
        match self.pool.get().await {
            Ok(connection) => {
                *self.reach() = Reach::default();
                Ok(connection)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Most connections at a time.
    pub(super) fn most(&self) -> usize {
        self.pool.status().max_size
    }

    /// Opens no more.
    pub(super) fn close(&self) {
        self.pool.close();
    }

    /// Whoever comes while the database cannot be reached hears so at once, but for one who tries.
    fn check_reach(&self) -> Result<(), StoreError> {
        let mut reach = self.reach();
        let Some((since, pause)) = reach.pause else { return Ok(()) };
        if since.elapsed() < pause {
            return Err(StoreError::Unavailable("the database could not be reached a moment ago".to_owned()));
        }
        reach.pause = Some((Stopwatch::start(), MAX_WAIT));
        Ok(())
    }

    fn failed(&self, error: &PoolError) -> StoreError {
        let reason = match error {
            PoolError::Backend(error) => format!("cannot connect to the database: {}", described(error)),
            PoolError::Timeout(TimeoutType::Wait) => {
                return StoreError::Unavailable("all connections to the database are in use".to_owned());
            }
            other => format!("cannot connect to the database: {other}"),
        };
        let mut reach = self.reach();
        let pause = FIRST_PAUSE.saturating_mul(1 << reach.failures.min(10)).min(MAX_PAUSE);
        // Nodes that lost the database together do not come back together.
        reach.pause = Some((Stopwatch::start(), pause.mul_f64(0.5 + clock::draw() / 2.0)));
        reach.failures = reach.failures.saturating_add(1);
        StoreError::Unavailable(reason)
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a database is reached: of several hosts the one that writes, also after another has been promoted.
pub(super) fn writing(target: &Target) -> Config {
    let mut config = target.config.clone();
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    config
}

fn pool(config: Config, connections: usize) -> Result<Pool, String> {
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = if config.get_ssl_mode() == SslMode::Disable {
        Manager::from_config(config, NoTls, manager)
    } else {
        let tls = tls_settings().map_err(|error| error.to_string())?;
        Manager::from_config(config, MakeRustlsConnect::new(tls), manager)
    };
    let timeouts = Timeouts { wait: Some(MAX_WAIT), create: Some(DEADLINE), recycle: Some(MAX_WAIT) };
    let settings = settings();
    let prepare = Hook::async_fn(move |connection: &mut ClientWrapper, _| {
        let settings = settings.clone();
        Box::pin(async move { connection.batch_execute(&settings).await.map_err(HookError::Backend) })
    });
    Pool::builder(manager)
        .max_size(connections)
        .timeouts(timeouts)
        .runtime(Runtime::Tokio1)
        .post_create(prepare)
        .build()
        .map_err(|error| error.to_string())
}

/// What must hold on every connection, whatever database, role or URL say. A commit that is reported has to survive a
/// power failure; what is stronger than that stays. Without incremental sorts nobody's queue is found by walking past those
/// of all others. All that is asked for is found by an index, row by row, and planned once: whoever reads a table whole because
/// it was small when it was looked at reads it whole when it is large, too.
pub(super) fn settings() -> String {
    let (statement, lock) = (STATEMENT_TIMEOUT.as_millis(), LOCK_TIMEOUT.as_millis());
    format!(
        "SET statement_timeout = {statement}; SET idle_in_transaction_session_timeout = {statement};
         SET lock_timeout = {lock}; SET default_transaction_isolation = 'read committed';
         SET default_transaction_read_only = off; SET client_min_messages = warning; SET jit = off;
         SET enable_incremental_sort = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
         SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan;
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')"
    )
}
