//! The settings, table by table: their names, defaults and bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use hikyaku_core::address::TargetPolicy;
use hikyaku_core::delivery::Policy;
use hikyaku_core::event::EventPattern;
use hikyaku_core::json::is_pointer;
use hikyaku_core::retry::{MAX_RETRY_DELAY, RetrySchedule};
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::WebhookUrl;

use super::destination::{command, file, http, slack};
use super::fetch::{backoff, check_fetch, check_notify, check_sources, order, own_backoff, sources_of};
use super::reconcile;
use super::section::Section;
use super::source;
use super::tree::{Place, Table};
use super::value::{
    Names, age, boolean, choice, database_url, duration, identifier, integer, listen, name, parsed, range, secret,
    sqlite_path, text,
};
use super::{Api, Config, Problem, store};
use crate::inbox::destination::{self, MAX_COLUMNS, OWN_PREFIX};
use crate::inbox::{self, Once, Route};
use crate::log::{self, Format};
use crate::postgres;
use crate::retention::{self, MIN_AGE};
use crate::{heartbeat, sender, trace};

/// Shortest time anything may take, so that nothing is cut off before it can begin.
pub(super) const SHORTEST_TIMEOUT: Duration = Duration::from_millis(10);
/// Longest time an attempt may take. The contract's is 10 s (R4); the leases are made for no more than this.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(30);
/// Longest time an effect may take.
pub(super) const LONGEST_EFFECT: Duration = Duration::from_secs(300);
/// Longest time after which a row that keeps failing is given up.
pub(super) const LONGEST_GIVE_UP: Duration = Duration::from_secs(30 * 24 * 3600);
/// Shortest pause of ours between two tries.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Shortest and longest absence that can be said to be an outage.
const SHORTEST_OUTAGE: Duration = Duration::from_secs(60);
const LONGEST_OUTAGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Largest body that can be allowed, in bytes: bodies are held in memory while they are worked on.
pub(super) const MAX_BODY_BYTES: i64 = 16 * 1024 * 1024;
/// Most things of one kind that can be allowed to be under way in all.
const MAX_IN_FLIGHT: i64 = 65_536;
/// Most of them for one webhook or route.
const MAX_IN_FLIGHT_EACH: i64 = 1024;
/// Of how many traces at least one is recorded.
const MAX_SAMPLE_ONE_IN: i64 = 1_000_000;
/// Shortest API token, in bytes: 128 bits, when written in base64 or hexadecimal, need more (S16).
const MIN_TOKEN_BYTES: usize = 16;

/// What the URL of a destination's database must be.
const DATABASE_URLS: &str =
    "must be \"sqlite:PATH\", like \"sqlite:books.db\", or \"postgres://user:password@host/database\"";
/// Longest beginning of another URL that is repeated, in bytes.
const MAX_SCHEME_BYTES: usize = 16;

/// Reads everything; what is wrong is added to `problems`, and only without any is the result meant.
pub(super) fn config(
    table: Table,
    place: Place,
    environment: &BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) -> Config {
    Section::read_root(table, place, problems, |root| {
        let defaults = Config::default();
        let mut names = (Names::of("source"), Names::of("destination"), Names::of("route"));
        let (inbox, memory) = root.table("inbox", |section| (inbox_settings(section), inbox_memory(section)));
        let sources = root.tables("source", |section| source::read(section, environment, &mut names.0));
        let mut reconciles = Names::of("reconcile");
        let reconciles =
            root.tables("reconcile", |section| reconcile::read(section, environment, &sources, &mut reconciles));
        let config = Config {
            file: None,
            listen: root.get("listen", listen).unwrap_or(defaults.listen),
            store: store::store(root, environment).unwrap_or(defaults.store),
            roles: store::roles(root).unwrap_or(defaults.roles),
            seal: store::seal(root, environment),
            api: root.table("api", |section| api(section, environment)),
            sender: root.table("sender", sender_settings),
            sources,
            reconciles,
            destinations: root.tables("destination", |section| a_destination(section, environment, &mut names.1)),
            routes: root.tables("route", |section| route(section, &inbox, (&names.0, &names.1, &mut names.2))),
            inbox,
            log: root.table("log", log_settings),
            tracing: root.table("tracing", |section| tracing_settings(section, environment)),
            retention: root.table("retention", |section| retention_settings(section, memory.0)),
            heartbeat: memory.1,
        };
        store::check_sealed(root, &config);
        store::check_files(root, &config);
        check_sources(root, &config);
        check_fetch(root, &config);
        check_notify(root, &config);
        config
    })
}

fn api(section: &mut Section<'_>, environment: &BTreeMap<String, String>) -> Api {
    let token = |node: &_| {
        let token = secret(environment)(node)?;
        let text = token.reveal();
        if text.len() < MIN_TOKEN_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("must be at least {MIN_TOKEN_BYTES} visible ASCII characters without spaces"));
        }
        Ok(token)
    };
    Api {
        token: section.get("token", token),
        max_event_bytes: section
            .get("max_event_bytes", integer(1..=MAX_BODY_BYTES))
            .unwrap_or(Api::default().max_event_bytes),
    }
}

fn sender_settings(section: &mut Section<'_>) -> sender::Settings {
    let defaults = sender::Settings::default();
    let each = section.get("in_flight_per_webhook", integer(1..=MAX_IN_FLIGHT_EACH));
    let all = section.get("in_flight", integer(1..=MAX_IN_FLIGHT));
    let settings = sender::Settings {
        policy: policy(section),
        attempt_timeout: section
            .get("attempt_timeout", duration(SHORTEST_TIMEOUT..=LONGEST_ATTEMPT))
            .unwrap_or(defaults.attempt_timeout),
        targets: section.table("targets", |section| TargetPolicy {
            allow: section.list("allow", range).unwrap_or_default(),
            allow_http: section.get("allow_http", boolean).unwrap_or(false),
        }),
        in_flight_per_webhook: each.unwrap_or(defaults.in_flight_per_webhook),
        in_flight: all.unwrap_or(defaults.in_flight),
        ..defaults
    };
    if settings.in_flight < settings.in_flight_per_webhook {
        let (each, all) = (settings.in_flight_per_webhook, settings.in_flight);
        let message =
            format!("is {all}, less than `sender.in_flight_per_webhook` ({each}); raise it or lower the other");
        section.problem("in_flight", &message);
    }
    settings
}

fn policy(section: &mut Section<'_>) -> Policy {
    let Some(delays) = section.list("retry_delays", duration(SHORTEST_PAUSE..=MAX_RETRY_DELAY)) else {
        return Policy::default();
    };
    let schedule = RetrySchedule::new(delays).unwrap_or_else(|error| {
        section.problem("retry_delays", &error.to_string());
        RetrySchedule::default()
    });
    Policy { schedule, ..Policy::default() }
}

fn inbox_settings(section: &mut Section<'_>) -> inbox::Settings {
    let defaults = inbox::Settings::default();
    inbox::Settings {
        max_body_bytes: section.get("max_body_bytes", integer(1..=MAX_BODY_BYTES)).unwrap_or(defaults.max_body_bytes),
        backoff: backoff(section, defaults.backoff),
        in_flight_per_route: section
            .get("in_flight_per_route", integer(1..=MAX_IN_FLIGHT_EACH))
            .unwrap_or(defaults.in_flight_per_route),
        effect_timeout: section
            .get("effect_timeout", duration(SHORTEST_TIMEOUT..=LONGEST_EFFECT))
            .unwrap_or(defaults.effect_timeout),
        ..defaults
    }
}

/// Why nothing may be dropped sooner than a provider stops repeating it (C7): it would take effect twice.
const TOO_SHORT: &str =
    "what is dropped is no longer known as a duplicate, and a provider may send it again for 71 minutes";

/// What the inbox remembers beyond its rows: how long ids are known, and when an absence is an outage.
fn inbox_memory(section: &mut Section<'_>) -> (Option<Duration>, heartbeat::Settings) {
    let defaults = (retention::Settings::default().ids, heartbeat::Settings::default());
    let outage_after = section.get("outage_after", duration(SHORTEST_OUTAGE..=LONGEST_OUTAGE));
    let keep_ids = section.get("keep_ids", age(MIN_AGE, TOO_SHORT)).unwrap_or(defaults.0);
    (keep_ids, heartbeat::Settings { outage_after: outage_after.unwrap_or(defaults.1.outage_after) })
}

/// A version must be known for at least as long as something older can come back from the inbox itself (T5).
fn retention_settings(section: &mut Section<'_>, ids: Option<Duration>) -> retention::Settings {
    let defaults = retention::Settings::default();
    let mut get = |key, default| section.get(key, age(MIN_AGE, TOO_SHORT)).unwrap_or(default);
    let (events, inbox) = (get("events", defaults.events), get("inbox", defaults.inbox));
    let is_written = section.has("versions");
    let versions = section.get("versions", age(MIN_AGE, TOO_SHORT)).unwrap_or(defaults.versions);
    let longest = [inbox, ids].into_iter().max_by_key(|age| age.unwrap_or(Duration::MAX)).flatten();
    let is_shorter = |versions| longest.is_none_or(|longest| versions < longest);
    let versions = match versions.filter(|versions| is_shorter(*versions)) {
        None => versions,
        // The default grows with the others.
        Some(_) if !is_written => longest,
        Some(_) => {
            let message = "is shorter than `inbox.keep_ids` or `retention.inbox`; what is replayed from the inbox must \
                           still be known as older than what took effect since";
            section.problem("versions", message);
            versions
        }
    };
    retention::Settings { events, inbox, ids, versions }
}

fn log_settings(section: &mut Section<'_>) -> log::Settings {
    let defaults = log::Settings::default();
    let formats = &[("auto", Format::Auto), ("text", Format::Text), ("json", Format::Json)];
    log::Settings {
        level: section.get("level", parsed(log::check_level)).unwrap_or(defaults.level),
        format: section.get("format", choice(formats)).unwrap_or(defaults.format),
    }
}

fn tracing_settings(section: &mut Section<'_>, environment: &BTreeMap<String, String>) -> trace::Settings {
    let defaults = trace::Settings::default();
    let headers = section.texts("headers", |node| {
        let value = secret(environment)(node)?;
        HeaderValue::from_str(value.reveal()).map_err(|_| "must be visible ASCII characters".to_owned())?;
        Ok(value.reveal().to_owned())
    });
    let headers = headers.unwrap_or_default();
    if let Some(name) = headers.keys().find(|name| HeaderName::try_from(*name).is_err()) {
        section.problem("headers", &format!("has a header named {name:?}, which HTTP does not allow"));
    }
    trace::Settings {
        otlp_endpoint: section.get("otlp_endpoint", parsed(WebhookUrl::parse)).map(|url| url.as_url().clone()),
        service_name: section.get("service_name", text).unwrap_or(defaults.service_name),
        sample_one_in: section.get("sample_one_in", integer(1..=MAX_SAMPLE_ONE_IN)).unwrap_or(defaults.sample_one_in),
        headers: headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect(),
    }
}

fn a_destination(
    section: &mut Section<'_>,
    environment: &BTreeMap<String, String>,
    names: &mut Names,
) -> Option<destination::Settings> {
    let name = section.require("name", |node| names.declare(name(node)?, node.place.clone()));
    type Read = fn(&mut Section<'_>, &BTreeMap<String, String>) -> Option<destination::Kind>;
    let kinds: &[(&str, Read)] =
        &[("sql", sql), ("http", http), ("slack", slack), ("command", command), ("file", file)];
    let Some(read) = section.require("kind", choice(kinds)) else {
        section.ignore_rest();
        return None;
    };
    let kind = read(section, environment);
    Some(destination::Settings { name: name?, kind: kind? })
}

fn sql(section: &mut Section<'_>, environment: &BTreeMap<String, String>) -> Option<destination::Kind> {
    let url = section.require("url", |node| {
        let url = database_url(environment)(node)?;
        match postgres::is_url(url.reveal()) {
            true => postgres::check_url(url.reveal())?,
            false => sqlite_url(url.reveal())?,
        }
        Ok(url)
    });
    let table = section.require("table", parsed(table));
    let key = section.require("key", text);
    let columns = section.texts("columns", parsed(pointer)).unwrap_or_default();
    if let Some((column, problem)) = columns.keys().find_map(|name| Some((name, identifier(name).err()?))) {
        section.problem("columns", &format!("has a column named {column:?}; its name {problem}"));
    }
    if columns.len() > MAX_COLUMNS {
        section.problem("columns", &format!("has {} columns; at most {MAX_COLUMNS} are allowed", columns.len()));
    }
    // SQLite does not tell such names apart, and few people do.
    let mut seen = BTreeSet::new();
    if let Some(column) = columns.keys().find(|name| !seen.insert(name.to_ascii_lowercase())) {
        section.problem("columns", &format!("names the column {column:?} twice, in different case; name it once"));
    }
    if let Some(key) = key.as_ref().filter(|key| !columns.contains_key(*key)) {
        section.problem("key", &format!("is {key:?}, which `destination.columns` must name with its JSON pointer"));
    }
    let create = section.get("create", boolean).unwrap_or(false);
    Some(destination::Kind::Sql { url: url?, table: table?, key: key?, columns, create })
}

/// Says what the URL of a destination's database must be, and nothing of it but its beginning: it may hold a password.
fn sqlite_url(url: &str) -> Result<(), String> {
    match url.split_once(':') {
        Some(("sqlite", _)) => sqlite_path(url).map(drop).map_err(|_| DATABASE_URLS.to_owned()),
        Some((scheme, _)) if scheme.len() <= MAX_SCHEME_BYTES => Err(format!("{DATABASE_URLS}, not {scheme:?}")),
        _ => Err(DATABASE_URLS.to_owned()),
    }
}

fn table(name: &str) -> Result<String, String> {
    match identifier(name)? {
        own if own.to_ascii_lowercase().starts_with(OWN_PREFIX) => {
            Err(format!("must not begin with {OWN_PREFIX:?}, not {name:?}: such tables are our own"))
        }
        table => Ok(table),
    }
}

fn pointer(pointer: &str) -> Result<String, String> {
    if pointer.is_empty() || !is_pointer(pointer) {
        return Err(format!("must be a JSON pointer into the delivered body like \"/data/id\", not {pointer:?}"));
    }
    Ok(pointer.to_owned())
}

fn route(
    section: &mut Section<'_>,
    defaults: &inbox::Settings,
    (sources, destinations, names): (&Names, &Names, &mut Names),
) -> Option<Route> {
    let sources = section.require("source", |node| sources_of(node, sources));
    let destination = section.require("destination", |node| destinations.refer(node));
    let events = section.list("events", parsed(EventPattern::parse_received));
    if section.is_empty_list("events") {
        section.problem("events", "is empty, so nothing would take this route; leave it out to take every event");
    }
    let order = section.get("order", order).unwrap_or_default();
    let once = choice(&[("delivery", Once::Delivery), ("key", Once::Key)]);
    let once = section.get("once", once).unwrap_or_default();
    let backoff = own_backoff(section, defaults.backoff);
    let events = events.unwrap_or(vec![EventPattern::All]);
    let name = section.get("name", name);
    let (sources, destination) = (sources?, destination?);
    let name = name.unwrap_or_else(|| format!("{}-{destination}", sources[0]));
    match names.declare(name, section.place_of("name")) {
        Ok(name) => Some(Route { name, sources, events, destination, order, once, backoff }),
        Err(problem) => {
            section.problem("name", &format!("{problem}; give each a `name` of its own"));
            None
        }
    }
}
