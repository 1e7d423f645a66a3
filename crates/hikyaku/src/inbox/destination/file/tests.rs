use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::inbox::destination::testing::{Scripted, answered, row, tools};
use crate::inbox::destination::{Kind, Settings, build};

const ROOMY: u64 = 1024 * 1024;

fn open(path: &Path, max_bytes: u64, keep: u32) -> Result<Arc<dyn Destination>, String> {
    let tools = tools(Scripted::new(|_| answered(200, "")), Duration::from_secs(20));
    let kind = Kind::File(FileSettings { path: path.to_owned(), max_bytes, keep });
    build(Settings { name: "log".into(), kind }, &tools).map_err(|error| error.to_string())
}

fn done() -> Effect {
    Effect::Done("written".into())
}

async fn write(destination: &dyn Destination, deliveries: impl IntoIterator<Item = u32>) {
    for n in deliveries {
        assert_eq!(destination.apply(&row(&format!("d{n}"), "sale.created", "k", "{}")).await, done());
    }
}

/// The deliveries in a file, each of whose lines must be JSON.
fn deliveries(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    let delivery = |line| serde_json::from_str::<Value>(line).unwrap()["deliveryId"].as_str().unwrap().to_owned();
    text.lines().map(delivery).collect()
}

#[tokio::test]
async fn case3_a_line_holds_the_body_as_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let destination = open(&path, ROOMY, 1).unwrap();
    let body = "\u{feff}{\"bizId\": 29383937493038367292,\r\n  \"z\":1, \"z\":2.50, \"t\":\"a\\nb\"}\r\n";
    assert_eq!(destination.apply(&row("d1", "sale.created", "T|1", body)).await, done());
    assert_eq!(destination.apply(&row("d2", "", "", "not\nJSON")).await, done());
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "{\"deliveryId\":\"d1\",\"type\":\"sale.created\",\"key\":\"T|1\",\"timestamp\":\"2026-11-30T09:15:00.250Z\",\
         \"receivedAt\":\"2026-11-30T09:15:01.250Z\",\"source\":\"shop\",\"body\":{\"bizId\": 29383937493038367292,    \
         \"z\":1, \"z\":2.50, \"t\":\"a\\nb\"}}\n\
         {\"deliveryId\":\"d2\",\"type\":\"\",\"key\":\"\",\"timestamp\":\"2026-11-30T09:15:00.250Z\",\
         \"receivedAt\":\"2026-11-30T09:15:01.250Z\",\"source\":\"shop\",\"bodyBase64\":\"bm90CkpTT04=\"}\n"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_reads_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    write(&*open(&path, ROOMY, 1).unwrap(), [1]).await;
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn many_at_once_are_whole_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let destination = open(&path, ROOMY, 1).unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let destination = destination.clone();
            tokio::spawn(async move { write(&*destination, [n]).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut found = deliveries(&path);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 50);
}

#[tokio::test]
async fn a_full_file_makes_room_and_as_many_as_set_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    write(&*open(&path, ROOMY, 1).unwrap(), [0]).await;
    let line = path.metadata().unwrap().len();
    fs::remove_file(&path).unwrap();

    let destination = open(&path, line * 2, 2).unwrap();
    write(&*destination, 1..=7).await;
    let numbered = |n: u32| folder.path().join(format!("events.jsonl.{n}"));
    assert_eq!(deliveries(&path), ["d7"]);
    assert_eq!(deliveries(&numbered(1)), ["d5", "d6"]);
    assert_eq!(deliveries(&numbered(2)), ["d3", "d4"]);
    assert!(!numbered(3).exists());
    // A crash in the midst of moving leaves a gap; it is filled before anything is given up.
    fs::remove_file(numbered(1)).unwrap();
    write(&*destination, 8..=9).await;
    assert_eq!((deliveries(&path), deliveries(&numbered(1))), (vec!["d9".to_owned()], vec!["d7".into(), "d8".into()]));
    assert_eq!(deliveries(&numbered(2)), ["d3", "d4"]);
    // A line that is larger than a file may be has one to itself.
    let large = row("large", "t", "k", &format!("\"{}\"", "x".repeat(line as usize * 3)));
    assert_eq!(destination.apply(&large).await, done());
    assert_eq!(deliveries(&path), ["large"]);
    write(&*destination, [10]).await;
    assert_eq!(deliveries(&numbered(1)), ["large"]);
}

#[tokio::test]
async fn a_line_that_a_crash_cut_off_is_cut_away_whatever_is_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    write(&*open(&path, ROOMY, 1).unwrap(), [1]).await;
    let whole = fs::read(&path).unwrap();
    let long = line(&row("d2", "t", "k", &format!("\"{}\"", "x".repeat(200_000))));
    for kept in [1, 5, 17, 100, 70_000, long.len() - 1] {
        fs::File::options().append(true).open(&path).unwrap().write_all(&long[..kept]).unwrap();
        let destination = open(&path, ROOMY, 1).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole, "{kept}");
        drop(destination);
    }
    fs::write(&path, &long[..long.len() - 1]).unwrap();
    write(&*open(&path, ROOMY, 1).unwrap(), [3]).await;
    assert_eq!(deliveries(&path), ["d3"]);
}

#[tokio::test]
async fn a_file_of_somebody_elses_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("books.db");
    for content in ["SQLite format 3\0", "notes without an end", "{\"deliveryId\":\"d1\"}\nnotes"] {
        fs::write(&path, content).unwrap();
        let refused = open(&path, ROOMY, 1).err().unwrap();
        assert!(refused.contains("it holds something else than lines of this destination"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    let refused = open(folder.path(), ROOMY, 1).err().unwrap();
    assert!(refused.contains("cannot write to"), "{refused}");
}

/// At the start as later: what may pass is waited for.
#[tokio::test]
async fn c16_a_directory_that_is_missing_at_the_start_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("later/events.jsonl");
    let destination = open(&path, ROOMY, 1).unwrap();
    let effect = destination.apply(&row("d1", "sale.created", "k", "{}")).await;
    let Effect::Failed { error, .. } = effect else { panic!("{effect:?}") };
    assert!(error.ends_with("; make its directory"), "{error}");
    fs::create_dir(folder.path().join("later")).unwrap();
    write(&*destination, [1]).await;
    assert_eq!(deliveries(&path), ["d1"]);
}

#[tokio::test]
async fn two_destinations_do_not_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let first = open(&path, ROOMY, 1).unwrap();
    let refused = open(&path, ROOMY, 1).err().unwrap();
    assert!(refused.contains("somebody else writes to it; give every destination"), "{refused}");
    drop(first);
    open(&path, ROOMY, 1).unwrap();
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let destination = open(&path, ROOMY, 1).unwrap();
    write(&*destination, [1]).await;
    let moved = folder.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    write(&*destination, [2]).await;
    assert_eq!((deliveries(&moved), deliveries(&path)), (vec!["d1".to_owned()], vec!["d2".to_owned()]));
}

#[tokio::test]
async fn c16_trouble_with_the_disk_is_said_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    let path = below.join("events.jsonl");
    let destination = open(&path, ROOMY, 1).unwrap();
    fs::remove_dir_all(&below).unwrap();
    let effect = destination.apply(&row("d1", "t", "k", "{}")).await;
    assert!(matches!(&effect, Effect::Failed { error, .. } if error.ends_with("; make its directory")), "{effect:?}");
    fs::create_dir(&below).unwrap();
    write(&*destination, [1]).await;
    assert_eq!(deliveries(&path), ["d1"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_said_as_that() {
    let effect = open(Path::new("/dev/full"), ROOMY, 1).unwrap().apply(&row("d1", "t", "k", "{}")).await;
    assert!(
        matches!(&effect, Effect::Failed { error, .. } if error.ends_with("; make room on its disk")),
        "{effect:?}"
    );
}

#[test]
fn a_preview_is_the_line_and_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let row = row("d1", "sale.created", "T|1", "{\"bizId\": 29383937493038367292}\n");
    let written = String::from_utf8(line(&row)).unwrap();
    assert_eq!(preview(&path, &row), format!("appends to {}:\n{}", path.display(), written.trim_end()));
    assert!(written.contains("29383937493038367292") && !path.exists());
}
