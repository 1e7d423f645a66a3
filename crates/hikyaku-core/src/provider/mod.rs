//! Providers: how each of them signs what it sends, and where it says what it is about. Two kinds of data, [`Scheme`] and
//! [`Layout`], say it for all of them; a [`Preset`] is such data under a name, and code knows no provider.

mod content;
mod field;
mod headers;
mod layout;
mod preset;
pub mod receiptroller;
mod scheme;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::BTreeSet;
use std::time::Duration;

pub use crate::envelope::{Contradiction, Envelope};
pub use content::{Content, InvalidContent};
pub use field::{Field, InvalidField};
pub use headers::Headers;
pub use layout::Layout;
pub use preset::Preset;
pub use scheme::{Algorithm, Encoding, InvalidKey, KeyForm, Scheme};
pub use verify::{MAX_SIGNATURE_HEADER_BYTES, MAX_SIGNATURES, Refusal, Verified, Verifier};

/// Shortest freshness that can be asked for: a legitimate retry comes 71 minutes later with its first timestamp (T7, S14).
pub const MIN_FRESHNESS: Duration = Duration::from_secs(2 * 3600);

/// All that has to be known of a provider to take its deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// How it signs.
    pub scheme: Scheme,
    /// Where it says what.
    pub layout: Layout,
    /// How far the signed time may be from ours; `None` asks for nothing (T7). At least [`MIN_FRESHNESS`] (S14).
    pub freshness: Option<Duration>,
    /// Whether it wants a body with the type `url_verification` answered with its `challenge`, as Slack does before it
    /// sends anything else.
    pub answers_challenge: bool,
}

impl Profile {
    /// The headers that a delivery is verified by, and in which it says something about itself; each once.
    pub fn headers(&self) -> BTreeSet<&str> {
        let Layout { id, event_type, action, timestamp, key } = &self.layout;
        let fields = [id, event_type, timestamp, key].into_iter().flatten().chain(action).chain(&self.scheme.timestamp);
        let names = fields.filter_map(|field| match field {
            Field::Header(name) => Some(name.as_str()),
            Field::Pointer(_) | Field::Part(_) => None,
        });
        names.chain([self.scheme.header.as_str()]).collect()
    }

    /// Where the time stands that freshness is judged by; `None` if no time of this provider is signed, so that anybody
    /// could write another.
    pub fn signed_time(&self) -> Option<&Field> {
        if self.scheme.content.has_timestamp() {
            return self.scheme.timestamp.as_ref();
        }
        let is_signed = self.scheme.algorithm != Algorithm::SharedSecret;
        self.layout.timestamp.iter().find(|field| is_signed && matches!(field, Field::Pointer(_)))
    }
}
