//! Which lists complete what was received.

use super::*;
use crate::reconcile::Settings;
use crate::reconcile::adapter::{Kind, Paging};

const API: &str = "url = 'https://api.example'\nprovider_organization = 'org'\n";

fn with(reconcile: &str) -> String {
    format!("{WHOLE}[[reconcile]]\nname = \"sales\"\nsource = \"receiptroller\"\n{reconcile}")
}

/// What is shown of reconciliations, without the secrets, of which the length is shown.
fn shown(config: &Config) -> String {
    let shown = config.to_string();
    let own = shown.split_once("[[reconcile]]").map(|(_, own)| own).unwrap_or_default();
    own.lines().filter(|line| !line.contains("hidden")).collect::<Vec<_>>().join("\n")
}

fn reads_back(config: &Config) {
    let again = read(&config.to_string()).unwrap_or_else(|problems| panic!("{problems}\nof\n{config}"));
    assert_eq!(shown(&again), shown(config), "what is shown reads back as the same");
    assert!(shown(config).contains("call_budget = 1000"));
}

fn one(reconcile: &str) -> Settings {
    let text = with(reconcile);
    let config = read(&text).unwrap_or_else(|problems| panic!("{problems}\nof\n{text}"));
    reads_back(&config);
    config.reconciles.into_iter().next().unwrap()
}

#[test]
fn t4_what_is_left_out_is_as_the_contract_says() {
    let sales = one(&format!("adapter = 'receiptroller-transactions'\n{API}"));
    let hour = Duration::from_secs(3600);
    assert_eq!((sales.every, sales.overlap, sales.lookback), (hour, 2 * hour, 24 * hour));
    assert_eq!((sales.call_budget, sales.watch.is_none(), sales.provider.as_str()), (1000, true, "receiptroller"));
}

#[test]
fn a_watch_knows_where_webhooks_are_administered() {
    let watched =
        one(&format!("adapter = 'receiptroller-receipts'\nzone = '+14:00'\n{API}[reconcile.watch]\nreenable = true\n"));
    let watch = watched.watch.unwrap();
    assert_eq!(watch.list.as_str(), "https://api.example/org/webhooks");
    assert_eq!(watch.update.as_str(), "https://api.example/org/webhook/update");
    assert!(watch.reenable && watch.webhook.is_none());
    let Kind::Receipts(receipts) = watched.list else { panic!() };
    assert_eq!(receipts.zone.to_offset(jiff::Timestamp::UNIX_EPOCH).seconds(), 14 * 3600);
}

#[test]
fn cycles_begin_at_times_of_day_of_a_place() {
    for (zone, written) in
        [("", "+09:00"), ("zone = '-03:30'\n", "-03:30"), ("zone = 'Europe/Berlin'\n", "Europe/Berlin")]
    {
        for adapter in ["receiptroller-orders", "receiptroller-receipts"] {
            let text = format!("adapter = '{adapter}'\n{API}at = ['15:00', '03:30']\n{zone}");
            let daily = one(&text).daily.unwrap();
            assert_eq!(daily.times().collect::<Vec<_>>(), ["03:30", "15:00"]);
            let shown = shown(&read(&with(&text)).unwrap());
            assert_eq!(shown.matches(&format!("zone = \"{written}\"")).count(), 1, "{shown}");
            assert!(!shown.contains("every"), "{shown}");
        }
    }
}

/// The examples of docs/reconcile.md are read as they stand there.
#[test]
fn the_documents_examples_are_good() {
    let document = include_str!("../../../../../docs/reconcile.md");
    let examples: Vec<_> = document.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let text = example.replace("\"env:", "\"");
        let text = text.replace("source = \"stripe\"", "source = \"receiptroller\"");
        let text = text.replace("source = \"smaregi\"", "source = \"receiptroller\"");
        let config = read(&format!("{WHOLE}{text}")).unwrap_or_else(|problems| panic!("{problems}\nof\n{example}"));
        reads_back(&config);
        if let Kind::Generic(generic) = &config.reconciles[0].list {
            assert!(!matches!(generic.paging, Paging::Link));
        }
    }
}

#[test]
fn what_is_not_as_it_must_be_is_said() {
    let generic = "adapter = 'generic'\nurl = 'https://h/{from}/{to}'\nkey = '/id'\ntimestamp = '/at'\ntype = 'a.b'\n";
    for (reconcile, expected) in [
        ("adapter = 'other'\n".to_owned(), "`reconcile.adapter`"),
        (
            format!("adapter = 'receiptroller-orders'\n{API}zone = '+09:00'\n"),
            "`reconcile.zone` is of use with `at`, and to",
        ),
        (
            format!("adapter = 'receiptroller-receipts'\n{API}zone = 'Asia/Nowhere'\n"),
            "`reconcile.zone` must be an offset",
        ),
        (format!("adapter = 'receiptroller-orders'\n{API}every = '1s'\n"), "`reconcile.every`"),
        (format!("adapter = 'receiptroller-orders'\n{API}at = ['3:30']\n"), "`reconcile.at` must be times of day"),
        (format!("adapter = 'receiptroller-orders'\n{API}at = []\n"), "`reconcile.at` must have 1 to 24 times"),
        (
            format!("adapter = 'receiptroller-orders'\n{API}at = ['03:30']\nevery = '1h'\n"),
            "`reconcile.every` is of no use",
        ),
        (format!("adapter = 'receiptroller-orders'\n{API}user = 'x'\n"), "`reconcile.login` is missing"),
        (
            "adapter = 'generic'\nurl = 'https://h/x'\n".to_owned(),
            "`reconcile.url` must be a URL with a path and the gaps",
        ),
        (format!("{generic}paging = 'pages'\n"), "`reconcile.page_items` is missing"),
        (format!("{generic}paging = 'cursor'\ncursor = 'x'\n"), "`reconcile.cursor` must be a JSON pointer"),
        (
            format!(
                "adapter = 'receiptroller-orders'\n{API}\n[[reconcile]]\nname = 'other'\nsource = 'none'\nadapter = 'generic'\n"
            ),
            "there is no such [[source]]",
        ),
        (
            format!("adapter = 'receiptroller-orders'\n{API}[[reconcile]]\nname = 'sales'\n"),
            "is the name \"sales\", which another",
        ),
    ] {
        let problems = problems(&with(&reconcile));
        assert!(problems.contains(expected), "of\n{reconcile}\nwas expected: {expected}\nbut came:\n{problems}");
    }
}
