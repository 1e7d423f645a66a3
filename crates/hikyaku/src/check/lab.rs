//! Where the check is made: sends deliveries as the provider would, and looks at what they have effected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use hikyaku_core::delivery::Outcome;
use hikyaku_core::event::{EventType, render_body};
use hikyaku_core::ids::EventId;
use hikyaku_core::signature::{Secret, receiptroller};
use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use url::Url;

use super::finding::Said;
use super::probe::{Act, Effects, Probe};
use super::{Settings, Subject};
use crate::clock::{self, SharedClock};
use crate::outbound::{Request, Transport};
use crate::sandbox::world::{self, World, sale_key};
use crate::sandbox::{ATTEMPT_TIMEOUT, delivery_headers};

/// The pause between two looks, and between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// Most characters of an answer or a complaint that are shown.
const SHOWN_CHARS: usize = 120;
/// The first amount; each delivery has its own, of nine digits, that nothing else is likely to hold.
const FIRST_AMOUNT: u64 = 910_000_000;

/// How the check reaches the receiver and what belongs to it.
pub struct Instruments {
    /// Sends.
    pub transport: Arc<dyn Transport>,
    /// Measures.
    pub clock: SharedClock,
    /// Looks at the effects.
    pub probe: Option<Arc<dyn Probe>>,
    /// Kills the receiver and starts it again.
    pub restart: Option<Arc<dyn Act>>,
    /// Breaks what the receiver depends on, and mends it.
    pub outage: Option<(Arc<dyn Act>, Arc<dyn Act>)>,
}

/// A delivery to be sent.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// The event's and the delivery's id (R21).
    pub(super) id: String,
    /// The business key (R24).
    pub(super) key: String,
    /// What it comes to.
    pub(super) amount: u64,
    /// The event's type.
    pub(super) event_type: &'static str,
    /// Its timestamp.
    pub(super) at: Timestamp,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status, or 0 where none came (R6).
    pub(super) status: u16,
    /// The beginning of the answer, or why none came.
    pub(super) text: String,
    /// How long it took.
    pub(super) took: Duration,
}

impl Answer {
    /// Whether it was accepted (R2).
    pub(super) fn is_accepted(&self) -> bool {
        Outcome::Answered(self.status).is_success()
    }

    /// The answer in words, as the end of a sentence.
    pub(super) fn said(&self) -> Said {
        match (self.status, self.text.as_str()) {
            (0, text) => Said::new(format!("no answer: {text}"), format!("応答なし（{text}）")),
            (status, "") => Said::new(format!("answered {status}"), format!("応答 {status}")),
            (status, text) => Said::new(format!("answered {status}: {text}"), format!("応答 {status}（{text}）")),
        }
    }
}

/// Why effects were not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unseen {
    /// There is no probe.
    NoProbe,
    /// It does not work.
    Failed(String),
    /// Not even a plain delivery had an effect at the beginning.
    Silent,
    /// A plain delivery had none later.
    FellSilent,
}

impl Unseen {
    /// Why, in words.
    pub(super) fn said(&self) -> Said {
        match self {
            Self::NoProbe => Said::new(
                "The answers are right as far as they go; the effects were not seen, because there is no --probe.",
                "応答に問題は見られませんでしたが、--probe がないため、反映結果を確認できませんでした。",
            ),
            Self::Failed(reason) => Said::new(
                format!("The effects were not seen, because the probe failed: {reason}"),
                format!("--probe が失敗したため、反映結果を確認できませんでした: {reason}"),
            ),
            Self::Silent => Said::new(
                "The probe shows no effect of a plain delivery, so nothing can be told from it. Does it print the keys? \
                 Is --settle long enough? Does the receiver take this --subject?",
                "通常の配信の反映も --probe では確認できませんでした。キーが出力されるか、--settle の長さは十分か、\
                 受信側がこの --subject を扱うかを確認してください。",
            ),
            Self::FellSilent => Said::new(
                "A plain delivery that was sent afterwards had no effect in time, so nothing can be told. Is --settle long enough?",
                "その後に送信した通常の配信が時間内に反映されず、判定できませんでした。--settle の長さが十分か確認してください。",
            ),
        }
    }
}

/// What was seen of the effects.
pub(super) type Seen = Result<Effects, Unseen>;

/// Why nothing was seen, in words.
pub(super) fn unseen(seen: &Seen) -> Option<Said> {
    seen.as_ref().err().map(Unseen::said)
}

/// The place of the check.
pub(super) struct Lab {
    pub(super) settings: Settings,
    pub(super) tools: Instruments,
    /// `data` as the sandbox's shops make it.
    template: Value,
    /// Tells this run's ids and keys from another's.
    run: String,
    count: AtomicU64,
    /// Once it is known that nothing will be seen, nobody waits for it.
    blind: OnceLock<Unseen>,
}

impl Lab {
    pub(super) fn new(settings: Settings, tools: Instruments) -> Arc<Self> {
        let run = HEXLOWER.encode(&clock::random::<4>());
        let shops = match settings.subject {
            Subject::Order => world::Settings { sales_per_hour: 0.0, ..world::Settings::default() },
            Subject::Sale => world::Settings { orders_per_hour: 0.0, ..world::Settings::default() },
        };
        let mut world = World::open(shops, tools.clock.now());
        let template = world.next(world.next_at()).map_or(Value::Null, |happening| happening.data.value());
        Arc::new(Self { settings, tools, template, run, count: AtomicU64::new(0), blind: OnceLock::new() })
    }

    /// A delivery of its own: new id, new key, new amount, now.
    pub(super) fn draft(&self, rule: &str) -> Draft {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let (run, at) = (&self.run, self.tools.clock.now());
        let own = format!("{run}-{rule}-{number}");
        let (event_type, key) = match self.settings.subject {
            Subject::Order => ("order.created", format!("CHECK-{own}")),
            Subject::Sale => ("sale.created", sale_key("CHECK", at, &own)),
        };
        Draft { id: format!("check-{own}"), key, amount: FIRST_AMOUNT + number, event_type, at }
    }

    /// Several of them.
    pub(super) fn drafts(&self, rule: &str, count: usize) -> Vec<Draft> {
        (0..count).map(|_| self.draft(rule)).collect()
    }

    /// The body's bytes, with `extra` written into the beginning of `data`: nothing, or members with a comma behind.
    pub(super) fn body_with(&self, draft: &Draft, extra: &str) -> Bytes {
        let mut data = self.template.clone();
        match self.settings.subject {
            Subject::Order => {
                data["order_id"] = draft.key.clone().into();
                data["total"] = draft.amount.into();
            }
            Subject::Sale => {
                data["id"] = draft.key.clone().into();
                data["paymentSummary"]["grandTotal"] = draft.amount.into();
            }
        }
        let data = data.to_string().replacen('{', &format!("{{{extra}"), 1);
        let parts =
            (RawValue::from_string(data), EventId::parse(draft.id.as_str()), EventType::parse(draft.event_type));
        match parts {
            (Ok(data), Ok(id), Ok(event_type)) => render_body(&id, &event_type, draft.at, &data),
            // Ids, types and members are our own and well formed.
            _ => Bytes::new(),
        }
    }

    /// The body's bytes.
    pub(super) fn body(&self, draft: &Draft) -> Bytes {
        self.body_with(draft, "")
    }

    /// Sends as the provider does.
    pub(super) async fn send(&self, draft: &Draft) -> Answer {
        let body = self.body(draft);
        self.send_body(&draft.id, body).await
    }

    /// Sends any body, signed rightly.
    pub(super) async fn send_body(&self, id: &str, body: Bytes) -> Answer {
        let signature = receiptroller::sign(&self.settings.secret, &body);
        self.post(&self.settings.url, id, Some(&signature), body).await
    }

    /// Sends to another webhook's address, signed with its secret.
    pub(super) async fn send_to(&self, url: &Url, secret: &Secret, draft: &Draft) -> Answer {
        let body = self.body(draft);
        self.post(url, &draft.id, Some(&receiptroller::sign(secret, &body)), body).await
    }

    /// Sends with any signature, or none.
    pub(super) async fn post(&self, url: &Url, id: &str, signature: Option<&str>, body: Bytes) -> Answer {
        let headers = delivery_headers(id, signature);
        let request = Request { url: url.clone(), headers, body, timeout: ATTEMPT_TIMEOUT };
        let response = self.tools.transport.post(request).await;
        let text = match response.outcome {
            Outcome::Answered(200..=299) => String::new(),
            Outcome::Answered(_) => printable(&response.body),
            Outcome::Failed(_) => printable(response.error.as_bytes()),
        };
        Answer { status: response.outcome.http_status(), text, took: response.duration }
    }

    /// Sends all at once, and gives the answers in the deliveries' order.
    pub(super) async fn send_all(self: Arc<Self>, drafts: Vec<Draft>) -> Vec<Answer> {
        let mut sending = JoinSet::new();
        for (place, draft) in drafts.into_iter().enumerate() {
            let lab = Arc::clone(&self);
            sending.spawn(async move { (place, lab.send(&draft).await) });
        }
        let mut answers = sending.join_all().await;
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Sends again until it is accepted, as long as effects may take to settle.
    pub(super) async fn send_until_accepted(&self, draft: &Draft) -> Answer {
        let mut patience = self.patience();
        loop {
            let answer = self.send(draft).await;
            if answer.is_accepted() || !patience.pause().await {
                return answer;
            }
        }
    }

    /// Looks until enough is there, as long as effects may take to settle; gives the last look.
    pub(super) async fn effects_when(&self, is_enough: impl Fn(&Effects) -> bool) -> Seen {
        let probe = self.tools.probe.as_ref().ok_or(Unseen::NoProbe)?;
        if let Some(unseen) = self.blind.get() {
            return Err(unseen.clone());
        }
        let mut patience = self.patience();
        loop {
            let looked = probe.look().await;
            if looked.as_ref().is_ok_and(&is_enough) || !patience.pause().await {
                return looked.map_err(Unseen::Failed);
            }
        }
    }

    /// The effects after a plain delivery has had its own: what was sent before it has had time to have one.
    pub(super) async fn settled(&self) -> Seen {
        if self.tools.probe.is_none() {
            return Err(Unseen::NoProbe);
        }
        let fence = self.draft("plain");
        self.send(&fence).await;
        let effects = self.effects_when(|effects| effects.has(&fence.key)).await?;
        if effects.has(&fence.key) { Ok(effects) } else { Err(Unseen::FellSilent) }
    }

    /// From now on nothing is waited for that could not be seen.
    pub(super) fn give_up_looking(&self, unseen: Unseen) {
        // Whoever says so first is believed.
        let _ = self.blind.set(unseen);
    }

    fn patience(&self) -> Patience<'_> {
        Patience { lab: self, since: self.tools.clock.schedule() }
    }
}

/// A wait in steps, bounded by the time in which effects settle.
struct Patience<'a> {
    lab: &'a Lab,
    since: Timestamp,
}

impl Patience<'_> {
    /// Waits a little; `false` if there is no time left.
    async fn pause(&mut self) -> bool {
        let passed = self.lab.tools.clock.schedule().duration_since(self.since).unsigned_abs();
        let left = self.lab.settings.settle.saturating_sub(passed);
        tokio::time::sleep(PAUSE.min(left)).await;
        !left.is_zero()
    }
}

/// The beginning of a text from outside, so that it can steer neither a terminal nor a page.
pub(super) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let steers = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown: String = text.trim().chars().take(SHOWN_CHARS).map(|c| if steers(c) { ' ' } else { c }).collect();
    if text.trim().chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
