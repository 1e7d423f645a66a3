//! The whole check against receivers in memory: one that keeps the rules, and some that are naive. Time is tokio's paused
//! one, so nothing depends on how fast anything is.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use hikyaku_core::delivery::{FailureKind, Outcome};
use hikyaku_core::signature::receiptroller::{self, DELIVERY_HEADER, SIGNATURE_HEADER};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::*;
use crate::clock::SystemClock;
use crate::outbound::{Request, Response, Transport};

const SECRET: &str = "the-secret";

/// What a receiver does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// It records the id, and then does the work: a crash in between loses the event.
    IdFirst,
    /// It answers, and then does the work from memory: a crash in between loses the event.
    FromMemory,
    /// It writes whatever comes last.
    NoGuard,
    /// It does not look at the id.
    NoIds,
    /// It looks for the id, and later inserts it.
    LooksThenInserts,
    /// It forgets the ids when it is killed.
    ForgetsIds,
    /// It accepts whatever comes.
    NoSignature,
    /// It answers 400 to a type that it does not know.
    Strict,
    /// It refuses what is five minutes older than the newest it knows.
    Fresh,
    /// It answers 409 to an id that it knows.
    Conflict,
    /// It has another secret.
    OtherSecret,
    /// It answers 503 while its database is away.
    NeedsDatabase,
}

#[derive(Default)]
struct State {
    ids: BTreeSet<String>,
    tried: BTreeSet<String>,
    rows: BTreeMap<String, (Timestamp, Value)>,
    newest: Timestamp,
    is_database_away: bool,
}

struct InMemory {
    fault: Fault,
    state: Mutex<State>,
    killed: Notify,
    broken: Notify,
}

impl InMemory {
    fn new(fault: Fault) -> Arc<Self> {
        Arc::new(Self { fault, state: Mutex::default(), killed: Notify::new(), broken: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The status; `None` where the receiver is killed before there is one.
    async fn receive(&self, request: &Request) -> Option<u16> {
        let header = |name| request.headers.get(name).map(|value| value.to_str().unwrap());
        let secret = if self.fault == Fault::OtherSecret { "another" } else { SECRET };
        let signature = header(SIGNATURE_HEADER).map(str::as_bytes);
        if self.fault != Fault::NoSignature
            && receiptroller::verify(&[Secret::new(secret)], signature, &request.body).is_err()
        {
            return Some(401);
        }
        let event: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Some(status) = self.refuses(&event) {
            return Some(status);
        }
        let id = header(DELIVERY_HEADER)?.to_owned();
        // The work of these takes until the kill.
        let is_cut = id.contains("-t1-") && self.state().tried.insert(id.clone());
        match self.fault {
            Fault::IdFirst | Fault::FromMemory => {
                if !self.state().ids.insert(id) {
                    return Some(200);
                }
                if is_cut && self.fault == Fault::FromMemory {
                    return Some(200);
                }
            }
            Fault::NoIds => {}
            Fault::Conflict if self.state().ids.contains(&id) => return Some(409),
            _ if self.state().ids.contains(&id) => return Some(200),
            _ => {}
        }
        if is_cut {
            self.killed.notified().await;
            return None;
        }
        if self.fault == Fault::LooksThenInserts {
            tokio::task::yield_now().await;
        }
        self.apply(request, &event);
        Some(200)
    }

    fn refuses(&self, event: &Value) -> Option<u16> {
        let is_known = ["order.created", "order.updated", "sale.created"].iter().any(|known| event["type"] == *known);
        let at = timestamp(event);
        let mut state = self.state();
        state.newest = state.newest.max(at.unwrap_or_default());
        let is_old = at.is_some_and(|at| state.newest.duration_since(at).as_secs() > 300);
        match self.fault {
            Fault::Strict if !is_known => Some(400),
            Fault::Fresh if is_old => Some(400),
            Fault::NeedsDatabase if state.is_database_away => Some(503),
            _ => None,
        }
    }

    /// Records the id and writes the row by its key, if it is not older than what stands there.
    fn apply(&self, request: &Request, event: &Value) {
        let mut state = self.state();
        state.ids.insert(request.headers[DELIVERY_HEADER].to_str().unwrap().to_owned());
        let data = &event["data"];
        let (Some(key), Some(at)) = (data["order_id"].as_str().or(data["id"].as_str()), timestamp(event)) else {
            return;
        };
        let is_stale = state.rows.get(key).is_some_and(|(known, _)| *known > at);
        if !is_stale || self.fault == Fault::NoGuard {
            state.rows.insert(key.to_owned(), (at, data.clone()));
        }
    }
}

fn timestamp(event: &Value) -> Option<Timestamp> {
    event["timestamp"].as_str()?.parse().ok()
}

#[async_trait]
impl Transport for InMemory {
    async fn post(&self, request: Request) -> Response {
        let status = self.receive(&request).await;
        Response {
            outcome: status.map_or(Outcome::Failed(FailureKind::Reset), Outcome::Answered),
            error: String::new(),
            headers: Default::default(),
            body: Bytes::new(),
            duration: Duration::ZERO,
        }
    }
}

#[async_trait]
impl Probe for InMemory {
    async fn look(&self) -> Result<Effects, String> {
        let rows: Map<_, _> = self.state().rows.iter().map(|(key, (_, data))| (key.clone(), data.clone())).collect();
        Effects::parse(&Value::Object(rows).to_string())
    }
}

/// What is done to the receiver.
enum Does {
    Restart,
    Break,
    Mend,
}

struct To(Arc<InMemory>, Does);

#[async_trait]
impl Act for To {
    async fn act(&self) -> Result<(), String> {
        let Self(receiver, does) = self;
        match does {
            Does::Restart => {
                receiver.killed.notify_waiters();
                if receiver.fault == Fault::ForgetsIds {
                    receiver.state().ids.clear();
                }
            }
            Does::Break => {
                receiver.state().is_database_away = true;
                receiver.broken.notify_one();
            }
            Does::Mend => receiver.state().is_database_away = false,
        }
        Ok(())
    }
}

fn settings(subject: Subject) -> Settings {
    let second = ("http://receiver/second".parse().unwrap(), Secret::new(SECRET));
    Settings {
        url: "http://user:word@receiver/hook".parse().unwrap(),
        secret: Secret::new(SECRET),
        second: Some(second),
        subject,
        settle: Duration::from_secs(10),
        rate: 20,
        load_seconds: 2,
        p99: Duration::from_secs(2),
        duplicate_after: Some(Duration::from_secs(72 * 60)),
    }
}

fn tools(receiver: &Arc<InMemory>) -> Instruments {
    let act = |does| Arc::new(To(receiver.clone(), does)) as Arc<dyn Act>;
    Instruments {
        transport: receiver.clone(),
        clock: Arc::new(SystemClock::start()),
        probe: Some(receiver.clone()),
        restart: Some(act(Does::Restart)),
        outage: Some((act(Does::Break), act(Does::Mend))),
    }
}

async fn checked(fault: Fault, subject: Subject) -> Report {
    run(settings(subject), tools(&InMemory::new(fault)), |_| {}, pending()).await.unwrap()
}

fn rules(report: &Report, verdict: Verdict) -> Vec<&'static str> {
    report.findings.iter().filter(|finding| finding.verdict == verdict).map(|finding| finding.rule).collect()
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_keeps_the_rules_passes_them_all() {
    for subject in [Subject::Order, Subject::Sale] {
        let report = checked(Fault::None, subject).await;
        assert_eq!(report.count(Verdict::Pass), ALL.len(), "{:#}", report.json(Language::En));
        assert!(report.is_good());
        assert_eq!(report.url, "http://receiver/hook", "a password is nobody else's");
    }
}

#[tokio::test(start_paused = true)]
async fn t1_a_receiver_that_records_the_id_first_fails_there_and_nowhere_else() {
    for fault in [Fault::IdFirst, Fault::FromMemory] {
        let report = checked(fault, Subject::Order).await;
        assert_eq!(rules(&report, Verdict::Fail), ["T1"], "{:#}", report.json(Language::En));
        assert_eq!(rules(&report, Verdict::CannotTell), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn c4_a_receiver_that_upserts_without_a_guard_fails_there_and_nowhere_else() {
    for subject in [Subject::Order, Subject::Sale] {
        let report = checked(Fault::NoGuard, subject).await;
        assert_eq!(rules(&report, Verdict::Fail), ["C4"], "{:#}", report.json(Language::En));
        assert_eq!(rules(&report, Verdict::CannotTell), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn every_other_fault_is_found_where_it_is() {
    for (fault, expected) in [
        (Fault::NoIds, &["C5", "C6", "C7", "C9"][..]),
        (Fault::LooksThenInserts, &["C6"]),
        (Fault::ForgetsIds, &["C7"]),
        (Fault::NoSignature, &["C11", "T2"]),
        (Fault::Conflict, &["C12"]),
        (Fault::Strict, &["T6"]),
        (Fault::Fresh, &["T7"]),
        (Fault::NeedsDatabase, &["C16"]),
    ] {
        let report = checked(fault, Subject::Order).await;
        assert_eq!(rules(&report, Verdict::Fail), expected, "{fault:?} {:#}", report.json(Language::En));
    }
}

#[tokio::test(start_paused = true)]
async fn t2_another_secret_is_named_and_nothing_else_is_blamed() {
    let report = checked(Fault::OtherSecret, Subject::Order).await;
    assert_eq!(rules(&report, Verdict::Fail), ["T2"]);
    assert_eq!(report.count(Verdict::CannotTell), ALL.len() - 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_given_is_not_told() {
    let receiver = InMemory::new(Fault::None);
    let blind = Instruments { probe: None, restart: None, outage: None, ..tools(&receiver) };
    let settings = Settings { second: None, duplicate_after: None, ..settings(Subject::Order) };
    let report = run(settings.clone(), blind, |_| {}, pending()).await.unwrap();
    assert_eq!(rules(&report, Verdict::Pass), ["C14", "T2", "T6"], "{:#}", report.json(Language::En));
    assert!(report.is_good());

    let seeing = Instruments { restart: None, outage: None, ..tools(&receiver) };
    let report = run(settings, seeing, |_| {}, pending()).await.unwrap();
    assert_eq!(rules(&report, Verdict::CannotTell), ["C7", "C9", "C16", "T1"], "{:#}", report.json(Language::En));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_shows_nothing_accuses_nobody() {
    let other = InMemory::new(Fault::None);
    let tools = Instruments { probe: Some(other), ..tools(&InMemory::new(Fault::None)) };
    let report = run(settings(Subject::Order), tools, |_| {}, pending()).await.unwrap();
    assert_eq!(rules(&report, Verdict::Fail), [""; 0], "{:#}", report.json(Language::En));
}

struct Nobody;

#[async_trait]
impl Transport for Nobody {
    async fn post(&self, _: Request) -> Response {
        Response {
            outcome: Outcome::Failed(FailureKind::Connect),
            error: "refused".to_owned(),
            headers: Default::default(),
            body: Bytes::new(),
            duration: Duration::ZERO,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_not_there_is_no_report() {
    let tools = Instruments { transport: Arc::new(Nobody), ..tools(&InMemory::new(Fault::None)) };
    let error = run(settings(Subject::Order), tools, |_| {}, pending()).await.unwrap_err();
    assert!(matches!(error, CheckError::NoAnswer { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn c16_a_check_that_is_stopped_mends_what_it_broke() {
    let receiver = InMemory::new(Fault::NeedsDatabase);
    let error = run(settings(Subject::Order), tools(&receiver), |_| {}, receiver.broken.notified()).await.unwrap_err();
    assert!(matches!(error, CheckError::Stopped(_)), "{error}");
    assert!(!receiver.state().is_database_away);
}
