// The examples in the README want these features.
#![cfg_attr(all(feature = "axum", feature = "rusqlite"), doc = include_str!("../README.md"))]
#![cfg_attr(
    not(all(feature = "axum", feature = "rusqlite")),
    doc = "Receive webhooks inside your own program so that nothing is lost."
)]

mod delivery;
mod table;
mod verify;
mod version;

#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "rusqlite")]
pub mod rusqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;

pub use delivery::{ParkReason, Verified};
pub use jiff::Timestamp;
pub use table::{DeliveryId, Insertion, Keep, PRUNE_ROWS, TooShort, sql};
pub use verify::{InvalidSecret, InvalidSignature, Verifier, sign};
pub use version::{Version, is_newer};

/// Largest body that the extractor takes unless [`Verifier::with_max_body_bytes`] says otherwise (S11).
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
