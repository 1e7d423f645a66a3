//! One event for one webhook: what an attempt's outcome means for it.
//!
//! ```text
//!            ┌────────── attempts left: due again after the delay ─────────┐
//!            ▼                                                             │
//! published ─▶ waiting ──attempt──▶ 2xx ─▶ delivered                       │
//!                │                  else ──────────────────────────────────┤
//!                │                                                         └─ none left ─▶ exhausted
//!                └──webhook deleted──▶ cancelled
//! ```
//!
//! What has ended can be sent again on request, whatever its end: it waits again, in a new run with a fresh schedule.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::disable;
use crate::retry::{MAX_RETRY_AFTER, RetrySchedule};

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// An attempt is due, now or later, or under way.
    Waiting,
    /// An attempt was answered 2xx (R2).
    Delivered,
    /// Every attempt failed (R7).
    Exhausted,
    /// It will not be attempted again, for a reason that is written beside it.
    Cancelled,
    /// It matched while the webhook was off and waits to be released.
    Held,
}

impl DeliveryState {
    /// All states, in the order of their documentation.
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Delivered, Self::Exhausted, Self::Cancelled, Self::Held];

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Exhausted => "exhausted",
            Self::Cancelled => "cancelled",
            Self::Held => "held",
        }
    }
}

/// Who is to blame for a failure; a receiver is never punished for ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The endpoint answered, or broke off, in a way that is no 2xx.
    Receiver,
    /// The way there failed: name, route, certificate.
    Network,
    /// The webhook as registered cannot be reached under our rules.
    Caller,
    /// We failed: a crash, no sockets left, no network.
    Us,
}

/// Why an attempt brought no HTTP status; each stands in the log with `httpStatus` 0 (R4, R5, R6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No status within the attempt's deadline (R4).
    Timeout,
    /// The name has no address, or no name server said (R5).
    Dns,
    /// No connection: refused, unreachable (R5).
    Connect,
    /// The handshake or the certificate failed (R5).
    Tls,
    /// The connection broke before a status came (R5).
    Reset,
    /// What came back is not HTTP, or beyond our limits for it.
    Protocol,
    /// Our target rules do not allow the address (S1-S7).
    TargetRefused,
    /// We could not even try: no sockets or memory, no network, no name servers.
    Local,
    /// We stopped or crashed while the attempt was under way. It counts as one of the attempts, because the request
    /// may have arrived, but never switches a webhook off.
    Interrupted,
}

impl FailureKind {
    /// All kinds, in the order of their documentation.
    pub const ALL: [Self; 9] = [
        Self::Timeout,
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Reset,
        Self::Protocol,
        Self::TargetRefused,
        Self::Local,
        Self::Interrupted,
    ];

    /// The kind with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Who is to blame.
    pub fn blame(self) -> Blame {
        match self {
            Self::Timeout | Self::Reset | Self::Protocol => Blame::Receiver,
            Self::Dns | Self::Connect | Self::Tls => Blame::Network,
            Self::TargetRefused => Blame::Caller,
            Self::Local | Self::Interrupted => Blame::Us,
        }
    }

    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Protocol => "protocol",
            Self::TargetRefused => "targetRefused",
            Self::Local => "local",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A status line arrived; the status alone decides.
    Answered(u16),
    /// None did.
    Failed(FailureKind),
}

impl Outcome {
    /// Any 2xx is success (R2); everything else is failure, a redirect and a 404 just like a 500 (R3).
    pub fn is_success(self) -> bool {
        matches!(self, Self::Answered(200..=299))
    }

    /// What stands in the log: the status, or 0 where none came (R6).
    pub fn http_status(self) -> u16 {
        match self {
            Self::Answered(status) => status,
            Self::Failed(_) => 0,
        }
    }

    /// Whether the failure was our own doing.
    pub fn spoiled_by_us(self) -> bool {
        matches!(self, Self::Failed(kind) if kind.blame() == Blame::Us)
    }
}

/// What a delivery is judged by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The pauses between attempts.
    pub schedule: RetrySchedule,
    /// Whether an answer may postpone the next attempt.
    pub respect_retry_after: bool,
}

impl Policy {
    /// The pause before the next attempt. A 429 or 503 may make it longer, by its `Retry-After` and where that is
    /// respected, up to [`MAX_RETRY_AFTER`]; nothing makes it shorter.
    fn pause(&self, ended: u32, outcome: Outcome, retry_after: Option<Duration>) -> Option<Duration> {
        let delay = self.schedule.delay_after(ended)?;
        let heard = self.respect_retry_after && matches!(outcome, Outcome::Answered(429 | 503));
        let asked = retry_after.filter(|_| heard).unwrap_or_default();
        Some(delay.max(asked.min(MAX_RETRY_AFTER)))
    }
}

/// The attempts of one run that have ended. The publish begins a delivery's first run, and every resend or recovery
/// another, with the whole schedule before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// How many there were.
    pub attempts: u32,
    /// How many of them failed by our own fault.
    pub spoiled_by_us: u32,
    /// Whether somebody asked for this run: it is not the one that the publish began.
    pub on_request: bool,
}

impl History {
    /// The history with one more attempt in it.
    pub fn after(self, outcome: Outcome) -> Self {
        Self {
            attempts: self.attempts + 1,
            spoiled_by_us: self.spoiled_by_us + u32::from(outcome.spoiled_by_us()),
            ..self
        }
    }
}

/// What follows from an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The delivery has ended well.
    Delivered,
    /// It is attempted again, not before `at` (R8).
    Retry {
        /// The earliest start of the next attempt.
        at: Timestamp,
    },
    /// It has ended, and with it the webhook may be switched off (R10).
    Exhausted {
        /// True if it counts towards that; the webhook's own setting says how many such events it takes.
        switch_off: bool,
    },
}

/// Decides what follows when an attempt ended at `now` with `outcome`, after the attempts in `history`; `retry_after` is
/// what the answer asked for, if it did.
///
/// Serves R2, R3, R7, R8, R10, R11 and R17.
pub fn decide(
    policy: &Policy,
    history: History,
    outcome: Outcome,
    retry_after: Option<Duration>,
    now: Timestamp,
) -> Decision {
    if outcome.is_success() {
        return Decision::Delivered;
    }
    let history = history.after(outcome);
    match policy.pause(history.attempts, outcome, retry_after) {
        // A due time that cannot be expressed lies millennia ahead; the latest possible one says the same.
        Some(delay) => Decision::Retry { at: now.checked_add(delay).map_or(Timestamp::MAX, up_to_millis) },
        None => Decision::Exhausted { switch_off: disable::counts(history) },
    }
}

/// Stores keep due times in whole milliseconds. Rounded down, an attempt could come a little early (R8).
fn up_to_millis(at: Timestamp) -> Timestamp {
    let whole = at.as_millisecond() + i64::from(at.subsec_nanosecond() % 1_000_000 > 0);
    Timestamp::from_millisecond(whole).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
