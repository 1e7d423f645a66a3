//! Readers of what strangers send, each as a function of any bytes whatever, which panics where a property does not hold.
//!
//! `fuzz/` drives them by coverage, from the inputs in `fuzz/corpus/`; the tests of this module replay those, and change
//! them at random, on the stable compiler.

mod drive;
mod target;
mod text;

#[cfg(test)]
mod tests;

pub use drive::{Target, drive, replay};

/// The readers of this crate, by the names of their corpora.
pub const TARGETS: [Target; 7] = [
    Target { name: "signature", run: target::signature },
    Target { name: "url", run: target::url },
    Target { name: "address", run: target::address },
    Target { name: "envelope", run: text::envelope },
    Target { name: "pointer", run: text::pointer },
    Target { name: "timestamp", run: text::timestamp },
    Target { name: "names", run: text::names },
];

/// Runs the reader of this name on these bytes.
///
/// # Panics
/// Where a property does not hold, or there is no such reader.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("it is one of the list").run)(bytes);
}
