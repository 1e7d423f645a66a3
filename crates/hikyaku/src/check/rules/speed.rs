//! How fast answers come: C14.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::{en, ja};
use crate::check::finding::{Finding, Judgement, Rule, Said, Text};
use crate::check::lab::{Answer, Lab};

pub(in crate::check) const C14: Rule = Rule {
    code: "C14",
    title: Text {
        en: "Answers come far below 10 s, under load too", ja: "負荷がかかっても 10 秒より十分早く応答する"
    },
    sent: Text {
        en: "100 deliveries at once, then --rate deliveries per second for --load-seconds.",
        ja: "同時に 100 件、続けて毎秒 --rate 件を --load-seconds 秒間送信。",
    },
    fix: Text {
        en: "Store the body, answer 200, and do the work from what is stored: no call to another service, no mail and no heavy \
             computing before the answer. Under load, look for a lock or a pool of connections that requests wait for.",
        ja: "本文を保存して 200 を返し、処理は保存したデータから行ってください。応答の前に、ほかのサービスの呼び出し、メール送信、重い計算を\
             しないでください。負荷時に遅い場合は、ロックや接続プールの待ちを調べてください。",
    },
    needs: Text {
        en: "Make the receiver accept a plain, rightly signed delivery first.",
        ja: "まず、正しく署名した通常の配信を受け付けるようにしてください。",
    },
};

/// Deliveries of the burst, all at once.
const BURST: usize = 100;
/// Most deliveries of the load that are under way at a time; their wait for a place counts as the receiver's.
const MAX_UNDER_WAY: usize = 256;

pub(in crate::check) async fn check(lab: &Arc<Lab>) -> Vec<Finding> {
    let mut answers = Arc::clone(lab).send_all(lab.drafts("c14", BURST)).await;
    answers.extend(load(lab).await);
    vec![C14.finds(judge(&answers, lab.settings.p99))]
}

async fn load(lab: &Arc<Lab>) -> Vec<Answer> {
    let count = lab.settings.rate * lab.settings.load_seconds;
    let mut ticks = interval(Duration::from_secs(1) / lab.settings.rate.max(1));
    // What was late is sent at once, so that the rate holds.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let places = Arc::new(Semaphore::new(MAX_UNDER_WAY));
    let mut sending = JoinSet::new();
    for _ in 0..count {
        ticks.tick().await;
        let (lab, places) = (Arc::clone(lab), Arc::clone(&places));
        sending.spawn(async move {
            let began = lab.tools.clock.schedule();
            // It is never closed.
            let _place = places.acquire().await;
            let answer = lab.send(&lab.draft("c14")).await;
            Answer { took: lab.tools.clock.schedule().duration_since(began).unsigned_abs(), ..answer }
        });
    }
    sending.join_all().await
}

/// C14: all accepted, 99 of 100 within `p99`.
pub(super) fn judge(answers: &[Answer], p99: Duration) -> Judgement {
    let refused: Vec<_> = answers.iter().filter(|answer| !answer.is_accepted()).collect();
    let (count, limit) = (answers.len(), p99.as_millis());
    let mut faults = Vec::new();
    if let Some(first) = refused.first() {
        let (refused, said) = (refused.len(), first.said());
        faults.push(Said::new(
            format!("{refused} of {count} were not accepted; the first: {}", en(&said)),
            format!("{count} 件のうち {refused} 件を受け付けませんでした。最初の例: {}", ja(&said)),
        ));
    }
    let mut took: Vec<_> = answers.iter().map(|answer| answer.took).collect();
    took.sort_unstable();
    let millis =
        |share: usize| took.get((count * share).div_ceil(100).saturating_sub(1)).map_or(0, |took| took.as_millis());
    let (median, slow, slowest) = (millis(50), millis(99), millis(100));
    let times_en = format!("median {median} ms, p99 {slow} ms (limit {limit} ms), slowest {slowest} ms");
    let times_ja = format!("中央値 {median} ミリ秒、p99 {slow} ミリ秒（上限 {limit} ミリ秒）、最大 {slowest} ミリ秒");
    if slow > limit {
        faults.push(Said::new(format!("too slow: {times_en}"), format!("応答が遅すぎます: {times_ja}")));
    }
    let fine = Said::new(
        format!("All {count} were accepted: {times_en}."),
        format!("{count} 件すべてを受け付けました: {times_ja}。"),
    );
    Judgement::new(faults, None, fine)
}
