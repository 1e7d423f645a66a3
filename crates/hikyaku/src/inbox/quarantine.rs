//! Deliveries whose signature does not verify: refused, or kept aside until somebody has set the secret right (T2).

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use hikyaku_core::ordering::Version;
use hikyaku_core::provider::Refusal;

use super::receive::{Intake, Received};
use super::refusals::Refused;
use super::{Inbox, hash, hash_id, metrics};
use crate::clock::Stopwatch;
use crate::store::{NewRow, QuarantineOutcome, Quarantined, StoreError};

/// What a source does with a delivery whose signature does not verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadSignature {
    /// It is answered 401, and nothing is stored.
    #[default]
    Refuse,
    /// It is answered 200 and kept aside, for as long as there is room; then it is refused like any other.
    Quarantine(Room),
}

/// How much of one source may be quarantined at a time. Anybody can send what does not verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Most rows.
    pub max_rows: u32,
    /// Most bytes, bodies and headers together.
    pub max_bytes: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self { max_rows: 1000, max_bytes: 64 * 1024 * 1024 }
    }
}

/// Begins the ids of quarantined rows. No provider's id does, so that none of them takes the place of a good delivery.
const ID_PREFIX: &str = "quarantined:";

impl Inbox {
    /// Refuses a delivery whose signature does not verify, or keeps it aside where its source says so and has room.
    pub(super) async fn refuse(
        &self,
        intake: &Intake,
        reason: Refusal,
        (headers, body): (&HeaderMap, Bytes),
        watch: &Stopwatch,
    ) -> Result<Received, StoreError> {
        let source = &intake.source.name;
        let hash = hash(&body);
        let became = match intake.source.on_bad_signature {
            OnBadSignature::Refuse => Refused::Answered(hash),
            OnBadSignature::Quarantine(room) => {
                let outcome = self.quarantine(intake, room, &reason, headers, body).await;
                match outcome.inspect_err(|_| metrics::answered(source, "storeError", watch.elapsed()))? {
                    QuarantineOutcome::Kept | QuarantineOutcome::Duplicate => Refused::Quarantined,
                    QuarantineOutcome::Full => Refused::NoRoom(hash),
                }
            }
        };
        let now = self.clock.now();
        intake.refused(&reason, became, now);
        self.tell_unverified(intake, now).await;
        metrics::answered(source, became.answer(), watch.elapsed());
        match became {
            Refused::Quarantined => Ok(Received::Quarantined),
            Refused::Answered(_) | Refused::NoRoom(_) => Ok(Received::Unauthorized(reason)),
        }
    }

    /// One at a time, so that a flood of forgeries leaves the store to the good deliveries.
    async fn quarantine(
        &self,
        intake: &Intake,
        room: Room,
        reason: &Refusal,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<QuarantineOutcome, StoreError> {
        let source = &intake.source;
        let headers = kept(source.profile.headers(), headers);
        let id = hash_id(&[source.name.as_bytes(), b"\n", &headers, b"\n", &body].concat());
        let received_at = self.clock.now();
        let delivery = format!("{ID_PREFIX}{id}");
        let row = NewRow {
            organization: source.organization.clone(),
            provider: source.provider.clone(),
            source: source.name.clone(),
            version: Version::new(received_at, "", delivery.as_str()),
            delivery,
            event_type: String::new(),
            key: String::new(),
            body,
            received_at,
            due_at: self.clock.schedule(),
            routes: Vec::new(),
            park_reason: format!("its signature did not verify: {reason}"),
        };
        let Room { max_rows, max_bytes } = room;
        let _alone = self.quarantining.lock().await;
        self.store.quarantine(Quarantined { row, headers, max_rows, max_bytes }).await
    }
}

/// The headers of these names, a line each. No value can hold the end of a line.
fn kept<'a>(names: impl IntoIterator<Item = &'a str>, headers: &HeaderMap) -> Bytes {
    let mut lines = Vec::new();
    for name in names {
        for value in headers.get_all(name) {
            lines.extend_from_slice(&[name.as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
        }
    }
    lines.into()
}

/// The headers that were kept like this.
pub(super) fn unkept(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(end) = line.windows(2).position(|two| two == b": ") else { continue };
        let name = HeaderName::from_bytes(&line[..end]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&line[end + 2..])) {
            headers.append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use hikyaku_core::provider::Preset;
    use hikyaku_core::signature::receiptroller::{DELIVERY_HEADER, SIGNATURE_HEADER};

    use super::*;

    #[test]
    fn headers_that_are_kept_come_back_as_they_were() {
        let mut headers = HeaderMap::new();
        for value in [&b""[..], b"sha256=00", b": \xff:"] {
            headers.append(SIGNATURE_HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        headers.insert(DELIVERY_HEADER, HeaderValue::from_static("d: 1"));
        let known = headers.clone();
        headers.insert("cookie", HeaderValue::from_static("secret"));
        let profile = Preset::ReceiptRoller.profile();
        assert_eq!(unkept(&kept(profile.headers(), &headers)), known);
        assert_eq!(unkept(b""), HeaderMap::new());
    }
}
