//! Who is let in: C11, T2.

use std::sync::Arc;

use hikyaku_core::signature::{Secret, receiptroller};

use super::{NEEDS_PROBE, en, ja, no_effect, not_accepted};
use crate::check::finding::{Finding, Judgement, Rule, Said, Text};
use crate::check::lab::{Answer, Draft, Lab, Seen, unseen};

pub(in crate::check) const C11: Rule = Rule {
    code: "C11",
    title: Text { en: "The signature is verified first", ja: "最初に署名を検証する" },
    sent: Text {
        en: "Deliveries without a signature, signed with another secret, changed after signing, with a cut, empty or misnamed \
             signature; then the first one's id again, signed rightly.",
        ja: "署名なし、別のシークレットによる署名、署名後に改ざんした本文、途中で切れた署名、空の署名、方式名の誤った署名の配信。続けて、\
             最初の配信と同じ ID を正しい署名で送信。",
    },
    fix: Text {
        en: "Compute HMAC-SHA256 over the raw bytes of the body before any parsing, and compare it in constant time with \
             X-RR-Signature (\"sha256=\" and hexadecimal). Answer 401 to everything else, and touch nothing: not the \
             business data, and not the table of known ids.",
        ja: "本文を解析する前に、受け取ったバイト列のまま HMAC-SHA256 を計算し、X-RR-Signature（\"sha256=\" と 16 進数）と一定時間で比較して\
             ください。一致しなければ 401 を返し、業務データにも処理済み ID の表にも書き込まないでください。",
    },
    needs: NEEDS_PROBE,
};

pub(in crate::check) const T2: Rule = Rule {
    code: "T2",
    title: Text {
        en: "The secret is the provider's, and another one is refused",
        ja: "シークレットが送信側と一致し、異なるものは拒否する",
    },
    sent: Text {
        en: "A delivery signed with --secret, and one signed with another secret.",
        ja: "--secret で署名した配信と、別のシークレットで署名した配信。",
    },
    fix: Text {
        en: "Compare the receiver's secret with the provider's. While they differ every delivery is refused, and 71 minutes \
             after the first one the webhook is switched off; what happens then never comes. Answer 401 to a wrong \
             signature, and raise an alarm at the first 401.",
        ja: "受信側のシークレットが送信側と同じか確認してください。異なる間はすべての配信が拒否され、最初の配信から 71 分後に Webhook が無効に\
             なり、その後のイベントは届きません。署名が一致しないときは 401 を返し、最初の 401 の時点で担当者に通知してください。",
    },
    needs: Text {
        en: "Make the receiver accept a plain, rightly signed delivery first.",
        ja: "まず、正しく署名した通常の配信を受け付けるようにしてください。",
    },
};

/// A delivery that nobody must let in, and what came back.
pub(super) struct Stranger {
    pub(super) name: Text,
    pub(super) draft: Draft,
    pub(super) answer: Answer,
}

/// A kind of bad signature: its name, and how it is made from the body and the right one.
type Kind = (Text, fn(&str) -> Option<String>);

const KINDS: [Kind; 6] = [
    (Text { en: "unsigned", ja: "署名なし" }, |_| None),
    (Text { en: "changed after signing", ja: "署名後の改ざん" }, |right| Some(right.to_owned())),
    (Text { en: "a cut signature", ja: "途中で切れた署名" }, |right| Some(right[..right.len() - 1].to_owned())),
    (Text { en: "an empty signature", ja: "空の署名" }, |_| Some(String::new())),
    (Text { en: "sha1= instead of sha256=", ja: "sha256= の代わりに sha1=" }, |right| {
        Some(right.replace("sha256=", "sha1="))
    }),
    (Text { en: "only \"sha256=\"", ja: "sha256= のみ" }, |_| Some("sha256=".to_owned())),
];
/// The place of the changed body among them.
const TAMPERED: usize = 1;

pub(in crate::check) async fn check(lab: &Arc<Lab>) -> Vec<Finding> {
    let url = lab.settings.url.clone();
    let mut strangers = Vec::new();
    for (place, (name, forge)) in KINDS.into_iter().enumerate() {
        let draft = lab.draft("c11");
        let body = lab.body(&draft);
        let signature = forge(&receiptroller::sign(&lab.settings.secret, &body));
        let body = if place == TAMPERED { [&body[..], b" "].concat().into() } else { body };
        let answer = lab.post(&url, &draft.id, signature.as_deref(), body).await;
        strangers.push(Stranger { name, draft, answer });
    }
    let other = Secret::new(format!("not-{}", lab.settings.secret.reveal()));
    let draft = lab.draft("c11");
    let answer = lab.send_to(&url, &other, &draft).await;
    let wrong = answer.clone();
    strangers.push(Stranger { name: Text { en: "another secret", ja: "別のシークレット" }, draft, answer });
    // Whoever refuses a stranger must not remember the id that the stranger used.
    let after = Draft { id: strangers[0].draft.id.clone(), ..lab.draft("c11") };
    let answer = lab.send(&after).await;
    let seen = match lab.settled().await {
        Ok(_) => lab.effects_when(|effects| effects.has(&after.key)).await,
        unseen => unseen,
    };
    vec![C11.finds(judge(&strangers, (&after, &answer), &seen)), T2.finds(judge_secret(&wrong))]
}

/// C11.
pub(super) fn judge(strangers: &[Stranger], (after, answer): (&Draft, &Answer), seen: &Seen) -> Judgement {
    let mut faults = Vec::new();
    for Stranger { name, draft, answer } in strangers {
        let said = answer.said();
        if !(400..500).contains(&answer.status) {
            faults.push(Said::new(
                format!("{}: {}, where 401 is right", name.en, en(&said)),
                format!("{}: {}（正しくは 401）", name.ja, ja(&said)),
            ));
        }
        if seen.as_ref().is_ok_and(|effects| effects.has(&draft.key)) {
            faults.push(Said::new(
                format!("{}: it took effect all the same", name.en),
                format!("{}: 業務データに反映されました", name.ja),
            ));
        }
    }
    let what = ("the id of a refused delivery, signed rightly", "拒否した配信と同じ ID の正しい配信");
    faults.extend(not_accepted(what.0, what.1, answer).or_else(|| no_effect(what.0, what.1, after, seen)));
    let count = strangers.len();
    let fine = Said::new(
        format!("All {count} were refused without effect, and the refused id could still be used by its owner."),
        format!("{count} 件すべてを拒否し、反映もありませんでした。拒否した ID も、正しい配信では処理されました。"),
    );
    Judgement::new(faults, unseen(seen), fine)
}

/// T2, where a rightly signed delivery was accepted before.
pub(super) fn judge_secret(wrong: &Answer) -> Judgement {
    let said = wrong.said();
    let is_refused = (400..500).contains(&wrong.status);
    let fault = Said::new(
        format!("With another secret: {}, where 401 is right.", en(&said)),
        format!("別のシークレット: {}（正しくは 401）", ja(&said)),
    );
    let status = wrong.status;
    let fine = Said::new(
        format!(
            "With the secret 2xx, with another one {status}. Remember: while the secret is wrong, everything is refused, \
             and after 71 minutes the webhook is off."
        ),
        format!(
            "正しいシークレットには 2xx、別のシークレットには {status} を返しました。シークレットが誤っている間はすべて拒否され、71 分後に \
             Webhook が無効になる点に注意してください。"
        ),
    );
    Judgement::new(if is_refused { Vec::new() } else { vec![fault] }, None, fine)
}

/// What a refused plain delivery says about the secret; `None` where it says nothing.
pub(in crate::check) fn judge_plain(answer: &Answer) -> Option<Judgement> {
    let said = answer.said();
    let fault = Said::new(
        format!("A delivery signed with --secret: {}. The receiver seems to have another secret.", en(&said)),
        format!("--secret で署名した配信: {}。受信側のシークレットが異なるようです。", ja(&said)),
    );
    matches!(answer.status, 401 | 403).then(|| Judgement::new(vec![fault], None, T2.title.into()))
}
