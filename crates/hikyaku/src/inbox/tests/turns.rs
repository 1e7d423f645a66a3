//! Destinations that may not be asked yet.

use hikyaku_core::delivery::Outcome;
use jiff::Timestamp;

use super::*;
use crate::inbox::destination::{self, Kind, Language, SlackSettings, TimeZone, Tools};
use crate::outbound::{Request, Response, Transport};
use crate::store::{EffectState, RowState};

fn later(seconds: u64) -> Answer {
    Answer::Now(Effect::Later { pause: Duration::from_secs(seconds), reason: "not its turn".into() })
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_turn_is_no_failure_however_long_it_takes() {
    // Much longer than the hour after which a row that fails is given up.
    const TURNS: usize = 100;
    let slow = Scripted::new(|_, tried| if tried < TURNS { later(120) } else { Answer::Now(done()) });
    let quick = Scripted::new(|_, _| Answer::Now(done()));
    let routes = ["slow", "quick"].map(|name| route(name, "*", Order::Every, Once::Delivery));
    let mut rig = Rig::new(routes.to_vec(), &[("slow", slow.clone()), ("quick", quick.clone())]);
    let began = rig.clock.schedule();
    rig.run();
    for n in 0..20 {
        let delivery = format!("d{n}");
        rig.send(&delivery, sale(&delivery, &format!("k{n}"), n)).await;
    }
    while quick.deliveries().len() < 20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(rig.clock.schedule().duration_since(began).as_secs() < 60, "nobody else waits for that turn");
    let waiting = rig.row("d7").await.effects.into_iter().find(|effect| effect.route == "slow").unwrap();
    assert_eq!((waiting.state, waiting.failures, waiting.detail.as_str()), (EffectState::Waiting, 0, "not its turn"));
    rig.settle().await;
    for n in 0..20 {
        let row = rig.row(&format!("d{n}")).await;
        assert_eq!(row.row.state, RowState::Done);
        assert!(row.effects.iter().all(|effect| effect.failures == 0));
    }
    assert_eq!(slow.deliveries().len(), 20 * (TURNS + 1));
}

#[tokio::test(start_paused = true)]
async fn a_turn_costs_no_failure_that_was_counted_before() {
    let chat = Scripted::new(|_, tried| match tried {
        0 | 2 => Answer::Now(failed("away")),
        1 => later(60),
        _ => Answer::Now(done()),
    });
    let mut rig = Rig::new(vec![route("chat", "*", Order::Every, Once::Delivery)], &[("chat", chat.clone())]);
    rig.run();
    rig.send("d1", sale("d1", "k", 1)).await;
    while chat.deliveries().len() < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waits = rig.effect("d1").await;
    assert_eq!((waits.failures, waits.detail.as_str()), (1, "away"), "the turn does not hide why it failed");
    rig.settle().await;
    let seen: Vec<_> = chat.calls.lock().unwrap().iter().map(|row| row.failures).collect();
    assert_eq!(seen, [0, 1, 1, 2]);
    assert_eq!(rig.effect("d1").await.state, EffectState::Done);
}

/// Slack, with the times at which it was asked.
struct Slack {
    clock: SharedClock,
    asked: Mutex<Vec<Timestamp>>,
}

#[async_trait]
impl Transport for Slack {
    async fn post(&self, _: Request) -> Response {
        self.asked.lock().unwrap().push(self.clock.schedule());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (headers, body) = (HeaderMap::new(), Bytes::from_static(b"ok"));
        let outcome = Outcome::Answered(200);
        Response { outcome, error: String::new(), headers, body, duration: Duration::ZERO }
    }
}

#[tokio::test(start_paused = true)]
async fn slack_gets_one_message_a_second_from_all_routes_and_lanes_together() {
    const EACH: i64 = 40;
    let clock: SharedClock = Arc::new(SystemClock::start());
    let slack = Arc::new(Slack { clock: clock.clone(), asked: Mutex::default() });
    let (url, time_zone) = (Secret::new("https://hooks.slack.example/x"), TimeZone::default());
    let kind = Kind::Slack(SlackSettings { url, template: None, language: Language::English, time_zone });
    let effect_timeout = Duration::from_secs(20);
    let tools = Tools { transport: slack.clone(), clock, effect_timeout, origins: Arc::default() };
    let settings = destination::Settings { name: "chat".into(), kind };
    let chat = destination::build(settings, &tools).unwrap();
    let named = |name: &str| Route { name: name.into(), ..route("chat", "*", Order::Every, Once::Delivery) };
    let mut rig = Rig::new(vec![named("one"), named("two")], &[("chat", chat)]);
    rig.run();
    for n in 0..EACH {
        let delivery = format!("d{n}");
        rig.send(&delivery, sale(&delivery, &format!("k{}", n % 10), n)).await;
    }
    rig.settle().await;
    let asked = slack.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 2 * EACH as usize);
    let pauses: Vec<_> = asked.windows(2).map(|two| two[1].duration_since(two[0]).as_millis()).collect();
    assert!(pauses.iter().all(|pause| *pause >= 990), "{pauses:?}");
    let whole = asked[asked.len() - 1].duration_since(asked[0]).as_secs();
    assert!(whole <= 2 * EACH + 5, "no turn is wasted: {whole} s");
}
