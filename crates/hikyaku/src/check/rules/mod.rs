//! The rules, a file per group: what is sent for each, and what follows from what was seen. The judgements are pure.

pub(super) mod bodies;
pub(super) mod duplicates;
pub(super) mod order;
pub(super) mod signature;
pub(super) mod speed;
#[cfg(test)]
mod tests;
pub(super) mod trouble;

use super::finding::{Rule, Said, Text};
use super::lab::{Answer, Draft, Seen};

/// Every rule, in the order of the report.
pub(super) const ALL: [&Rule; 13] = [
    &order::C4,
    &duplicates::C5,
    &duplicates::C6,
    &duplicates::C7,
    &duplicates::C9,
    &signature::C11,
    &duplicates::C12,
    &speed::C14,
    &trouble::C16,
    &trouble::T1,
    &signature::T2,
    &bodies::T6,
    &bodies::T7,
];

const NEEDS_PROBE: Text = Text {
    en: "Give --probe a command or a URL that prints the receiver's business keys and values.",
    ja: "受信側の業務キーと値を出力するコマンドまたは URL を --probe で指定してください。",
};

/// A fault for an answer that should have been 2xx; none if it was.
fn not_accepted(what_en: &str, what_ja: &str, answer: &Answer) -> Option<Said> {
    let said = answer.said();
    let fault = || Said::new(format!("{what_en}: {}", en(&said)), format!("{what_ja}: {}", ja(&said)));
    (!answer.is_accepted()).then(fault)
}

/// A fault for an effect that should be there; none if it is, or if effects are not seen.
fn no_effect(what_en: &str, what_ja: &str, draft: &Draft, seen: &Seen) -> Option<Said> {
    let is_missing = seen.as_ref().is_ok_and(|effects| !effects.has(&draft.key));
    let fault = || {
        Said::new(
            format!("{what_en}: accepted, and no effect of it was seen"),
            format!("{what_ja}: 受け付けたのに、反映を確認できませんでした"),
        )
    };
    is_missing.then(fault)
}

fn en(said: &Said) -> &str {
    said.get(super::finding::Language::En)
}

fn ja(said: &Said) -> &str {
    said.get(super::finding::Language::Ja)
}
