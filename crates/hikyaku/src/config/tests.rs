mod destinations;
mod fetch;
mod overrides;
mod reconcile;
mod sources;

use std::fs;
use std::time::Duration;

use super::*;
use crate::inbox::{Once, Order};
use crate::store::seal::SealingKey;

const WHOLE: &str = r#"
listen = "127.0.0.1:0"
store = "sqlite:here.db"
sealing_key = "env:SEALING_KEY"
old_sealing_keys = ["AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="]
[api]
token = "env:TOKEN"
max_event_bytes = 1000
[sender]
retry_delays = ["200ms", "60s", "10m", "1h", "3d"]
attempt_timeout = "5s"
in_flight_per_webhook = 2
in_flight = 20
[sender.targets]
allow = ["127.0.0.0/8", "::1"]
allow_http = true
[inbox]
max_body_bytes = 2000
effect_timeout = "1s"
in_flight_per_route = 3
retry_first = "10ms"
retry_longest = "1s"
give_up_after = "5s"
[log]
level = "info,hikyaku::sender=debug"
format = "json"
[retention]
events = "2h"
inbox = "never"
[[source]]
name = "receiptroller"
provider = "receiptroller"
organization = "acme"
secrets = ["env:RR_SECRET", "as-it-stands"]
[[destination]]
name = "books"
kind = "sql"
url = "sqlite:books.db"
table = "sales"
key = "id"
columns = { id = "/data/id", total = "/data/paymentSummary/grandTotal" }
create = true
[[destination]]
name = "app"
kind = "http"
url = "http://127.0.0.1:3000/hook"
secret = "forwarded"
[[route]]
source = "receiptroller"
events = ["sale.*", "order.created"]
destination = "books"
order = "latest"
once = "key"
[[route]]
source = "receiptroller"
destination = "app"
"#;

fn inputs(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Inputs {
    let flag = |(path, value): &(&str, &str)| Flag {
        written: format!("--set {path}"),
        path: (*path).to_owned(),
        value: (*value).to_owned(),
    };
    Inputs {
        file: None,
        environment: environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        flags: flags.iter().map(flag).collect(),
    }
}

const SEALING_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const SECRETS: [(&str, &str); 3] =
    [("TOKEN", "0123456789abcdef"), ("RR_SECRET", "from the environment"), ("SEALING_KEY", SEALING_KEY)];

fn read(text: &str) -> Result<Config, Invalid> {
    read_text("f.toml".into(), text, &inputs(&SECRETS, &[]))
}

/// Everything that is reported about a text, line by line.
fn problems(text: &str) -> String {
    read(text).expect_err(text).0.iter().map(|problem| format!("{}: {}\n", problem.place, problem.message)).collect()
}

#[test]
fn nothing_at_all_gives_the_defaults() {
    let config = read("").unwrap();
    assert_eq!(config.to_string(), Config::default().to_string());
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.store, StoreLocation::Sqlite("hikyaku.db".into()));
    assert_eq!(config.sender.policy.schedule.max_attempts(), 4);
    assert!(config.sender.targets.allow.is_empty() && !config.sender.targets.allow_http);
}

#[test]
fn every_setting_is_read() {
    let config = read(WHOLE).unwrap();
    assert_eq!(config.api.token.unwrap().reveal(), "0123456789abcdef");
    assert_eq!(config.api.max_event_bytes, 1000);
    let keys = config.seal.keys();
    assert_eq!((keys.len(), keys[0].id()), (2, SealingKey::parse(SEALING_KEY).unwrap().id()));
    let schedule = &config.sender.policy.schedule;
    assert_eq!(schedule.delay_after(1), Some(Duration::from_millis(200)));
    assert_eq!(schedule.delay_after(5), Some(Duration::from_secs(3 * 24 * 3600)));
    assert_eq!(config.sender.attempt_timeout, Duration::from_secs(5));
    assert_eq!(config.sender.targets.allow[1].to_string(), "::1/128");
    assert_eq!(config.inbox.backoff.give_up_after, Duration::from_secs(5));
    let secrets: Vec<_> = config.sources[0].secrets.iter().map(Secret::reveal).collect();
    assert_eq!(secrets, ["from the environment", "as-it-stands"]);
    assert_eq!(config.sources[0].organization.as_str(), "acme");
    let [books, app] = &config.routes[..] else { panic!("two routes") };
    assert_eq!((books.name.as_str(), books.order, books.once), ("receiptroller-books", Order::Latest, Once::Key));
    assert_eq!((app.name.as_str(), app.order, app.once), ("receiptroller-app", Order::Every, Once::Delivery));
    assert!(app.events[0].matches("anything.at.all"));
    assert_eq!((config.retention.events, config.retention.inbox), (Some(Duration::from_secs(7200)), None));
}

#[test]
fn s14_case26_ids_that_would_be_forgotten_too_soon_are_refused() {
    for key in ["events", "inbox"] {
        let refused = problems(&format!("[retention]\n{key} = '119m'"));
        assert!(
            refused.contains(&format!("`retention.{key}` must be at least 2h or \"never\", not \"119m\"")),
            "{refused}"
        );
        assert!(refused.contains("duplicate") && refused.contains("71 minutes"), "{refused}");
        assert!(read(&format!("[retention]\n{key} = '120m'")).is_ok());
    }
    let kept = Config::default().retention;
    let week = Duration::from_secs(7 * 24 * 3600);
    assert!(kept.events.is_some_and(|age| age >= week) && kept.inbox.is_some_and(|age| age >= week));
}

#[test]
fn what_is_shown_hides_secrets_and_reads_back_as_the_same() {
    let shown = read(WHOLE).unwrap().to_string();
    for secret in [SEALING_KEY, "AQEB", "0123456789abcdef", "from the environment", "as-it-stands", "forwarded"] {
        assert!(!shown.contains(secret), "{secret} is in:\n{shown}");
    }
    let again = read(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}")).to_string();
    let without_secrets = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.contains("(hidden:")).map(str::to_owned).collect()
    };
    assert_eq!(without_secrets(&again), without_secrets(&shown));
    assert_eq!(shown.matches("(hidden:").count(), 6);
}

#[test]
fn s19_a_databases_password_is_not_shown_and_the_rest_reads_back() {
    let text = "[[destination]]\nname = 'books'\nkind = 'sql'\nurl = 'postgres://me:hunter2@db/books?sslmode=disable'\n\
                table = 'sales'\nkey = 'id'\ncolumns = { id = '/data/id' }";
    let shown = read(text).unwrap().to_string();
    assert!(shown.contains("url = \"postgres://me:(hidden:7-bytes)@db/books?sslmode=disable\""), "{shown}");
    assert!(!shown.contains("hunter2"));
    assert!(read(&shown).is_ok(), "{shown}");
}

/// Texts that are refused, and what is said, place included.
const REFUSED: &[(&str, &str)] = &[
    ("listen = ", "f.toml:1:"),
    ("listen = 'a'\nlisten = 'b'", "f.toml:2:1: is not TOML: duplicate key"),
    (
        "\n  liste = 1",
        "f.toml:2:3: `liste` is not a setting; here are: api, database, destination, inbox, listen, log, old_sealing_keys, reconcile, retention, roles, route",
    ),
    ("[sender]\nretries = 3", "f.toml:2:1: `sender.retries` is not a setting; here are: attempt_timeout, in_flight"),
    (
        "[sender.targets]\nallow_https = true",
        "f.toml:2:1: `sender.targets.allow_https` is not a setting; here are: allow, ",
    ),
    ("sender = 3", "f.toml:1:10: `sender` must be a table, not an integer"),
    ("listen = 8080", "f.toml:1:10: `listen` must be a text (\"…\"), not an integer"),
    ("listen = 'localhost:80'", "`listen` must be an IP address and a port like \"127.0.0.1:8080\""),
    (
        "listen = '0.0.0.0:80'\n[api]\ntoken = '0123456789abcdef'",
        "f.toml:1:10: `listen` is 0.0.0.0:80, which other machines can reach, and the secrets in the store are not sealed; \
         set `sealing_key` (or the variable HIKYAKU_SEALING_KEY) to what `openssl rand -hex 32` prints",
    ),
    ("sealing_key = 'hunter2'", "f.toml:1:15: `sealing_key` must be 32 random bytes in hexadecimal or Base64"),
    ("old_sealing_keys = ['x']", "f.toml:1:21: `old_sealing_keys` must be 32 random bytes"),
    ("old_sealing_keys = ['env:SEALING_KEY']", "`old_sealing_keys` is of no use without `sealing_key`"),
    ("store = 'postgres://u:hunter2@/x'", "f.toml:1:9: `store` names no host"),
    ("store = 'env:NO_SUCH'", "f.toml:1:9: `store` needs the environment variable NO_SUCH"),
    ("[database]\nconnections = 1", "`database.connections` must be between 2 and 1000, not 1"),
    ("roles = []", "f.toml:1:9: `roles` is empty"),
    (
        "roles = ['sender', 'cook']",
        "must be \"sender\" or \"inbox\" or \"worker\" or \"api\" or \"reconcile\", not \"cook\"",
    ),
    ("store = 'sqlite:'", "`store` must be \"sqlite:PATH\""),
    ("store = 'sqlite://x.db'", "`store` must be \"sqlite:PATH\""),
    ("store = 'x.db'", "`store` must be \"sqlite:PATH\""),
    ("[api]\ntoken = ''", "f.toml:2:9: `api.token` must not be empty"),
    ("[api]\ntoken = 'short'", "`api.token` must be at least 16 visible ASCII characters"),
    ("[api]\ntoken = 'env:MISSING'", "`api.token` needs the environment variable MISSING, which is not set"),
    ("[api]\ntoken = 'file:/no/such'", "`api.token` needs the file \"/no/such\", which cannot be read: "),
    ("[api]\nmax_event_bytes = 0", "f.toml:2:19: `api.max_event_bytes` must be between 1 and 16777216, not 0"),
    ("[api]\nmax_event_bytes = 1.5", "`api.max_event_bytes` must be an integer, not a number with a fraction"),
    (
        "[sender]\nattempt_timeout = '0s'",
        "f.toml:2:19: `sender.attempt_timeout` must be between 10ms and 30s, not \"0s\"",
    ),
    ("[sender]\nattempt_timeout = '31s'", "`sender.attempt_timeout` must be between 10ms and 30s, not \"31s\""),
    ("[sender]\nattempt_timeout = '-5s'", "`sender.attempt_timeout` must be between 10ms and 30s, not \"-5s\""),
    ("[sender]\nattempt_timeout = '10'", "`sender.attempt_timeout` must be a length of time like \"200ms\""),
    ("[sender]\nattempt_timeout = 10", "`sender.attempt_timeout` must be a length of time like \"200ms\""),
    ("[sender]\nretry_delays = [60]", "\"1h\" or \"3d\", not an integer"),
    ("[sender]\nretry_delays = '60s'", "`sender.retry_delays` must be a list ([…]), not a text"),
    (
        "[sender]\nretry_delays = ['60s', '8d']",
        "f.toml:2:24: `sender.retry_delays` must be between 1ms and 7d, not \"8d\"",
    ),
    ("[sender]\nin_flight = 0", "`sender.in_flight` must be between 1 and 65536, not 0"),
    ("[sender]\nin_flight = 3", "f.toml:2:13: `sender.in_flight` is 3, less than `sender.in_flight_per_webhook` (16)"),
    ("[sender.targets]\nallow = ['10.0.0.0/33']", "f.toml:2:10: `sender.targets.allow` must be a range of addresses"),
    ("[sender.targets]\nallow = ['169.254.169.254']", "which nothing is ever delivered to"),
    ("[sender.targets]\nallow = ['fd00:ec2::254/128']", "which nothing is ever delivered to"),
    ("[sender.targets]\nallow = ['10.1.0.0/8']", "names an address inside of a range; write \"10.0.0.0/8\""),
    ("[sender.targets]\nallow_http = 'yes'", "`sender.targets.allow_http` must be true or false, not a text"),
    ("[inbox]\nmax_body_bytes = 99999999999", "`inbox.max_body_bytes` must be between 1 and 16777216"),
    ("[inbox]\neffect_timeout = '1ms'", "`inbox.effect_timeout` must be between 10ms and 5m"),
    ("[inbox]\nretry_first = '2s'\nretry_longest = '1s'", "f.toml:3:17: `inbox.retry_longest` is shorter than"),
    ("[inbox]\ngive_up_after = '31d'", "`inbox.give_up_after` must be between 1ms and 30d"),
    ("[retention]\ninbox = 'soon'", "f.toml:2:9: `retention.inbox` must be a length of time like"),
    ("[log]\nlevel = 'a=b=c'", "f.toml:2:9: `log.level` must be a level like \"info\""),
    ("[log]\nlevel = 'loud'", "f.toml:2:9: `log.level` must be a level like \"info\""),
    ("[log]\nlevel = 'info,hikyaku'", "`log.level` must be a level like \"info\""),
    ("[log]\nformat = 'xml'", "`log.format` must be \"auto\" or \"text\" or \"json\", not \"xml\""),
    ("[source]\nname = 'x'", "f.toml:1:1: `source` must be a list of tables ([[source]]), not a table"),
    ("[[source]]", "f.toml:1:1: `source.name` is missing"),
    ("[[source]]\nname = 'a/b'", "f.toml:2:8: `source.name` must be 1 to 64 letters, digits"),
    (
        "[[source]]\nprovider = 'acme'",
        "f.toml:2:12: `source.provider` must be \"receiptroller\" or \"standard-webhooks\" or",
    ),
    ("[[source]]\norganization = 'a b'", "f.toml:2:16: `source.organization` contains ' '"),
    ("[[source]]\nsecrets = []", "f.toml:2:11: `source.secrets` needs at least one secret"),
    ("[[source]]\nsecrets = ['env:NO_SUCH']", "`source.secrets` needs the environment variable NO_SUCH"),
    ("[[source]]\nname = 'x'", "`source.secrets` needs at least one secret"),
    ("[[source]]\nsecrets = ['']", "f.toml:2:12: `source.secrets` must not be empty"),
    ("[[destination]]\nname = 'x'", "f.toml:1:1: `destination.kind` is missing"),
    (
        "[[destination]]\nkind = 'fax'",
        "`destination.kind` must be \"sql\" or \"http\" or \"slack\" or \"command\" or \"file\", not \"fax\"",
    ),
    ("[[destination]]\nkind = 'http'\nurl = 'ftp://x'", "f.toml:3:7: `destination.url` has the scheme \"ftp\""),
    (
        "[[destination]]\nkind = 'http'\ntable = 'x'",
        "f.toml:3:1: `destination.table` is not a setting; here are: headers, kind",
    ),
    ("[[destination]]\nkind = 'sql'\nurl = 'postgres://u:pw@'", "f.toml:3:7: `destination.url` names no host"),
    ("[[destination]]\nkind = 'sql'\nurl = 'postgres://h:x/d'", "f.toml:3:7: `destination.url` is no URL like"),
    ("[[destination]]\nkind = 'sql'\nurl = 'env:NO_SUCH'", "`destination.url` needs the environment variable NO_SUCH"),
    (
        "[[destination]]\nkind = 'sql'\ntable = 'a;b'",
        "f.toml:3:9: `destination.table` must be 1 to 64 bytes of letters",
    ),
    (
        "[[destination]]\nkind = 'sql'\ncolumns = { total = '/a', Total = '/b' }",
        "f.toml:3:11: `destination.columns` names the column \"total\" twice, in different case",
    ),
    (
        "[[destination]]\nkind = 'sql'\nkey = 'id'",
        "f.toml:3:7: `destination.key` is \"id\", which `destination.columns` must",
    ),
    (
        "[[destination]]\nkind = 'sql'\ncolumns.a = 'data'",
        "f.toml:3:13: `destination.columns.a` must be a JSON pointer",
    ),
    ("[[destination]]\nkind = 'sql'\ncolumns.'a\"' = '/a'", "`destination.columns` has a column named \"a\\\"\""),
    (
        "[[route]]\nsource = 'x'",
        "f.toml:2:10: `route.source` names the source \"x\", which does not exist; there is none",
    ),
    (
        "[[route]]\norder = 'newest'",
        "f.toml:2:9: `route.order` must be \"every\" or \"latest\" or \"fetch\", not \"newest\"",
    ),
    ("[[route]]\nonce = 'always'", "f.toml:2:8: `route.once` must be \"delivery\" or \"key\""),
    ("[[route]]\nevents = ['a.*.b']", "f.toml:2:11: `route.events` "),
    ("[[route]]\nevents = []", "f.toml:2:10: `route.events` is empty"),
];

#[test]
fn what_cannot_be_is_refused_with_its_place_and_the_reason() {
    for (text, expected) in REFUSED {
        let problems = problems(text);
        assert!(problems.contains(expected), "of\n{text}\nwas expected: {expected}\nbut came:\n{problems}");
    }
}

#[test]
fn more_delays_than_the_schedule_takes_are_refused() {
    let delays = vec!["'1s'"; 21].join(",");
    let problems = problems(&format!("[sender]\nretry_delays = [{delays}]"));
    assert!(problems.starts_with("f.toml:2:16: `sender.retry_delays` has 21 delays; at most 20"), "{problems}");
}

#[test]
fn all_problems_are_reported_in_the_order_of_their_lines() {
    let reported = problems(
        "listen = 1\nstore = 2\ntypo = 3\n[sender]\nattempt_timeout = '0s'\nretry_delays = ['x', '1s', 'y']\n[api]\ntoken = ''",
    );
    let places: Vec<_> = reported.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(
        places,
        ["f.toml:1:10", "f.toml:2:9", "f.toml:3:1", "f.toml:5:19", "f.toml:6:17", "f.toml:6:28", "f.toml:8:9"]
    );
}

#[test]
fn names_are_unique_and_routes_name_what_exists() {
    let doubled = format!(
        "{WHOLE}[[route]]\nsource = \"receiptroller\"\ndestination = \"app\"\n[[destination]]\nname = \"app\"\nkind = \"http\"\n\
         url = \"https://example.com\"\n[[route]]\nsource = \"receiptroller\"\ndestination = \"bank\"\n"
    );
    let reported = problems(&doubled);
    let expected = [
        "f.toml:57:1: `route.name` is the name \"receiptroller-app\", which another route has already, at f.toml:54:1; give \
         each a `name` of its own",
        "f.toml:61:8: `destination.name` is the name \"app\", which another destination has already, at f.toml:44:8",
        "f.toml:66:15: `route.destination` names the destination \"bank\", which does not exist; there are: app, books",
    ];
    assert_eq!(reported.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_destination_with_another_fault_is_still_known_to_its_routes() {
    let reported = problems(&WHOLE.replace("http://127.0.0.1:3000/hook", "nonsense"));
    assert_eq!(reported.lines().count(), 1, "{reported}");
}

#[test]
fn a_destination_of_unknown_kind_is_one_problem() {
    let reported = problems("[[destination]]\nname = 'x'\nkind = 'fax'\nurl = 'https://fax.example/x'");
    assert_eq!(reported.lines().count(), 1, "{reported}");
    assert!(reported.starts_with("f.toml:3:8: `destination.kind` must be "), "{reported}");
}

#[test]
fn a_secret_that_cannot_be_had_is_one_problem() {
    for wrong in ["['env:NO_SUCH']", "['file:/no/such']", "['']", "'as-it-stands'", "[5]"] {
        let source = format!("[[source]]\nname = 'x'\nprovider = 'receiptroller'\nsecrets = {wrong}");
        assert_eq!(problems(&source).lines().count(), 1, "{}", problems(&source));
    }
}

#[test]
fn a_destination_does_not_write_into_the_stores_own_file() {
    for same in ["books.db", "./books.db", "../hikyaku/books.db", "./././books.db"] {
        let reported = problems(&WHOLE.replace("here.db", same));
        assert!(reported.contains("\"books\" writes into the store's own file"), "{same}: {reported}");
    }
}

#[test]
fn a_secret_file_gives_its_text_without_the_line_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let text = format!("[api]\ntoken = 'file:{}'", file.display());
    for content in ["0123456789abcdef", "0123456789abcdef\n", "0123456789abcdef\r\n"] {
        fs::write(&file, content).unwrap();
        assert_eq!(read(&text).unwrap().api.token.unwrap().reveal(), "0123456789abcdef");
    }
    fs::write(&file, "x".repeat(300)).unwrap();
    assert!(problems(&text).contains("at most 256 are allowed"));
}

#[test]
fn s15_a_store_in_memory_needs_no_sealing_key() {
    assert!(read("listen = '0.0.0.0:80'\nstore = 'memory:'").is_ok());
}
