//! For a person at a terminal.

use std::fmt::Write;

use super::super::finding::{Finding, Language, Report, Text, Verdict};

const SENT: Text = Text { en: "sent", ja: "送信" };
const CAME: Text = Text { en: "seen", ja: "結果" };
const FIX: Text = Text { en: "how to fix it", ja: "対処" };
const NEEDS: Text = Text { en: "to tell", ja: "判定するには" };

/// The report as text, in colour on a terminal.
pub fn terminal(report: &Report, language: Language, colour: bool) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        // Writing to a String cannot fail.
        let _ = write_finding(&mut text, finding, language, colour);
    }
    text + &report.sentence(language) + "\n"
}

fn write_finding(text: &mut String, finding: &Finding, language: Language, colour: bool) -> std::fmt::Result {
    let (code, word) = match finding.verdict {
        Verdict::Pass => ("32", finding.verdict.word()),
        Verdict::Fail => ("31", finding.verdict.word()),
        Verdict::CannotTell => ("33", finding.verdict.word()),
    };
    let word = word.get(language).to_uppercase();
    let word = if colour { format!("\u{1b}[{code}m{word}\u{1b}[0m") } else { word };
    writeln!(text, "{:<4} {word}  {}", finding.rule, finding.title.get(language))?;
    if finding.verdict == Verdict::Fail {
        writeln!(text, "     {}: {}", SENT.get(language), finding.sent.get(language))?;
    }
    for said in &finding.came {
        writeln!(text, "     {}: {}", CAME.get(language), said.get(language))?;
    }
    if let Some(advice) = finding.advice {
        let what = if finding.verdict == Verdict::Fail { FIX } else { NEEDS };
        writeln!(text, "     {}: {}", what.get(language), advice.get(language))?;
    }
    writeln!(text)
}
