//! What is known of a source's signatures that do not verify, and when the provider will have had enough (T2).
//!
//! Nothing of it is stored: after a restart it is learned again from what comes.

use std::collections::BTreeMap;

use hikyaku_core::provider::{Preset, Refusal};
use jiff::{SignedDuration, Timestamp};

use super::Source;

/// Refused signatures of one source are counted always, but logged no more often than this: anyone can cause them.
const LOG_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// Somebody is told after signatures have been refused for so long, and none verified: the provider's first retry (R8). What
/// comes once may be anybody's.
const TELL_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// How long it then is until they are told again.
const TELL_PAUSE: SignedDuration = SignedDuration::from_hours(24);
/// Most deliveries of one source whose attempts are followed. Those after them would not end sooner.
const MAX_FOLLOWED: usize = 1000;
/// What comes sooner after an attempt is none of the provider's retries: its first one waits a minute (R8).
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// How long after an attempt the provider gives up, if that one was the first of its four, the second or the third (R8);
/// the ten seconds that it may wait for each answer are not counted.
const LEFT_AFTER: [SignedDuration; 3] =
    [SignedDuration::from_mins(71), SignedDuration::from_mins(70), SignedDuration::from_mins(60)];

/// Stands for a delivery: its retries have the same body (R9), whatever their headers say.
pub(super) type BodyHash = [u8; 32];

/// What became of a delivery whose signature did not verify.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refused {
    /// It was answered 401, and will come again.
    Answered(BodyHash),
    /// It was answered 200 and is kept aside.
    Quarantined,
    /// It was answered 401, because there was no room to keep it aside, and will come again.
    NoRoom(BodyHash),
}

impl Refused {
    /// The word for the metric.
    pub(super) fn answer(self) -> &'static str {
        match self {
            Self::Answered(_) => "unauthorized",
            Self::Quarantined => "quarantined",
            Self::NoRoom(_) => "quarantineFull",
        }
    }

    /// The delivery that the provider will send again.
    pub(super) fn comes_again(self) -> Option<BodyHash> {
        match self {
            Self::Answered(body) | Self::NoRoom(body) => Some(body),
            Self::Quarantined => None,
        }
    }

    /// What the log says.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Answered(_) => "refused a signature, and the provider may switch its webhook off",
            Self::Quarantined => "quarantined a delivery whose signature does not verify",
            Self::NoRoom(_) => {
                "refused a signature, because the source's quarantine is full: release or discard what is in it"
            }
        }
    }
}

/// How a source stands, since the start of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceState {
    /// When a signature verified last.
    pub last_good_at: Option<Timestamp>,
    /// When one did not verify last, and why.
    pub last_refused: Option<(Timestamp, Refusal)>,
    /// Since when none has verified, while some came.
    pub refused_since: Option<Timestamp>,
    /// When the provider switches its webhook off for that, where its way of doing so is known (R8, R10, R11).
    pub switched_off_at: Option<Timestamp>,
}

/// The deliveries that the provider tries in vain.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    state: SourceState,
    /// By what became of them.
    logged_at: BTreeMap<&'static str, Timestamp>,
    told_at: Option<Timestamp>,
    followed: BTreeMap<BodyHash, Followed>,
}

/// A delivery with at least one attempt in vain.
#[derive(Debug, Clone, Copy)]
struct Followed {
    last_at: Timestamp,
    gives_up_at: Timestamp,
    attempts: usize,
}

impl Followed {
    fn begin(now: Timestamp) -> Self {
        Self { last_at: now, gives_up_at: after(now, LEFT_AFTER[0]), attempts: 1 }
    }

    /// Another attempt. Which one of the four it is shows in the pause before it, because we may have missed the first:
    /// the provider waits one minute, then ten, then sixty (R8). The fourth that we have seen is the end in any case (R7):
    /// a provider that hurries must not look as if it had time left.
    fn again(self, now: Timestamp) -> Self {
        let attempts = self.attempts.saturating_add(1);
        let pause = now.duration_since(self.last_at);
        if attempts > LEFT_AFTER.len() {
            return Self { last_at: now, gives_up_at: self.gives_up_at.min(now), attempts };
        }
        if pause < SHORTEST_PAUSE {
            return Self { attempts, ..self };
        }
        let gives_up_at = match pause.as_mins() {
            ..5 => after(now, LEFT_AFTER[1]),
            5..30 => after(now, LEFT_AFTER[2]),
            30.. => now,
        };
        Self { last_at: now, gives_up_at, attempts }
    }
}

fn after(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

impl Refusals {
    /// How the source stands.
    pub(super) fn state(&self) -> SourceState {
        self.state.clone()
    }

    /// A signature has verified: nothing that went before matters. Whether there was anything.
    pub(super) fn good(&mut self, now: Timestamp) -> bool {
        self.state.last_good_at = Some(now);
        let ends = self.state.refused_since.take().is_some();
        if ends {
            self.followed.clear();
            self.logged_at.clear();
            self.state.switched_off_at = None;
        }
        ends
    }

    /// A signature has not verified. `followed` is the delivery that the provider will try again, if it was answered
    /// that it failed.
    pub(super) fn add(&mut self, now: Timestamp, reason: Refusal, followed: Option<BodyHash>) {
        self.state.last_refused = Some((now, reason));
        self.state.refused_since.get_or_insert(now);
        let Some(body) = followed else { return };
        if let Some(delivery) = self.followed.get_mut(&body) {
            *delivery = delivery.again(now);
        } else if self.followed.len() < MAX_FOLLOWED {
            self.followed.insert(body, Followed::begin(now));
        }
        self.state.switched_off_at = self.followed.values().map(|delivery| delivery.gives_up_at).min();
    }

    /// Whether it is time to tell somebody; then it is taken as told.
    pub(super) fn is_to_be_told(&mut self, now: Timestamp) -> bool {
        let lately = self.told_at.is_some_and(|at| now.duration_since(at).abs() < TELL_PAUSE);
        let lasts = self.state.refused_since.is_some_and(|since| now.duration_since(since) >= TELL_AFTER);
        if lasts && !lately {
            self.told_at = Some(now);
        }
        lasts && !lately
    }

    /// It could not be told.
    pub(super) fn is_still_to_be_told(&mut self) {
        self.told_at = None;
    }

    /// Whether it is time to say in the log, again, what becomes of them.
    pub(super) fn is_to_be_logged(&mut self, became: Refused, now: Timestamp) -> bool {
        let logged_at = self.logged_at.get(became.answer());
        let lately = logged_at.is_some_and(|at| now.duration_since(*at).abs() < LOG_PAUSE);
        if !lately {
            self.logged_at.insert(became.answer(), now);
        }
        !lately
    }
}

impl Source {
    /// Whether it is known how this provider retries, and that it switches a webhook off (R8, R10).
    pub(super) fn switches_off(&self) -> bool {
        self.preset == Preset::ReceiptRoller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: Refusal = Refusal::Mismatch;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(minutes * 60).unwrap()
    }

    fn body(number: u32) -> Option<BodyHash> {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        Some(hash)
    }

    /// What is predicted after each of these attempts, in minutes.
    fn predicted(attempts: &[i64]) -> Vec<i64> {
        let mut refusals = Refusals::default();
        let predict = |minute: &i64| {
            refusals.add(at(*minute), BAD, body(1));
            refusals.state().switched_off_at.unwrap().as_second() / 60
        };
        attempts.iter().map(predict).collect()
    }

    #[test]
    fn t2_r8_the_end_is_predicted_from_the_first_attempt_on() {
        assert_eq!(predicted(&[0, 1, 11, 71]), [71; 4]);
        // The first attempts were not seen.
        assert_eq!(predicted(&[1, 11, 71]), [72, 71, 71]);
        assert_eq!(predicted(&[11, 71]), [82, 71]);
        // Somebody else sends it between the retries: the end comes no later for it.
        assert_eq!(predicted(&[0, 0, 1]), [71; 3]);
    }

    #[test]
    fn t2_r7_the_fourth_attempt_in_vain_is_the_end_whatever_the_pauses_were() {
        assert_eq!(predicted(&[5, 5, 5, 5, 5, 80]), [76, 76, 76, 5, 5, 5]);
        assert_eq!(predicted(&[0, 2, 4, 6]), [71, 72, 74, 6]);
        assert_eq!(predicted(&[0, 0, 1, 1, 11, 71]), [71, 71, 71, 1, 1, 1]);
    }

    #[test]
    fn t2_the_oldest_delivery_in_vain_decides_and_a_good_signature_clears_all() {
        let mut refusals = Refusals::default();
        refusals.add(at(0), BAD, body(1));
        refusals.add(at(30), BAD, body(2));
        let state = refusals.state();
        assert_eq!((state.switched_off_at, state.refused_since), (Some(at(71)), Some(at(0))));
        assert_eq!(state.last_refused, Some((at(30), BAD)));
        assert!(refusals.good(at(40)));
        let state = refusals.state();
        assert_eq!((state.switched_off_at, state.refused_since), (None, None));
        assert_eq!((state.last_good_at, state.last_refused), (Some(at(40)), Some((at(30), BAD))));
        assert!(!refusals.good(at(41)));
        refusals.add(at(50), BAD, body(1));
        assert_eq!(refusals.state().switched_off_at, Some(at(121)));
    }

    #[test]
    fn t2_what_is_answered_200_is_not_tried_again() {
        let mut refusals = Refusals::default();
        refusals.add(at(0), BAD, None);
        assert_eq!((refusals.state().switched_off_at, refusals.state().refused_since), (None, Some(at(0))));
    }

    #[test]
    fn t2_no_flood_is_remembered_beyond_a_bound_and_none_hides_the_oldest() {
        let mut refusals = Refusals::default();
        for number in 0..2 * MAX_FOLLOWED as u32 {
            refusals.add(at(i64::from(number)), BAD, body(number));
        }
        assert_eq!((refusals.followed.len(), refusals.state().switched_off_at), (MAX_FOLLOWED, Some(at(71))));
    }

    /// The log is told once a minute at most, until a good signature comes.
    #[test]
    fn t2_refusals_are_logged_at_once_and_then_now_and_then() {
        let mut refusals = Refusals::default();
        let full = Refused::NoRoom([0; 32]);
        let mut logged_as = |became, second| refusals.is_to_be_logged(became, Timestamp::from_second(second).unwrap());
        assert!(logged_as(Refused::Quarantined, 0) && logged_as(full, 1) && !logged_as(Refused::Quarantined, 2));
        let mut logged = |second| logged_as(Refused::Answered([0; 32]), second);
        assert_eq!([0, 1, 59, 60, 61, 4260].map(&mut logged), [true, false, false, true, false, true]);
        // A clock that was set back does not silence it for long.
        assert!(logged(100));
    }
}
