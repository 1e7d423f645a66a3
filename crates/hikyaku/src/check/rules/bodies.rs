//! Bodies and times of every kind: T6, T7.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::{NEEDS_PROBE, no_effect, not_accepted};
use crate::check::finding::{Finding, Judgement, Rule, Said, Text};
use crate::check::lab::{Answer, Draft, Lab, Seen, Unseen, unseen};

pub(in crate::check) const T6: Rule = Rule {
    code: "T6",
    title: Text {
        en: "What is signed is accepted, whatever it holds",
        ja: "正しく署名された配信は、内容にかかわらず受け付ける",
    },
    sent: Text {
        en: "Rightly signed: an unknown type, an unknown member, a 20-digit number, NUL and markup, repeated keys and odd spacing, \
             256 KiB, no data, not JSON, not UTF-8, nothing, and a bare string, number, null and list.",
        ja: "正しく署名した、未知の種類、未知の項目、20 桁の数値、NUL とマークアップ、重複したキーと不規則な空白、256 KiB、data なし、JSON \
             以外、UTF-8 以外、空、文字列・数値・null・配列だけの本文。",
    },
    fix: Text {
        en: "Once the signature is right, always answer 2xx. Store what you cannot use and look at it later: an answer of 4xx \
             or 5xx is tried four times, and then the whole webhook is off.",
        ja: "署名が正しければ、必ず 2xx を返してください。処理できない内容は保存して後で確認してください。4xx や 5xx を返すと 4 回の送信の後に \
             Webhook 全体が無効になります。",
    },
    needs: Text {
        en: "Make the receiver accept a plain, rightly signed delivery first.",
        ja: "まず、正しく署名した通常の配信を受け付けるようにしてください。",
    },
};

pub(in crate::check) const T7: Rule = Rule {
    code: "T7",
    title: Text { en: "A late retry is accepted", ja: "遅れて届いた再送を受け付ける" },
    sent: Text { en: "A delivery whose timestamp is 72 minutes old.", ja: "timestamp が 72 分前の配信。" },
    fix: Text {
        en: "Do not refuse by the age of timestamp, or allow two hours at least: a retry keeps the timestamp of the first attempt.",
        ja: "timestamp の古さを理由に拒否しないでください。制限する場合も 2 時間以上は許容してください。再送でも timestamp は最初の送信の\
             ままです。",
    },
    needs: NEEDS_PROBE,
};

/// The size of the big body, in bytes.
const BIG_BODY_BYTES: usize = 256 * 1024;
/// The age of the last attempt's timestamp, the waits for three answers included.
const OLDEST: Duration = Duration::from_secs(72 * 60);

/// Members that a program may read in another way than they were written.
const ODD: [(Text, &str); 4] = [
    (Text { en: "an unknown member", ja: "未知の項目" }, r#""unknownToYou":{"a":[1,2]},"#),
    (Text { en: "a 20-digit number", ja: "20 桁の数値" }, r#""huge":29383937493038367292,"tiny":1e-400,"#),
    (Text { en: "NUL and markup", ja: "NUL とマークアップ" }, r#""text":"\u0000<b>&amp;</b>\ud83c\udf75","#),
    (
        Text { en: "repeated keys and odd spacing", ja: "重複したキーと不規則な空白" },
        " \"odd\" :\t{\"z\":1,\"a\":2.0,\n\"z\":3},",
    ),
];

/// Bodies that are no event at all.
const BARE: [(Text, &[u8]); 9] = [
    (Text { en: "not JSON", ja: "JSON 以外" }, b"this is not JSON"),
    (Text { en: "cut JSON", ja: "途中で切れた JSON" }, b"{\"id\":\"x\",\"type\":"),
    (Text { en: "not UTF-8", ja: "UTF-8 以外" }, b"\xff\xfe\x00\x80"),
    (Text { en: "an empty body", ja: "空の本文" }, b""),
    (Text { en: "a bare string", ja: "文字列だけ" }, b"\"sale\""),
    (Text { en: "a bare number", ja: "数値だけ" }, b"42"),
    (Text { en: "null", ja: "null" }, b"null"),
    (Text { en: "a list", ja: "配列" }, b"[{}]"),
    (Text { en: "an event without data", ja: "data のないイベント" }, br#"{"id":"x","type":"sale.created"}"#),
];

pub(in crate::check) async fn check(lab: &Arc<Lab>) -> Vec<Finding> {
    let mut answers = Vec::new();
    for (name, id, body) in bodies(lab) {
        answers.push((name, lab.send_body(&id, body).await));
    }
    let afterwards = lab.settled().await;
    let now = lab.draft("t7");
    let late = Draft { at: now.at.checked_sub(OLDEST).unwrap_or(Timestamp::MIN), ..now };
    let answer = lab.send(&late).await;
    let seen = lab.effects_when(|effects| effects.has(&late.key)).await;
    vec![T6.finds(judge(&answers, &afterwards)), T7.finds(judge_late(&late, &answer, &seen))]
}

fn bodies(lab: &Lab) -> Vec<(Text, String, Bytes)> {
    let mut bodies = Vec::new();
    let mut add = |name: Text, draft: &Draft, body: Bytes| bodies.push((name, draft.id.clone(), body));
    let unknown = Draft { event_type: "hikyaku.unheard", ..lab.draft("t6") };
    add(Text { en: "an unknown type", ja: "未知の種類" }, &unknown, lab.body(&unknown));
    for (name, members) in ODD {
        let draft = lab.draft("t6");
        add(name, &draft, lab.body_with(&draft, members));
    }
    let big = lab.draft("t6");
    let padding = format!(r#""padding":"{}","#, "x".repeat(BIG_BODY_BYTES - lab.body(&big).len()));
    add(Text { en: "256 KiB", ja: "256 KiB" }, &big, lab.body_with(&big, &padding));
    for (name, body) in BARE {
        add(name, &lab.draft("t6"), Bytes::from_static(body));
    }
    bodies
}

/// T6. What the bodies effect is the receiver's own affair; only whether it goes on afterwards is looked at.
pub(in crate::check) fn judge(answers: &[(Text, Answer)], afterwards: &Seen) -> Judgement {
    let refused = |(name, answer): &(Text, Answer)| not_accepted(name.en, name.ja, answer);
    let mut faults: Vec<_> = answers.iter().filter_map(refused).collect();
    if *afterwards == Err(Unseen::FellSilent) {
        faults.push(Said::new(
            "after these bodies a plain delivery no longer took effect",
            "これらの本文を受け取った後、通常の配信が反映されなくなりました",
        ));
    }
    let count = answers.len();
    let fine = Said::new(format!("All {count} were accepted."), format!("{count} 件すべてを受け付けました。"));
    Judgement::new(faults, None, fine)
}

/// T7.
pub(super) fn judge_late(late: &Draft, answer: &Answer, seen: &Seen) -> Judgement {
    let what = ("72 minutes old", "72 分前の配信");
    let fault = not_accepted(what.0, what.1, answer).or_else(|| no_effect(what.0, what.1, late, seen));
    let fine = Said::new("It was accepted and took effect.", "受け付けて、反映しました。");
    Judgement::new(fault.into_iter().collect(), unseen(seen), fine)
}
