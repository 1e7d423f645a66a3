//! `hikyaku webhooks`.

use std::fs;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::api::{Api, Paging, Query, Target};
use super::deliveries::OutcomeFilter;
use super::failure::{Failure, WrongUse};
use super::output;
use super::recover::{self, Period, RecoverArguments};
use super::table::{Column, cell};

const WEBHOOKS: &[Column] = &[
    ("ID", "/id"),
    ("ACTIVE", "/active"),
    ("OFF SINCE", "/offSince"),
    ("OFF BECAUSE", "/offReason"),
    ("EVENTS", "/events"),
    ("URL", "/url"),
    ("DESCRIPTION", "/description"),
];

const LOG: &[Column] = &[
    ("STARTED", "/startedAt"),
    ("EVENT", "/deliveryId"),
    ("TYPE", "/eventType"),
    ("ATTEMPT", "/attempt"),
    ("STATUS", "/httpStatus"),
    ("MS", "/durationMs"),
    ("ERROR", "/error"),
];

const EXAMPLES: &str = "Examples:
  hikyaku webhooks create https://shop.example/hooks --events 'sale.*,order.created'
  hikyaku webhooks update wh_01a2… --set timeoutSeconds=5 --set 'rateLimit={\"perSecond\": 10, \"burst\": 20}'
  hikyaku webhooks log wh_01a2… --limit 10
  hikyaku webhooks missed wh_01a2… --from 2026-11-30T09:00:00Z
  hikyaku webhooks recover wh_01a2… --from 2026-11-30T09:00:00Z";

/// `hikyaku webhooks`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Webhooks {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all webhooks, oldest first
    List,
    /// Show one
    Show { id: String },
    /// Register one, and show its secret this once
    Create {
        /// Where deliveries go
        url: String,
        #[command(flatten)]
        members: Members,
    },
    /// Change one; what is not given stays
    Update {
        id: String,
        /// Where deliveries go from now on
        #[arg(long)]
        url: Option<String>,
        #[command(flatten)]
        members: Members,
    },
    /// Delete one; what waits for it is cancelled
    Delete { id: String },
    /// Switch one on; what it missed comes with "recover" only
    Enable { id: String },
    /// Switch one off: it gets no new events
    Disable { id: String },
    /// Show its attempts, newest first
    Log {
        id: String,
        /// Only of events of this type, or pattern such as sale.*
        #[arg(long = "type", value_name = "PATTERN")]
        event_type: Option<String>,
        #[command(flatten)]
        outcome: OutcomeFilter,
        #[command(flatten)]
        period: Period,
        #[command(flatten)]
        paging: Paging,
    },
    /// Send it a webhook.test event now, and show what it answers; exits 1 if it does not take it
    Test { id: String },
    /// Give it a new secret, and show it this once
    RotateSecret {
        id: String,
        /// How long the old secret stays good, in seconds [default: 86400, a day]
        #[arg(long, value_name = "SECONDS")]
        overlap: Option<u64>,
    },
    /// Show what it did not get: missed while it was off, or exhausted
    Missed {
        id: String,
        #[command(flatten)]
        period: Period,
        #[command(flatten)]
        paging: Paging,
    },
    /// Send it what it did not get, oldest first, and watch until all of it is due
    Recover(RecoverArguments),
    /// Show how far a recovery is, or cancel it
    Recovery {
        webhook: String,
        recovery: String,
        /// Make no more due
        #[arg(long)]
        cancel: bool,
    },
}

/// Members of a webhook that can be given.
#[derive(Debug, Args)]
struct Members {
    /// Which types of events it gets: sale.created, sale.*, or *
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    events: Vec<String>,
    /// For people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Any other member by its name in the API: JSON, else text; @FILE is the file's text, null the default
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = member)]
    set: Vec<(String, String)>,
}

impl Members {
    fn body(self, url: Option<String>) -> Result<String, Failure> {
        let mut body = Map::new();
        body.extend(url.map(|url| ("url".to_owned(), json!(url))));
        body.extend(self.description.map(|text| ("description".to_owned(), json!(text))));
        if !self.events.is_empty() {
            body.insert("events".to_owned(), json!(self.events));
        }
        for (name, given) in self.set {
            if body.contains_key(&name) {
                return Err(WrongUse(format!("{name} is given more than once")).into());
            }
            body.insert(name, value(&given)?);
        }
        if body.is_empty() {
            return Err(WrongUse("nothing to change is given; see --help".to_owned()).into());
        }
        Ok(Value::Object(body).to_string())
    }
}

fn member(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, as in timeoutSeconds=5".to_owned()),
    }
}

fn value(given: &str) -> Result<Value, Failure> {
    match given.strip_prefix('@') {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|error| WrongUse(format!("cannot read {file}: {error}")))?;
            Ok(Value::String(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        None => Ok(serde_json::from_str(given).unwrap_or_else(|_| Value::String(given.to_owned()))),
    }
}

impl Webhooks {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        self.target.run(async |api| self.command.take(api).await)
    }
}

impl Command {
    async fn take(self, api: &Api) -> Result<(), Failure> {
        match self {
            Self::List => api.show_items(&api.get(&["webhooks"], &Query::default()).await?, WEBHOOKS),
            Self::Show { id } => api.show(&api.get(&["webhooks", &id], &Query::default()).await?),
            Self::Create { url, members } => {
                let body = members.body(Some(url))?;
                api.show(&api.send(Method::POST, &["webhooks"], Some(body)).await?)?;
                note_secret(api);
                Ok(())
            }
            Self::Update { id, url, members } => change(api, &id, members.body(url)?).await,
            Self::Delete { id } => {
                api.send(Method::DELETE, &["webhooks", &id], None).await?;
                say(api, &format!("{id} is deleted."));
                Ok(())
            }
            Self::Enable { id } => change(api, &id, json!({"active": true}).to_string()).await,
            Self::Disable { id } => change(api, &id, json!({"active": false}).to_string()).await,
            Self::Log { id, event_type, outcome, period, paging } => {
                let query = period.add(outcome.add(Query::default().with("type", event_type)));
                api.list(&["webhooks", &id, "log"], &query, paging, LOG).await
            }
            Self::Test { id } => test(api, &id).await,
            Self::RotateSecret { id, overlap } => {
                let body = overlap.map_or(json!({}), |overlap| json!({"overlap": overlap}));
                api.show(&api.send(Method::POST, &["webhooks", &id, "rotate-secret"], Some(body.to_string())).await?)?;
                note_secret(api);
                Ok(())
            }
            Self::Missed { id, period, paging } => recover::missed(api, &id, period, paging).await,
            Self::Recover(arguments) => recover::recover(api, arguments).await,
            Self::Recovery { webhook, recovery, cancel } => {
                let method = if cancel { Method::DELETE } else { Method::GET };
                api.show(&api.send(method, &["webhooks", &webhook, "recoveries", &recovery], None).await?)
            }
        }
    }
}

async fn change(api: &Api, id: &str, body: String) -> Result<(), Failure> {
    api.show(&api.send(Method::PATCH, &["webhooks", id], Some(body)).await?)
}

async fn test(api: &Api, id: &str) -> Result<(), Failure> {
    let result = api.send(Method::POST, &["webhooks", id, "test"], None).await?;
    api.show(&result)?;
    if result.read::<Value>()?["delivered"] == json!(true) {
        return Ok(());
    }
    Err(format!("the endpoint of {} did not take the test delivery", cell(Some(&json!(id)))).into())
}

/// Says a sentence to a person.
fn say(api: &Api, sentence: &str) {
    if !api.is_json() {
        output::print(format_args!("{sentence}\n"));
    }
}

fn note_secret(api: &Api) {
    if !api.is_json() {
        output::tell(format_args!("This is the only time the secret is shown."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: &[(&str, &str)]) -> Members {
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Members { events: Vec::new(), description: None, set }
    }

    #[test]
    fn a_member_is_json_or_text_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, "whsec_x\r\n").unwrap();
        let file = format!("@{}", file.display());
        let set = [("timeoutSeconds", "5"), ("disableAfter", "never"), ("headers", "null"), ("secret", &*file)];
        let body: Value = serde_json::from_str(&members(&set).body(None).unwrap()).unwrap();
        let expected = json!({"timeoutSeconds": 5, "disableAfter": "never", "headers": null, "secret": "whsec_x"});
        assert_eq!(body, expected);
        assert!(members(&[("secret", "@/not/there")]).body(None).unwrap_err().is::<WrongUse>());
        assert!(members(&[]).body(None).unwrap_err().is::<WrongUse>());
        for twice in [&[("url", "a")][..], &[("events", "[]"), ("events", "[]")]] {
            let error = members(twice).body(Some("https://shop.example/".to_owned())).unwrap_err();
            assert!(error.is::<WrongUse>() && error.to_string().ends_with("is given more than once"), "{error}");
        }
        assert!(member("active").unwrap_err().contains("timeoutSeconds=5"));
    }
}
