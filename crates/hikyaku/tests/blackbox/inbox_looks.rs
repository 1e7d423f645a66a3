//! Looking at the inbox: routes, destinations, outages, and what would become of a delivery.

use std::fs;
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{
    Config, Receiver, Reply, SOURCE_SECRET, Server, event_body, eventually, forward_to, on_postgres, sales_to_sql,
    signed, source,
};

const READING: &str = "
[source.fetch]
url = \"https://api.example/shop-7/orders/{key}\"
token = \"a-token-of-the-provider\"

[[destination]]
name = \"app\"
kind = \"http\"
url = \"http://127.0.0.1:9/orders\"
secret = \"a-secret-of-the-destination\"

[[route]]
name = \"orders\"
source = \"receiptroller\"
events = [\"order.*\"]
destination = \"app\"
order = \"fetch\"
";

/// The tables of a configuration with a `sql` and a reading route.
fn tables() -> String {
    // `[source.fetch]` belongs to the source that was named last.
    sales_to_sql() + READING
}

fn try_in(dir: &std::path::Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    command.env_clear().current_dir(dir).args(["inbox", "try", "--config", "hikyaku.toml"]).args(arguments);
    command.output().unwrap()
}

fn tried(dir: &std::path::Path, arguments: &[&str]) -> (i32, Value) {
    let output = try_in(dir, &[arguments, &["--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[test]
fn a_dry_run_says_what_would_become_of_a_delivery_and_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("hikyaku.toml", &tables());
    let sale = event_body("e1", "sale.created", "2026-11-30T09:15:00.000Z", r#"{"id":"k1","bizId":7}"#);
    let order = event_body("e2", "order.updated", "2026-11-30T09:15:00.000Z", r#"{"order_id":"../o|1"}"#);
    write("sale.json", &sale);
    write("order.json", &order);
    write("other.json", &event_body("e3", "other.thing", "2026-11-30T09:15:00.000Z", "{}"));
    let headers = |body: &str| signed("e1", body.as_bytes()).map(|(name, value)| format!("{name}: {value}\n")).concat();
    write("good.txt", &headers(&sale));
    write("wrong.txt", &headers(&order));

    let (code, told) = tried(dir.path(), &["--source", "receiptroller", "--headers", "good.txt", "sale.json"]);
    assert_eq!(
        (code, &told["deliveryId"], &told["key"], &told["parked"]),
        (0, &json!("e1"), &json!("k1"), &Value::Null)
    );
    let [route] = &told["routes"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!((&route["route"], &route["order"]), (&json!("receiptroller-books"), &json!("latest")));
    let does = route["effect"]["does"].as_str().unwrap();
    assert!(does.starts_with("INSERT INTO \"sales\"") && does.contains("'k1'"), "{does}");

    let (code, told) = tried(dir.path(), &["--source", "receiptroller", "order.json"]);
    let route = &told["routes"][0];
    assert_eq!((code, &route["route"]), (0, &json!("orders")), "{told}");
    assert_eq!(route["reading"]["does"], "https://api.example/shop-7/orders/..%2Fo%7C1");
    assert!(route["effect"]["does"].as_str().unwrap().contains("idempotency-key: receiptroller:e2"), "{told}");

    let (code, told) = tried(dir.path(), &["--source", "receiptroller", "--headers", "wrong.txt", "sale.json"]);
    assert!(code == 1 && told["refused"].is_string(), "{told}");
    let (code, told) = tried(dir.path(), &["--source", "receiptroller", "other.json"]);
    assert!(code == 1 && told["parked"].as_str().unwrap().contains("other.thing"), "{told}");
    assert_eq!(tried(dir.path(), &["--source", "nobody", "sale.json"]).0, 2);
    assert_eq!(tried(dir.path(), &["--source", "receiptroller", "none.json"]).0, 2);

    let text = String::from_utf8(try_in(dir.path(), &["--source", "receiptroller", "sale.json"]).stdout).unwrap();
    assert!(text.contains("route receiptroller-books -> books (order latest, once delivery)\n  INSERT INTO"), "{text}");
    for secret in [SOURCE_SECRET, "a-token-of-the-provider", "a-secret-of-the-destination"] {
        assert!(!text.contains(secret), "{text}");
    }
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    let written = ["good.txt", "hikyaku.toml", "order.json", "other.json", "sale.json", "wrong.txt"];
    assert_eq!(left, written, "no store and no database was made");
}

/// A destination of each kind that is told of without being opened, with a secret in each that has one.
const KINDS: &str = r#"
[[destination]]
name = "slack"
kind = "slack"
url = "https://hooks.slack.example/services/sesame"
template = "*{{ data.id }}*"

[[destination]]
name = "command"
kind = "command"
program = "/bin/sh"
args = ["--key", "a b"]
env = { TOKEN = "sesame" }

[[destination]]
name = "postgres"
kind = "sql"
url = "postgres://user:sesame@db.example/books"
table = "sales"
key = "id"
columns = { id = "/data/id" }

[[destination]]
name = "file"
kind = "file"
path = "events.jsonl"

[[destination]]
name = "keyless"
kind = "sql"
url = "sqlite:books.db"
table = "sales"
key = "id"
columns = { id = "/data/other" }
"#;

#[test]
fn s19_a_dry_run_shows_what_each_kind_of_destination_would_make_of_a_delivery_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let expected = [
        ("slack", "posts through the incoming webhook at https://hooks.slack.example:\n*k1*"),
        ("command", "argument \"--key\"\nargument \"a b\""),
        ("postgres", "VALUES ($1) ON CONFLICT (\"id\")"),
        ("file", "appends to events.jsonl:\n{\"deliveryId\":\"e1\""),
    ];
    let names = expected.iter().map(|(name, _)| *name).chain(["keyless"]);
    let route =
        |name| format!("\n[[route]]\nname = \"{name}\"\nsource = \"receiptroller\"\ndestination = \"{name}\"\n");
    let tables = source() + KINDS + &names.map(route).collect::<String>();
    fs::write(dir.path().join("hikyaku.toml"), tables).unwrap();
    let sale = event_body("e1", "sale.created", "2026-11-30T09:15:00.000Z", r#"{"id":"k1"}"#);
    fs::write(dir.path().join("sale.json"), sale).unwrap();
    let (code, told) = tried(dir.path(), &["--source", "receiptroller", "sale.json"]);
    assert_eq!(code, 1, "one of them would refuse it: {told}");
    let of = |name: &str| told["routes"].as_array().unwrap().iter().find(|route| route["route"] == name).unwrap();
    for (name, part) in expected {
        let does = of(name)["effect"]["does"].as_str().unwrap_or_else(|| panic!("{told}"));
        assert!(does.contains(part), "{name}: {does}");
    }
    let refused = of("keyless")["effect"]["error"].as_str().unwrap();
    assert!(refused.contains("dead") && refused.contains("/data/other"), "{refused}");
    assert!(!told.to_string().contains("sesame"), "{told}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing was made");
}

/// What the server would do with it, and nothing kinder.
#[test]
fn a_dry_run_says_dead_and_quarantined_where_the_server_would() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let tables = tables().replacen("secrets = [", "on_bad_signature = \"quarantine\"\nsecrets = [", 1);
    write("hikyaku.toml", &tables);
    let sale = event_body("e1", "sale.created", "2026-11-30T09:15:00.000Z", r#"{"id":"k1","bizId":7}"#);
    write("sale.json", &sale);
    write("keyless.json", &event_body("e2", "order.updated", "2026-11-30T09:15:00.000Z", "{}"));
    write("list.json", &event_body("e3", "sale.created", "2026-11-30T09:15:00.000Z", r#"{"id":["k"]}"#));
    write("wrong.txt", "x-rr-delivery: e1\nx-rr-signature: sha256=00\n");
    write("garbage.txt", "this is no header\nx-rr-delivery: e1\n");
    let of = |arguments: &[&str]| tried(dir.path(), &[&["--source", "receiptroller"], arguments].concat());

    let (code, told) = of(&["--headers", "wrong.txt", "sale.json"]);
    assert!(code == 1 && told["quarantined"].is_string() && told["refused"].is_null(), "{told}");
    let text = try_in(dir.path(), &["--source", "receiptroller", "--headers", "wrong.txt", "sale.json"]).stdout;
    assert!(String::from_utf8(text).unwrap().starts_with("answer    200, and quarantined while there is room"));
    let (code, told) = of(&["keyless.json"]);
    let (reading, effect) = (&told["routes"][0]["reading"], &told["routes"][0]["effect"]["error"]);
    assert!(code == 1 && reading["error"].is_string() && effect.as_str().unwrap().contains("dead"), "{told}");
    let text = String::from_utf8(try_in(dir.path(), &["--source", "receiptroller", "keyless.json"]).stdout).unwrap();
    assert!(!text.contains("POST") && !text.contains("and with what it answers"), "{text}");
    let (code, told) = of(&["list.json"]);
    assert!(code == 1 && told["routes"][0]["effect"]["error"].as_str().unwrap().contains("dead"), "{told}");
    assert_eq!(of(&["--headers", "garbage.txt", "sale.json"]).0, 2);
}

#[tokio::test]
async fn routes_and_destinations_are_shown_as_they_run_and_no_secret() {
    let mut business = Receiver::always(503).await;
    let forward =
        forward_to(&business.url("/in")).replace("kind = \"http\"", "kind = \"http\"\nsecret = \"of-the-destination\"");
    let server = Server::start(Config::default().with(&forward).env("HIKYAKU_INBOX__RETRY_FIRST", "1h")).await;
    let api = server.api();
    let body = event_body("d1", "sale.created", "2026-11-30T09:15:00.000Z", "{}");
    assert_eq!(api.deliver_signed("d1", &body).await, 200);
    business.next().await;
    let route = eventually("the failure to be written down", async || {
        let route = api.get(&["routes"], &[]).await.json["items"][0].clone();
        (route["failing"] == 1).then_some(route)
    })
    .await;
    assert_eq!(
        (&route["name"], &route["waiting"], &route["failing"]),
        (&json!("receiptroller-forward"), &json!(1), &json!(1))
    );
    assert_eq!(
        (&route["lastError"]["error"], &route["lastError"]["deliveryId"]),
        (&json!("answered 503"), &json!("d1"))
    );
    assert!(route["oldestSeconds"].is_number(), "{route}");
    let destinations = api.get(&["destinations"], &[]).await.json;
    let destination = &destinations["items"][0];
    assert_eq!((&destination["name"], &destination["kind"]), (&json!("forward"), &json!("http")));
    assert_eq!(destination["settings"]["url"], business.url("/in"));
    assert!(!destinations.to_string().contains("of-the-destination"), "{destinations}");
}

/// T4: what was sent while nobody was there comes by no push any more, so the time is written down and told.
#[tokio::test]
async fn t4_an_absence_longer_than_the_retry_window_is_told_with_its_bounds() {
    if on_postgres() {
        return; // It looks into the store's file.
    }
    let mut server = Server::start(Config::default()).await;
    let outages = async |server: &Server| {
        let answer = reqwest::get(server.api().url(&["v1", "outages"])).await.unwrap();
        answer.json::<Value>().await.unwrap()["items"].clone()
    };
    assert!(server.sigterm().await.success());
    server.restart().await;
    assert_eq!(outages(&server).await, json!([]), "it was away for a moment only");
    assert!(server.sigterm().await.success());
    let from = "2026-01-05T03:00:00.000Z";
    let store = Connection::open(server.path("hikyaku.db")).unwrap();
    let at = hikyaku_core::timestamp::parse(from).unwrap().as_millisecond();
    assert_eq!(store.execute("UPDATE heartbeat SET at = ?1", [at]).unwrap(), 1);
    drop(store);
    server.restart().await;
    let found =
        eventually("the first sign of life", async || Some(outages(&server).await).filter(|found| *found != json!([])));
    let found = found.await;
    assert_eq!(found[0]["from"], from);
    assert!(found[0]["seconds"].as_i64().unwrap() > 71 * 60, "{found}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    command.env_clear().env("HIKYAKU_SERVER", format!("http://{}", server.addr())).args(["inbox", "outages"]);
    let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(shown.contains(from), "{shown}");
}

/// C3: an event only says that something changed; what takes effect is what the provider says now.
#[tokio::test]
async fn c3_events_of_a_key_become_a_reading_of_its_present_state() {
    const STATE: &str = r#"{"order_id":"o|1", "state":"paid", "total":29383937493038367292}"#;
    let provider = Receiver::start(|seen| match (seen.path(), seen.header("authorization")) {
        ("/account/login", None) => Reply::Answer(200, br#"{"token":"t-1","expire":"later"}"#.to_vec()),
        ("/shop-7/orders/o%7C1", Some("Bearer t-1")) => Reply::Answer(200, STATE.into()),
        _ => Reply::status(403),
    });
    let provider = provider.await;
    let mut business = Receiver::always(200).await;
    let tables = forward_to(&business.url("/in")).replace("order = \"every\"", "order = \"fetch\"");
    let fetch = format!(
        "[source.fetch]\nurl = \"{}\"\nlogin = \"{}\"\nuser = \"taro\"\npassword = \"of-the-provider\"\n",
        provider.url("/shop-7/orders/{key}"),
        provider.url("/account/login")
    );
    let server = Server::start(Config::default().with(&tables).with(&fetch)).await;
    let api = server.api();
    // The later one comes first, and each has a reading of its own: the earlier one is not too old to be acted on.
    for (delivery, event_type, second) in [("e2", "order.updated", 2), ("e1", "order.created", 1)] {
        let timestamp = format!("2026-11-30T09:15:{second:02}.000Z");
        let body = event_body(delivery, event_type, &timestamp, r#"{"order_id":"o|1","state":"old"}"#);
        assert_eq!(api.deliver_signed(delivery, &body).await, 200);
        assert_eq!(api.settled("receiptroller", delivery).await["state"], "done");
        let seen = business.next().await;
        assert_eq!((seen.delivery(), str::from_utf8(&seen.body).unwrap()), (delivery, STATE));
    }
    let asked: Vec<_> = provider.seen().iter().map(|seen| format!("{} {}", seen.method(), seen.path())).collect();
    let reading = "GET /shop-7/orders/o%7C1";
    assert_eq!(asked, ["POST /account/login", reading, reading]);
    assert_eq!(provider.seen()[0].json(), json!({"userName": "taro", "password": "of-the-provider"}));
}
