//! What only one process does at a time.

use jiff::Timestamp;

use super::Lease;

/// A duty that a process would take, or renew.
#[derive(Debug, Clone)]
pub struct DutyClaim {
    /// Which duty.
    pub name: &'static str,
    /// Who asks, and for how long.
    pub lease: Lease,
    /// The schedule clock.
    pub now: Timestamp,
}
