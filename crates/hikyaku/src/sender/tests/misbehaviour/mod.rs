//! Every way in which an endpoint, or the way to it, is known to misbehave: four attempts of each on exact virtual time,
//! through the whole sender and the real client. What each comes to is told by kind, attempt and what was seen.
//!
//! The same client on real sockets is tested in `outbound`, the whole program in the black-box tests.

mod answers;
mod statuses;
mod way;

use std::net::IpAddr;

use hikyaku_core::address::TargetPolicy;
use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::retry::RetrySchedule;

use super::*;
use crate::outbound::Client;
use crate::outbound::tests::network::{Behaviour, Dialed, Network};
use crate::outbound::tests::script::Step;
use crate::outbound::tests::tls::Authority;
use crate::store::EventView;

/// The name of the one endpoint.
const HOST: &str = "shop.example.com";
/// Any public address.
const ADDRESS: &str = "93.184.215.14";
/// The contract's deadline (R4).
const DEADLINE: Duration = secs(10);
/// How much later than the deadline an attempt may end.
const GRACE: Duration = Duration::from_millis(250);
/// More than a connection takes up unread.
const EVENT_BYTES: usize = 5000;
/// The pause between attempts of most kinds: long enough for no connection to be kept, and short enough to be quick.
const APART: Duration = secs(5);
/// Longer than four attempts by the contract and the pauses between them can take.
const WHOLE_SCHEDULE: Duration = secs(4400);
/// How often it is looked whether a delivery has ended.
const GLANCE: Duration = secs(5);

/// How an event ends.
#[derive(Debug, Clone)]
enum Ends {
    /// With four attempts that failed this way, and `httpStatus` 0.
    Fails(FailureKind),
    /// With this status: at once where it is a 2xx, with four attempts where it is not.
    Answered(u16),
    /// With these attempts.
    As(Vec<Outcome>),
}

impl Ends {
    fn outcomes(&self) -> Vec<Outcome> {
        match self {
            Self::Fails(kind) => vec![Outcome::Failed(*kind); 4],
            Self::Answered(status @ 200..=299) => vec![Outcome::Answered(*status)],
            Self::Answered(status) => vec![Outcome::Answered(*status); 4],
            Self::As(outcomes) => outcomes.clone(),
        }
    }
}

/// One kind of misbehaviour, and what must come of it.
struct Kind {
    what: String,
    scheme: &'static str,
    behaviour: Behaviour,
    /// Pauses other than the contract's (R8).
    pauses: Option<Vec<Duration>>,
    ends: Ends,
}

impl Kind {
    /// An endpoint over plain http that is found and accepts at once, and does this on every connection.
    fn of(what: impl Into<String>, script: Vec<Step>, ends: Ends) -> Self {
        let behaviour = Behaviour {
            resolves: Some((Duration::ZERO, Ok(addresses(&[ADDRESS])))),
            dials: vec![Dialed::After(Duration::ZERO)],
            tls: None,
            scripts: vec![script],
        };
        Self { what: what.into(), scheme: "http", behaviour, pauses: Some(vec![APART; 3]), ends }
    }

    fn changed(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

fn addresses(all: &[&str]) -> Vec<IpAddr> {
    all.iter().map(|address| address.parse().unwrap()).collect()
}

/// The client, and how long each of its requests took by the time of the test.
struct Timed {
    client: Client,
    clock: Arc<TestClock>,
    took: Mutex<Vec<(Duration, Duration)>>,
}

#[async_trait]
impl Transport for Timed {
    async fn post(&self, request: Request) -> Response {
        let began = self.clock.elapsed();
        let response = self.client.post(request).await;
        self.took.lock().unwrap().push((began, self.clock.elapsed()));
        response
    }
}

/// What came of a kind.
struct Played {
    delivery: DeliveryView,
    is_on: bool,
    /// When each attempt began and ended.
    times: Vec<(Duration, Duration)>,
    network: Arc<Network>,
}

async fn play(kind: &Kind, authority: &Authority) -> Played {
    let (clock, store) = (TestClock::start(), Arc::new(MemoryStore::new()));
    let network = Network::new(HOST, kind.behaviour.clone());
    let policy = TargetPolicy { allow: vec![], allow_http: true };
    let client = Client::new(policy, network.clone(), clock.clone(), &[authority.root()]).unwrap();
    let client = client.over(network.clone());
    let timed = Arc::new(Timed { client, clock: clock.clone(), took: Mutex::default() });
    let committer = Committer::start(store.clone());
    let sender = Sender::new(store.clone(), committer, clock, timed.clone(), "the-test".into(), Settings::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn(sender.clone().run(stop.clone()));

    let retry_delays = kind.pauses.clone().map(|pauses| RetrySchedule::new(pauses).unwrap());
    let url = WebhookUrl::parse(&format!("{}://{HOST}/hook/secret-path", kind.scheme)).unwrap();
    let settings = webhook::Settings { retry_delays, ..webhook::Settings::default() };
    store.create_webhook(Webhook { url, ..webhook("shop", settings) }).await.unwrap();
    let event = NewEvent { body: vec![b'x'; EVENT_BYTES].into(), ..event("e1") };
    sender.publish(organization(), vec![event]).await.unwrap();
    let view = ended(&store).await;
    let is_on = store.webhooks(&organization()).await.unwrap()[0].off.is_none();
    stop.cancel();
    running.await.unwrap();
    let times = timed.took.lock().unwrap().clone();
    Played { delivery: view.deliveries[0].clone(), is_on, times, network }
}

/// The event, once it waits no more.
async fn ended(store: &MemoryStore) -> EventView {
    let mut left = WHOLE_SCHEDULE;
    loop {
        let view = store.event(&organization(), &EventId::parse("e1").unwrap()).await.unwrap().unwrap();
        if view.deliveries[0].state != DeliveryState::Waiting || left.is_zero() {
            return view;
        }
        sleep(GLANCE).await;
        left = left.saturating_sub(GLANCE);
    }
}

/// What is wrong with what came of a kind.
fn complaints(kind: &Kind, played: &Played) -> Vec<String> {
    let (expected, delivery) = (kind.ends.outcomes(), &played.delivery);
    let mut wrong = Vec::new();
    let seen: Vec<_> = delivery.attempts.iter().map(|attempt| attempt.outcome).collect();
    if seen.len() != expected.len() || played.times.len() != expected.len() {
        wrong.push(format!("{} attempts, not {}: {seen:?}", seen.len(), expected.len()));
    }
    for (n, (attempt, expected)) in delivery.attempts.iter().zip(&expected).enumerate() {
        let told = |what: String| format!("attempt {}: {what}; its error is {:?}", n + 1, attempt.error);
        if attempt.outcome != *expected {
            wrong.push(told(format!("{:?}, not {expected:?}", attempt.outcome)));
        }
        if attempt.error.is_empty() != matches!(attempt.outcome, Outcome::Answered(_)) {
            wrong.push(told("an error is told of what failed, and of nothing else".into()));
        }
        if attempt.error.contains("secret") {
            wrong.push(told("it tells the path".into()));
        }
    }
    wrong.extend(wrong_times(kind, played));
    let delivered = expected.last().is_some_and(|last| last.is_success());
    let state = if delivered { DeliveryState::Delivered } else { DeliveryState::Exhausted };
    // Nobody is switched off for a failure of ours.
    let is_on = delivered || expected.iter().any(|outcome| outcome.spoiled_by_us());
    if (delivery.state, played.is_on) != (state, is_on) {
        wrong.push(format!("it ended as {:?}, and the webhook is on: {}", delivery.state, played.is_on));
    }
    let (connections, requests) = (played.network.connections(), played.network.requests());
    let always_read = kind.behaviour.scripts.iter().all(|script| matches!(script.first(), Some(Step::Read)));
    let unread = always_read && kind.behaviour.tls.is_none() && requests < connections;
    if connections.max(requests) > expected.len() || unread {
        wrong.push(format!("{connections} connections were made, and {requests} requests arrived"));
    }
    if !played.network.strangers().is_empty() {
        wrong.push(format!("it went to {:?}", played.network.strangers()));
    }
    wrong
}

/// Attempts that ended too late, or began too early or too late.
fn wrong_times(kind: &Kind, played: &Played) -> Vec<String> {
    let mut wrong = Vec::new();
    let default = RetrySchedule::default();
    for (n, (began, ended)) in played.times.iter().enumerate() {
        let took = *ended - *began;
        if took > DEADLINE + GRACE {
            wrong.push(format!("attempt {}: it took {took:?}", n + 1));
        }
        let logged = played.delivery.attempts.get(n).map(|attempt| attempt.duration);
        if logged.is_none_or(|logged| logged.abs_diff(took) > Duration::from_millis(1)) {
            wrong.push(format!("attempt {}: it took {took:?}, and the log says {logged:?}", n + 1));
        }
        let Some((next, _)) = played.times.get(n + 1) else { continue };
        let own = kind.pauses.as_ref().map(|pauses| pauses[n]);
        let pause = own.or(default.delay_after(u32::try_from(n + 1).unwrap())).unwrap();
        let paused = *next - *ended;
        if paused < pause || paused > pause + GRACE {
            wrong.push(format!("attempt {}: it began {paused:?} after the one before, not {pause:?}", n + 2));
        }
    }
    wrong
}

async fn each_ends_as_it_must(kinds: Vec<Kind>) {
    let authority = way::authority();
    let mut wrong = Vec::new();
    for kind in &kinds {
        let played = play(kind, authority).await;
        wrong.extend(complaints(kind, &played).into_iter().map(|complaint| format!("{}: {complaint}", kind.what)));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// One test for each list of kinds, and one that counts them all.
macro_rules! tests {
    ($($name:ident: $kinds:expr;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                each_ends_as_it_must($kinds).await;
            }
        )*

        #[test]
        fn the_kinds_are_many_and_each_has_its_own_name() {
            const FEWEST_KINDS: usize = 200;
            let names: Vec<_> = [$($kinds),*].into_iter().flatten().map(|kind| kind.what).collect();
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            assert!(names.len() >= FEWEST_KINDS && distinct.len() == names.len(), "{}: {names:?}", names.len());
        }
    };
}

tests! {
    r5_r6_names: way::names();
    r5_r6_connections: way::connections();
    r5_r6_handshakes: way::handshakes();
    r4_r6_answers_that_break_off_or_never_come: answers::without_a_status();
    r4_answers_just_before_and_after_the_deadline: answers::around_the_deadline();
    r6_answers_that_are_not_http: answers::not_http();
    r2_r3_s9_bodies: answers::bodies();
    case9_connections_that_are_used_again: answers::kept_connections();
    r2_r3_statuses: statuses::all();
    r3_s5_redirects: statuses::redirects();
}
