use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command as Tool;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::output::MAX_OUTPUT_BYTES;
use super::*;
use crate::inbox::destination::testing::{Scripted, answered, row, tools};
use crate::inbox::destination::{Kind, Settings, build};

/// Longer than any machine needs for a shell.
const LONG: Duration = Duration::from_secs(300);

fn program(program: &str, args: &[&str]) -> CommandSettings {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    CommandSettings { program: program.to_owned(), args, env: BTreeMap::new(), directory: None }
}

fn sh(script: &str, argument: &Path) -> CommandSettings {
    program("sh", &["-c", script, argument.to_str().unwrap()])
}

fn open(settings: CommandSettings, effect_timeout: Duration) -> Result<Arc<dyn Destination>, String> {
    let tools = tools(Scripted::new(|_| answered(200, "")), effect_timeout);
    let kind = Kind::Command(settings);
    build(Settings { name: "books".into(), kind }, &tools).map_err(|error| error.to_string())
}

async fn apply(settings: CommandSettings, row: &WorkRow) -> Effect {
    open(settings, LONG).unwrap().apply(row).await
}

fn sale() -> WorkRow {
    row("d1", "sale.created", "T01|2026-11|1", "{\"id\": 1}\n")
}

async fn of_script(script: &str) -> Effect {
    apply(sh(script, Path::new("-")), &sale()).await
}

#[tokio::test]
async fn how_it_exits_says_what_became_of_the_row() {
    assert_eq!(of_script("exit 0").await, Effect::Done("exited with 0".into()));
    let again = "exited with 75, which asks for another try\nstderr: no paper";
    assert_eq!(of_script("echo no paper >&2; exit 75").await, failed(again.into()));
    let refused = Effect::Refused("exited with 1\nstderr: what?\nstdout: looked".into());
    assert_eq!(of_script("echo looked; echo 'what?' >&2; exit 1").await, refused);
    let Effect::Failed { error, .. } = of_script("kill -9 $$").await else { panic!("a signal is no verdict") };
    assert!(error.starts_with("was ended by a signal (signal: 9"), "{error}");
}

#[tokio::test]
async fn the_bytes_come_on_the_standard_input_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    let mut row = sale();
    row.body = Bytes::from((0..=255u8).cycle().take(300_000).collect::<Vec<_>>());
    assert_eq!(apply(sh("cat > \"$0\"", &file), &row).await, Effect::Done("exited with 0".into()));
    assert!(fs::read(&file).unwrap() == row.body, "every byte, in its order");
    // One that does not read them has its reasons.
    assert_eq!(apply(sh("exec <&-; exit 0", &file), &row).await, Effect::Done("exited with 0".into()));
}

#[tokio::test]
async fn the_environment_tells_of_the_row_and_holds_nothing_else() {
    let mut settings = program("env", &[]);
    settings.env = [("BOOKS_TOKEN".to_owned(), Secret::new("of the books"))].into();
    let mut row = sale();
    row.failures = 2;
    let Effect::Done(detail) = apply(settings, &row).await else { panic!("env fails") };
    let said = detail.strip_prefix("exited with 0\nstdout: ").unwrap();
    let mut told: Vec<_> = said.lines().filter(|line| !PASSED_ON.contains(&line.split('=').next().unwrap())).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "BOOKS_TOKEN=of the books",
            "HIKYAKU_ATTEMPT=3",
            "HIKYAKU_DELIVERY=d1",
            "HIKYAKU_KEY=T01|2026-11|1",
            "HIKYAKU_ORGANIZATION=acme",
            "HIKYAKU_PROVIDER=receiptroller",
            "HIKYAKU_RECEIVED_AT=2026-11-30T09:15:01.250Z",
            "HIKYAKU_SOURCE=shop",
            "HIKYAKU_TIMESTAMP=2026-11-30T09:15:00.250Z",
            "HIKYAKU_TYPE=sale.created",
        ]
    );
}

#[tokio::test]
async fn case4_what_no_environment_can_hold_is_refused() {
    let nul = apply(program("env", &[]), &row("d1", "sale.created", "a\0b", "{}")).await;
    assert_eq!(nul, Effect::Refused("HIKYAKU_KEY would hold a NUL, which no environment variable can".into()));
    let long = apply(program("env", &[]), &row("d1", "sale.created", &"k".repeat(4 * 1024 * 1024), "{}")).await;
    assert!(matches!(&long, Effect::Refused(reason) if reason.contains("too long")), "{long:?}");
}

#[tokio::test]
async fn arguments_go_to_the_program_and_to_no_shell() {
    let arguments = ["%s|", "$HOME", "; exit 3", "*", "a b", ""];
    let Effect::Done(detail) = apply(program("printf", &arguments), &sale()).await else { panic!("printf fails") };
    assert_eq!(detail, "exited with 0\nstdout: $HOME|; exit 3|*|a b||");
}

#[tokio::test]
async fn much_output_holds_nothing_up_and_its_beginning_is_kept_as_text() {
    let Effect::Done(detail) = of_script("head -c 1000000 /dev/zero").await else { panic!("it ends") };
    assert_eq!(detail.chars().filter(|c| *c == '\u{fffd}').count(), MAX_OUTPUT_BYTES);
    assert!(detail.starts_with("exited with 0\nstdout: \u{fffd}") && !detail.contains('\0'));
    let Effect::Done(detail) = of_script("printf '\\377ok\\033[31m\\n'").await else { panic!("it ends") };
    assert_eq!(detail, "exited with 0\nstdout: \u{fffd}ok\u{fffd}[31m");
}

#[tokio::test]
async fn it_runs_in_the_directory_that_was_set() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().canonicalize().unwrap();
    let settings = CommandSettings { directory: Some(real.clone()), ..program("pwd", &[]) };
    let Effect::Done(detail) = apply(settings, &sale()).await else { panic!("pwd fails") };
    assert_eq!(detail, format!("exited with 0\nstdout: {}", real.display()));
}

#[test]
fn a_program_that_cannot_run_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    fs::write(&plain, "").unwrap();
    let plain = plain.to_str().unwrap();
    let refused = |settings: CommandSettings| open(settings, LONG).err().unwrap();
    assert!(refused(program("no-such-program-of-anybody", &[])).contains("is in no directory of PATH"));
    assert!(refused(program("./no/such", &[])).contains("cannot be found: "));
    assert!(refused(program(plain, &[])).ends_with("is not executable; chmod +x makes it so"));
    assert!(refused(program(folder.path().to_str().unwrap(), &[])).ends_with("is no file"));
    let nowhere = CommandSettings { directory: Some("/no/such".into()), ..program("sh", &[]) };
    assert_eq!(
        refused(nowhere),
        "destination \"books\": its directory /no/such does not exist; make it, or name another"
    );
}

/// A fifo that processes hold open for as long as they live: once somebody has opened it, and once nobody has it any more.
fn held_fifo(folder: &Path) -> (std::path::PathBuf, oneshot::Receiver<()>, tokio::task::JoinHandle<String>) {
    let fifo = folder.join("held");
    assert!(Tool::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (opened, is_opened) = oneshot::channel();
    let path = fifo.clone();
    let released = tokio::task::spawn_blocking(move || {
        let mut fifo = fs::File::open(path).unwrap();
        // Not every test waits for it.
        let _ = opened.send(());
        let mut all = String::new();
        fifo.read_to_string(&mut all).unwrap();
        all
    });
    (fifo, is_opened, released)
}

#[tokio::test]
async fn an_effect_that_is_dropped_takes_the_whole_group_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (fifo, opened, released) = held_fifo(folder.path());
    // A grandchild holds the fifo, behind a child that ignores what it can.
    let script = "trap '' TERM INT HUP; (sleep 1000 & sleep 1000) >\"$0\"";
    let destination = open(sh(script, &fifo), LONG).unwrap();
    let effect = tokio::spawn(async move { destination.apply(&sale()).await });
    opened.await.unwrap();
    effect.abort();
    assert_eq!(released.await.unwrap(), "");
}

#[tokio::test]
async fn what_it_leaves_behind_is_killed_when_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (fifo, _, released) = held_fifo(folder.path());
    // It holds the outputs too; the effect does not wait for them.
    let script = "exec 3>\"$0\"; sleep 1000 & echo left; exit 0";
    assert_eq!(apply(sh(script, &fifo), &sale()).await, Effect::Done("exited with 0\nstdout: left".into()));
    assert_eq!(released.await.unwrap(), "");
}

#[tokio::test]
async fn one_that_does_not_end_is_killed_at_its_time_and_tried_again() {
    let destination =
        open(sh("trap '' TERM; while :; do sleep 1000; done", Path::new("-")), Duration::from_millis(500));
    let effect = destination.unwrap().apply(&sale()).await;
    assert_eq!(effect, failed("the program did not end within 450ms and was killed".into()));
}

#[test]
fn s19_a_preview_names_the_program_its_arguments_and_its_environment_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let program_path = folder.path().join("book");
    fs::copy("/bin/sh", &program_path).unwrap();
    let mut settings = program(program_path.to_str().unwrap(), &["--key", "a b"]);
    settings.env = [("BOOKS_TOKEN".to_owned(), Secret::new("of the books"))].into();
    settings.directory = Some(folder.path().to_owned());
    let told = open(settings, LONG).unwrap().preview(&sale()).unwrap();
    let expected = format!(
        "runs {}\nargument \"--key\"\nargument \"a b\"\nin {}\nwith PATH, HOME, LANG as the server has them\n\
         BOOKS_TOKEN=(hidden)\nHIKYAKU_DELIVERY=d1\nHIKYAKU_TYPE=sale.created\nHIKYAKU_KEY=T01|2026-11|1\n\
         HIKYAKU_SOURCE=shop\nHIKYAKU_PROVIDER=receiptroller\nHIKYAKU_ORGANIZATION=acme\n\
         HIKYAKU_TIMESTAMP=2026-11-30T09:15:00.250Z\nHIKYAKU_RECEIVED_AT=2026-11-30T09:15:01.250Z\nHIKYAKU_ATTEMPT=1\n\
         and the 10 bytes of the body on its standard input",
        program_path.display(),
        folder.path().display()
    );
    assert_eq!(told, expected);
    let nul = open(program("true", &[]), LONG).unwrap().preview(&row("d1", "sale.created", "a\0b", "{}"));
    assert!(nul.unwrap_err().contains("NUL"));
}
