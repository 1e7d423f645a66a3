//! For whoever decides: one page that needs nothing from elsewhere.

use std::fmt::Write;

use super::super::finding::{Finding, Language, Report, Text, VERDICTS, Verdict};
use super::escape;

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.6 system-ui, 'Hiragino Sans', 'Noto Sans CJK JP', 'Yu Gothic', sans-serif; margin: 0; color: #1d2430; background: #f4f5f7; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 15px; font-weight: 600; margin: 0 0 4px; color: #5a6475; }
.about { color: #5a6475; margin: 0 0 20px; overflow-wrap: anywhere; font-size: 14px; }
.verdict { font-size: 24px; line-height: 1.4; font-weight: 600; margin: 0 0 16px; padding: 20px 24px; border-radius: 8px; color: #fff; }
.verdict.good { background: #17703f; } .verdict.bad { background: #b3261e; }
.counts { display: flex; gap: 12px; flex-wrap: wrap; margin: 0 0 24px; padding: 0; list-style: none; }
.counts li { background: #fff; border: 1px solid #d9dde3; border-radius: 8px; padding: 8px 16px; }
.counts b { font-size: 20px; margin-right: 6px; }
table { width: 100%; border-collapse: collapse; background: #fff; border: 1px solid #d9dde3; }
th, td { text-align: left; vertical-align: top; padding: 12px; border-top: 1px solid #e5e8ec; font-size: 14px; overflow-wrap: anywhere; }
thead th { background: #eceff3; border-top: 0; font-size: 13px; white-space: nowrap; }
tbody th { font-weight: 600; min-width: 180px; } tbody th span { color: #5a6475; font-weight: 400; margin-right: 8px; }
td p { margin: 0 0 6px; } td p:last-child { margin: 0; }
.mark { display: inline-block; padding: 2px 10px; border-radius: 99px; font-weight: 600; white-space: nowrap; }
.pass .mark { background: #dff3e6; color: #0f5a30; } .fail .mark { background: #fbe1df; color: #8f1c16; } .open .mark { background: #fdf1d2; color: #6b4e00; }
@media (max-width: 760px) { table, tbody, tr, th, td { display: block; } thead { display: none; } tbody td { border-top: 0; padding-top: 0; } }
@media print { body { background: #fff; } .verdict { -webkit-print-color-adjust: exact; print-color-adjust: exact; } tr { break-inside: avoid; } }
";

const TITLE: Text = Text { en: "Webhook receiver check", ja: "Webhook 受信側の確認結果" };
const COLUMNS: [Text; 5] = [
    Text { en: "Rule", ja: "規則" },
    Text { en: "Verdict", ja: "判定" },
    Text { en: "What was sent", ja: "送信した内容" },
    Text { en: "What was seen", ja: "結果" },
    Text { en: "What to do", ja: "対処" },
];

/// The report as a page.
pub fn html(report: &Report, language: Language) -> String {
    let say = |text: Text| escape(text.get(language));
    let lang = match language {
        Language::En => "en",
        Language::Ja => "ja",
    };
    let good = if report.is_good() { "good" } else { "bad" };
    let counts: String = VERDICTS
        .iter()
        .map(|verdict| format!("<li><b>{}</b>{}</li>", report.count(*verdict), say(verdict.word())))
        .collect();
    let columns: String = COLUMNS.iter().map(|column| format!("<th scope=\"col\">{}</th>", say(*column))).collect();
    let mut rows = String::new();
    for finding in &report.findings {
        // Writing to a String cannot fail.
        let _ = write_row(&mut rows, finding, language);
    }
    format!(
        "<!doctype html>\n<html lang=\"{lang}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<p class=\"about\">{url} · {at}</p>\n\
         <p class=\"verdict {good}\">{sentence}</p>\n<ul class=\"counts\">{counts}</ul>\n<table>\n\
         <thead><tr>{columns}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</main>\n</body>\n</html>\n",
        title = say(TITLE),
        url = escape(&report.url),
        at = hikyaku_core::timestamp::format(report.at),
        sentence = escape(&report.sentence(language)),
    )
}

fn write_row(rows: &mut String, finding: &Finding, language: Language) -> std::fmt::Result {
    let class = match finding.verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::CannotTell => "open",
    };
    let say = |text: Text| escape(text.get(language));
    let came: String = finding.came.iter().map(|said| format!("<p>{}</p>", escape(said.get(language)))).collect();
    let advice = finding.advice.map(say).unwrap_or_default();
    writeln!(
        rows,
        "<tr class=\"{class}\"><th scope=\"row\"><span>{}</span>{}</th><td><div class=\"mark\">{}</div></td><td>{}</td>\
         <td>{came}</td><td>{advice}</td></tr>",
        finding.rule,
        say(finding.title),
        say(finding.verdict.word()),
        say(finding.sent),
    )
}
