//! `hikyaku verify`: whether a delivery from files is a provider's, and what it says. It talks to no server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hikyaku::clock::{Clock, SystemClock};
use hikyaku::config::Config;
use hikyaku::inbox::Source;
use hikyaku_core::provider::{Contradiction, Headers, Verifier};
use hikyaku_core::timestamp;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::Settings;
use super::failure::{FAILED, Failure, WrongUse, failed};
use super::table::print_members;
use super::{output, variables};

/// Largest file with headers that is read, in bytes.
const MAX_HEADERS_BYTES: u64 = 256 * 1024;
/// Largest body that is read, in bytes; the inbox can be set to take as much.
const MAX_BODY_BYTES: u64 = 16 * 1024 * 1024;

const HELP: &str = "Examples:
  hikyaku verify --source receiptroller --headers headers.txt --body body.json
  hikyaku verify --provider stripe --secret env:STRIPE_SECRET --headers headers.txt --body body.json
  hikyaku verify --provider square --secret file:key --with url=https://shop.example/in/square \\
      --headers headers.txt --body body.json

HEADERS has one \"Name: value\" per line. BODY has the bytes as they came, with no line break added.

Exit codes:
  0  the signature is good
  1  it is not; standard output says why
  2  the command line, the configuration or a file cannot be used";

/// `hikyaku verify`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Verify {
    /// A source of the configuration
    #[arg(long, value_name = "NAME", required_unless_present = "provider", conflicts_with = "provider")]
    source: Option<String>,
    /// A provider, without a configuration: receiptroller, standard-webhooks, stripe, github, shopify, square, slack,
    /// smaregi, custom
    #[arg(long, value_name = "NAME", requires = "secret")]
    provider: Option<String>,
    /// Its secret: env:NAME, file:PATH, or the secret itself, which other users of the machine can see; several times for
    /// several
    #[arg(long, value_name = "SECRET", requires = "provider")]
    secret: Vec<String>,
    /// A setting of the provider's source, as in url=https://…; can be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::key_and_value, requires = "provider")]
    with: Vec<(String, String)>,
    /// The file with the delivery's headers
    #[arg(long, value_name = "FILE")]
    headers: PathBuf,
    /// The file with its body, to the byte
    #[arg(long, value_name = "FILE")]
    body: PathBuf,
    /// When it came, for a source that asks for freshness [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

impl Verify {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        match self.verify() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(FAILED),
            Err(failure) => failed(&*failure),
        }
    }

    fn verify(self) -> Result<bool, Failure> {
        let now = match &self.at {
            Some(text) => timestamp::parse(text).ok_or_else(|| wrong(format!("--at is no time: {text:?}")))?,
            None => SystemClock::start().now(),
        };
        let (headers, body) = (read(&self.headers, MAX_HEADERS_BYTES)?, read(&self.body, MAX_BODY_BYTES)?);
        let headers = headers_of(&headers)?;
        let is_json = self.json;
        let source = self.source()?;
        let verifier = Verifier::new(source.profile, &source.secrets);
        let report = Report::of(&verifier, &headers, &body, now);
        let document = serde_json::to_string(&report)?;
        if is_json {
            output::print(format_args!("{document}\n"));
        } else {
            print_members(&serde_json::from_str(&document)?, &[]);
        }
        Ok(report.valid)
    }

    /// The source of that name, or one made up of what was given.
    fn source(self) -> Result<Source, Failure> {
        let Some(provider) = &self.provider else {
            let config = self.settings.load().map_err(|invalid| wrong(invalid.to_string()))?;
            let name = self.source.unwrap_or_default();
            let known: Vec<_> = config.sources.iter().map(|source| source.name.clone()).collect();
            let found = config.sources.into_iter().find(|source| source.name == name);
            return found.ok_or_else(|| {
                wrong(format!("the configuration has no source {name:?}; it has: {}", known.join(", ")))
            });
        };
        let fixed = [("name", json!("given")), ("provider", json!(provider)), ("secrets", json!(self.secret))];
        let given = self.with.iter().map(|(key, value)| (key.as_str(), json!(value)));
        // What is JSON text or a list of texts is TOML as well.
        let lines: BTreeMap<_, _> = fixed.into_iter().chain(given).collect();
        let lines: String = lines.into_iter().map(|(key, value)| format!("{key:?} = {value}\n")).collect();
        let config = Config::from_toml_with(&format!("[[source]]\n{lines}"), &variables());
        let sources = config.map_err(|invalid| wrong(invalid.to_string()))?.sources;
        sources.into_iter().next().ok_or_else(|| wrong("no source came of it".to_owned()))
    }
}

/// What verifying says, and what the delivery does; the latter means nothing where the former is false.
#[derive(Debug, Serialize)]
struct Report {
    valid: bool,
    reason: Option<String>,
    /// From 1, as people count.
    secret: Option<usize>,
    id: Option<String>,
    r#type: Option<String>,
    timestamp: Option<String>,
    key: Option<String>,
    challenge: Option<String>,
    contradiction: Option<String>,
}

impl Report {
    fn of(verifier: &Verifier, headers: &Headers<'_>, body: &[u8], now: Timestamp) -> Self {
        let result = verifier.verify(headers, body, now);
        let reason = result.as_ref().err().map(|refusal| {
            // What editors add.
            let stripped = body.strip_suffix(b"\n").filter(|body| verifier.verify(headers, body, now).is_ok());
            let hint = if stripped.is_some() { "; without its last line break the body would be good" } else { "" };
            format!("{refusal}{hint}")
        });
        let read = verifier.read(headers, body);
        let contradiction = read.contradiction.map(|Contradiction { header, unsigned, signed }| {
            format!("the {header} header says {unsigned:?}, which is not signed; the body says {signed:?}")
        });
        Self {
            valid: result.is_ok(),
            reason,
            secret: result.ok().map(|verified| verified.secret + 1),
            id: read.id,
            r#type: read.event_type,
            timestamp: read.timestamp.map(timestamp::format),
            key: read.key,
            challenge: verifier.challenge(body),
            contradiction,
        }
    }
}

/// `Name: value` lines. What a tool may have written before and after them (a request line, the empty line) is skipped.
fn headers_of(file: &[u8]) -> Result<Headers<'_>, Failure> {
    let lines = file.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = lines.filter(|line| !line.is_empty()).enumerate();
    let is_request = |line: &[u8]| line.windows(6).any(|part| part == b" HTTP/");
    lines
        .filter(|(number, line)| *number > 0 || !is_request(line))
        .map(|(number, line)| {
            let colon = line.iter().position(|byte| *byte == b':');
            let (name, value) = line.split_at(colon.unwrap_or_default());
            let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            name.map(|name| (name, value)).ok_or_else(|| {
                let shown = String::from_utf8_lossy(line).chars().take(80).collect::<String>();
                wrong(format!("line {} of the headers is not \"Name: value\": {shown:?}", number + 1))
            })
        })
        .collect()
}

fn read(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let result = File::open(path).and_then(|file| file.take(limit_bytes + 1).read_to_end(&mut bytes));
    result.map_err(|error| wrong(format!("{} cannot be read: {error}", path.display())))?;
    if bytes.len() as u64 > limit_bytes {
        return Err(wrong(format!("{} is larger than {limit_bytes} bytes", path.display())));
    }
    Ok(bytes)
}

fn wrong(message: String) -> Failure {
    Box::new(WrongUse(message))
}
