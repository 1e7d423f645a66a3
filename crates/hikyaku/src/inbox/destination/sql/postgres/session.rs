//! Connections to the database: a few, each with the table as it found it.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use super::table::Table;
use crate::inbox::destination::sql::mapping::Mapping;
use crate::outbound::tls_settings;
use crate::postgres::{Target, described};

/// Most connections of one destination. Several, so that commits can share the disk's time; few, because they are taken
/// from the user's own programs.
const MAX_CONNECTIONS: usize = 4;
/// How often a connection is set up anew because another process made the same tables at the same moment.
const MAX_SETUPS: u32 = 3;

/// Why there is no connection to work with.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// The database does not answer, or not to us; it may later.
    #[error("{0}")]
    Away(String),
    /// The table is not as configured.
    #[error("{0}")]
    Unfit(String),
}

/// A connection with the table as it was when it was opened.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) table: Table,
    /// Ends the connection with the session, also one that the other side has forgotten.
    _connection: AbortOnDropHandle<()>,
}

/// The connections of one destination.
pub(super) struct Pool {
    target: Target,
    mapping: Mapping,
    statement_timeout: Duration,
    idle: Mutex<Vec<Session>>,
    permits: Semaphore,
}

/// A connection on loan. Dropped without [`Lent::give_back`], it is closed.
pub(super) struct Lent<'a> {
    pub(super) session: Session,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Lent<'_> {
    /// Lets others use the connection.
    pub(super) fn give_back(self) {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.session);
    }
}

impl Pool {
    /// No connections yet.
    pub(super) fn new(target: Target, mapping: Mapping, effect_timeout: Duration) -> Self {
        // A little less than the whole effect, so that the database gives up before we do and says why.
        let statement_timeout = effect_timeout * 9 / 10;
        let (idle, permits) = (Mutex::default(), Semaphore::new(MAX_CONNECTIONS));
        Self { target, mapping, statement_timeout, idle, permits }
    }

    /// What is written where.
    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The database, for people.
    pub(super) fn shown_url(&self) -> &str {
        &self.target.shown
    }

    /// A connection, once one is free.
    pub(super) async fn take(&self) -> Result<Lent<'_>, OpenError> {
        let permit = self.permits.acquire().await.map_err(|error| OpenError::Away(error.to_string()))?;
        while let Some(session) = self.pop() {
            if !session.client.is_closed() {
                return Ok(Lent { session, pool: self, _permit: permit });
            }
        }
        let session = self.open().await?;
        Ok(Lent { session, pool: self, _permit: permit })
    }

    fn pop(&self) -> Option<Session> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn open(&self) -> Result<Session, OpenError> {
        let (client, connection) = self.connect().await?;
        client.batch_execute(&self.settings()).await.map_err(|error| OpenError::Away(unready(&error)))?;
        let mut setups = 0;
        loop {
            setups += 1;
            match Table::open(&client, &self.mapping).await {
                Ok(table) => return Ok(Session { client, table, _connection: connection }),
                Err(error) if error.is_race() && setups < MAX_SETUPS => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn connect(&self) -> Result<(Client, AbortOnDropHandle<()>), OpenError> {
        if self.target.config.get_ssl_mode() == SslMode::Disable {
            return self.connect_by(NoTls).await;
        }
        let tls = tls_settings().map_err(|error| OpenError::Away(error.to_string()))?;
        self.connect_by(MakeRustlsConnect::new(tls)).await
    }

    async fn connect_by<T>(&self, tls: T) -> Result<(Client, AbortOnDropHandle<()>), OpenError>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let connected = self.target.config.connect(tls).await;
        let (client, connection) = connected.map_err(|error| match error.as_db_error() {
            // Of a role, password or database that is missing too: who restores a backup brings them back (C16).
            Some(_) => OpenError::Away(format!("the database refuses the connection: {}", described(&error))),
            None => OpenError::Away(format!("cannot connect to the database: {}", explained(&error))),
        })?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a destination's database ended");
            }
        });
        Ok((client, AbortOnDropHandle::new(task)))
    }

    /// What must hold on every connection, whatever database, role or URL say. A commit that is reported has to survive a
    /// power failure; what is stronger than that stays.
    fn settings(&self) -> String {
        let milliseconds = self.statement_timeout.as_millis().max(1);
        format!(
            "SET statement_timeout = {milliseconds}; SET idle_in_transaction_session_timeout = {milliseconds};
             SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
             SET client_min_messages = warning; SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET extra_float_digits = 1;
             SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        )
    }
}

/// An error of a connection that stands, before a row is written.
pub(super) fn unready(error: &tokio_postgres::Error) -> String {
    format!("the database cannot be made ready: {}", described(error))
}

/// An error at connecting, with what to do about TLS.
fn explained(error: &tokio_postgres::Error) -> String {
    let text = described(error);
    let is_tls = text.contains("TLS") || text.contains("certificate") || error.source().is_some_and(is_certificate);
    match is_tls {
        true => format!(
            "{text}; TLS is required unless the URL says sslmode=disable, and the server's certificate is verified with \
             this machine's authorities, or those in the file that SSL_CERT_FILE names"
        ),
        false => text,
    }
}

fn is_certificate(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.and_then(std::io::Error::get_ref).is_some_and(|inner| inner.is::<rustls::Error>())
}
