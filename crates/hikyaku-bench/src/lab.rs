//! What all rows share.

use std::path::PathBuf;
use std::time::Duration;

use crate::Error;
use crate::cluster::Cluster;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// How often each row is measured.
    pub(crate) rounds: usize,
    /// For how long a load lasts.
    pub(crate) load: Duration,
    /// For how long a row of few requests a second lasts.
    pub(crate) calm: Duration,
    /// Senders that publish or deliver as fast as they are answered.
    pub(crate) senders: usize,
    /// What a large store holds.
    pub(crate) many: u64,
    /// What a huge store holds, if it is measured.
    pub(crate) huge: Option<u64>,
    /// Webhooks of the row with thousands of them.
    pub(crate) webhooks: usize,
}

impl Scale {
    /// That of the table in docs/performance.md.
    pub(crate) const FULL: Self = Self {
        rounds: 3,
        load: Duration::from_secs(5),
        calm: Duration::from_secs(15),
        senders: 128,
        many: 1_000_000,
        huge: None,
        webhooks: 5_000,
    };
    /// Just enough to see that it works.
    pub(crate) const QUICK: Self = Self {
        rounds: 1,
        load: Duration::from_millis(200),
        calm: Duration::from_millis(500),
        senders: 8,
        many: 2_000,
        huge: None,
        webhooks: 100,
    };
}

/// What the machine can do, per request, in microseconds of CPU time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// A bare server.
    pub(crate) server: f64,
    /// A bare client.
    pub(crate) client: f64,
}

/// Where it is measured.
pub(crate) struct Lab {
    pub(crate) binary: PathBuf,
    pub(crate) scale: Scale,
    pub(crate) limits: Limits,
    cluster: Option<Cluster>,
}

impl Lab {
    pub(crate) fn new(binary: PathBuf, scale: Scale) -> Self {
        Self { binary, scale, limits: Limits { server: f64::NAN, client: f64::NAN }, cluster: None }
    }

    /// PostgreSQL, started when it is first asked for.
    pub(crate) fn cluster(&mut self) -> Result<&mut Cluster, Error> {
        if self.cluster.is_none() {
            self.cluster = Some(Cluster::start()?);
        }
        self.cluster.as_mut().ok_or_else(|| "PostgreSQL was not started".into())
    }

    /// The CPU time of PostgreSQL so far; none if it does not run.
    pub(crate) fn cluster_cpu(&self) -> Result<Duration, Error> {
        self.cluster.as_ref().map_or(Ok(Duration::ZERO), Cluster::cpu)
    }
}
