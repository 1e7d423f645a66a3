//! Each reader on its corpus, and on a little of what a longer run makes of it: `HIKYAKU_TEST_FUZZ` is how many changed
//! inputs each gets.

use super::*;

/// Changed inputs of a reader, unless `HIKYAKU_TEST_FUZZ` says otherwise.
const CHANGED: u64 = 20_000;

#[test]
fn every_corpus_holds() {
    for target in &TARGETS {
        assert!(replay(target) >= 5, "{}: its corpus is small", target.name);
    }
}

#[test]
fn what_comes_of_every_corpus_holds() {
    let most = std::env::var("HIKYAKU_TEST_FUZZ").map_or(CHANGED, |most| most.parse().expect("it is a number"));
    for (seed, target) in (1..).zip(&TARGETS) {
        assert_eq!(drive(target, seed, |count| count < most), most);
    }
}

/// Otherwise a run shows nothing.
#[test]
#[should_panic(expected = "url: changed at random")]
fn a_property_that_does_not_hold_is_told_with_the_input() {
    let no_https = |bytes: &[u8]| assert!(!bytes.starts_with(b"https://"));
    drive(&Target { name: "url", run: no_https }, 1, |count| count < CHANGED);
}
