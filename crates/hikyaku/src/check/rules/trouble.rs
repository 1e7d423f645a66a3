//! When something breaks: C16, T1.

use std::sync::Arc;
use std::time::Duration;

use super::{en, ja};
use crate::check::finding::{Finding, Judgement, Rule, Said, Text};
use crate::check::lab::{Answer, Draft, Lab, Seen, unseen};

pub(in crate::check) const C16: Rule = Rule {
    code: "C16",
    title: Text {
        en: "An outage of another service fails no delivery",
        ja: "ほかのサービスの障害で配信を失敗させない",
    },
    sent: Text {
        en: "Deliveries while what the receiver depends on is broken (--break-command); after --mend-command those again that were \
             not accepted.",
        ja: "受信側が依存するサービスを停止した状態（--break-command）で配信。復旧（--mend-command）後に、受け付けられなかったものを再送。",
    },
    fix: Text {
        en: "Store the delivery and answer 200 before you talk to other services. Do that from the stored row, again and again \
             until it works, and let the row be the record of the id too: an id that is recorded before its work is done \
             loses the event when the work fails.",
        ja: "ほかのサービスを呼び出す前に、配信を保存して 200 を返してください。処理は保存した行から、成功するまで繰り返してください。ID の記録も\
             その行で兼ねてください。処理の完了前に ID だけを記録すると、処理が失敗したときにイベントが失われます。",
    },
    needs: Text {
        en: "Give --break-command and --mend-command, which switch off and on what the receiver depends on, and --probe. If effects \
             come later than --settle, give it longer.",
        ja: "受信側が依存するサービスを停止・復旧する --break-command と --mend-command、および --probe を指定してください。反映に時間がかかる\
             場合は --settle を長くしてください。",
    },
};

pub(in crate::check) const T1: Rule = Rule {
    code: "T1",
    title: Text {
        en: "A crash in the middle loses nothing", ja: "処理中に停止してもデータを失わない"
    },
    sent: Text {
        en: "Three times 8 deliveries under way while --restart-command kills the receiver and starts it again; those not accepted \
             again until they are.",
        ja: "8 件の配信中に --restart-command で強制終了・再起動することを 3 回実施。受け付けられなかったものは、受け付けられるまで再送。",
    },
    fix: Text {
        en: "Write the id and the business update, or the body to be worked on later, in one transaction, and answer after its \
             commit. An id without its work makes the retry look done; work that is only in memory when 200 is answered is gone.",
        ja: "ID と業務データの更新（または後で処理する本文）を 1 つのトランザクションで書き込み、コミット後に応答してください。ID だけが残ると\
             再送が処理済みに見え、メモリー上にしかない処理は 200 を返していても失われます。",
    },
    needs: Text {
        en: "Give --restart-command, which kills the receiver (kill -9) and starts it again, and --probe.",
        ja: "受信側を強制終了（kill -9）して再起動する --restart-command と、--probe を指定してください。",
    },
};

/// How long after their sending the receiver is killed, once for each round.
const KILL_AFTER: [Duration; 3] = [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(400)];
/// Deliveries under way at each kill, and during an outage.
const DELIVERIES: usize = 8;

/// What became of a delivery in trouble.
pub(super) struct Fate {
    pub(super) draft: Draft,
    /// What came back while the trouble was on.
    pub(super) first: Answer,
    /// What came back at last, where it had to be sent again.
    pub(super) again: Option<Answer>,
}

pub(in crate::check) async fn check(lab: &Arc<Lab>) -> Vec<Finding> {
    vec![C16.finds(outage(lab).await), T1.finds(crash(lab).await)]
}

async fn outage(lab: &Arc<Lab>) -> Judgement {
    let Some((breaks, mends)) = &lab.tools.outage else {
        return not_given("--break-command");
    };
    let drafts = lab.drafts("c16", DELIVERIES);
    let broken = breaks.act().await;
    let answers = match broken {
        Ok(()) => Arc::clone(lab).send_all(drafts.clone()).await,
        Err(_) => Vec::new(),
    };
    // Mended in any case: the break may have worked in part.
    if let Err(reason) = broken.and(mends.act().await) {
        return did_not_work(&reason);
    }
    let fates = send_again(lab, drafts, answers).await;
    let seen = lab.effects_when(|effects| fates.iter().all(|fate| effects.has(&fate.draft.key))).await;
    judge_outage(&fates, &seen)
}

async fn crash(lab: &Arc<Lab>) -> Judgement {
    let Some(restart) = &lab.tools.restart else {
        return not_given("--restart-command");
    };
    let mut fates = Vec::new();
    for pause in KILL_AFTER {
        let drafts = lab.drafts("t1", DELIVERIES);
        let under_way = tokio::spawn(Arc::clone(lab).send_all(drafts.clone()));
        tokio::time::sleep(pause).await;
        let restarted = restart.act().await;
        let answers = under_way.await.unwrap_or_default();
        if let Err(reason) = restarted {
            return did_not_work(&reason);
        }
        fates.extend(send_again(lab, drafts, answers).await);
        // Else the next kill, or the next rule, would meet a receiver that is not there yet.
        lab.send_until_accepted(&lab.draft("plain")).await;
    }
    let seen = lab.effects_when(|effects| fates.iter().all(|fate| effects.has(&fate.draft.key))).await;
    judge_crash(&fates, &seen)
}

/// What the provider does: sends again what was not accepted, under the same id.
async fn send_again(lab: &Lab, drafts: Vec<Draft>, answers: Vec<Answer>) -> Vec<Fate> {
    let mut fates = Vec::new();
    for (draft, first) in drafts.into_iter().zip(answers) {
        let again = if first.is_accepted() { None } else { Some(lab.send_until_accepted(&draft).await) };
        fates.push(Fate { draft, first, again });
    }
    fates
}

fn not_given(flag: &str) -> Judgement {
    Judgement::open(Said::new(
        format!("Nothing was sent: there is no {flag}."),
        format!("{flag} がないため送信していません。"),
    ))
}

fn did_not_work(reason: &str) -> Judgement {
    Judgement::open(Said::new(format!("A command did not work: {reason}"), format!("コマンドが失敗しました: {reason}")))
}

/// C16: accepted while the outage lasts, and in effect after it.
pub(super) fn judge_outage(fates: &[Fate], seen: &Seen) -> Judgement {
    let refused: Vec<_> = fates.iter().filter(|fate| !fate.first.is_accepted()).collect();
    let mut faults = Vec::new();
    if let Some(first) = refused.first() {
        let (refused, count, said) = (refused.len(), fates.len(), first.first.said());
        faults.push(Said::new(
            format!("{refused} of {count} were not accepted during the outage; the first: {}", en(&said)),
            format!("障害中に {count} 件のうち {refused} 件を受け付けませんでした。最初の例: {}", ja(&said)),
        ));
    }
    faults.extend(lost(fates, seen));
    let fine = Said::new(
        format!("All {} were accepted during the outage, and took effect after it.", fates.len()),
        format!("障害中も {} 件すべてを受け付け、復旧後に反映しました。", fates.len()),
    );
    Judgement::new(faults, unseen(seen), fine)
}

/// T1: whatever was accepted, before the kill or after, has its effect.
pub(super) fn judge_crash(fates: &[Fate], seen: &Seen) -> Judgement {
    let before = fates.iter().filter(|fate| fate.first.is_accepted()).count();
    let (count, cut) = (fates.len(), fates.len() - before);
    let fine = Said::new(
        format!("All {count} took effect: {before} accepted before a kill, {cut} when they were sent again."),
        format!("{count} 件すべてを反映しました（停止前の受け付け {before} 件、再送後 {cut} 件）。"),
    );
    Judgement::new(lost(fates, seen), unseen(seen), fine)
}

/// Deliveries that were not accepted at last, or were and have no effect.
fn lost(fates: &[Fate], seen: &Seen) -> Vec<Said> {
    let mut faults = Vec::new();
    let never = |fate: &&Fate| fate.again.as_ref().is_some_and(|again| !again.is_accepted());
    if let Some(again) = fates.iter().find(never).and_then(|fate| fate.again.as_ref()) {
        let (count, said) = (fates.iter().filter(never).count(), again.said());
        faults.push(Said::new(
            format!("{count} were not accepted afterwards either; the first: {}", en(&said)),
            format!("その後も {count} 件を受け付けませんでした。最初の例: {}", ja(&said)),
        ));
    }
    let is_gone = |fate: &&Fate| seen.as_ref().is_ok_and(|effects| !effects.has(&fate.draft.key)) && !never(fate);
    let (again, at_once): (Vec<_>, Vec<_>) = fates.iter().filter(is_gone).partition(|fate| fate.again.is_some());
    if !at_once.is_empty() {
        let count = at_once.len();
        faults.push(Said::new(
            format!("{count} were accepted at first, and have no effect: they are lost"),
            format!("受け付けたはずの {count} 件が反映されず、失われました"),
        ));
    }
    if !again.is_empty() {
        let count = again.len();
        faults.push(Said::new(
            format!("{count} were sent again and accepted as if they were done, and have no effect: they are lost"),
            format!("再送した {count} 件が処理済みとして受け付けられたのに反映されず、失われました"),
        ));
    }
    faults
}
