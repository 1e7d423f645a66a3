//! Hikyaku sends and receives webhooks so that nothing is lost. `ARCHITECTURE.md` shows where an event enters, where
//! it is decided, where it is sent and where it lands.

pub mod app;
pub mod check;
pub mod client;
pub mod clock;
pub mod config;
pub mod console;
pub mod crash;
pub mod demo;
pub mod duty;
mod file;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod heartbeat;
pub mod http;
pub mod inbox;
pub mod log;
pub mod outbound;
mod postgres;
pub mod provider_api;
pub mod reconcile;
pub mod retention;
pub mod role;
pub mod sandbox;
pub mod sender;
pub mod store;
pub mod trace;

/// The PostgreSQL of the tests, the same as that of the black-box tests.
#[cfg(test)]
#[path = "../tests/blackbox/harness/postgres.rs"]
mod test_postgres;

/// A way to it that can be cut.
#[cfg(test)]
#[path = "../tests/blackbox/harness/proxy.rs"]
mod test_proxy;
