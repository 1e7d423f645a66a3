//! C15, C16: what is stored is worked off at destinations that are slow, picky or broken, and at a program that dies.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::harness::{Config, Receiver, Reply, Server, event_body, eventually, source, within};

const SOURCE: &str = "receiptroller";

/// The source with everything going to one destination, of these settings.
fn all_to(settings: &str) -> Config {
    let tables = format!(
        "{}\n[[destination]]\nname = \"there\"\n{settings}\n[[route]]\nsource = \"{SOURCE}\"\ndestination = \"there\"\n",
        source()
    );
    Config::default().env("HIKYAKU_INBOX__RETRY_FIRST", "20ms").with(&tables)
}

fn sale(event: &str, key: &str) -> String {
    let data =
        format!(r#"{{"id":"{key}","transactionType":1,"paymentSummary":{{"grandTotal":29383937493038367292}}}}"#);
    event_body(event, "sale.created", "2026-11-30T09:15:00.000Z", &data)
}

async fn settled(server: &Server, event: &str) -> (String, String) {
    let row = server.api().settled(SOURCE, event).await;
    let effect = &row["effects"][0];
    let text = |name: &str| effect[name].as_str().unwrap_or_default().to_owned();
    (text("state"), text("detail"))
}

/// Slack as it is on a bad day: an error, then too much, then well; and one message that it does not want.
fn bad_day(count: &mut usize, body: &[u8]) -> Reply {
    if String::from_utf8_lossy(body).contains("unwanted") {
        return Reply::Answer(404, b"no_service".to_vec());
    }
    *count += 1;
    match *count {
        1 => Reply::Answer(500, b"rollup_error".to_vec()),
        2 => Reply::Raw(b"HTTP/1.1 429 No\r\nretry-after: 1\r\ncontent-length: 12\r\n\r\nrate_limited".to_vec()),
        _ => Reply::Answer(200, b"ok".to_vec()),
    }
}

#[tokio::test]
async fn c16_s19_slack_gets_every_message_once_it_takes_them() {
    let mut count = 0;
    let slack = Receiver::start(move |seen| bad_day(&mut count, &seen.body)).await;
    let settings = "kind = \"slack\"\nurl = \"env:SLACK_URL\"\n\
                    template = \"{{ data.id }}: {{ data.paymentSummary.grandTotal|yen }}\"\n";
    let server = Server::start(all_to(settings).env("SLACK_URL", &slack.url("/services/sesame"))).await;
    let keys = ["a", "b", "unwanted", "c"];
    for key in keys {
        assert_eq!(server.api().deliver_signed(key, sale(key, key)).await, 200);
    }
    for key in ["a", "b", "c"] {
        assert_eq!(settled(&server, key).await, ("done".into(), "Slack answered \"ok\"".into()));
    }
    let (state, detail) = settled(&server, "unwanted").await;
    assert_eq!(state, "dead");
    assert!(detail.starts_with("Slack refused it: 404 no_service; the incoming webhook is gone"), "{detail}");
    let texts: Vec<String> = slack
        .seen()
        .iter()
        .map(|seen| {
            let body: Value = serde_json::from_slice(&seen.body).unwrap();
            body["text"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(texts.len(), keys.len() + 2, "two were not taken the first time: {texts:?}");
    let distinct: BTreeSet<_> = texts.iter().map(String::as_str).collect();
    let amount = "¥29,383,937,493,038,367,292";
    let expected: Vec<_> = ["a", "b", "c", "unwanted"].iter().map(|key| format!("{key}: {amount}")).collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), expected);
    assert!(!server.log().contains("sesame") && !server.log().contains(amount), "{}", server.log());
}

/// C16: trouble of a destination is no reason to take nothing from the provider.
#[tokio::test]
async fn c16_a_destination_in_trouble_at_the_start_keeps_nothing_out() {
    for (settings, path) in [
        ("kind = \"file\"\npath = \"later/there\"", "there"),
        (
            "kind = \"sql\"\nurl = \"sqlite:later/there\"\ntable = \"t\"\nkey = \"id\"\ncolumns = { id = \"/data/id\" }\ncreate = true",
            "there",
        ),
    ] {
        let server = Server::start(all_to(settings)).await;
        assert_eq!(server.api().deliver_signed("e1", sale("e1", "k")).await, 200);
        assert!(server.log().contains("what is for it waits"), "{}", server.log());
        fs::create_dir(server.path("later")).unwrap();
        assert_eq!(settled(&server, "e1").await.0, "done", "{settings}");
        assert!(server.path("later").join(path).exists());
    }
}

#[tokio::test]
async fn a_template_that_is_wrong_stops_the_start_with_its_line() {
    let running = Server::start(Config::default()).await;
    let config = running.path("wrong.toml");
    let text = "[[destination]]\nname = \"chat\"\nkind = \"slack\"\nurl = \"https://hooks.slack.example/x\"\ntemplate = '''\n\
                one\n{{ two'''\n";
    fs::write(&config, text).unwrap();
    let program = env!("CARGO_BIN_EXE_hikyaku");
    let output = Command::new(program).args(["serve", "--config"]).arg(&config).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("wrong.toml:5:12: `destination.template` cannot be used: the template is wrong in line 2"),
        "{said}"
    );
}

#[tokio::test]
async fn c15_a_command_says_by_its_exit_what_became_of_the_row() {
    let script = r#"
kind = "command"
program = "sh"
args = ["-c", '''
case "$HIKYAKU_DELIVERY" in
  fine) cat >fine.json ;;
  later) [ "$HIKYAKU_ATTEMPT" -ge 3 ] || { echo busy >&2; exit 75; } ;;
  never) echo "no such shop" >&2; exit 1 ;;
  hangs) [ "$HIKYAKU_ATTEMPT" -ge 2 ] || sleep 1000 ;;
esac
''']
"#;
    let server = Server::start(all_to(script).env("HIKYAKU_INBOX__EFFECT_TIMEOUT", "3s")).await;
    for event in ["fine", "later", "never", "hangs"] {
        assert_eq!(server.api().deliver_signed(event, sale(event, event)).await, 200);
    }
    assert_eq!(settled(&server, "fine").await, ("done".into(), "exited with 0".into()));
    assert_eq!(fs::read_to_string(server.path("fine.json")).unwrap(), sale("fine", "fine"));
    assert_eq!(settled(&server, "later").await.0, "done");
    let never = ("dead".to_owned(), "exited with 1\nstderr: no such shop".to_owned());
    assert_eq!(settled(&server, "never").await, never);
    assert_eq!(settled(&server, "hangs").await.0, "done");
    // What a program says may be a customer's; the log has the first line only.
    assert!(server.log().contains("exited with 1") && !server.log().contains("no such shop"), "{}", server.log());
}

/// A fifo that processes hold open for as long as they live: once somebody has opened it, and once nobody has it any more.
fn held_fifo(path: &Path) -> (oneshot::Receiver<()>, oneshot::Receiver<()>) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let ((opened, is_opened), (released, is_released)) = (oneshot::channel(), oneshot::channel());
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut fifo = fs::File::open(path).unwrap();
        opened.send(()).unwrap();
        std::io::copy(&mut fifo, &mut std::io::sink()).unwrap();
        let _ = released.send(());
    });
    (is_opened, is_released)
}

#[tokio::test]
async fn a_command_and_what_it_started_do_not_outlive_the_program() {
    let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let (opened, released) = held_fifo(&dir.path().join("held"));
    let script = "kind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"(sleep 1000 & sleep 1000) >held\"]\n";
    let mut server = Server::start_in(dir, all_to(script)).await;
    assert_eq!(server.api().deliver_signed("e1", sale("e1", "k")).await, 200);
    within("the command to run", opened).await.unwrap();
    server.sigterm().await;
    within("the command and its child to be gone", released).await.unwrap();
}

/// The delivery ids in all files of a destination; each of their lines must be whole.
fn deliveries(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let ours = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("events.jsonl"));
    let lines = ours.flat_map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with('\n'), "{}", path.display());
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let delivery = |line: String| {
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["body"]["data"].is_object());
        line["deliveryId"].as_str().unwrap().to_owned()
    };
    lines.map(delivery).collect()
}

#[tokio::test]
async fn c15_a_file_has_every_row_whatever_is_killed_between() {
    const ROUNDS: usize = 4;
    const EACH: usize = 40;
    let settings = "kind = \"file\"\npath = \"events.jsonl\"\nmax_bytes = 4096\nkeep = 1000\n";
    // Where nodes share a store, what was under way is free again only when its lease ends.
    let mut server = Server::start(all_to(settings).env("HIKYAKU_INBOX__EFFECT_TIMEOUT", "2s")).await;
    for round in 0..ROUNDS {
        let api = server.api();
        let sending = tokio::spawn(async move {
            for n in 0..EACH {
                let event = format!("e{round}-{n}");
                // One that is not answered any more is sent again below, as a provider would.
                let _ = api.try_deliver_signed(&event, sale(&event, &format!("k{n}"))).await;
            }
        });
        let folder = server.path("");
        let some = (round + 1) * EACH / 2;
        eventually("some rows to be written", async || (deliveries_so_far(&folder) >= some).then_some(())).await;
        server.kill9().await;
        sending.await.unwrap();
        // What a crash in the midst of a write leaves.
        let torn = fs::File::options().append(true).create(true).open(server.path("events.jsonl"));
        std::io::Write::write_all(&mut torn.unwrap(), b"{\"deliveryId\":\"torn").unwrap();
        server.restart().await;
        for n in 0..EACH {
            let event = format!("e{round}-{n}");
            assert_eq!(server.api().deliver_signed(&event, sale(&event, &format!("k{n}"))).await, 200);
        }
        for n in 0..EACH {
            assert_eq!(settled(&server, &format!("e{round}-{n}")).await, ("done".into(), "written".into()));
        }
    }
    let found: BTreeSet<_> = deliveries(&server.path("")).into_iter().collect();
    let sent: BTreeSet<_> = (0..ROUNDS).flat_map(|round| (0..EACH).map(move |n| format!("e{round}-{n}"))).collect();
    assert_eq!(found, sent);
    assert!(server.path("events.jsonl.9").exists(), "it was full more than once");
    assert!(server.log().contains("cut off a line that a crash had left unfinished"));
}

/// How many lines there are while the program writes; none, while it moves a file.
fn deliveries_so_far(folder: &Path) -> usize {
    let Ok(files) = fs::read_dir(folder) else { return 0 };
    let ours = files.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("events.jsonl"));
    ours.filter_map(|entry| fs::read(entry.path()).ok()).map(|text| text.split(|b| *b == b'\n').count() - 1).sum()
}
