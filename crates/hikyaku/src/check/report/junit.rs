//! For a CI that shows JUnit's XML.

use std::fmt::Write;

use super::super::finding::{Finding, Language, Report, Verdict};
use super::escape;

/// The report as a JUnit file: a rule is a test case, one that could not be told is skipped.
pub fn junit(report: &Report, language: Language) -> String {
    let (tests, failures, skipped) =
        (report.findings.len(), report.count(Verdict::Fail), report.count(Verdict::CannotTell));
    let url = escape(&report.url);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"hikyaku check {url}\" tests=\"{tests}\" \
         failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" timestamp=\"{}\">\n",
        hikyaku_core::timestamp::format(report.at)
    );
    for finding in &report.findings {
        // Writing to a String cannot fail.
        let _ = write_case(&mut text, finding, language);
    }
    text + "</testsuite>\n</testsuites>\n"
}

fn write_case(text: &mut String, finding: &Finding, language: Language) -> std::fmt::Result {
    let name = escape(&format!("{} {}", finding.rule, finding.title.get(language)));
    let came: Vec<_> = finding.came.iter().map(|said| said.get(language)).collect();
    let message = escape(&came.join("; "));
    let advice = escape(finding.advice.map_or("", |advice| advice.get(language)));
    write!(text, "<testcase classname=\"hikyaku.check\" name=\"{name}\">")?;
    match finding.verdict {
        Verdict::Pass => write!(text, "<system-out>{message}</system-out>")?,
        Verdict::Fail => write!(text, "<failure message=\"{message}\">{advice}</failure>")?,
        Verdict::CannotTell => write!(text, "<skipped message=\"{message} {advice}\"/>")?,
    }
    writeln!(text, "</testcase>")
}
