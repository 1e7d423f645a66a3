//! The parameters by which deliveries, attempts and logs are searched.

use hikyaku_core::delivery::FailureKind;
use hikyaku_core::event::EventPattern;
use jiff::Timestamp;

use super::problem::{FieldError, Kind, Problem};
use super::request::Query;
use crate::store::{OutcomeFilter, StatusFilter};

/// Most rows that one request looks at. Where it finds less than a page among them, the answer says how far it came, and
/// its cursor goes on from there.
pub(super) const MAX_SEARCHED_ROWS: u32 = 4_000;

impl Query {
    /// `type`: a type, or a pattern such as `order.*`.
    pub(super) fn event_type(&self) -> Result<Option<EventPattern>, Problem> {
        let expected = "an event type such as order.created, or a pattern such as order.*";
        self.parse("type", expected, |text| EventPattern::parse(text).ok())
    }

    /// `httpStatus` and `error`: what an attempt came to.
    pub(super) fn outcome(&self) -> Result<OutcomeFilter, Problem> {
        let status =
            self.parse("httpStatus", "a status such as 503, a class such as 5xx, or 0", StatusFilter::parse)?;
        let kinds = format!("one of {}", FailureKind::ALL.map(FailureKind::as_str).join(", "));
        Ok(OutcomeFilter { status, failure: self.parse("error", &kinds, FailureKind::parse)? })
    }

    /// `from` and `to`: a half-open stretch of time.
    pub(super) fn stretch(&self) -> Result<(Option<Timestamp>, Option<Timestamp>), Problem> {
        let (from, to) = (self.time("from")?, self.time("to")?);
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            let detail = "is not after \"from\"; the stretch of time begins with from and ends before to";
            return Err(Problem::of_fields(Kind::InvalidQuery, vec![FieldError::new("to", detail)]));
        }
        Ok((from, to))
    }
}
