//! New sales to Slack: announces what the receiver beside it wrote into the table `sales`, each sale once.
//!
//! ```sh
//! SLACK_WEBHOOK_URL=https://hooks.slack.com/services/… cargo run -p hikyaku-inbox --example slack
//! ```
//!
//! It is a program of its own, so that Slack's troubles never reach the receiver (C15, C16): while Slack is down, sales
//! wait in the table. What Slack took but could not say so is announced again; nothing is left out.

use std::env;
use std::error::Error;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use ureq::Agent;

/// Between two messages: Slack takes one per second.
const BETWEEN_MESSAGES: Duration = Duration::from_secs(1);
/// After a failure, unless Slack says how long to wait.
const AFTER_A_FAILURE: Duration = Duration::from_secs(3);
/// Longest time that Slack may ask us to wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);
/// Longest time that Slack is given to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[allow(clippy::disallowed_methods, reason = "a program that waits by itself and has no tests on virtual time")]
fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("SLACK_WEBHOOK_URL").map_err(|_| "set SLACK_WEBHOOK_URL to your incoming webhook's URL")?;
    let database = Connection::open(env::var("DATABASE").unwrap_or_else(|_| "receiver.db".to_owned()))?;
    database.busy_timeout(Duration::from_secs(5))?;
    let agent: Agent =
        Agent::config_builder().timeout_global(Some(ANSWER_TIMEOUT)).http_status_as_error(false).build().into();
    loop {
        let pause = announce_next(&database, &agent, &url).unwrap_or_else(|error| {
            eprintln!("will try again: {error}");
            AFTER_A_FAILURE
        });
        thread::sleep(pause);
    }
}

/// Announces the sale that waits longest, if any, and says how long to wait now.
fn announce_next(database: &Connection, agent: &Agent, url: &str) -> Result<Duration, Box<dyn Error>> {
    let next = "SELECT id, total FROM sales WHERE announced = 0 ORDER BY rowid LIMIT 1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let Some((id, total)): Option<(String, i64)> = database.query_row(next, [], read).optional()? else {
        return Ok(BETWEEN_MESSAGES);
    };
    let message = serde_json::json!({ "text": format!("新しい売上 New sale: {} ({})", yen(total), escape(&id)) });
    let mut response = agent.post(url).header("content-type", "application/json").send(message.to_string())?;
    match response.status().as_u16() {
        200 => {
            database.execute("UPDATE sales SET announced = 1 WHERE id = ?1", [&id])?;
            println!("announced {id}");
            Ok(BETWEEN_MESSAGES)
        }
        429 => {
            let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
            Ok(seconds.map_or(AFTER_A_FAILURE, Duration::from_secs).min(LONGEST_PAUSE))
        }
        status => {
            let reason = response.body_mut().with_config().limit(16 * 1024).read_to_string().unwrap_or_default();
            Err(format!("Slack answered {status} {reason:?} to the sale {id}").into())
        }
    }
}

/// An amount as people write it: ¥1,234.
fn yen(amount: i64) -> String {
    let digits = amount.unsigned_abs().to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{}¥{}", if amount < 0 { "-" } else { "" }, groups.join(","))
}

/// Slack reads `&`, `<` and `>` as its own.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
