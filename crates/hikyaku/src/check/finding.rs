//! What the check has to say: rules, what was found of each, and the report of all, in two languages.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

/// A language of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// English.
    En,
    /// Japanese.
    Ja,
}

/// A text that stands from the beginning, in both languages.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// English.
    pub en: &'static str,
    /// Japanese.
    pub ja: &'static str,
}

impl Text {
    /// The text in one language.
    pub fn get(self, language: Language) -> &'static str {
        match language {
            Language::En => self.en,
            Language::Ja => self.ja,
        }
    }
}

/// A sentence made of what was seen, in both languages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    en: String,
    ja: String,
}

impl Said {
    /// The same sentence twice.
    pub fn new(en: impl Into<String>, ja: impl Into<String>) -> Self {
        Self { en: en.into(), ja: ja.into() }
    }

    /// The sentence in one language.
    pub fn get(&self, language: Language) -> &str {
        match language {
            Language::En => &self.en,
            Language::Ja => &self.ja,
        }
    }
}

impl From<Text> for Said {
    fn from(text: Text) -> Self {
        Self::new(text.en, text.ja)
    }
}

/// How a rule came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The receiver keeps it, as far as was tried.
    Pass,
    /// It does not.
    Fail,
    /// What would tell was not given, or could not be seen.
    CannotTell,
}

/// Verdicts in the order in which they are counted.
pub(super) const VERDICTS: [Verdict; 3] = [Verdict::Pass, Verdict::Fail, Verdict::CannotTell];

impl Verdict {
    /// The word for it.
    pub(super) fn word(self) -> Text {
        match self {
            Self::Pass => Text { en: "pass", ja: "合格" },
            Self::Fail => Text { en: "fail", ja: "不合格" },
            Self::CannotTell => Text { en: "cannot tell", ja: "判定不能" },
        }
    }
}

/// A rule of the contract that a receiver is checked for.
#[derive(Debug)]
pub struct Rule {
    /// Its number in the contract.
    pub code: &'static str,
    /// What it asks.
    pub title: Text,
    /// What is sent to find out.
    pub sent: Text,
    /// What to change where it fails.
    pub fix: Text,
    /// What to give where nothing can be told.
    pub needs: Text,
}

/// What follows from what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// How the rule came out.
    pub verdict: Verdict,
    /// What was seen.
    pub came: Vec<Said>,
}

impl Judgement {
    /// Faults that were seen decide. Without any, what could not be seen leaves it open; else all is fine.
    pub(super) fn new(faults: Vec<Said>, unseen: Option<Said>, fine: Said) -> Self {
        match (faults.is_empty(), unseen) {
            (false, _) => Self { verdict: Verdict::Fail, came: faults },
            (true, Some(unseen)) => Self::open(unseen),
            (true, None) => Self { verdict: Verdict::Pass, came: vec![fine] },
        }
    }

    /// Nothing can be told.
    pub(super) fn open(reason: Said) -> Self {
        Self { verdict: Verdict::CannotTell, came: vec![reason] }
    }
}

impl Rule {
    /// The rule with what was found of it.
    pub(super) fn finds(&self, judgement: Judgement) -> Finding {
        let advice = match judgement.verdict {
            Verdict::Pass => None,
            Verdict::Fail => Some(self.fix),
            Verdict::CannotTell => Some(self.needs),
        };
        let Judgement { verdict, came } = judgement;
        Finding { rule: self.code, title: self.title, sent: self.sent, came, verdict, advice }
    }
}

/// What was found of a rule.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The rule's number.
    pub rule: &'static str,
    /// What it asks.
    pub title: Text,
    /// What was sent.
    pub sent: Text,
    /// What came back.
    pub came: Vec<Said>,
    /// How it came out.
    pub verdict: Verdict,
    /// What to change, or to give; none where all is well.
    pub advice: Option<Text>,
}

/// All that was found of a receiver.
#[derive(Debug)]
pub struct Report {
    /// The receiver, without user name and password.
    pub url: String,
    /// When the check began.
    pub at: Timestamp,
    /// One for each rule, in the contract's order.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many rules came out so.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// Whether no rule fails.
    pub fn is_good(&self) -> bool {
        self.count(Verdict::Fail) == 0
    }

    /// All of it in a sentence.
    pub fn sentence(&self, language: Language) -> String {
        let [pass, fail, open] = VERDICTS.map(|verdict| self.count(verdict));
        let all = self.findings.len();
        match (language, fail, open) {
            (Language::En, 0, 0) => format!("The receiver keeps all {all} rules that were checked."),
            (Language::En, 0, _) => {
                format!("No rule fails: the receiver keeps {pass} of {all}; {open} could not be told.")
            }
            (Language::En, _, 0) => format!("The receiver breaks {fail} of {all} rules and would lose or spoil data."),
            (Language::En, _, _) => format!(
                "The receiver breaks {fail} of {all} rules and would lose or spoil data; {open} could not be told."
            ),
            (Language::Ja, 0, 0) => format!("受信側は、確認した {all} 件の規則をすべて満たしています。"),
            (Language::Ja, 0, _) => {
                format!("不合格の規則はありません。{all} 件中 {pass} 件が合格、{open} 件は判定できませんでした。")
            }
            (Language::Ja, _, 0) => {
                format!("受信側は {all} 件中 {fail} 件の規則に違反しており、データの欠落や誤りが起こりえます。")
            }
            (Language::Ja, _, _) => format!(
                "受信側は {all} 件中 {fail} 件の規則に違反しており、データの欠落や誤りが起こりえます。ほかに {open} 件は判定できませんでした。"
            ),
        }
    }

    /// All of it for programs.
    pub fn json(&self, language: Language) -> Value {
        let rules = self.findings.iter().map(|finding| {
            json!({
                "rule": finding.rule, "title": finding.title.get(language), "verdict": finding.verdict,
                "sent": finding.sent.get(language),
                "came": finding.came.iter().map(|said| said.get(language)).collect::<Vec<_>>(),
                "advice": finding.advice.map(|advice| advice.get(language)),
            })
        });
        let [pass, fail, open] = VERDICTS.map(|verdict| self.count(verdict));
        json!({
            "url": self.url, "at": hikyaku_core::timestamp::format(self.at), "summary": self.sentence(language),
            "pass": pass, "fail": fail, "cannotTell": open, "rules": rules.collect::<Vec<_>>(),
        })
    }
}
