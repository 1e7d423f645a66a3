//! `reconcile run` and `reconcile cycles`.

use super::{CommandLine, line};
use crate::harness::{Config, Receiver, Reply, Server, forward_to};

const EMPTY_LIST: &str = r#"{"items":[],"currentPage":1,"itemsPerPage":500,"totalItems":0,"totalPages":0}"#;
const MORE: &str = "There are more";

#[tokio::test]
async fn a_run_shows_its_own_cycle_and_speaks_of_no_others() {
    let (provider, business) =
        (Receiver::start(|_| Reply::Answer(200, EMPTY_LIST.into())).await, Receiver::always(200).await);
    let reconcile = format!(
        "[[reconcile]]\nname = \"sales\"\nsource = \"receiptroller\"\nadapter = \"receiptroller-transactions\"\n\
         url = \"{}\"\nprovider_organization = \"shop\"\ntoken = \"a-token\"\n",
        provider.url("/")
    );
    let server = Server::start(Config::default().with(&forward_to(&business.url("/"))).with(&reconcile)).await;
    let cli = CommandLine::of(&server);
    for period in [&[][..], &["--from", "2026-11-01T00:00:00Z", "--to", "2026-11-02T00:00:00Z"]] {
        let run = cli.run(&[&["reconcile", "run"], period].concat()).await;
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(run.stdout.lines().count(), 2, "a heading and the cycle: {run:?}");
        assert!(!run.stderr.contains(MORE), "{run:?}");
    }
    let shown = cli.json_lines(&["reconcile", "run", "--name", "sales"]).await;
    assert_eq!((shown.len(), &shown[0]["problem"]), (1, &"".into()));
    // There are more, and where a list was asked for that is said.
    let newest = cli.run(&["reconcile", "cycles", "sales", "--limit", "1"]).await;
    assert!(newest.stderr.contains(MORE), "{newest:?}");
    line(&cli.prints(&["reconcile", "cycles", "sales"]).await, "2026-11-02T00:00:00");
}
