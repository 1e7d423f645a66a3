//! The comparer: what was promised against what is in the ledgers. It knows none of the program's code but its words.

mod receiving;
mod sending;

use std::fmt;

use crate::ledger::Ledgers;

/// What can be wrong; each names what it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It was accepted, and is not where it must be.
    Lost(String),
    /// Its bytes or its signature are other ones.
    Corrupted(String),
    /// Nobody ever asked for it.
    Phantom(String),
    /// It happened twice, and nothing says why.
    Duplicated(String),
    /// It happened more often than the contract allows.
    TooOften(String),
    /// It happened earlier than the contract allows.
    Early(String),
    /// It happened twice at the same time.
    Overlapping(String),
    /// Log and wire do not fit.
    Unlogged(String),
    /// It ended in a way that what happened does not allow.
    EndedWrongly(String),
    /// Something older took effect after something newer, or in its place.
    Misordered(String),
    /// An answer said something else than what was done.
    AnsweredWrongly(String),
    /// It has not come to its end.
    Unended(String),
    /// A task of the program panicked.
    Panicked,
}

impl Fault {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::Corrupted(_) => "corrupted",
            Self::Phantom(_) => "phantom",
            Self::Duplicated(_) => "duplicated",
            Self::TooOften(_) => "too often",
            Self::Early(_) => "early",
            Self::Overlapping(_) => "overlapping",
            Self::Unlogged(_) => "unlogged",
            Self::EndedWrongly(_) => "ended wrongly",
            Self::Misordered(_) => "misordered",
            Self::AnsweredWrongly(_) => "answered wrongly",
            Self::Unended(_) => "unended",
            Self::Panicked => "panicked",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = match self {
            Self::Lost(about)
            | Self::Corrupted(about)
            | Self::Phantom(about)
            | Self::Duplicated(about)
            | Self::TooOften(about)
            | Self::Early(about)
            | Self::Overlapping(about)
            | Self::Unlogged(about)
            | Self::EndedWrongly(about)
            | Self::Misordered(about)
            | Self::AnsweredWrongly(about)
            | Self::Unended(about) => about,
            Self::Panicked => "",
        };
        write!(f, "{} {about}", self.word())
    }
}

/// Everything that is wrong.
pub fn faults(ledgers: &Ledgers) -> Vec<Fault> {
    let mut faults: Vec<_> = ledgers.unended.iter().cloned().map(Fault::Unended).collect();
    sending::judge(ledgers, &mut faults);
    receiving::judge(ledgers, &mut faults);
    faults.sort();
    faults.dedup();
    faults
}
