//! `cargo run -p hikyaku-sim -- --seeds 10000`: lives through days, and prints a line for each in which something was lost.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use hikyaku::clock::Stopwatch;
use hikyaku_sim::ledger::Counts;
use hikyaku_sim::{DAY, Options, run};

/// Simulates days of faults, and exits with 1 if anything was lost in one of them.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// How many seeds, from `--first` on.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Only this one.
    #[arg(long)]
    seed: Option<u64>,
    /// Print what happens.
    #[arg(long)]
    trace: bool,
    /// How many virtual hours a day has.
    #[arg(long, default_value_t = DAY.as_secs() / 3600)]
    hours: u64,
    /// How many run side by side.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => arguments.first..arguments.first.saturating_add(arguments.seeds),
    };
    let (watch, next) = (Stopwatch::start(), AtomicU64::new(seeds.start));
    let (reports, arrived) = mpsc::channel();
    let (mut counts, mut days, mut failed) = (Counts::default(), 0_u64, 0_u64);
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            let (reports, next, end) = (reports.clone(), &next, seeds.end);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let length = Duration::from_secs(arguments.hours.saturating_mul(3600));
                    let options = Options { length, show: arguments.trace, ..Options::day(seed) };
                    if seed >= end || reports.send(run(options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(reports);
        for report in arrived {
            days += 1;
            counts.add(&report.counts);
            failed += u64::from(!report.faults.is_empty());
            if !report.faults.is_empty() || arguments.seed.is_some() {
                println!("{report}");
            }
        }
    });
    println!("{days} seeds, {failed} with faults, {:.1} s; in all: {counts}", watch.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
