//! What single values must be like. Every function says in its error what the value must be, to follow its name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use hikyaku_core::address::{TargetPolicy, is_metadata};
use hikyaku_core::signature::{MAX_SECRET_BYTES, Secret};
use hikyaku_core::webhook::WebhookUrl;
use ipnet::IpNet;
use jiff::{Span, SpanRelativeTo};

use super::tree::{Node, Place, Value};

/// Longest time for which things can be kept: ten years.
const LONGEST_AGE: Duration = Duration::from_secs(3650 * 24 * 3600);
/// Longest name of a source, destination or route, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A text. From the environment or a flag, whatever stands there is one.
pub(super) fn text(node: &Node) -> Result<String, String> {
    match (&node.value, &node.raw) {
        (Value::Text(text), _) | (_, Some(text)) => Ok(text.clone()),
        (other, None) => Err(format!("must be a text (\"…\"), not {}", other.kind())),
    }
}

/// A text that `parse` takes.
pub(super) fn parsed<T, E: ToString>(parse: impl Fn(&str) -> Result<T, E>) -> impl Fn(&Node) -> Result<T, String> {
    move |node| parse(&text(node)?).map_err(|error| error.to_string())
}

/// `true` or `false`.
pub(super) fn boolean(node: &Node) -> Result<bool, String> {
    match node.value {
        Value::Boolean(truth) => Ok(truth),
        ref other => Err(format!("must be true or false, not {}", other.kind())),
    }
}

/// An integer within bounds.
pub(super) fn integer<T: TryFrom<i64>>(bounds: RangeInclusive<i64>) -> impl Fn(&Node) -> Result<T, String> {
    move |node| {
        let (least, most) = (bounds.start(), bounds.end());
        match node.value {
            Value::Integer(number) if bounds.contains(&number) => {
                T::try_from(number).map_err(|_| format!("must be between {least} and {most}, not {number}"))
            }
            Value::Integer(number) => Err(format!("must be between {least} and {most}, not {number}")),
            ref other => Err(format!("must be an integer, not {}", other.kind())),
        }
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy>(choices: &'static [(&'static str, T)]) -> impl Fn(&Node) -> Result<T, String> {
    move |node| {
        let given = text(node)?;
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        let chosen = choices.iter().find(|(word, _)| *word == given);
        chosen.map(|(_, value)| *value).ok_or_else(|| format!("must be {}, not {given:?}", words.join(" or ")))
    }
}

/// A length of time like `200ms`, `60s`, `10m`, `1h` or `3d` (a day has 24 hours), within bounds.
pub(super) fn duration(bounds: RangeInclusive<Duration>) -> impl Fn(&Node) -> Result<Duration, String> {
    move |node| {
        let wrong = |given: &str| {
            format!("must be a length of time like \"200ms\", \"60s\", \"10m\", \"1h\" or \"3d\", not {given}")
        };
        let text = text(node).map_err(|_| wrong(node.value.kind()))?;
        let given = format!("{text:?}");
        let span: Span = text.parse().map_err(|_| wrong(&given))?;
        let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong(&given))?;
        match Duration::try_from(length) {
            Ok(length) if bounds.contains(&length) => Ok(length),
            _ => {
                let (least, most) = (show_duration(*bounds.start()), show_duration(*bounds.end()));
                Err(format!("must be between {least} and {most}, not {text:?}"))
            }
        }
    }
}

/// A length of time of at least `least`, or `"never"` for none; `why` says what is wrong with a shorter one.
pub(super) fn age(least: Duration, why: &str) -> impl Fn(&Node) -> Result<Option<Duration>, String> {
    move |node| match text(node)?.as_str() {
        "never" => Ok(None),
        given => match duration(Duration::ZERO..=LONGEST_AGE)(node)? {
            age if age >= least => Ok(Some(age)),
            _ => Err(format!("must be at least {} or \"never\", not {given:?}: {why}", show_duration(least))),
        },
    }
}

/// Writes a length of time as [`duration`] reads it, in the largest unit that fits.
pub(super) fn show_duration(length: Duration) -> String {
    let millis = length.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let unit = units.into_iter().find(|(_, unit)| millis > 0 && millis.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{millis}ms"), |(name, unit)| format!("{}{name}", millis / unit))
}

/// `ADDRESS:PORT`; port 0 takes a free one.
pub(super) fn listen(node: &Node) -> Result<SocketAddr, String> {
    let text = text(node)?;
    text.parse().map_err(|_| {
        format!(
            "must be an IP address and a port like \"127.0.0.1:8080\", \"0.0.0.0:8080\" or \"[::1]:8080\", not {text:?}"
        )
    })
}

/// An address range, written without host bits so that what is meant is what is allowed; or a single address.
pub(super) fn range(node: &Node) -> Result<IpNet, String> {
    let text = text(node)?;
    let range = text.parse::<IpAddr>().map(IpNet::from);
    let range = range
        .or_else(|_| text.parse())
        .map_err(|_| format!("must be a range of addresses like \"10.0.0.0/8\" or \"fd00::/8\", not {text:?}"))?;
    if range.prefix_len() == range.max_prefix_len() && is_metadata(range.addr()) {
        return Err(format!("names {text:?}, a cloud metadata address, which nothing is ever delivered to"));
    }
    match range.trunc() {
        whole if whole == range => Ok(range),
        whole => Err(format!(
            "names an address inside of a range; write {:?} if that range is meant, not {text:?}",
            whole.to_string()
        )),
    }
}

/// A URL that the operator chose: any address, but for those that S7 refuses to everybody.
pub(super) fn target(url: &str) -> Result<WebhookUrl, String> {
    let url = WebhookUrl::parse(url).map_err(|error| error.to_string())?;
    TargetPolicy::everywhere().vet_url(url.as_url()).map_err(|refusal| format!("leads nowhere: {refusal}"))?;
    Ok(url)
}

/// The file of `sqlite:PATH`.
pub(super) fn sqlite_path(url: &str) -> Result<PathBuf, String> {
    match url.strip_prefix("sqlite:") {
        // Two slashes are what people write who expect a URL with a host; a file at the root is seldom meant.
        Some(path) if !path.is_empty() && !path.starts_with("//") && !path.starts_with(':') => Ok(PathBuf::from(path)),
        _ => Err(format!(
            "must be \"sqlite:PATH\", like \"sqlite:hikyaku.db\" or \"sqlite:/var/lib/hikyaku.db\", or \
             \"postgres://user:password@host/database\", not {:?}",
            without_credentials(url)
        )),
    }
}

/// What is no URL that we know, without what may be a password in it (S19).
fn without_credentials(url: &str) -> String {
    let Some((before, after)) = url.rsplit_once('@') else { return url.to_owned() };
    let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
    format!("{scheme}(hidden)@{after}")
}

/// A name that can stand in a path and a log line as it is.
pub(super) fn name(node: &Node) -> Result<String, String> {
    let name = text(node)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(allowed) || name.starts_with('.') {
        return Err(format!("must be 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` or `.`, not {name:?}"));
    }
    Ok(name)
}

/// A table or column, which later stands quoted in SQL (S22).
pub(super) fn identifier(name: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_alphanumeric() || c == '_';
    let digit_first = name.starts_with(|c: char| c.is_numeric());
    if name.is_empty() || name.len() > MAX_NAME_BYTES || digit_first || !name.chars().all(allowed) {
        return Err(format!(
            "must be 1 to {MAX_NAME_BYTES} bytes of letters, digits and `_`, no digit first, not {name:?}"
        ));
    }
    Ok(name.to_owned())
}

/// Most bytes of a database's URL: a password may be a token of some thousand bytes, and there may be several hosts.
const MAX_DATABASE_URL_BYTES: usize = 8 * 1024;

/// A secret: `env:NAME`, `file:PATH` (one newline at the end does not count), or the secret itself. No message repeats
/// it.
pub(super) fn secret(environment: &BTreeMap<String, String>) -> impl Fn(&Node) -> Result<Secret, String> {
    secret_up_to(environment, MAX_SECRET_BYTES)
}

/// A database's URL, which may hold a password and is written like a secret.
pub(super) fn database_url(environment: &BTreeMap<String, String>) -> impl Fn(&Node) -> Result<Secret, String> {
    secret_up_to(environment, MAX_DATABASE_URL_BYTES)
}

fn secret_up_to(environment: &BTreeMap<String, String>, most_bytes: usize) -> impl Fn(&Node) -> Result<Secret, String> {
    move |node| {
        let text = text(node)?;
        let secret = if let Some(name) = text.strip_prefix("env:") {
            let value = environment.get(name);
            value
                .cloned()
                .ok_or_else(|| format!("needs the environment variable {name}, which is not set (as UTF-8)"))?
        } else if let Some(path) = text.strip_prefix("file:") {
            secret_file(path, most_bytes)?
        } else {
            text
        };
        match secret.len() {
            0 => Err("must not be empty".to_owned()),
            length if length > most_bytes => Err(format!("is {length} bytes long; at most {most_bytes} are allowed")),
            _ => Ok(Secret::new(secret)),
        }
    }
}

fn secret_file(path: &str, most_bytes: usize) -> Result<String, String> {
    // One byte more than allowed with its line end, so that a longer file is seen to be longer.
    let limit = most_bytes as u64 + 3;
    let mut secret = String::new();
    let read = File::open(path).and_then(|file| file.take(limit).read_to_string(&mut secret));
    read.map_err(|error| format!("needs the file {path:?}, which cannot be read: {error}"))?;
    let line = secret.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.unwrap_or(&secret).to_owned())
}

/// Names of one kind, each once, with the place of each.
pub(super) struct Names {
    kind: &'static str,
    places: BTreeMap<String, Place>,
}

impl Names {
    /// No names yet; `kind` is what they name, for messages.
    pub(super) fn of(kind: &'static str) -> Self {
        Self { kind, places: BTreeMap::new() }
    }

    /// Takes a new name, or says where it was taken before.
    pub(super) fn declare(&mut self, name: String, place: Place) -> Result<String, String> {
        match self.places.get(&name) {
            Some(first) => Err(format!("is the name {name:?}, which another {} has already, at {first}", self.kind)),
            None => {
                self.places.insert(name.clone(), place);
                Ok(name)
            }
        }
    }

    /// Takes a name that has been declared.
    pub(super) fn refer(&self, node: &Node) -> Result<String, String> {
        let name = text(node)?;
        if self.places.contains_key(&name) {
            return Ok(name);
        }
        let known: Vec<_> = self.places.keys().map(String::as_str).collect();
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there are: {}", known.join(", ")) };
        Err(format!("names the {} {name:?}, which does not exist; {known}", self.kind))
    }
}
