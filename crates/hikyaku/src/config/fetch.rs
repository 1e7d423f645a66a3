//! `[source.fetch]`, and what routes say of their sources, of order and of retries.

use std::collections::BTreeMap;
use std::time::Duration;

use hikyaku_core::retry::{Backoff, MAX_RETRY_DELAY};

use super::read::{LONGEST_EFFECT, LONGEST_GIVE_UP, MAX_BODY_BYTES, SHORTEST_PAUSE, SHORTEST_TIMEOUT};
use super::section::Section;
use super::tree::{Node, Value};
use super::value::{Names, choice, duration, integer, parsed, secret, show_duration, target, text};
use super::{Config, inbox};
use crate::inbox::Order;
use crate::inbox::destination;
use crate::inbox::fetch::{Settings, UrlTemplate};
use crate::provider_api::{Credential, bearer};

/// How a source's provider is asked, if that is written.
pub(super) fn fetch(section: &mut Section<'_>, environment: &BTreeMap<String, String>) -> Option<Settings> {
    if !section.has("fetch") {
        return None;
    }
    section.table("fetch", |section| {
        let url = section.require("url", parsed(UrlTemplate::parse));
        let credential = credential(section, environment);
        let timeout = section.get("timeout", duration(SHORTEST_TIMEOUT..=LONGEST_EFFECT));
        let max_body_bytes = section.get("max_body_bytes", integer(1..=MAX_BODY_BYTES));
        Some(Settings {
            url: url?,
            credential,
            timeout: timeout.unwrap_or(Settings::DEFAULT_TIMEOUT),
            max_body_bytes: max_body_bytes.unwrap_or(Settings::DEFAULT_MAX_BODY_BYTES),
        })
    })
}

pub(super) fn credential(section: &mut Section<'_>, environment: &BTreeMap<String, String>) -> Option<Credential> {
    let token = section.get("token", |node| {
        let token = secret(environment)(node)?;
        bearer(token.reveal()).map(|_| token).ok_or_else(|| "must be visible ASCII characters".to_owned())
    });
    if section.has("token") && ["login", "user", "password"].iter().any(|key| section.has(key)) {
        section.problem("token", "stands beside a login (`login`, `user`, `password`); one of the two is enough");
    }
    let url = section.get("login", parsed(target));
    let user = section.get("user", text);
    let password = section.get("password", secret(environment));
    let missing = ["login", "user", "password"].into_iter().filter(|key| !section.has(key)).collect::<Vec<_>>();
    if (1..3).contains(&missing.len()) {
        section.problem(missing[0], "is missing; a login needs `login`, `user` and `password`");
    }
    let login = || Some(Credential::Login { url: url?.as_url().clone(), user: user?, password: password? });
    token.map(Credential::Token).or_else(login)
}

/// What order means to a route.
pub(super) fn order(node: &Node) -> Result<Order, String> {
    choice(&[("every", Order::Every), ("latest", Order::Latest), ("fetch", Order::Fetch)])(node)
}

/// How failed effects are tried again; what is not written is as in `defaults`.
pub(super) fn backoff(section: &mut Section<'_>, defaults: Backoff) -> Backoff {
    let mut pause = |key, longest| section.get(key, duration(SHORTEST_PAUSE..=longest));
    let backoff = Backoff {
        first: pause("retry_first", MAX_RETRY_DELAY).unwrap_or(defaults.first),
        longest: pause("retry_longest", MAX_RETRY_DELAY).unwrap_or(defaults.longest),
        give_up_after: pause("give_up_after", LONGEST_GIVE_UP).unwrap_or(defaults.give_up_after),
    };
    if backoff.longest < backoff.first {
        section.problem("retry_longest", "is shorter than `retry_first`; the pauses grow from that one to this one");
    }
    backoff
}

/// The same for one route; `None` where nothing is written.
pub(super) fn own_backoff(section: &mut Section<'_>, defaults: Backoff) -> Option<Backoff> {
    let written = ["retry_first", "retry_longest", "give_up_after"].iter().any(|key| section.has(key));
    Some(backoff(section, defaults)).filter(|_| written)
}

/// The sources of a route: one name, or a list of several; at least one, and none twice.
pub(super) fn sources_of(node: &Node, known: &Names) -> Result<Vec<String>, String> {
    let Value::List(nodes) = &node.value else { return Ok(vec![known.refer(node)?]) };
    if nodes.is_empty() {
        return Err("is empty, so nothing would take this route; name at least one source".to_owned());
    }
    let mut names = Vec::with_capacity(nodes.len());
    for node in nodes {
        let name = known.refer(node)?;
        if names.contains(&name) {
            return Err(format!("names the source {name:?} twice"));
        }
        names.push(name);
    }
    Ok(names)
}

fn of_route<'a>(config: &'a Config, route: &'a inbox::Route) -> impl Iterator<Item = &'a inbox::Source> {
    route.sources.iter().filter_map(|name| config.sources.iter().find(|source| source.name == *name))
}

/// What a route remembers of a key holds for all of its sources, so the key must mean the same in them.
pub(super) fn check_sources(root: &mut Section<'_>, config: &Config) {
    for route in &config.routes {
        let mut sources = of_route(config, route);
        let Some(first) = sources.next() else { continue };
        let is_other = |source: &&inbox::Source| {
            (&source.organization, &source.provider) != (&first.organization, &first.provider)
        };
        if let Some(other) = sources.find(is_other) {
            let (name, first, other) = (&route.name, &first.name, &other.name);
            root.problem(
                "route",
                &format!(
                    "{name:?} takes from the sources {first:?} and {other:?}, which are not of one organization and one \
                     provider; give each a route of its own"
                ),
            );
        }
    }
}

/// A notice about a source is no row of a table.
pub(super) fn check_notify(root: &mut Section<'_>, config: &Config) {
    for (source, named) in config.sources.iter().filter_map(|source| Some((&source.name, source.notify.as_ref()?))) {
        let reason = match config.destinations.iter().find(|destination| destination.name == *named) {
            None => "which does not exist",
            Some(destination::Settings { kind: destination::Kind::Sql { .. }, .. }) => {
                "which is a table of business data with no place for a notice; name one of another kind"
            }
            Some(_) => continue,
        };
        root.problem("source", &format!("{source:?} has as `notify` the destination {named:?}, {reason}"));
    }
}

/// A route that reads needs sources that say where, and a reading must fit into its lease.
pub(super) fn check_fetch(root: &mut Section<'_>, config: &Config) {
    for route in config.routes.iter().filter(|route| route.order == Order::Fetch) {
        for source in of_route(config, route).filter(|source| source.fetch.is_none()) {
            let (name, source) = (&route.name, &source.name);
            root.problem(
                "route",
                &format!(
                    "{name:?} has the order \"fetch\", but the source {source:?} has no [source.fetch] with a `url`"
                ),
            );
        }
    }
    let longest = config.inbox.effect_timeout;
    let readings = config.sources.iter().filter_map(|source| Some((source, source.fetch.as_ref()?.timeout)));
    for (source, _) in readings.filter(|(_, timeout): &(_, Duration)| *timeout > longest) {
        let (name, longest) = (&source.name, show_duration(longest));
        root.problem(
            "source",
            &format!("{name:?} has a `fetch.timeout` longer than `inbox.effect_timeout` ({longest})"),
        );
    }
}
