//! The connections that read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::store::StoreError;

/// A fixed number of connections that cannot write. Who finds none free waits for one.
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    free: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>) -> Self {
        let free = Arc::new(Semaphore::new(connections.len()));
        Self { idle: Arc::new(Mutex::new(connections)), free }
    }

    /// Runs a query over one snapshot, away from the threads that serve requests. It must be short: while a snapshot
    /// is open, the write-ahead log cannot be folded back beyond it.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = |_| StoreError::Unavailable("the store is being closed".into());
        let permit = self.free.clone().acquire_owned().await.map_err(closed)?;
        let idle = self.idle.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let connection = lock(&idle).pop();
            let connection =
                connection.ok_or_else(|| StoreError::Unavailable("no connection is left to read".into()))?;
            let answer = snapshot(&connection, query);
            lock(&idle).push(connection);
            answer
        });
        reading.await.unwrap_or_else(|error| Err(StoreError::Unavailable(format!("reading stopped: {error}"))))
    }
}

fn snapshot<T>(
    connection: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    query(&transaction)
}

fn lock(idle: &Mutex<Vec<Connection>>) -> MutexGuard<'_, Vec<Connection>> {
    // The list is whole whenever the lock is free, whatever happened to who held it.
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
