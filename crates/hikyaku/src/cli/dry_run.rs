//! `hikyaku inbox try`: what would become of a delivery, by the configuration alone.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use clap::Args;
use hikyaku::clock::{SharedClock, SystemClock};
use hikyaku::config::Config;
use hikyaku::inbox::{Answer, Trial, Tried, TriedRoute};
use hikyaku_core::timestamp;
use serde_json::{Value, json};

use super::failure::{FAILED, Failure, WrongUse, failed};
use super::table::plain;
use super::{Settings, output, with_config};

/// Largest file of headers that is read, in bytes.
const MAX_HEADERS_BYTES: u64 = 64 * 1024;

const EXIT: &str = "Exit codes:
  0  it would take effect
  1  it would not: it would be refused, quarantined, parked or dead, or a destination could do nothing with it
  2  the command line, the configuration or a file is wrong";

/// `hikyaku inbox try`.
#[derive(Debug, Args)]
#[command(after_help = EXIT)]
pub(super) struct DryRun {
    /// The source it would come in through
    #[arg(long, value_name = "NAME")]
    source: String,
    /// A file with its headers, one "name: value" per line; without it no signature is checked
    #[arg(long, value_name = "FILE")]
    headers: Option<PathBuf>,
    /// The file with its body; - for standard input
    file: PathBuf,
    #[command(flatten)]
    settings: Settings,
}

impl DryRun {
    /// Does it.
    pub(super) fn run(self, is_json: bool) -> ExitCode {
        let Self { source, headers, file, settings } = self;
        with_config(settings, |config| match tried(&config, &source, headers.as_deref(), &file) {
            Ok(tried) => {
                if is_json {
                    output::print(format_args!("{}\n", as_json(&tried)));
                } else {
                    output::print(plain_lines(&as_text(&tried)));
                }
                if is_good(&tried) { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
            }
            Err(failure) => failed(&*failure),
        })
    }
}

fn tried(config: &Config, source: &str, headers: Option<&Path>, file: &Path) -> Result<Tried, Failure> {
    let body = read(file, config.inbox.max_body_bytes as u64)?;
    let headers = headers.map(|file| parse_headers(&read(file, MAX_HEADERS_BYTES)?)).transpose()?;
    let (settings, sources) = (&config.inbox, &config.sources);
    let trial = Trial { settings, sources, routes: &config.routes, destinations: &config.destinations };
    let clock: SharedClock = Arc::new(SystemClock::start());
    let known = || sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(", ");
    let unknown = || WrongUse(format!("there is no source {source:?}; there are: {}", known()));
    Ok(trial.of(source, headers.as_ref(), body, &clock).ok_or_else(unknown)?)
}

fn read(file: &Path, max_bytes: u64) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => io::stdin().take(max_bytes + 1).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(max_bytes + 1).read_to_end(&mut bytes)),
    };
    let cannot = |reason: String| WrongUse(format!("{} cannot be used: {reason}", file.display()));
    read.map_err(|error| cannot(error.to_string()))?;
    if bytes.len() as u64 > max_bytes {
        return Err(cannot(format!("it is larger than {max_bytes} bytes and would be answered 413")).into());
    }
    Ok(bytes.into())
}

/// Reads lines as HTTP has them; a request or status line before them, and empty lines, are passed over.
fn parse_headers(bytes: &[u8]) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || number == 0 && is_start(line) {
            continue;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':').filter(|at| !line[..*at].contains(&b' ')) else {
            return Err(WrongUse(format!("line {} of the headers is no \"name: value\"", number + 1)).into());
        };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(WrongUse(format!("line {} of the headers is none that HTTP allows", number + 1)).into());
        };
        headers.append(name, value);
    }
    Ok(headers)
}

/// Whether it is the line before all headers: `POST /in/shop HTTP/1.1`, or `HTTP/1.1 200 OK`.
fn is_start(line: &[u8]) -> bool {
    line.starts_with(b"HTTP/") || line.windows(6).any(|part| part == b" HTTP/")
}

fn is_good(tried: &Tried) -> bool {
    let works = |tried: &TriedRoute| tried.effect.is_ok() && tried.reading.as_ref().is_none_or(Result::is_ok);
    tried.answer == Answer::Taken && !tried.routes.is_empty() && tried.routes.iter().all(works)
}

fn as_text(tried: &Tried) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:9} {value}\n"));
    match &tried.answer {
        Answer::Taken => line("answer", "200"),
        Answer::Refused(reason) => line("refused", &format!("401: {reason}")),
        Answer::Quarantined(reason) => line("answer", &format!("200, and quarantined while there is room: {reason}")),
    }
    line("delivery", &tried.delivery);
    line("type", &tried.event_type);
    line("key", &tried.key);
    line("timestamp", &timestamp::format(tried.timestamp));
    if !tried.park_reason.is_empty() {
        line("parked", &tried.park_reason);
    }
    if tried.answer != Answer::Taken {
        text.push_str("\nno effect; with a good signature it would have:\n");
    }
    for TriedRoute { route, reading, effect } in &tried.routes {
        let (order, once) = (route.order.as_str(), route.once.as_str());
        text.push_str(&format!("\nroute {} -> {} (order {order}, once {once})\n", route.name, route.destination));
        if let Some(Ok(url)) = reading {
            text.push_str(&format!("  GET {url}\n  and with what it answers in place of the body:\n"));
        }
        let effect = effect.as_ref().map_or_else(|error| format!("no effect: {error}"), Clone::clone);
        effect.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text
}

/// Every line as it may be shown on a terminal.
fn plain_lines(text: &str) -> String {
    text.lines().map(|line| plain(line) + "\n").collect()
}

fn as_json(tried: &Tried) -> Value {
    let told = |result: &Result<String, String>| match result {
        Ok(text) => json!({"does": text}),
        Err(error) => json!({"error": error}),
    };
    let route = |TriedRoute { route, reading, effect }: &TriedRoute| {
        json!({
            "route": route.name,
            "destination": route.destination,
            "order": route.order.as_str(),
            "once": route.once.as_str(),
            "reading": reading.as_ref().map(told),
            "effect": told(effect),
        })
    };
    let (refused, quarantined) = match &tried.answer {
        Answer::Taken => (None, None),
        Answer::Refused(reason) => (Some(reason), None),
        Answer::Quarantined(reason) => (None, Some(reason)),
    };
    json!({
        "refused": refused,
        "quarantined": quarantined,
        "deliveryId": tried.delivery,
        "eventType": tried.event_type,
        "key": tried.key,
        "timestamp": timestamp::format(tried.timestamp),
        "parked": Some(&tried.park_reason).filter(|reason| !reason.is_empty()),
        "routes": tried.routes.iter().map(route).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written_down() {
        let text = b"POST /in/shop HTTP/1.1\r\nX-RR-Delivery: sale-1\r\nx-rr-signature:sha256=00\n\n";
        let headers = parse_headers(text).unwrap();
        assert_eq!((headers.len(), headers["x-rr-delivery"].as_bytes()), (2, &b"sale-1"[..]));
        assert_eq!(headers["x-rr-signature"], "sha256=00");
        for bad in
            ["garbage", "\ngarbage", "two words: x", "a: b\nno colon", "a: b\nspa ce: x", "a: b\n: x", "a: b\x01"]
        {
            assert!(parse_headers(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
