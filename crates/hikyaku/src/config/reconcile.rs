//! `[[reconcile]]`: which list of a provider completes a source, and how it is read.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hikyaku_core::daily::{Daily, MAX_TIMES, parse_time};
use hikyaku_core::event::EventType;
use hikyaku_core::json::is_pointer;
use hikyaku_core::webhook::WebhookUrl;
use jiff::tz::TimeZone;
use url::Url;

use super::fetch::credential;
use super::read::SHORTEST_TIMEOUT;
use super::section::Section;
use super::show::{joined, quoted, show_credential};
use super::tree::Node;
use super::value::{Names, boolean, choice, duration, integer, name, parsed, show_duration, text};
use crate::inbox::{Source, destination};
use crate::reconcile::adapter::{Generic, ITEMS_PER_PAGE, Kind, Lister, Paging, Place, Receipts, Template, What};
use crate::reconcile::{Settings, Watch};

/// Shortest time from one cycle to the next, and from one look at a webhook to the next.
const SHORTEST_EVERY: Duration = Duration::from_secs(60);
/// Longest time that may be said of cycles and periods.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// Longest time one call may take.
const LONGEST_CALL: Duration = Duration::from_secs(300);
/// Most calls that can be allowed in 30 days.
const MAX_CALL_BUDGET: i64 = 100_000_000;
/// Most items that one page can be asked for.
const MAX_PAGE_ITEMS: i64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Adapter {
    Transactions,
    Orders,
    Receipts,
    Generic,
}

const ADAPTERS: &[(&str, Adapter)] = &[
    ("receiptroller-transactions", Adapter::Transactions),
    ("receiptroller-orders", Adapter::Orders),
    ("receiptroller-receipts", Adapter::Receipts),
    ("generic", Adapter::Generic),
];

/// Reads one.
pub(super) fn read(
    section: &mut Section<'_>,
    environment: &BTreeMap<String, String>,
    sources: &[Source],
    names: &mut Names,
) -> Option<Settings> {
    let known = section.require("name", |node| names.declare(name(node)?, node.place.clone()));
    let source = section.require("source", |node| {
        let named = text(node)?;
        let found = sources.iter().find(|source| source.name == named);
        found.cloned().ok_or_else(|| format!("names {named:?}, and there is no such [[source]]"))
    });
    let Some(adapter) = section.require("adapter", choice(ADAPTERS)) else {
        section.ignore_rest();
        return None;
    };
    let credential = credential(section, environment);
    let timeout = section.get("timeout", duration(SHORTEST_TIMEOUT..=LONGEST_CALL));
    let every = section.get("every", duration(SHORTEST_EVERY..=LONGEST));
    let zone = section.get("zone", zone);
    let daily = daily(section, zone.clone());
    if zone.is_some() && daily.is_none() && adapter != Adapter::Receipts {
        section.problem(
            "zone",
            "is of use with `at`, and to the adapter \"receiptroller-receipts\", which reads by months",
        );
    }
    let overlap = section.get("overlap", duration(Duration::ZERO..=LONGEST));
    let lookback = section.get("lookback", duration(SHORTEST_EVERY..=LONGEST));
    let call_budget = section.get("call_budget", integer(1..=MAX_CALL_BUDGET));
    let (list, watch) = match adapter {
        Adapter::Generic => (generic(section).map(|generic| Kind::Generic(Box::new(generic))), None),
        ours => receiptroller(section, ours, zone).map_or((None, None), |(list, watch)| (Some(list), watch)),
    };
    let source = source?;
    Some(Settings {
        name: known?,
        organization: source.organization,
        source: source.name,
        provider: source.provider,
        list: list?,
        credential,
        timeout: timeout.unwrap_or(Settings::DEFAULT_TIMEOUT),
        every: every.unwrap_or(Settings::DEFAULT_EVERY),
        daily,
        overlap: overlap.unwrap_or(Settings::DEFAULT_OVERLAP),
        lookback: lookback.unwrap_or(Settings::DEFAULT_LOOKBACK),
        call_budget: call_budget.unwrap_or(Settings::DEFAULT_CALL_BUDGET),
        watch,
    })
}

/// The times of `at`, where it is written, which is in place of `every`.
fn daily(section: &mut Section<'_>, zone: Option<TimeZone>) -> Option<Daily> {
    let time = |node: &Node| {
        let written = text(node)?;
        parse_time(&written).ok_or_else(|| format!("must be times of day like [\"03:30\", \"15:00\"], not {written:?}"))
    };
    let times = section.list("at", time)?;
    if section.has("every") {
        section.problem("every", "is of no use beside `at`, which says when a cycle begins; leave one of them out");
    }
    let daily = Daily::new(times, zone.unwrap_or_else(hikyaku_core::provider::receiptroller::shop_zone));
    if daily.is_none() {
        section.problem("at", &format!("must have 1 to {MAX_TIMES} times of day"));
    }
    daily
}

fn receiptroller(section: &mut Section<'_>, adapter: Adapter, zone: Option<TimeZone>) -> Option<(Kind, Option<Watch>)> {
    let base = section.require("url", parsed(WebhookUrl::parse));
    let organization = section.require("provider_organization", name);
    let page_items = section.get("page_items", integer(1..=MAX_PAGE_ITEMS)).unwrap_or(ITEMS_PER_PAGE);
    let watched = section.has("watch").then(|| section.table("watch", watch));
    let (base, organization) = (base?.as_url().clone(), organization?);
    let watch = watched.map(|(webhook, every, reenable)| Watch {
        list: below(&base, &organization, &["webhooks"]),
        update: below(&base, &organization, &["webhook", "update"]),
        webhook,
        every,
        reenable,
    });
    let list = match adapter {
        Adapter::Receipts => Kind::Receipts(Receipts {
            base,
            organization,
            zone: zone.unwrap_or_else(hikyaku_core::provider::receiptroller::shop_zone),
            page_items,
        }),
        ours => {
            let what = if ours == Adapter::Orders { What::Orders } else { What::Transactions };
            Kind::ReceiptRoller(Lister { base, organization, what, page_items })
        }
    };
    Some((list, watch))
}

fn watch(section: &mut Section<'_>) -> (Option<String>, Duration, bool) {
    let webhook = section.get("webhook", text);
    let every = section.get("every", duration(SHORTEST_EVERY..=LONGEST)).unwrap_or(Watch::DEFAULT_EVERY);
    (webhook, every, section.get("reenable", boolean).unwrap_or(false))
}

fn below(base: &Url, organization: &str, parts: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().push(organization).extend(parts);
    }
    url
}

/// An offset, or a zone by its name.
fn zone(node: &Node) -> Result<TimeZone, String> {
    destination::TimeZone::parse(&text(node)?).map(|zone| zone.zone().clone())
}

fn show_zone(zone: &TimeZone, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(name) = zone.iana_name() {
        return writeln!(f, "zone = {}", quoted(name));
    }
    let offset = zone.to_offset(jiff::Timestamp::UNIX_EPOCH).seconds();
    let sign = if offset < 0 { '-' } else { '+' };
    writeln!(f, "zone = \"{sign}{:02}:{:02}\"", offset.abs() / 3600, offset.abs() / 60 % 60)
}

fn generic(section: &mut Section<'_>) -> Option<Generic> {
    let url = section.require("url", parsed(Template::parse));
    let paging = paging(section);
    let items = section.get("items", pointer);
    let total = section.get("total", pointer);
    let key = section.require("key", pointer);
    let timestamp = section.require("timestamp", pointer);
    let changed_at = section.get("changed_at", pointer);
    let event_type = section.require("type", |node| {
        let written = text(node)?;
        match written.starts_with('/') {
            true => pointer(node).map(Place::Pointer),
            false => {
                EventType::parse(written).map(|kind| Place::Fixed(kind.to_string())).map_err(|error| error.to_string())
            }
        }
    });
    let items_are_events = section.get("items_are_events", boolean);
    Some(Generic {
        url: url?,
        paging: paging?,
        items: items.unwrap_or_default(),
        total,
        key: key?,
        timestamp: timestamp?,
        changed_at,
        event_type: event_type?,
        items_are_events: items_are_events.unwrap_or(false),
    })
}

fn paging(section: &mut Section<'_>) -> Option<Paging> {
    let kind = section.require("paging", choice(&[("pages", 0), ("cursor", 1), ("link", 2)]))?;
    let mut parameter = |default: &str| section.get("page_parameter", text).unwrap_or_else(|| default.to_owned());
    match kind {
        0 => {
            let parameter = parameter("page");
            let size = section.require("page_items", integer(1..=MAX_PAGE_ITEMS * 10))?;
            Some(Paging::Pages { parameter, size })
        }
        1 => {
            let parameter = parameter("cursor");
            let of_last_item = section.get("cursor_in_last_item", boolean).unwrap_or(false);
            let more = section.get("more", pointer);
            Some(Paging::Cursor { parameter, pointer: section.require("cursor", pointer)?, of_last_item, more })
        }
        _ => Some(Paging::Link),
    }
}

fn pointer(node: &Node) -> Result<String, String> {
    let written = text(node)?;
    if is_pointer(&written) {
        return Ok(written);
    }
    Err(format!("must be a JSON pointer like \"/data/id\", not {written:?}"))
}

/// Shows one as it would be written.
pub(super) fn show(settings: &Settings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\n[[reconcile]]\nname = {}\nsource = {}", quoted(&settings.name), quoted(&settings.source))?;
    match &settings.list {
        Kind::ReceiptRoller(Lister { base, organization, what, page_items }) => {
            let adapter = if *what == What::Orders { "receiptroller-orders" } else { "receiptroller-transactions" };
            show_receiptroller(f, adapter, base, organization, *page_items)?;
        }
        Kind::Receipts(Receipts { base, organization, zone, page_items }) => {
            show_receiptroller(f, "receiptroller-receipts", base, organization, *page_items)?;
            show_zone(zone, f)?;
        }
        Kind::Generic(generic) => show_generic(generic, f)?,
    }
    show_credential(settings.credential.as_ref(), f)?;
    let Settings { timeout, every, daily, overlap, lookback, call_budget, watch, .. } = settings;
    match daily {
        None => writeln!(f, "every = {}", quoted(show_duration(*every)))?,
        Some(daily) => writeln!(f, "at = [{}]", joined(daily.times().map(quoted)))?,
    }
    if let (Some(daily), false) = (daily, matches!(settings.list, Kind::Receipts(_))) {
        show_zone(daily.zone(), f)?;
    }
    for (name, length) in [("timeout", timeout), ("overlap", overlap), ("lookback", lookback)] {
        writeln!(f, "{name} = {}", quoted(show_duration(*length)))?;
    }
    writeln!(f, "call_budget = {call_budget}")?;
    let Some(Watch { webhook, every, reenable, .. }) = watch else { return Ok(()) };
    writeln!(f, "\n[reconcile.watch]\nevery = {}\nreenable = {reenable}", quoted(show_duration(*every)))?;
    webhook.iter().try_for_each(|webhook| writeln!(f, "webhook = {}", quoted(webhook)))
}

fn show_receiptroller(
    f: &mut fmt::Formatter<'_>,
    adapter: &str,
    base: &Url,
    organization: &str,
    page_items: usize,
) -> fmt::Result {
    writeln!(f, "adapter = {}\nurl = {}", quoted(adapter), quoted(base))?;
    writeln!(f, "provider_organization = {}\npage_items = {page_items}", quoted(organization))
}

fn show_generic(generic: &Generic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Generic { url, paging, items, total, key, timestamp, changed_at, event_type, items_are_events } = generic;
    writeln!(f, "adapter = \"generic\"\nurl = {}\nitems = {}", quoted(url), quoted(items))?;
    match paging {
        Paging::Pages { parameter, size } => {
            writeln!(f, "paging = \"pages\"\npage_parameter = {}\npage_items = {size}", quoted(parameter))?;
        }
        Paging::Cursor { parameter, pointer, of_last_item, more } => {
            writeln!(f, "paging = \"cursor\"\npage_parameter = {}\ncursor = {}", quoted(parameter), quoted(pointer))?;
            writeln!(f, "cursor_in_last_item = {of_last_item}")?;
            more.iter().try_for_each(|more| writeln!(f, "more = {}", quoted(more)))?;
        }
        Paging::Link => writeln!(f, "paging = \"link\"")?,
    }
    let (Place::Fixed(event_type) | Place::Pointer(event_type)) = event_type;
    writeln!(f, "key = {}\ntimestamp = {}\ntype = {}", quoted(key), quoted(timestamp), quoted(event_type))?;
    total.iter().try_for_each(|total| writeln!(f, "total = {}", quoted(total)))?;
    changed_at.iter().try_for_each(|changed_at| writeln!(f, "changed_at = {}", quoted(changed_at)))?;
    writeln!(f, "items_are_events = {items_are_events}")
}
