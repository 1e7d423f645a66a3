//! The report in its forms.

mod html;
mod junit;
mod terminal;

pub use html::html;
pub use junit::junit;
pub use terminal::terminal;

/// A text that is a text in HTML and XML too, whatever it holds; what XML cannot hold is replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Finding, Language, Report, Said, Text, Verdict};
    use super::*;

    fn report() -> Report {
        let finding = |rule, verdict, came: &str, advice| Finding {
            rule,
            title: Text { en: "A <title>", ja: "題名 & 1" },
            sent: Text { en: "What is sent", ja: "送信内容" },
            came: vec![Said::new(came, format!("応答 {came}"))],
            verdict,
            advice,
        };
        let advice = Some(Text { en: "Do \"this\"", ja: "対応 <i>" });
        Report {
            url: "http://r/hook?a=1&b=2".to_owned(),
            at: "2026-11-30T13:00:00Z".parse().unwrap(),
            findings: vec![
                finding("C4", Verdict::Pass, "fine", None),
                finding("C5", Verdict::Fail, "<script>alert('x')</script>\u{0}", advice),
                finding("C6", Verdict::CannotTell, "no --probe", advice),
            ],
        }
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        for page in [html(&report(), Language::En), html(&report(), Language::Ja), junit(&report(), Language::En)] {
            assert!(!page.contains("<script") && !page.contains('\0') && !page.contains("<i>"), "{page}");
            assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;\u{fffd}"), "{page}");
        }
    }

    #[test]
    fn the_page_needs_nobody_else() {
        let page = html(&report(), Language::Ja);
        for asks in ["src=", "<link", "@import", "url(", "<a ", "<script"] {
            assert!(!page.contains(asks), "{asks}");
        }
        assert!(page.contains("default-src 'none'") && page.contains("<html lang=\"ja\">"));
        assert!(page.contains("3 件中 1 件の規則に違反"), "{page}");
    }

    #[test]
    fn junit_counts_and_names_what_fails() {
        let page = junit(&report(), Language::En);
        assert!(page.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{page}");
        assert_eq!(page.matches("<testcase ").count(), 3);
        assert!(page.contains("Do &quot;this&quot;"), "{page}");
    }

    #[test]
    fn colour_is_for_terminals() {
        let (plain, coloured) = (terminal(&report(), Language::En, false), terminal(&report(), Language::En, true));
        assert!(!plain.contains('\u{1b}') && coloured.contains("\u{1b}[31m"));
        assert!(plain.contains("FAIL") && plain.contains("how to fix it: Do \"this\""), "{plain}");
        assert!(
            plain.ends_with("The receiver breaks 1 of 3 rules and would lose or spoil data; 1 could not be told.\n")
        );
    }
}
