//! What can happen, and the defects that are put in.

use super::Promise;

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A node claims one delivery that is due.
    Claim(usize),
    /// A node ends the attempt that it began as so-manieth of those it holds, and writes the end.
    Finish(usize, Answer),
    /// The same, but it hears nothing, and will write it again.
    FinishUnheard(usize, Answer),
    /// The leases that are held end.
    LeasesEnd,
    /// A node forgets what it holds.
    Crash(usize),
    /// Somebody switches the webhook off.
    SwitchOff,
    /// Somebody deletes it.
    Delete,
}

/// What the receiver said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 200.
    Good,
    /// 500.
    Bad,
}

/// A defect that is put in, to see that the promise which it breaks is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A claim takes what is leased.
    ClaimIgnoresLeases,
    /// The schedule has an attempt too much.
    OneAttemptMore,
    /// What was left behind is sent again under its number.
    InterruptedIsResent,
    /// A finish is taken from whoever writes it.
    FinishByAnybody,
    /// What has ended begins again.
    EndedBeginsAgain,
    /// A webhook is not switched off.
    StaysOn,
    /// A webhook is switched on behind the back of who switched it off.
    ComesOnAgain,
    /// A delete leaves what waits.
    DeleteForgets,
    /// What a node left behind is claimed by nobody.
    LeftBehindIsPassedBy,
}

impl Mutation {
    /// Each with the promise that it breaks.
    pub const ALL: [(Self, Promise); 9] = [
        (Self::ClaimIgnoresLeases, Promise::OneLease),
        (Self::OneAttemptMore, Promise::AttemptsBounded),
        (Self::InterruptedIsResent, Promise::NumberSentOnce),
        (Self::FinishByAnybody, Promise::LeaseNeededToFinish),
        (Self::EndedBeginsAgain, Promise::EndsOnce),
        (Self::StaysOn, Promise::SwitchedOffOnce),
        (Self::ComesOnAgain, Promise::SwitchedOffOnce),
        (Self::DeleteForgets, Promise::DeletedIsCancelled),
        (Self::LeftBehindIsPassedBy, Promise::NothingIsStuck),
    ];
}
