//! The same event twice: C5, C6, C7, C9, C12.
//!
//! A copy carries the same id and, but for C12, is about another key: an upsert of the same key would hide that the copy
//! was processed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{NEEDS_PROBE, not_accepted};
use crate::check::finding::{Finding, Judgement, Rule, Said, Text, Verdict};
use crate::check::lab::{Answer, Draft, Lab, Seen, unseen};

/// Copies that come at once.
const PARALLEL_COPIES: usize = 8;
/// How long retries take by the contract (R8), the waits for four answers included.
pub(in crate::check) const RETRIES_TAKE: Duration = Duration::from_secs(60 + 600 + 3600 + 40);

pub(in crate::check) const C5: Rule = Rule {
    code: "C5",
    title: Text { en: "The deduplication key is X-RR-Delivery", ja: "重複は X-RR-Delivery で判定する" },
    sent: Text {
        en: "A delivery, and when it had taken effect another body about another key under the same X-RR-Delivery.",
        ja: "配信を 1 件。反映後に、同じ X-RR-Delivery で別のキーを持つ別の本文。",
    },
    fix: Text {
        en: "Before any work insert X-RR-Delivery into a table where it is unique. If it is there already, answer 200 and do \
             nothing, whatever the body says.",
        ja: "処理の前に、一意制約のある表へ X-RR-Delivery を挿入してください。すでにあれば、本文にかかわらず何もせずに 200 を返してください。",
    },
    needs: NEEDS_PROBE,
};

pub(in crate::check) const C6: Rule = Rule {
    code: "C6",
    title: Text {
        en: "Copies that come at once are processed once", ja: "同時に届いた重複も 1 回だけ処理する"
    },
    sent: Text {
        en: "8 requests at once under one X-RR-Delivery, each about another key.",
        ja: "1 つの X-RR-Delivery で、それぞれ別のキーを持つ 8 件を同時に送信。",
    },
    fix: Text {
        en: "Do not look first and insert then: two requests pass between the two. Use one statement, INSERT … ON CONFLICT DO \
             NOTHING, and go on only if it inserted a row, in the transaction of the business update.",
        ja: "検索してから挿入すると、その間に別のリクエストが入り込みます。INSERT … ON CONFLICT DO NOTHING の 1 文で挿入し、行が追加された\
             ときだけ、業務データの更新と同じトランザクションで処理を続けてください。",
    },
    needs: NEEDS_PROBE,
};

pub(in crate::check) const C7: Rule = Rule {
    code: "C7",
    title: Text {
        en: "Ids are kept for longer than retries take, 71 minutes",
        ja: "ID を再送が続く 71 分より長く保存する",
    },
    sent: Text {
        en: "The id of the first delivery once more at the end of the check, after the restarts and after --duplicate-after.",
        ja: "最初の配信の ID を、確認の最後（再起動と --duplicate-after の待機後）にもう一度送信。",
    },
    fix: Text {
        en: "Keep the ids in a table, not in memory or in a cache that forgets, and delete them after a day.",
        ja: "ID はメモリーや消えるおそれのあるキャッシュではなく表に保存し、1 日たってから削除してください。",
    },
    needs: Text {
        en: "Give --probe, and --duplicate-after 72m: the check then waits so long before it sends the copy.",
        ja: "--probe と --duplicate-after 72m を指定すると、その時間を待ってから重複を送信します。",
    },
};

pub(in crate::check) const C9: Rule = Rule {
    code: "C9",
    title: Text {
        en: "An event that comes by two webhooks is processed once",
        ja: "2 つの Webhook から届いたイベントも 1 回だけ処理する",
    },
    sent: Text {
        en: "An event to the receiver's URL and, under the same X-RR-Delivery, to --second-url.",
        ja: "同じ X-RR-Delivery のイベントを、受信側の URL と --second-url の両方に送信。",
    },
    fix: Text {
        en: "Let the addresses of all your webhooks share one table of ids: several webhooks get the same X-RR-Delivery.",
        ja: "複数の Webhook に同じ X-RR-Delivery が届くため、すべての受信先で処理済み ID の表を共有してください。",
    },
    needs: Text {
        en: "Give --second-url, the address of your second webhook, with its --second-secret, and --probe. With one webhook \
             there is nothing to do.",
        ja: "2 つ目の Webhook の URL とシークレットを --second-url と --second-secret で、加えて --probe を指定してください。Webhook が 1 つ\
             だけなら対応は不要です。",
    },
};

pub(in crate::check) const C12: Rule = Rule {
    code: "C12",
    title: Text {
        en: "A known delivery is answered 2xx at once", ja: "処理済みの配信にはすぐ 2xx を返す"
    },
    sent: Text {
        en: "A delivery twice, byte for byte, the second after the first had taken effect.",
        ja: "同一のバイト列の配信を 2 回。2 回目は 1 回目の反映後に送信。",
    },
    fix: Text {
        en: "A known id is a success: answer 200 without work. After any other answer the provider tries again, and after \
             four failures it switches the webhook off.",
        ja: "処理済みの ID は成功として扱い、何もせずに 200 を返してください。それ以外の応答では再送が続き、4 回失敗すると Webhook が無効になります。",
    },
    needs: NEEDS_PROBE,
};

/// Deliveries of one id with their answers.
pub(super) type Copies = [(Draft, Answer)];

/// The first delivery of the check of C5, whose id comes once more at the end.
pub(in crate::check) struct First {
    draft: Draft,
    at: Timestamp,
}

pub(in crate::check) async fn check(lab: &Arc<Lab>) -> (Vec<Finding>, First) {
    let first = First { draft: lab.draft("c5"), at: lab.tools.clock.schedule() };
    let other = Draft { id: first.draft.id.clone(), ..lab.draft("c5") };
    let one_by_one = in_turn(lab, [&first.draft, &other]).await;

    let parallel = lab.drafts("c6", PARALLEL_COPIES);
    let parallel: Vec<_> = parallel.iter().map(|draft| Draft { id: parallel[0].id.clone(), ..draft.clone() }).collect();
    let answers = Arc::clone(lab).send_all(parallel.clone()).await;
    let parallel: Vec<_> = parallel.into_iter().zip(answers).collect();

    let same = lab.draft("c12");
    let same = in_turn(lab, [&same, &same]).await;

    let webhooks = by_two_webhooks(lab).await;
    let seen = lab.settled().await;
    let c9 = match &webhooks {
        Some(copies) => judge(copies, &seen),
        None => Judgement::open(Said::new(
            "Nothing was sent: there is no --second-url.",
            "--second-url がないため送信していません。",
        )),
    };
    let findings = vec![
        C5.finds(judge(&one_by_one, &seen)),
        C6.finds(judge(&parallel, &seen)),
        C9.finds(c9),
        C12.finds(judge_same(&same, &seen)),
    ];
    (findings, first)
}

/// Sends the second when the first has taken effect.
async fn in_turn(lab: &Lab, [first, second]: [&Draft; 2]) -> Vec<(Draft, Answer)> {
    let answer = lab.send(first).await;
    // What was seen is judged by a later look.
    let _ = lab.effects_when(|effects| effects.has(&first.key)).await;
    vec![(first.clone(), answer), (second.clone(), lab.send(second).await)]
}

async fn by_two_webhooks(lab: &Lab) -> Option<Vec<(Draft, Answer)>> {
    let (url, secret) = lab.settings.second.as_ref()?;
    let first = lab.draft("c9");
    let second = Draft { id: first.id.clone(), ..lab.draft("c9") };
    let answer = lab.send(&first).await;
    let _ = lab.effects_when(|effects| effects.has(&first.key)).await;
    let copied = lab.send_to(url, secret, &second).await;
    Some(vec![(first, answer), (second, copied)])
}

/// C5, C6, C9: one copy takes effect, once. How the others are answered is judged under C12.
pub(super) fn judge(copies: &Copies, seen: &Seen) -> Judgement {
    let count = copies.len();
    let mut faults = Vec::new();
    if !copies.iter().any(|(_, answer)| answer.is_accepted()) {
        faults.extend(
            copies
                .first()
                .and_then(|(_, answer)| not_accepted("none was accepted", "1 件も受け付けませんでした", answer)),
        );
    }
    let effects = seen.as_ref().map_or(1, |effects| copies.iter().map(|(draft, _)| effects.count(&draft.key)).sum());
    if effects != 1 {
        faults.push(Said::new(
            format!("{effects} of {count} copies took effect, where one is right"),
            format!("{count} 件のうち {effects} 件が反映されました（正しくは 1 件）"),
        ));
    }
    let fine =
        Said::new(format!("Of {count} copies one took effect."), format!("{count} 件のうち、反映は 1 件だけでした。"));
    Judgement::new(faults, unseen(seen), fine)
}

/// C12: both accepted, and what the first did still stands, once.
pub(super) fn judge_same(copies: &Copies, seen: &Seen) -> Judgement {
    let mut faults: Vec<_> =
        copies.iter().filter_map(|(_, answer)| not_accepted("a copy", "重複した配信", answer)).collect();
    for (draft, _) in copies.iter().take(1) {
        let count = seen.as_ref().map_or(1, |effects| effects.count(&draft.key));
        let stands = seen.as_ref().is_ok_and(|effects| effects.shows(&draft.key, draft.amount));
        if count != 1 {
            faults.push(Said::new(
                format!("after the copy the key has {count} values, where one is right"),
                format!("重複の受信後、キーの値が {count} 件あります（正しくは 1 件）"),
            ));
        } else if seen.is_ok() && !stands {
            faults.push(Said::new(
                "after the copy the amount that was sent does not stand there; if the probe prints no amounts, let it"
                    .to_owned(),
                "重複の受信後、送信した金額が残っていません。プローブが金額を出力しているかも確認してください"
                    .to_owned(),
            ));
        }
    }
    let took = copies.last().map_or(Duration::ZERO, |(_, answer)| answer.took).as_millis();
    let fine = Said::new(
        format!("The copy was accepted in {took} ms, and changed nothing."),
        format!("重複した配信を {took} ミリ秒で受け付け、データの変化はありませんでした。"),
    );
    Judgement::new(faults, unseen(seen), fine)
}

/// Sends the first id once more, after everything else.
pub(in crate::check) async fn check_late(lab: &Arc<Lab>, first: First) -> Finding {
    let passed = || lab.tools.clock.schedule().duration_since(first.at).unsigned_abs();
    let wait = lab.settings.duplicate_after.unwrap_or_default();
    tokio::time::sleep(wait.saturating_sub(passed())).await;
    let passed = passed();
    let copy = Draft { id: first.draft.id, ..lab.draft("c7") };
    // How it is answered is judged under C12.
    lab.send(&copy).await;
    let seen = lab.settled().await;
    C7.finds(judge_late(&copy, passed, lab.tools.restart.is_some(), &seen))
}

/// C7: a copy that takes effect fails; one that does not passes if it came late enough.
pub(super) fn judge_late(copy: &Draft, passed: Duration, restarted: bool, seen: &Seen) -> Judgement {
    let seconds = passed.as_secs();
    let mut faults = Vec::new();
    if seen.as_ref().is_ok_and(|effects| effects.has(&copy.key)) {
        faults.push(Said::new(
            format!("after {seconds} s the id was forgotten: the copy took effect"),
            format!("{seconds} 秒後には ID が失われており、重複が反映されました"),
        ));
    }
    let (en, ja) = if restarted { (" and the restarts", "と再起動") } else { ("", "") };
    let fine = Said::new(
        format!("After {seconds} s{en} the id was still known."),
        format!("{seconds} 秒{ja}の後も ID は保存されていました。"),
    );
    let judgement = Judgement::new(faults, unseen(seen), fine);
    match judgement.verdict {
        Verdict::Pass if passed < RETRIES_TAKE => Judgement { verdict: Verdict::CannotTell, ..judgement },
        _ => judgement,
    }
}
