//! When nobody was there to receive.

use jiff::Timestamp;

/// A time, longer than providers repeat what was not taken, in which nothing could be received. What they sent then has
/// to be read from them (T4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// The last sign of life before it, by the wall clock.
    pub from: Timestamp,
    /// The first after it.
    pub to: Timestamp,
}

/// A sign of life.
#[derive(Debug, Clone, Copy)]
pub struct Beat {
    /// When, by the wall clock.
    pub at: Timestamp,
    /// The outage that ends with it, if one does; written in the same commit. One that began at the same time is
    /// replaced.
    pub outage: Option<Outage>,
}

/// Which outages.
#[derive(Debug, Clone, Copy)]
pub struct OutageQuery {
    /// Only those that began before this.
    pub before: Option<Timestamp>,
    /// At most so many.
    pub limit: u32,
}
