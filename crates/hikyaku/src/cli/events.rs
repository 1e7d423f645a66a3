//! `hikyaku events`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hikyaku::client::ClientError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::api::{Api, Query, Target};
use super::failure::{Failure, WrongUse};
use super::output;
use super::table::{Column, Members, print_members, print_table};
use super::tail;

/// Most events that are published at a time.
const MAX_BATCH_EVENTS: usize = 1_000;
/// Most bytes of events that are published at a time; the server takes 16 MiB.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Most lines of a file of which is told what is wrong with them.
const MAX_TOLD_LINES: usize = 5;
/// Largest line or data that is read, in bytes: no server takes a larger event.
const MAX_EVENT_BYTES: u64 = 16 * 1024 * 1024;

const DELIVERIES: &[Column] = &[
    ("WEBHOOK", "/webhookId"),
    ("STATE", "/state"),
    ("IN FLIGHT", "/inFlight"),
    ("NEXT ATTEMPT", "/nextAttemptAt"),
    ("REASON", "/reason"),
];

const ATTEMPTS: &[Column] = &[
    ("WEBHOOK", "/webhookId"),
    ("RUN", "/run"),
    ("ATTEMPT", "/attempt"),
    ("STARTED", "/startedAt"),
    ("MS", "/durationMs"),
    ("STATUS", "/httpStatus"),
    ("ERROR", "/error"),
    ("ANSWER", "/responseBody"),
];

const EXAMPLES: &str = "Examples:
  hikyaku events publish --type sale.created --data '{\"id\": \"T01|1001\"}' --id sale-1
  hikyaku events publish --type sale.created --data @sale.json
  hikyaku events publish --file events.jsonl      # lines such as {\"id\":\"sale-1\",\"type\":\"sale.created\",\"data\":{}}
  hikyaku events show sale-1
  hikyaku events tail --type 'sale.*'";

/// `hikyaku events`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Events {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish one event, or a file of them
    Publish(PublishArguments),
    /// Show an event with its deliveries and their attempts
    Show { id: String },
    /// Follow deliveries as they come and change, until Ctrl-C
    Tail {
        /// Only of events of this type, or pattern such as sale.*
        #[arg(long = "type", value_name = "PATTERN")]
        event_type: Option<String>,
        /// Only to this webhook
        #[arg(long, value_name = "ID")]
        webhook: Option<String>,
    },
}

#[derive(Debug, Args)]
struct PublishArguments {
    /// The event's type, as in sale.created
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "file", requires = "data")]
    event_type: Option<String>,
    /// Its data: JSON, @FILE, or - for standard input; delivered as it is written
    #[arg(long, value_name = "DATA", requires = "event_type")]
    data: Option<String>,
    /// Its id, which makes it safe to publish again [default: a new one]
    #[arg(long, requires = "event_type")]
    id: Option<String>,
    /// When it happened [default: now]
    #[arg(long, value_name = "TIME", requires = "event_type")]
    timestamp: Option<String>,
    /// Events as JSON lines, - for standard input; up to 1,000 at a time are stored, all or none
    #[arg(long, value_name = "FILE", conflicts_with_all = ["event_type", "data", "id", "timestamp"])]
    file: Option<String>,
}

impl Events {
    /// Does it.
    pub(super) fn run(self) -> ExitCode {
        self.target.run(async |api| match self.command {
            Command::Publish(PublishArguments { file: Some(file), .. }) => publish_file(api, &file).await,
            Command::Publish(arguments) => publish(api, arguments).await,
            Command::Show { id } => show(api, &id).await,
            Command::Tail { event_type, webhook } => tail::tail(api, event_type, webhook).await,
        })
    }
}

/// An event as it is published. `data` stays as it is written.
#[derive(Debug, Serialize)]
struct NewEvent<'a> {
    r#type: Option<String>,
    data: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
}

async fn publish(api: &Api, arguments: PublishArguments) -> Result<(), Failure> {
    let PublishArguments { event_type, data, id, timestamp, .. } = arguments;
    let data = read_data(data.unwrap_or_default())?;
    let data = serde_json::from_str(data.trim()).map_err(|error| WrongUse(format!("the data is no JSON: {error}")))?;
    let body = serde_json::to_string(&NewEvent { r#type: event_type, data, id, timestamp })?;
    api.show(&api.post(&["events"], body).await?.1)
}

fn read_data(given: String) -> Result<String, WrongUse> {
    let file = match given.strip_prefix('@') {
        Some(file) => file,
        None if given == "-" => "-",
        None => return Ok(given),
    };
    let mut text = String::new();
    let read = open(file)?.take(MAX_EVENT_BYTES).read_to_string(&mut text);
    read.map_err(|error| WrongUse(format!("cannot read {file}: {error}")))?;
    Ok(text)
}

fn open(file: &str) -> Result<Box<dyn BufRead>, WrongUse> {
    if file == "-" {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let opened = File::open(file).map_err(|error| WrongUse(format!("cannot read {file}: {error}")))?;
    Ok(Box::new(BufReader::new(opened)))
}

/// The answer to a batch, to the byte.
#[derive(Debug, Deserialize)]
struct Stored {
    events: Vec<Box<RawValue>>,
}

async fn publish_file(api: &Api, file: &str) -> Result<(), Failure> {
    let mut lines = Lines { input: open(file)?, file, number: 0, ahead: None };
    let (mut stored, mut before) = (0, 0);
    loop {
        let first = lines.number + 1;
        let (sent, numbers) = match lines.batch() {
            Ok(batch) if batch.is_empty() => break,
            Ok(batch) => {
                let (numbers, events): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
                let body = format!("{{\"events\":[{}]}}", events.join(","));
                (api.post(&["events", "batch"], body).await, numbers)
            }
            Err(error) => (Err(error.into()), Vec::new()),
        };
        let (status, answer) = sent.inspect_err(|failure| {
            let are_stored = are_stored(stored);
            output::tell(format_args!(
                "{are_stored} before line {first}; the others are not, unless it says otherwise:"
            ));
            tell_lines(failure, file, &numbers);
        })?;
        let Stored { events } = answer.read()?;
        stored += events.len();
        before += if status == 200 { events.len() } else { 0 };
        if api.is_json() {
            events.iter().for_each(|event| output::print(format_args!("{event}\n")));
        }
    }
    if !api.is_json() {
        let known = if before > 0 { format!(", {before} of them since before") } else { String::new() };
        output::print(format_args!("{}{known}\n", are_stored(stored)));
    }
    Ok(())
}

fn are_stored(events: usize) -> String {
    if events == 1 { "1 event is stored".to_owned() } else { format!("{events} events are stored") }
}

/// Says what is wrong on which lines of the file, the first few; the server's answer calls events by their place in the
/// request.
fn tell_lines(failure: &Failure, file: &str, numbers: &[usize]) {
    let Some(ClientError::Refused { problem, .. }) = failure.downcast_ref() else { return };
    let wrong = wrong_lines(problem, numbers);
    for (line, what) in wrong.iter().take(MAX_TOLD_LINES) {
        output::tell(format_args!("line {line} of {file}: {what}"));
    }
    if let Some(more) = wrong.len().checked_sub(MAX_TOLD_LINES).filter(|more| *more > 0) {
        output::tell(format_args!("and so on, {more} more"));
    }
}

/// The lines that a problem complains of, each with its field and what is wrong with it.
fn wrong_lines(problem: &Value, numbers: &[usize]) -> Vec<(usize, String)> {
    let errors = problem["errors"].as_array().into_iter().flatten();
    let of_line = |error: &Value| {
        let (place, field) = place(error["field"].as_str()?)?;
        let what = error["detail"].as_str().unwrap_or_default();
        Some((*numbers.get(place)?, format!("{field} {what}").trim().to_owned()))
    };
    errors.filter_map(of_line).collect()
}

/// The place and the field in `events[3].type`.
fn place(field: &str) -> Option<(usize, &str)> {
    let (place, field) = field.strip_prefix("events[")?.split_once(']')?;
    Some((place.parse().ok()?, field.trim_start_matches('.')))
}

/// The lines of a file, in batches.
struct Lines<'a> {
    input: Box<dyn BufRead>,
    file: &'a str,
    /// How many lines were given out.
    number: usize,
    /// A line that was read and did not fit into its batch.
    ahead: Option<String>,
}

impl Lines<'_> {
    /// The next lines that are published together, each with its number; empty at the end. Empty lines are passed over.
    fn batch(&mut self) -> Result<Vec<(usize, String)>, WrongUse> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < MAX_BATCH_EVENTS {
            let Some(line) = self.ahead.take().map_or_else(|| self.read(), |line| Ok(Some(line)))? else { break };
            if !batch.is_empty() && bytes + line.len() > MAX_BATCH_BYTES {
                self.ahead = Some(line);
                break;
            }
            self.number += 1;
            if line.trim().is_empty() {
                continue;
            }
            let checked = serde_json::from_str::<&RawValue>(&line);
            checked.map_err(|error| self.wrong(&format!("line {} is no JSON: {error}", self.number)))?;
            bytes += line.len();
            batch.push((self.number, line));
        }
        Ok(batch)
    }

    fn read(&mut self) -> Result<Option<String>, WrongUse> {
        let mut line = String::new();
        let read = self.input.by_ref().take(MAX_EVENT_BYTES).read_line(&mut line);
        let read = read.map_err(|error| self.wrong(&format!("cannot be read: {error}")))?;
        Ok((read > 0).then_some(line))
    }

    fn wrong(&self, what: &str) -> WrongUse {
        WrongUse(format!("{}: {what}", self.file))
    }
}

async fn show(api: &Api, id: &str) -> Result<(), Failure> {
    let event = api.get(&["events", id], &Query::default()).await?;
    if api.is_json() {
        event.print();
        return Ok(());
    }
    let event: Members = event.read()?;
    print_members(&event, &["deliveries"]);
    let deliveries = event.value("deliveries");
    let deliveries = deliveries.as_array().map(Vec::as_slice).unwrap_or_default();
    output::print("\n");
    print_table(DELIVERIES, deliveries);
    let attempts: Vec<_> = deliveries.iter().flat_map(attempts).collect();
    if !attempts.is_empty() {
        output::print("\n");
        print_table(ATTEMPTS, &attempts);
    }
    Ok(())
}

/// A delivery's attempts, each with the webhook's id.
fn attempts(delivery: &Value) -> Vec<Value> {
    let mut attempts = delivery["attempts"].as_array().cloned().unwrap_or_default();
    for attempt in attempts.iter_mut().filter(|attempt| attempt.is_object()) {
        attempt["webhookId"] = delivery["webhookId"].clone();
    }
    attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static str) -> Lines<'static> {
        Lines { input: Box::new(text.as_bytes()), file: "f", number: 0, ahead: None }
    }

    #[test]
    fn lines_come_in_batches_and_empty_ones_do_not_count() {
        let text = "{\"n\":1}\n\n".repeat(MAX_BATCH_EVENTS + 1);
        let mut lines = lines(text.leak());
        let sizes: Vec<_> = (0..3).map(|_| lines.batch().unwrap().len()).collect();
        assert_eq!(sizes, [MAX_BATCH_EVENTS, 1, 0]);
    }

    #[test]
    fn a_line_keeps_its_number_and_a_refusal_names_places() {
        let batch = lines("\n1\n\n2\n").batch().unwrap();
        assert_eq!(batch.into_iter().map(|(number, _)| number).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(place("events[3].type"), Some((3, "type")));
        assert_eq!((place("events[500]"), place("type")), (Some((500, "")), None));
        let error = |field: &str| serde_json::json!({"field": field, "detail": "is missing"});
        let problem = serde_json::json!({"errors": [error("events[1].type"), error("events[0]"), error("x")]});
        assert_eq!(wrong_lines(&problem, &[4, 7]), [(7, "type is missing".into()), (4, "is missing".into())]);
        assert_eq!((are_stored(1), are_stored(0)), ("1 event is stored".to_owned(), "0 events are stored".to_owned()));
    }

    #[test]
    fn a_batch_is_bounded_in_bytes_and_loses_no_line() {
        let long = format!("\"{}\"\n", "x".repeat(MAX_BATCH_BYTES / 2));
        let mut lines = lines(long.repeat(3).leak());
        let sizes: Vec<_> = (0..4).map(|_| lines.batch().unwrap().len()).collect();
        assert_eq!(sizes, [1, 1, 1, 0]);
    }

    #[test]
    fn a_line_that_is_no_json_is_named() {
        let error = lines("{}\n\n{\"a\":}\n").batch().unwrap_err().to_string();
        assert!(error.starts_with("f: line 3 is no JSON"), "{error}");
    }
}
