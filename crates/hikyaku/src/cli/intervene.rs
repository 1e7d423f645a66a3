//! `hikyaku inbox replay`, `release` and `discard`: one row, or all that a filter finds.

use std::io::{self, BufRead, IsTerminal};

use clap::{ArgGroup, Args};
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::Api;
use super::failure::{Failure, WrongUse};
use super::inbox::ROWS;
use super::output;
use super::table::{plain, print_table};

/// Most of the rows that stay as they were that are told of one by one.
const MAX_TOLD_UNCHANGED: usize = 20;

/// Which row, or rows.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["row", "state"]))]
pub(super) struct Rows {
    /// One row: its source, and the delivery's id
    #[arg(num_args = 2, value_names = ["SOURCE", "DELIVERY"])]
    row: Vec<String>,
    /// All rows in this state that the filters below leave; shown first, and done after a yes
    #[arg(long)]
    state: Option<String>,
    /// Only through this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Only show what it would be
    #[arg(long, conflicts_with = "row")]
    preview: bool,
    /// Do it without being asked again
    #[arg(long, conflicts_with = "row")]
    yes: bool,
}

/// Which of the rows in a state.
#[derive(Debug, Args)]
struct Filter {
    /// Only from this source
    #[arg(long, value_name = "NAME", conflicts_with = "row")]
    source: Option<String>,
    /// Only of this type, or pattern such as sale.*
    #[arg(long = "type", value_name = "PATTERN", conflicts_with = "row")]
    event_type: Option<String>,
    /// Only with this business key
    #[arg(long, conflicts_with = "row")]
    key: Option<String>,
    /// Only what was received from this time on, as in 2026-11-30T18:00:00+09:00
    #[arg(long, value_name = "TIME", conflicts_with = "row")]
    from: Option<String>,
    /// Only what was received before this time
    #[arg(long, value_name = "TIME", conflicts_with = "row")]
    to: Option<String>,
}

/// What a piece of many rows came to.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Piece {
    matched: u64,
    changed: u64,
    rows: Vec<Value>,
    unchanged: Vec<Value>,
    next_cursor: Option<String>,
}

/// What all pieces came to.
#[derive(Debug, Default)]
struct Total {
    matched: u64,
    changed: u64,
    rows: Vec<Value>,
    unchanged: Vec<Value>,
}

/// Does `verb` to a row or to many. `reason` goes with a discard.
pub(super) async fn intervene(api: &Api, verb: &str, rows: Rows, reason: Option<String>) -> Result<(), Failure> {
    let Rows { row, state, route, filter, preview, yes } = rows;
    let mut body = Map::new();
    let Filter { source, event_type, key, from, to } = filter;
    let members = [("state", state), ("route", route), ("reason", reason), ("source", source), ("type", event_type)];
    for (name, value) in members.into_iter().chain([("key", key), ("from", from), ("to", to)]) {
        body.extend(value.map(|value| (name.to_owned(), Value::from(value))));
    }
    if let [source, delivery] = row.as_slice() {
        let answer = api.send(Method::POST, &["inbox", source, delivery, verb], Some(json!(body).to_string())).await?;
        return api.show(&answer);
    }
    let found = pieces(api, verb, &body, true, |_| ()).await?;
    if preview {
        show_preview(api, &found);
        return Ok(());
    }
    if !api.is_json() {
        show_preview(api, &found);
    }
    if found.matched == 0 && !api.is_json() {
        output::print(format_args!("No row is left to {verb}: nothing was done.\n"));
    }
    if found.matched == 0 || !(yes || is_agreed(verb, found.matched)?) {
        return Ok(());
    }
    let bar = bar(found.matched);
    let done = pieces(api, verb, &body, false, |so_far| bar.set_position(so_far)).await?;
    bar.finish_and_clear();
    show_done(api, verb, &done)
}

/// Goes through the pieces, and tells `progress` how many rows it has come by.
async fn pieces(
    api: &Api,
    verb: &str,
    filter: &Map<String, Value>,
    preview: bool,
    progress: impl Fn(u64),
) -> Result<Total, Failure> {
    let mut body = filter.clone();
    body.insert("preview".to_owned(), preview.into());
    let mut total = Total::default();
    loop {
        let (_, document) = api.post(&["inbox", verb], json!(body).to_string()).await?;
        let piece: Piece = document.read()?;
        total.matched += piece.matched;
        total.changed += piece.changed;
        total.unchanged.extend(piece.unchanged);
        if total.rows.is_empty() {
            total.rows = piece.rows;
        }
        progress(total.matched);
        let Some(cursor) = piece.next_cursor else { return Ok(total) };
        body.insert("cursor".to_owned(), cursor.into());
    }
}

fn show_preview(api: &Api, Total { matched, rows, .. }: &Total) {
    if api.is_json() {
        output::print(format_args!("{}\n", json!({"preview": true, "matched": matched, "rows": rows})));
        return;
    }
    if !rows.is_empty() {
        print_table(ROWS, rows);
    }
    let more = matched.saturating_sub(rows.len() as u64);
    if more > 0 {
        output::print(format_args!("and {more} more\n"));
    }
    output::print(format_args!("{matched} rows\n"));
}

/// Asks the person at the terminal. Where there is none, nobody can agree.
fn is_agreed(verb: &str, rows: u64) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(WrongUse(format!("add --yes to {verb} them, or --preview only to look")).into());
    }
    output::tell(format_args!("{verb} {rows} rows? Type \"yes\" to go on."));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

/// On standard error, and only on a terminal.
fn bar(rows: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {elapsed} ({per_sec})");
    ProgressBar::new(rows).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show_done(api: &Api, verb: &str, Total { matched, changed, unchanged, .. }: &Total) -> Result<(), Failure> {
    if api.is_json() {
        let done = json!({"preview": false, "matched": matched, "changed": changed, "unchanged": unchanged});
        output::print(format_args!("{done}\n"));
        return Ok(());
    }
    for row in unchanged.iter().take(MAX_TOLD_UNCHANGED) {
        let [source, delivery, detail] =
            ["source", "deliveryId", "detail"].map(|name| row[name].as_str().unwrap_or(""));
        output::print(format_args!("{}\n", plain(&format!("{source} {delivery}: {detail}"))));
    }
    let unchanged = unchanged.len();
    if *changed == 0 {
        output::print(format_args!("{verb}: none of {matched} rows; nothing was done, for the reasons above\n"));
    } else {
        output::print(format_args!("{verb}: {changed} of {matched} rows; {unchanged} stay as they were\n"));
    }
    Ok(())
}
