//! Nudges: a word to the other nodes that something may be due, so that they look at once and not only when they would
//! have looked anyway. Nothing depends on them.
//!
//! They go by NOTIFY, over a connection of their own and apart from the transaction that made something due: commits with a
//! notification wait for each other, all over the database server, until they are on disk. One of a notification alone
//! has nothing to bring there. And however much becomes due, a node tells it a few times a second.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use super::connections::DEADLINE;
use crate::clock;
use crate::outbound::tls_settings;
use crate::postgres::described;
use crate::store::Due;

/// The pause after a nudge: more than so many are of no use to anybody.
const PAUSE: Duration = Duration::from_millis(50);
/// The first pause after the connection was lost; it doubles.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How often a connection over which nothing goes is tested.
const TEST_EVERY: Duration = Duration::from_secs(30);

/// The nudges that this node gives and gets.
pub(super) struct Nudges {
    shared: Arc<Shared>,
    _task: Option<AbortOnDropHandle<()>>,
}

#[derive(Default)]
struct Shared {
    given: [Notify; 2],
    got: [Notify; 2],
}

fn of(each: &[Notify; 2], what: Due) -> &Notify {
    match what {
        Due::Deliveries => &each[0],
        Due::Lanes => &each[1],
    }
}

impl Nudges {
    /// None are given, and none are got.
    pub(super) fn none() -> Self {
        Self { shared: Arc::default(), _task: None }
    }

    /// Gives and gets nudges for as long as it lives.
    pub(super) fn start(config: Config) -> Self {
        let shared = Arc::<Shared>::default();
        let task = AbortOnDropHandle::new(tokio::spawn(run(Arc::clone(&shared), config)));
        Self { shared, _task: Some(task) }
    }

    /// Tells the other nodes, soon.
    pub(super) fn give(&self, what: Due) {
        of(&self.shared.given, what).notify_one();
    }

    /// Waits for another node's.
    pub(super) async fn get(&self, what: Due) {
        of(&self.shared.got, what).notified().await;
    }
}

async fn run(shared: Arc<Shared>, config: Config) {
    let node = data_encoding::HEXLOWER.encode(&clock::random::<8>());
    let mut pause = FIRST_RETRY;
    loop {
        match Session::begin(&config, &node, &shared).await {
            Ok(session) => {
                pause = FIRST_RETRY;
                let end = session.go_on(&node, &shared).await;
                tracing::debug!(reason = end, "no nudges by NOTIFY; nodes find what others made due when they look");
            }
            Err(reason) => tracing::debug!(reason, "cannot LISTEN; nodes find what others made due when they look"),
        }
        // Nodes that lost the database together do not come back together.
        sleep(pause.mul_f64(0.5 + clock::draw() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

/// A connection that listens.
struct Session {
    client: Client,
    reader: AbortOnDropHandle<()>,
}

impl Session {
    async fn begin(config: &Config, node: &str, shared: &Arc<Shared>) -> Result<Self, String> {
        let (client, messages) = in_time(connect(config)).await?;
        let reader = AbortOnDropHandle::new(tokio::spawn(read(messages, node.to_owned(), Arc::clone(shared))));
        in_time(run_sql(&client, "LISTEN hikyaku")).await?;
        // What was said before was not heard.
        shared.got.iter().for_each(Notify::notify_one);
        Ok(Self { client, reader })
    }

    /// Gives nudges until the connection is lost; why it was.
    async fn go_on(mut self, node: &str, shared: &Shared) -> String {
        loop {
            let what = tokio::select! {
                _ = &mut self.reader => return "the connection was closed".to_owned(),
                () = of(&shared.given, Due::Deliveries).notified() => Some(Due::Deliveries),
                () = of(&shared.given, Due::Lanes).notified() => Some(Due::Lanes),
                () = sleep(TEST_EVERY) => None,
            };
            let sql = what.map(|what| format!("NOTIFY hikyaku, '{} {node}'", what.as_str()));
            if let Err(reason) = in_time(run_sql(&self.client, sql.as_deref().unwrap_or("SELECT 1"))).await {
                return reason;
            }
            sleep(PAUSE).await;
        }
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    timeout(DEADLINE, work).await.unwrap_or_else(|_| Err(format!("no answer within {DEADLINE:?}")))
}

async fn run_sql(client: &Client, sql: &str) -> Result<(), String> {
    client.batch_execute(sql).await.map_err(|error| described(&error))
}

type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send>>;

async fn connect(config: &Config) -> Result<(Client, Messages), String> {
    if config.get_ssl_mode() == SslMode::Disable {
        let (client, connection) = config.connect(NoTls).await.map_err(|error| described(&error))?;
        return Ok((client, messages(connection)));
    }
    let tls = MakeRustlsConnect::new(tls_settings().map_err(|error| error.to_string())?);
    let (client, connection) = config.connect(tls).await.map_err(|error| described(&error))?;
    Ok((client, messages(connection)))
}

fn messages<S, T>(mut connection: Connection<S, T>) -> Messages
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(stream::poll_fn(move |context| connection.poll_message(context)))
}

/// Passes on what others say, until the connection ends.
async fn read(mut messages: Messages, node: String, shared: Arc<Shared>) {
    while let Some(Ok(message)) = messages.next().await {
        let AsyncMessage::Notification(said) = message else { continue };
        let Some((word, from)) = said.payload().split_once(' ') else { continue };
        let told = Due::ALL.into_iter().find(|what| what.as_str() == word && from != node);
        told.into_iter().for_each(|what| of(&shared.got, what).notify_one());
    }
}
