//! The configuration that holds, as TOML that could be read again, but for the secrets.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use hikyaku_core::event::EventPattern;
use hikyaku_core::provider::Profile;
use hikyaku_core::retry::Backoff;
use hikyaku_core::signature::{Scheme, Secret};
use hikyaku_core::webhook::WebhookUrl;

use super::reconcile;
use super::source::{ALGORITHMS, ENCODINGS};
use super::value::show_duration;
use super::{Config, Database, StoreLocation};
use crate::inbox::destination::{CommandSettings, HttpSettings, Language, SlackSettings, shown_url};
use crate::inbox::fetch;
use crate::inbox::{OnBadSignature, Room, Source, destination};
use crate::log::Format;
use crate::postgres::without_password;
use crate::provider_api::Credential;

impl Display for Config {
    /// Shows every setting as it holds, defaults included, and no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "listen = {}", quoted(self.listen))?;
        let store = match &self.store {
            StoreLocation::Sqlite(path) => format!("sqlite:{}", path.display()),
            StoreLocation::Postgres(database) => without_password(database.url.reveal()),
            StoreLocation::Memory => "memory:".to_owned(),
        };
        writeln!(f, "store = {}", quoted(&store))?;
        let roles: Vec<_> = self.roles.iter().map(|role| quoted(role.as_str())).collect();
        writeln!(f, "roles = [{}]", roles.join(", "))?;
        if let [present, old @ ..] = self.seal.keys() {
            // As comments, because what is hidden could not be read again as a key.
            writeln!(f, "# sealing_key = \"(hidden:{})\"", present.id())?;
            old.iter().try_for_each(|key| writeln!(f, "# old_sealing_keys has \"(hidden:{})\"", key.id()))?;
        }
        if let StoreLocation::Postgres(database) = &self.store {
            let Database { connections, migrate, notify, .. } = database;
            writeln!(f, "\n[database]\nconnections = {connections}\nmigrate = {migrate}\nnotify = {notify}")?;
        }
        writeln!(f, "\n[api]")?;
        if let Some(token) = &self.api.token {
            writeln!(f, "token = {}", hidden(token))?;
        }
        writeln!(f, "max_event_bytes = {}", self.api.max_event_bytes)?;
        self.show_sender(f)?;
        self.show_inbox(f)?;
        let format = match self.log.format {
            Format::Auto => "auto",
            Format::Text => "text",
            Format::Json => "json",
        };
        writeln!(f, "\n[log]\nlevel = {}\nformat = {}", quoted(&self.log.level), quoted(format))?;
        let retention = &self.retention;
        writeln!(f, "\n[retention]\nevents = {}\ninbox = {}", age(retention.events), age(retention.inbox))?;
        writeln!(f, "versions = {}", age(retention.versions))?;
        self.show_tracing(f)?;
        self.sources.iter().try_for_each(|source| show_source(source, f))?;
        self.destinations.iter().try_for_each(|destination| show_destination(destination, f))?;
        self.show_routes(f)?;
        self.reconciles.iter().try_for_each(|settings| reconcile::show(settings, f))
    }
}

impl Config {
    fn show_sender(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sender = &self.sender;
        let retry = &sender.policy.schedule;
        let delays = (1..).map_while(|ended| retry.delay_after(ended));
        writeln!(f, "\n[sender]\nretry_delays = [{}]", joined(delays.map(|delay| quoted(show_duration(delay)))))?;
        writeln!(f, "attempt_timeout = {}", quoted(show_duration(sender.attempt_timeout)))?;
        writeln!(f, "in_flight_per_webhook = {}\nin_flight = {}", sender.in_flight_per_webhook, sender.in_flight)?;
        writeln!(f, "\n[sender.targets]\nallow = [{}]", joined(sender.targets.allow.iter().map(quoted)))?;
        writeln!(f, "allow_http = {}", sender.targets.allow_http)
    }

    fn show_inbox(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inbox = &self.inbox;
        writeln!(f, "\n[inbox]\nmax_body_bytes = {}", inbox.max_body_bytes)?;
        writeln!(f, "effect_timeout = {}", quoted(show_duration(inbox.effect_timeout)))?;
        writeln!(f, "in_flight_per_route = {}", inbox.in_flight_per_route)?;
        show_backoff(inbox.backoff, f)?;
        writeln!(f, "keep_ids = {}", age(self.retention.ids))?;
        writeln!(f, "outage_after = {}", quoted(show_duration(self.heartbeat.outage_after)))
    }

    fn show_tracing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tracing = &self.tracing;
        writeln!(f, "\n[tracing]\nservice_name = {}", quoted(&tracing.service_name))?;
        if let Some(endpoint) = &tracing.otlp_endpoint {
            writeln!(f, "otlp_endpoint = {}", quoted(endpoint))?;
        }
        writeln!(f, "sample_one_in = {}\n\n[tracing.headers]", tracing.sample_one_in)?;
        tracing.headers.iter().try_for_each(|(name, value)| writeln!(f, "{} = {}", quoted(name), hidden(value)))
    }

    fn show_routes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for route in &self.routes {
            let sources = route.sources.iter().map(quoted);
            writeln!(f, "\n[[route]]\nname = {}\nsource = [{}]", quoted(&route.name), joined(sources))?;
            let events = route.events.iter().cloned().map(|pattern: EventPattern| quoted(String::from(pattern)));
            writeln!(f, "events = [{}]\ndestination = {}", joined(events), quoted(&route.destination))?;
            let (order, once) = (route.order.as_str(), route.once.as_str());
            writeln!(f, "order = {}\nonce = {}", quoted(order), quoted(once))?;
            route.backoff.iter().try_for_each(|backoff| show_backoff(*backoff, f))?;
        }
        Ok(())
    }
}

fn age(age: Option<Duration>) -> String {
    quoted(age.map_or_else(|| "never".to_owned(), show_duration))
}

fn show_backoff(backoff: Backoff, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Backoff { first, longest, give_up_after } = backoff;
    let pauses = [("retry_first", first), ("retry_longest", longest), ("give_up_after", give_up_after)];
    pauses.iter().try_for_each(|(name, pause)| writeln!(f, "{name} = {}", quoted(show_duration(*pause))))
}

fn show_fetch(fetch: &fetch::Settings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\n[source.fetch]\nurl = {}", quoted(&fetch.url))?;
    show_credential(fetch.credential.as_ref(), f)?;
    writeln!(f, "timeout = {}", quoted(show_duration(fetch.timeout)))?;
    writeln!(f, "max_body_bytes = {}", fetch.max_body_bytes)
}

/// What opens a provider's API.
pub(super) fn show_credential(credential: Option<&Credential>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match credential {
        None => Ok(()),
        Some(Credential::Token(token)) => writeln!(f, "token = {}", hidden(token)),
        Some(Credential::Login { url, user, password }) => {
            writeln!(f, "login = {}\nuser = {}\npassword = {}", quoted(shown_url(url)), quoted(user), hidden(password))
        }
    }
}

/// The destinations with no secret, as JSON would have them.
pub fn shown_destinations(config: &Config) -> Vec<destination::Shown> {
    config.destinations.iter().filter_map(shown_destination).collect()
}

/// A destination by way of the text that is shown of it, so that no kind has to be shown twice.
fn shown_destination(settings: &destination::Settings) -> Option<destination::Shown> {
    struct Text<'a>(&'a destination::Settings);
    impl Display for Text<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            show_destination(self.0, f)
        }
    }
    let mut whole: serde_json::Value = toml::from_str(&Text(settings).to_string()).ok()?;
    let serde_json::Value::Object(mut settings) = whole["destination"][0].take() else { return None };
    let mut text = |name: &str| settings.remove(name)?.as_str().map(str::to_owned);
    Some(destination::Shown { name: text("name")?, kind: text("kind")?, settings })
}

fn show_source(source: &Source, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\n[[source]]\nname = {}\nprovider = {}", quoted(&source.name), quoted(source.preset.name()))?;
    writeln!(f, "provider_name = {}\norganization = {}", quoted(&source.provider), quoted(&source.organization))?;
    writeln!(f, "secrets = [{}]", joined(source.secrets.iter().map(hidden)))?;
    source.notify.iter().try_for_each(|destination| writeln!(f, "notify = {}", quoted(destination)))?;
    match source.on_bad_signature {
        OnBadSignature::Refuse => writeln!(f, "on_bad_signature = \"refuse\"")?,
        OnBadSignature::Quarantine(Room { max_rows, max_bytes }) => {
            writeln!(f, "on_bad_signature = \"quarantine\"\nquarantine_max_rows = {max_rows}")?;
            writeln!(f, "quarantine_max_bytes = {max_bytes}")?;
        }
    }
    let Profile { scheme, layout, freshness, .. } = &source.profile;
    writeln!(f, "signature_header = {}\nsignature_prefix = {}", quoted(&scheme.header), quoted(&scheme.prefix))?;
    scheme.separator.iter().try_for_each(|separator| writeln!(f, "signature_separator = {}", quoted(separator)))?;
    let (algorithm, encoding) = (word(ALGORITHMS, scheme.algorithm), word(ENCODINGS, scheme.encoding));
    writeln!(f, "algorithm = {algorithm}\nencoding = {encoding}\nsigned_content = {}", quoted(&scheme.content))?;
    scheme.timestamp.iter().try_for_each(|field| writeln!(f, "signed_timestamp = {}", quoted(field)))?;
    scheme.url.iter().try_for_each(|url| writeln!(f, "url = {}", quoted(url)))?;
    for (key, fields) in
        [("id", &layout.id), ("type", &layout.event_type), ("timestamp", &layout.timestamp), ("key", &layout.key)]
    {
        writeln!(f, "{key} = [{}]", joined(fields.iter().map(quoted)))?;
    }
    layout.action.iter().try_for_each(|field| writeln!(f, "action = {}", quoted(field)))?;
    writeln!(f, "freshness = {}", quoted(freshness.map_or_else(|| "off".to_owned(), show_duration)))?;
    source.fetch.iter().try_for_each(|fetch| show_fetch(fetch, f))
}

/// A value by the name that it has in the configuration.
fn word<T: Copy + PartialEq>(words: &[(&str, T)], value: T) -> String {
    quoted(words.iter().find(|(_, other)| *other == value).map_or("", |(word, _)| word))
}

fn show_destination(settings: &destination::Settings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "\n[[destination]]\nname = {}", quoted(&settings.name))?;
    match &settings.kind {
        destination::Kind::Http(http) => show_http(http, f),
        destination::Kind::Slack(slack) => show_slack(slack, f),
        destination::Kind::Command(command) => show_command(command, f),
        destination::Kind::File(file) => {
            writeln!(f, "kind = \"file\"\npath = {}", quoted(file.path.display()))?;
            writeln!(f, "max_bytes = {}\nkeep = {}", file.max_bytes, file.keep)
        }
        destination::Kind::Sql { url, table, key, columns, create } => {
            let url = quoted(without_password(url.reveal()));
            writeln!(f, "kind = \"sql\"\nurl = {url}\ntable = {}\nkey = {}", quoted(table), quoted(key))?;
            let columns = columns.iter().map(|(name, pointer)| format!("{} = {}", quoted(name), quoted(pointer)));
            writeln!(f, "columns = {{ {} }}\ncreate = {create}", joined(columns))
        }
    }
}

fn show_http(http: &HttpSettings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "kind = \"http\"\nurl = {}", quoted(shown_url(&http.url)))?;
    if let Some(secret) = &http.secret {
        let scheme = match http.scheme {
            Scheme::ReceiptRoller => "receiptroller",
            Scheme::StandardWebhooks => "standard-webhooks",
            Scheme::StandardWebhooksEd25519 => "standard-webhooks-ed25519",
        };
        // In one line with the secret, because what is hidden is no secret of any other scheme.
        writeln!(f, "secret = {}\n# scheme = {}", hidden(secret), quoted(scheme))?;
    }
    let headers =
        http.headers.iter().map(|(name, value)| format!("{} = {}", quoted(name), hidden(&Secret::new(value))));
    writeln!(f, "headers = {{ {} }}", joined(headers))
}

fn show_slack(slack: &SlackSettings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // Scheme and host only (S19), but still a URL.
    let origin = WebhookUrl::parse(slack.url.reveal()).map(|url| url.origin()).unwrap_or_default();
    let length = slack.url.reveal().len();
    writeln!(f, "kind = \"slack\"\nurl = {}", quoted(format!("{origin}/(hidden:{length}-bytes)")))?;
    match (&slack.template, slack.language) {
        (Some(template), _) => writeln!(f, "template = {}", quoted(template))?,
        (None, Language::Japanese) => writeln!(f, "language = \"ja\"")?,
        (None, Language::English) => writeln!(f, "language = \"en\"")?,
    }
    writeln!(f, "time_zone = {}", quoted(slack.time_zone.name()))
}

fn show_command(command: &CommandSettings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "kind = \"command\"\nprogram = {}", quoted(&command.program))?;
    writeln!(f, "args = [{}]", joined(command.args.iter().map(quoted)))?;
    let env = command.env.iter().map(|(name, value)| format!("{} = {}", quoted(name), hidden(value)));
    writeln!(f, "env = {{ {} }}", joined(env))?;
    command.directory.iter().try_for_each(|directory| writeln!(f, "directory = {}", quoted(directory.display())))
}

pub(super) fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// A TOML string.
pub(super) fn quoted(value: impl Display) -> String {
    let mut quoted = String::from("\"");
    for c in value.to_string().chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Writing to a String cannot fail.
            _ if c.is_control() => drop(write!(quoted, "\\u{:04X}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted + "\""
}

fn hidden(secret: &Secret) -> String {
    quoted(format!("(hidden:{}-bytes)", secret.reveal().len()))
}
