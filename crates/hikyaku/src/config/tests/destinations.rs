//! The kinds of destinations that have functions of their own in `config/destination.rs`.

use hikyaku_core::signature::Scheme;

use super::*;
use crate::inbox::destination::{Kind, Language};

const ALL: &str = r#"
[[destination]]
name = "chat"
kind = "slack"
url = "env:SLACK_URL"
language = "en"
time_zone = "+05:45"
[[destination]]
name = "own-words"
kind = "slack"
url = "env:SLACK_URL"
template = "{{ data.total|yen }}\n\"done\""
[[destination]]
name = "script"
kind = "command"
program = "/usr/local/bin/book"
args = ["--fast", "a b", ""]
env = { BOOKS_TOKEN = "env:BOOKS_TOKEN", MODE = "quick" }
directory = "/srv/books"
[[destination]]
name = "log"
kind = "file"
path = "events.jsonl"
max_bytes = 2048
keep = 3
[[destination]]
name = "app"
kind = "http"
url = "https://app.example/hook"
scheme = "standard-webhooks"
secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
headers = { authorization = "env:BOOKS_TOKEN", x-shop = "7" }
"#;

const ENVIRONMENT: [(&str, &str); 2] =
    [("SLACK_URL", "https://hooks.slack.example/services/sesame"), ("BOOKS_TOKEN", "tok-sesame")];

fn read(text: &str) -> Result<Config, Invalid> {
    read_text("f.toml".into(), text, &inputs(&ENVIRONMENT, &[]))
}

#[test]
fn every_setting_of_every_kind_is_read() {
    let config = read(ALL).unwrap();
    let [chat, own, script, log, app] = &config.destinations[..] else { panic!("five destinations") };
    let Kind::Slack(chat) = &chat.kind else { panic!("{chat:?}") };
    assert_eq!(chat.url.reveal(), ENVIRONMENT[0].1);
    assert_eq!((chat.language, chat.time_zone.name(), &chat.template), (Language::English, "+05:45", &None));
    let Kind::Slack(own) = &own.kind else { panic!("{own:?}") };
    assert_eq!((own.language, own.time_zone.name()), (Language::Japanese, "Asia/Tokyo"));
    assert_eq!(own.template.as_deref(), Some("{{ data.total|yen }}\n\"done\""));
    let Kind::Command(script) = &script.kind else { panic!("{script:?}") };
    assert_eq!((script.program.as_str(), script.args.len()), ("/usr/local/bin/book", 3));
    assert_eq!(script.env["BOOKS_TOKEN"].reveal(), "tok-sesame");
    assert_eq!(script.directory.as_deref(), Some(Path::new("/srv/books")));
    let Kind::File(log) = &log.kind else { panic!("{log:?}") };
    assert_eq!((log.path.to_str(), log.max_bytes, log.keep), (Some("events.jsonl"), 2048, 3));
    let Kind::Http(app) = &app.kind else { panic!("{app:?}") };
    assert_eq!(app.scheme, Scheme::StandardWebhooks);
    assert_eq!(app.headers.iter().collect::<Vec<_>>(), [("authorization", "tok-sesame"), ("x-shop", "7")]);
}

#[test]
fn s19_what_is_shown_hides_their_secrets_and_reads_back_as_the_same() {
    let shown = read(ALL).unwrap().to_string();
    assert!(!shown.contains("sesame") && !shown.contains("MDEy"), "{shown}");
    assert!(shown.contains("url = \"https://hooks.slack.example/(hidden:43-bytes)\""), "{shown}");
    let again = read(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}")).to_string();
    let without_secrets = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.contains("(hidden:") && !line.contains("scheme")).map(str::to_owned).collect()
    };
    assert_eq!(without_secrets(&again), without_secrets(&shown));
}

#[test]
fn what_cannot_be_is_refused_with_its_place_and_the_reason() {
    const SLACK: &str = "[[destination]]\nname = 'd'\nkind = 'slack'\n";
    const COMMAND: &str = "[[destination]]\nname = 'd'\nkind = 'command'\n";
    const FILE: &str = "[[destination]]\nname = 'd'\nkind = 'file'\n";
    const HTTP: &str = "[[destination]]\nname = 'd'\nkind = 'http'\nurl = 'https://x'\n";
    for (kind, rest, expected) in [
        (SLACK, "", "f.toml:1:1: `destination.url` is missing"),
        (SLACK, "url = 'sesame'", "f.toml:4:7: `destination.url` must be the URL of an incoming webhook"),
        (SLACK, "url = 'env:NO_SUCH'", "`destination.url` needs the environment variable NO_SUCH"),
        (SLACK, "language = 'fr'", "f.toml:4:12: `destination.language` must be \"ja\" or \"en\", not \"fr\""),
        (SLACK, "language = 'en'\ntemplate = 'x'", "f.toml:4:12: `destination.language` chooses a message of our own"),
        (
            SLACK,
            "template = '''\nfine\n{% if %}'''",
            "f.toml:4:12: `destination.template` cannot be used: the template is wrong in line 2: syntax error",
        ),
        (SLACK, "template = 'file:/no/such'", "`destination.template` needs the file \"/no/such\""),
        (SLACK, "time_zone = 'Edo'", "f.toml:4:13: `destination.time_zone` must be an offset like \"+09:00\""),
        (COMMAND, "", "`destination.program` is missing"),
        (COMMAND, "program = \"a\\u0000b\"", "`destination.program` must have at most 4096 bytes and no NUL"),
        (COMMAND, "args = 'x'", "f.toml:4:8: `destination.args` must be a list"),
        (COMMAND, "env.HIKYAKU_KEY = 'x'", "`destination.env` has a variable named \"HIKYAKU_KEY\"; names that begin"),
        (COMMAND, "env.'a=b' = 'x'", "`destination.env` has a variable named \"a=b\""),
        (FILE, "", "`destination.path` is missing"),
        (FILE, "path = 'logs/'", "f.toml:4:8: `destination.path` must be the path of a file, not \"logs/\""),
        (FILE, "path = 'hikyaku.db'", "\"d\" writes into the store's own file"),
        (FILE, "max_bytes = 5", "`destination.max_bytes` must be between 1024 and "),
        (FILE, "keep = 0", "`destination.keep` must be between 1 and 10000, not 0"),
        (HTTP, "scheme = 'standard-webhooks'", "f.toml:5:10: `destination.scheme` is of no use without `secret`"),
        (
            HTTP,
            "scheme = 'standard-webhooks'\nsecret = 'sesame'",
            "f.toml:6:10: `destination.secret` is not \"whsec_\"",
        ),
        (HTTP, "headers.Host = 'x'", "`destination.headers` cannot be sent: \"host\" is reserved"),
        (
            HTTP,
            "headers.Idempotency-Key = 'x'",
            "`destination.headers` cannot be sent: \"Idempotency-Key\" is reserved",
        ),
        (HTTP, "headers.x = \"sesame\\n\"", "`destination.headers` cannot be sent: the value of \"x\" is not"),
    ] {
        assert_refused(&format!("{kind}{rest}"), expected);
    }
}

fn assert_refused(text: &str, expected: &str) {
    let problems = read(text).expect_err(text).to_string();
    assert!(problems.contains(expected), "of\n{text}\nwas expected: {expected}\nbut came:\n{problems}");
    assert!(!problems.contains("sesame"), "{problems}");
}

/// What would read well, and then fail for every row.
#[test]
fn s7_what_no_row_could_pass_is_refused() {
    for (kind, rest, expected) in [
        ("slack", "url = 'http://169.254.169.254/sesame'", "`destination.url` must be the URL of an incoming webhook"),
        (
            "slack",
            "template = '{{ a|nope }}'",
            "`destination.template` cannot be used: the template is wrong in line 1: there is no filter",
        ),
        (
            "http",
            "url = 'http://[::ffff:169.254.169.254]/'",
            "`destination.url` leads nowhere: 169.254.169.254 is a cloud metadata address",
        ),
        ("sql", "url = 'mysql://u:sesame@h/x'", "or \"postgres://user:password@host/database\", not \"mysql\""),
        ("sql", "url = 'sqlite:'", "`destination.url` must be \"sqlite:PATH\", like \"sqlite:books.db\""),
        ("sql", "table = 'Hikyaku_x'", "f.toml:4:9: `destination.table` must not begin with \"hikyaku_\""),
    ] {
        assert_refused(&format!("[[destination]]\nname = 'd'\nkind = '{kind}'\n{rest}"), expected);
    }
}

#[test]
fn a_table_takes_as_many_columns_as_it_can_and_no_more() {
    let columns: String = (0..500).map(|n| format!("columns.c{n} = '/c{n}'\n")).collect();
    let text = |rest: &str| {
        format!(
            "[[destination]]\nname = 'd'\nkind = 'sql'\nurl = 'sqlite:x.db'\nkey = 'c0'\ntable = 't'\n{columns}{rest}"
        )
    };
    assert!(read(&text("")).is_ok());
    let problems = read(&text("columns.one = '/more'")).unwrap_err().to_string();
    assert!(problems.contains("`destination.columns` has 501 columns; at most 500 are allowed"), "{problems}");
}

#[test]
fn a_template_can_stand_in_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sale.j2");
    let config =
        format!("[[destination]]\nname = 'd'\nkind = 'slack'\nurl = 'https://x'\ntemplate = 'file:{}'", file.display());
    fs::write(&file, "{{ type }}\n").unwrap();
    let Kind::Slack(slack) = read(&config).unwrap().destinations.remove(0).kind else { panic!("it is slack") };
    assert_eq!(slack.template.as_deref(), Some("{{ type }}\n"));
    fs::write(&file, "x".repeat(70_000)).unwrap();
    assert!(read(&config).unwrap_err().to_string().contains("`destination.template` has more than 65536 bytes"));
}
