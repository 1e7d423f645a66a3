//! Names to addresses, by ourselves, so that every address can be vetted before anything is connected (S1).

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig, ResolverOpts};
use hickory_resolver::net::{NetError, runtime::TokioRuntimeProvider};
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use tracing::warn;

use super::failure::is_local;

/// Longest time that a name's addresses are kept, whatever its servers say: an endpoint that moves is found soon.
const MAX_POSITIVE_TTL: Duration = Duration::from_secs(60);
/// Longest time that "no such name" is kept: a name that comes back is not missed for an hour.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(3);

/// Why a name gave no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// Its servers say that it does not exist, or has no address.
    #[error("it has no address")]
    NoAddress,
    /// Nobody said anything usable.
    #[error("no name server gave an answer ({0})")]
    NoAnswer(String),
    /// We could not ask: no name servers, no network, no sockets or memory.
    #[error("this machine could not ask for it ({0})")]
    Local(String),
}

/// Where addresses come from; a seam for tests.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of a host name, in the order in which they are to be tried. It may take as long as it likes:
    /// whoever asks has a deadline.
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError>;
}

/// The machine's own way: `/etc/hosts` first, then the name servers of `/etc/resolv.conf`. Both files are read once.
pub struct SystemResolver {
    hosts: Hosts,
    servers: TokioResolver,
    /// Why there are no name servers to ask, where there are none.
    without_servers: Option<String>,
}

impl SystemResolver {
    /// Reads the machine's configuration. One that is missing or cannot be read is no error: `/etc/hosts` still
    /// works, and every other name fails with the reason.
    pub fn new() -> Result<Self, NetError> {
        let (mut builder, without_servers) = match TokioResolver::builder_tokio() {
            Ok(builder) => (builder, None),
            Err(error) => {
                warn!(%error, "no name servers in /etc/resolv.conf; only names in /etc/hosts can be delivered to");
                let empty = ResolverConfig::default();
                let reason = format!("/etc/resolv.conf: {error}");
                (TokioResolver::builder_with_config(empty, TokioRuntimeProvider::default()), Some(reason))
            }
        };
        set(builder.options_mut());
        let hosts = Hosts::from_system().unwrap_or_default();
        Ok(Self { hosts, servers: builder.build()?, without_servers })
    }

    /// What `/etc/hosts` says. A name that stands there is not asked for elsewhere, in either family.
    fn in_hosts(&self, name: &Name) -> Vec<IpAddr> {
        let of_type = |kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let lookups = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of_type);
        lookups.flat_map(|found| found.answers().iter().filter_map(|r| r.data.ip_addr()).collect::<Vec<_>>()).collect()
    }

    fn explain(&self, error: NetError) -> ResolveError {
        match (error, &self.without_servers) {
            (_, Some(reason)) => ResolveError::Local(reason.clone()),
            (error, None) if error.is_no_records_found() => ResolveError::NoAddress,
            (NetError::Io(io), None) if is_local(&io) => ResolveError::Local(io.to_string()),
            (error, None) => ResolveError::NoAnswer(error.to_string()),
        }
    }
}

/// What we want to be different from the library's defaults.
fn set(options: &mut ResolverOpts) {
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.positive_max_ttl = Some(MAX_POSITIVE_TTL);
    options.negative_max_ttl = Some(MAX_NEGATIVE_TTL);
}

impl fmt::Debug for SystemResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemResolver").field("without_servers", &self.without_servers).finish_non_exhaustive()
    }
}

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        // A URL's host is ASCII, whatever it was written in.
        let mut name = Name::from_ascii(name).map_err(|_| ResolveError::NoAddress)?;
        let in_hosts = self.in_hosts(&name);
        if !in_hosts.is_empty() {
            return Ok(in_hosts);
        }
        // A name with dots is meant as it stands. The machine's search domains are for names of one label only, or
        // `shop.example` could end up at `shop.example.corp.internal`.
        if name.num_labels() > 1 {
            name.set_fqdn(true);
        }
        let found = self.servers.lookup_ip(name).await.map_err(|error| self.explain(error))?;
        Ok(found.iter().collect())
    }
}

#[cfg(test)]
mod tests;
