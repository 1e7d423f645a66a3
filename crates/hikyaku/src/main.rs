//! The program `hikyaku`: reads the command line, and does what it says.

mod cli;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// A fifth of the sender's CPU time went into the C library's allocator (docs/performance.md).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
