//! Old and new: C4.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{NEEDS_PROBE, not_accepted};
use crate::check::Subject;
use crate::check::finding::{Finding, Judgement, Rule, Said, Text};
use crate::check::lab::{Answer, Draft, Lab, Seen, unseen};

pub(in crate::check) const C4: Rule = Rule {
    code: "C4",
    title: Text {
        en: "An older notice never overwrites newer state", ja: "古い通知で新しい状態を上書きしない"
    },
    sent: Text {
        en: "About one key each: a newer notice and then an older one; two with equal timestamps; of orders, two in their usual \
             order.",
        ja: "それぞれ同じキーについて、新しい通知の後に古い通知、同じ時刻の通知を 2 件、注文の場合は通常の順の通知を 2 件。",
    },
    fix: Text {
        en: "Keep the timestamp of the notice in the row, and write only what is not older, in one statement: INSERT … ON \
             CONFLICT (id) DO UPDATE … WHERE excluded.notified_at >= notified_at. Or take the notice as \"something \
             changed\" and fetch the present state from the provider.",
        ja: "通知の timestamp を行に保存し、古くないものだけを 1 文で書き込んでください（INSERT … ON CONFLICT (id) DO UPDATE … WHERE \
             excluded.notified_at >= notified_at）。または、通知を「変更があった」という合図として扱い、送信元から最新の状態を取得してください。",
    },
    needs: NEEDS_PROBE,
};

/// How much older the older one is.
const OLDER_BY: Duration = Duration::from_secs(60);

/// Which of two is right at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    First,
    Second,
    Either,
}

/// Two notices about one key, in the order in which they were sent.
pub(super) struct Pair {
    pub(super) name: Text,
    pub(super) notices: [(Draft, Answer); 2],
    pub(super) right: Right,
}

pub(in crate::check) async fn check(lab: &Arc<Lab>) -> Vec<Finding> {
    let usual = Text { en: "in the usual order", ja: "通常の順" };
    let late = Text { en: "the older one late", ja: "古い通知が後" };
    let equal = Text { en: "equal timestamps", ja: "同じ時刻" };
    let mut pairs = Vec::new();
    // A sale happens once; that a later notice changes it is not asked of anybody.
    if lab.settings.subject == Subject::Order {
        pairs.push(pair(lab, usual, Right::Second).await);
    }
    pairs.push(pair(lab, late, Right::First).await);
    pairs.push(pair(lab, equal, Right::Either).await);
    let is_newest = |pair: &Pair| pair.right != Right::First;
    let seen = match lab.settled().await {
        Ok(_) => {
            let is_enough = |effects: &_| pairs.iter().filter(|pair| is_newest(pair)).all(|pair| shows(pair, effects));
            lab.effects_when(is_enough).await
        }
        unseen => unseen,
    };
    vec![C4.finds(judge(&pairs, &seen))]
}

async fn pair(lab: &Lab, name: Text, right: Right) -> Pair {
    let one = lab.draft("c4");
    let older = one.at.checked_sub(OLDER_BY).unwrap_or(Timestamp::MIN);
    let created = Draft { at: if right == Right::Either { one.at } else { older }, ..one.clone() };
    let event_type = match lab.settings.subject {
        Subject::Order => "order.updated",
        Subject::Sale => one.event_type,
    };
    let updated = Draft { key: one.key.clone(), at: one.at, event_type, ..lab.draft("c4") };
    let [first, second] = if right == Right::First { [updated, created] } else { [created, updated] };
    let answer = lab.send(&first).await;
    // What was seen is judged by a later look.
    let _ = lab.effects_when(|effects| effects.has(&first.key)).await;
    let after = lab.send(&second).await;
    Pair { name, notices: [(first, answer), (second, after)], right }
}

/// C4.
pub(super) fn judge(pairs: &[Pair], seen: &Seen) -> Judgement {
    let mut faults = Vec::new();
    for pair in pairs {
        let Text { en, ja } = pair.name;
        faults.extend(pair.notices.iter().filter_map(|(_, answer)| not_accepted(en, ja, answer)));
        if seen.as_ref().is_ok_and(|effects| !shows(pair, effects)) {
            faults.push(match pair.right {
                Right::First => Said::new(
                    format!("{en}: the newer state was overwritten, or did not come"),
                    format!("{ja}: 新しい状態が上書きされたか、反映されていません"),
                ),
                Right::Second => Said::new(
                    format!("{en}: the newer notice did not take effect"),
                    format!("{ja}: 新しい通知が反映されていません"),
                ),
                Right::Either => Said::new(
                    format!("{en}: neither of the two amounts stands there; if the probe prints no amounts, let it"),
                    format!("{ja}: どちらの金額も反映されていません。プローブが金額を出力しているかも確認してください"),
                ),
            });
        }
    }
    let fine = Said::new(
        "The newer state stood at the end, whichever came first.",
        "届いた順にかかわらず、最後に新しい状態が残りました。",
    );
    Judgement::new(faults, unseen(seen), fine)
}

fn shows(pair: &Pair, effects: &crate::check::probe::Effects) -> bool {
    let is_there = |place: usize| {
        let (draft, _) = &pair.notices[place];
        effects.shows(&draft.key, draft.amount)
    };
    match pair.right {
        Right::First => is_there(0),
        Right::Second => is_there(1),
        Right::Either => is_there(0) || is_there(1),
    }
}
