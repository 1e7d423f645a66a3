//! When a webhook is switched off (R10, R11, R17).

use crate::delivery::History;

/// Whether a delivery that has used up its attempts switches its webhook off.
///
/// By the contract one event's failures are enough (R11). The exception is ours, in the spirit of R17: an attempt that
/// *we* spoiled (our crash, our lack of sockets) says nothing about the receiver, so a delivery with such an attempt
/// among its four never switches anything off.
pub fn switches_off(history: History) -> bool {
    history.spoiled_by_us == 0
}
