//! Running a reader on its corpus, and on what comes of it when it is changed at random. No coverage guides it, so that it
//! runs anywhere.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Longest input that is made, in bytes.
const MAX_BYTES: usize = 4096;
/// What readers look for, or stumble over.
const WORDS: [&str; 24] = [
    "\n",
    ": ",
    "\"",
    "\\u0000",
    "\\ud800",
    "1e400",
    "-0",
    "29383937493038367292",
    "{",
    "}",
    "[[",
    "/",
    "~1",
    "~",
    "%2e%2e",
    "|",
    "*",
    ".",
    "+1",
    "00",
    "\u{feff}",
    "[::ffff:127.0.0.1]",
    "9999-12-31T23:59:60Z",
    "sha256=",
];

/// A reader by the name of its corpus.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name.
    pub name: &'static str,
    /// Panics where a property does not hold.
    pub run: fn(&[u8]),
}

impl Target {
    /// Its corpus, by the files' names.
    fn corpus(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(self.name);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let paths = files.map(|file| file.expect("the corpus can be read").path());
        paths.map(|path| (path.clone(), fs::read(&path).expect("the corpus can be read"))).collect()
    }

    fn assert_holds(&self, what: &str, bytes: &[u8]) {
        if catch_unwind(AssertUnwindSafe(|| (self.run)(bytes))).is_err() {
            panic!("{}: {what}: b\"{}\"", self.name, bytes.escape_ascii());
        }
    }
}

/// Runs a reader on each file of its corpus; how many there are.
///
/// # Panics
/// Where a property does not hold, with the input.
pub fn replay(target: &Target) -> usize {
    let corpus = target.corpus();
    corpus.iter().for_each(|(path, bytes)| target.assert_holds(&path.display().to_string(), bytes));
    corpus.len()
}

/// Runs a reader on changed files of its corpus for as long as `goes_on` says, which is asked with their number so far.
///
/// # Panics
/// Where a property does not hold, with the input.
pub fn drive(target: &Target, seed: u64, mut goes_on: impl FnMut(u64) -> bool) -> u64 {
    let corpus: Vec<_> = target.corpus().into_values().collect();
    let (mut draws, mut count) = (Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), 0);
    while goes_on(count) {
        let mut bytes = corpus[draws.below(corpus.len())].clone();
        for _ in 0..=draws.below(4) {
            change(&mut bytes, &corpus, &mut draws);
        }
        target.assert_holds("changed at random", &bytes);
        count += 1;
    }
    count
}

/// One change: a bit, a word, a piece cut out, doubled, or of another input.
fn change(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], draws: &mut Draws) {
    let (from, to) = (draws.below(bytes.len() + 1), draws.below(bytes.len() + 1));
    let (from, to) = (from.min(to), from.max(to));
    match draws.below(6) {
        0 if from < bytes.len() => bytes[from] ^= 1 << draws.below(8),
        1 if from < bytes.len() => bytes[from] = draws.below(256) as u8,
        2 => drop(bytes.splice(from..from, WORDS[draws.below(WORDS.len())].bytes())),
        3 => drop(bytes.drain(from..to)),
        4 => bytes.extend_from_within(from..to),
        _ => {
            let other = &corpus[draws.below(corpus.len())];
            let at = draws.below(other.len() + 1);
            bytes.splice(from..to, other[at..].iter().copied());
        }
    }
    bytes.truncate(MAX_BYTES);
}

/// Marsaglia's xorshift.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or_default() % bound
    }
}
