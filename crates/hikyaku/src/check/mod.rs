//! `hikyaku check`: what a receiver, in any language, keeps of the contract's rules.
//!
//! It sends what the provider would send, and what a stranger would; it sees the answers and, through a probe of the
//! user's, the effects. What follows from what was seen is decided by pure functions, one for each rule.

mod finding;
mod lab;
mod probe;
mod report;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::signature::Secret;
use jiff::Timestamp;
use url::Url;

pub use finding::{Finding, Judgement, Language, Report, Rule, Said, Text, Verdict};
pub use lab::Instruments;
pub use probe::{Act, Effects, Probe, UsersCommand, UsersProbe};
pub use report::{html, junit, terminal};

use lab::{Answer, Lab, Unseen};
use rules::{ALL, bodies, duplicates, order, signature, speed, trouble};

/// What the deliveries are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Orders, which change.
    Order,
    /// Sales, which happen once.
    Sale,
}

/// What is checked, and how hard.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The receiver.
    pub url: Url,
    /// Its secret.
    pub secret: Secret,
    /// The receiver's second webhook with its secret (C9).
    pub second: Option<(Url, Secret)>,
    /// What the deliveries are about.
    pub subject: Subject,
    /// How long effects may take to be seen.
    pub settle: Duration,
    /// Deliveries per second of the load (C14).
    pub rate: u32,
    /// How long the load lasts, in seconds.
    pub load_seconds: u32,
    /// Within what 99 of 100 answers must come (C14).
    pub p99: Duration,
    /// How late the copy of an old delivery comes; at the end of the check where it is not said (C7).
    pub duplicate_after: Option<Duration>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The receiver is not there.
    #[error("no answer from {url}: {reason}")]
    NoAnswer {
        /// Its address.
        url: Url,
        /// Why not.
        reason: String,
    },
    /// The probe does not work, or prints something else.
    #[error("the probe failed: {0}")]
    Probe(String),
    /// It was stopped before its end; what was broken is mended.
    #[error("stopped before the end, so there is no report{0}")]
    Stopped(String),
}

/// Checks a receiver. `tell` hears what is being done; the end of `stop` ends the check early.
///
/// # Errors
/// Nothing could be checked, or it was stopped.
pub async fn run(
    settings: Settings,
    tools: Instruments,
    tell: impl Fn(&str),
    stop: impl Future<Output = ()>,
) -> Result<Report, CheckError> {
    let lab = Lab::new(settings, tools);
    let stopped = tokio::select! {
        report = examine(&lab, &tell) => return report,
        () = stop => &lab.tools.outage,
    };
    let mended = match stopped {
        Some((_, mends)) => mends.act().await,
        None => Ok(()),
    };
    Err(CheckError::Stopped(mended.err().map(|reason| format!("; and mending failed: {reason}")).unwrap_or_default()))
}

async fn examine(lab: &Arc<Lab>, tell: &impl Fn(&str)) -> Result<Report, CheckError> {
    let at = lab.tools.clock.now();
    if let Some(probe) = &lab.tools.probe {
        tell("the probe");
        probe.look().await.map_err(CheckError::Probe)?;
    }
    tell("a plain delivery");
    let plain = lab.draft("plain");
    let answer = lab.send(&plain).await;
    if answer.status == 0 {
        return Err(CheckError::NoAnswer { url: lab.settings.url.clone(), reason: answer.text });
    }
    if !answer.is_accepted() {
        return Ok(report(lab, at, refused(&answer)));
    }
    if let Ok(effects) = lab.effects_when(|effects| effects.has(&plain.key)).await
        && !effects.has(&plain.key)
    {
        lab.give_up_looking(Unseen::Silent);
    }
    tell("signatures: C11, T2");
    let mut findings = signature::check(lab).await;
    tell("duplicates: C5, C6, C9, C12");
    let (found, first) = duplicates::check(lab).await;
    findings.extend(found);
    tell("old and new: C4");
    findings.extend(order::check(lab).await);
    tell("bodies and times of every kind: T6, T7");
    findings.extend(bodies::check(lab).await);
    tell("load: C14");
    findings.extend(speed::check(lab).await);
    tell("outage and crash: C16, T1");
    findings.extend(trouble::check(lab).await);
    tell("a late duplicate: C7");
    findings.push(duplicates::check_late(lab, first).await);
    Ok(report(lab, at, findings))
}

/// Where not even a plain delivery is accepted, the rule that says why fails, and nothing else can be told.
fn refused(answer: &Answer) -> Vec<Finding> {
    let plain = Text { en: "a plain delivery", ja: "通常の配信" };
    let (blamed, judgement) = match signature::judge_plain(answer) {
        Some(judgement) => (signature::T2.code, judgement),
        None => (bodies::T6.code, bodies::judge(&[(plain, answer.clone())], &Err(Unseen::NoProbe))),
    };
    let open = Judgement::open(Said::new(
        "Nothing can be told: the receiver does not accept a plain, rightly signed delivery.",
        "正しく署名した通常の配信が受け付けられないため、確認できません。",
    ));
    let judge = |rule: &Rule| if rule.code == blamed { judgement.clone() } else { open.clone() };
    ALL.iter().map(|rule| rule.finds(judge(rule))).collect()
}

fn report(lab: &Lab, at: Timestamp, mut findings: Vec<Finding>) -> Report {
    findings.sort_by_key(|finding| ALL.iter().position(|rule| rule.code == finding.rule));
    let mut url = lab.settings.url.clone();
    // Neither can fail for a URL that has a host.
    let _ = (url.set_username(""), url.set_password(None));
    Report { url: url.to_string(), at, findings }
}
