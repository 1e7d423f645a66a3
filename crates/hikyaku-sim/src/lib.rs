//! Days of Hikyaku's life in seconds: the real sender, inbox and reconciliation over the store in memory, and the sandbox as
//! the provider, in one thread and on virtual time. The network fails, the store fails, nodes crash and stand still, clocks
//! are set, and people switch webhooks off and on; one seed decides all of it, so that the same seed gives the same day.
//!
//! What happened is written into ledgers outside of the program ([`ledger`]), and compared at the end with the promise
//! ([`judge`]). [`model`] explores the protocol of leases exhaustively, on the same store.

mod books;
mod dice;
mod fate;
pub mod judge;
pub mod ledger;
pub mod model;
mod node;
mod panics;
mod people;
pub mod plant;
mod publisher;
mod road;
mod shop;
mod wire;
mod witness;
mod world;

use std::fmt;
use std::time::Duration;

use hikyaku::clock::repeatable;
use judge::Fault;
use ledger::Counts;
use plant::Plant;

/// How long a seed's day is.
pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// What came of a seed.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash over all that happened, in its order and with its times.
    pub trace: u64,
    /// How much happened.
    pub counts: Counts,
    /// What is not as it was promised.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Report {
    /// One line, with the command that repeats it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, trace, counts, faults } = self;
        write!(f, "seed {seed} trace {trace:016x} {counts}")?;
        if !faults.is_empty() {
            let faults: Vec<_> = faults.iter().map(Fault::to_string).collect();
            write!(f, " FAULTS: {}; again: cargo run -p hikyaku-sim -- --seed {seed} --trace", faults.join(", "))?;
        }
        Ok(())
    }
}

/// What is to be simulated.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// How long faults last; after that everything may come to its end.
    pub length: Duration,
    /// A fault of ours that must be found.
    pub plant: Option<Plant>,
    /// Whether everything that happens is printed.
    pub show: bool,
}

impl Options {
    /// A day of this seed.
    pub fn day(seed: u64) -> Self {
        Self { seed, length: DAY, plant: None, show: false }
    }
}

/// Lives through it.
///
/// # Panics
/// If tokio's runtime cannot be built.
pub fn run(options: Options) -> Report {
    repeatable::seed(Some(options.seed));
    let panics = panics::count();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs nothing from the system");
    let (trace, ledgers) = runtime.block_on(world::live(options));
    drop(runtime);
    repeatable::seed(None);
    let mut faults = judge::faults(&ledgers);
    if panics::count() > panics {
        faults.push(Fault::Panicked);
    }
    Report { seed: options.seed, trace, counts: ledgers.counts(), faults }
}
