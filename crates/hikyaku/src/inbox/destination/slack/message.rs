//! From a row to the text of a message, by a template that the operator may write.

mod names;

use std::io::{self, Write};

use hikyaku_core::timestamp;
use jiff::tz::{self, Offset};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, Output, State, UndefinedBehavior, Value};

use super::super::sent_at;
use super::json;
use crate::store::WorkRow;

/// Most characters of a message that Slack takes.
pub(super) const MAX_TEXT_CHARS: usize = 40_000;
/// Most bytes of a message that are kept while it is made: enough for one character more than that.
const MAX_TEXT_BYTES: usize = (MAX_TEXT_CHARS + 1) * 4;
/// Most steps that a template may take for one message; the default ones take about a hundred.
const MAX_STEPS: u64 = 500_000;
/// What is shown where there is nothing.
const NOTHING: &str = "-";
/// What the template is called in messages about it.
const NAME: &str = "template";

/// The language of the message for rows that have no template of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// Japanese.
    #[default]
    Japanese,
    /// English.
    English,
}

impl Language {
    fn template(self) -> &'static str {
        match self {
            Self::Japanese => include_str!("ja.j2"),
            Self::English => include_str!("en.j2"),
        }
    }
}

/// In which zone times are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZone {
    name: String,
    zone: tz::TimeZone,
}

impl TimeZone {
    /// The name of the default zone.
    const TOKYO: &str = "Asia/Tokyo";

    /// Takes an offset like `+09:00` or the name of a zone.
    ///
    /// # Errors
    /// Says what it must be.
    pub fn parse(name: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "must be an offset like \"+09:00\" or a time zone that this machine knows, like \"Asia/Tokyo\", not {name:?}"
            )
        };
        let zone = match name {
            "UTC" => tz::TimeZone::UTC,
            // It has had one offset since 1951, so that it needs no time zone database, which small images lack.
            Self::TOKYO => tz::TimeZone::fixed(tz::offset(9)),
            _ if name.starts_with(['+', '-']) => tz::TimeZone::fixed(offset(name).ok_or_else(unknown)?),
            _ => tz::TimeZone::get(name).map_err(|_| unknown())?,
        };
        Ok(Self { name: name.to_owned(), zone })
    }

    /// The zone itself.
    pub fn zone(&self) -> &tz::TimeZone {
        &self.zone
    }

    /// As it was given.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Default for TimeZone {
    fn default() -> Self {
        Self { name: Self::TOKYO.to_owned(), zone: tz::TimeZone::fixed(tz::offset(9)) }
    }
}

/// `+09:00` or `-0330`.
fn offset(text: &str) -> Option<Offset> {
    let digits = text[1..].replace(':', "");
    let number: i32 =
        (digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())??;
    let seconds = (number / 100 * 60 + number % 100) * 60;
    let in_range = number % 100 < 60 && number / 100 <= 14;
    in_range.then(|| Offset::from_seconds(if text.starts_with('-') { -seconds } else { seconds }).ok())?
}

/// Whether a template can be used.
///
/// # Errors
/// Says what is wrong with it, and in which of its lines.
pub fn check_template(source: &str) -> Result<(), String> {
    Message::new(source.to_owned(), TimeZone::default()).map(drop)
}

/// Makes messages.
pub(super) struct Message {
    environment: Environment<'static>,
}

impl Message {
    /// Messages by a template of the operator's.
    pub(super) fn new(source: String, zone: TimeZone) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_fuel(Some(MAX_STEPS));
        environment.set_formatter(write_escaped);
        environment.add_filter("yen", yen);
        environment.add_filter("datetime", move |value: Value| datetime(value, &zone.zone));
        environment.add_template_owned(NAME, source).map_err(|error| said(&error))?;
        names::check(&environment, &environment.get_template(NAME).map_err(|error| said(&error))?)?;
        Ok(Self { environment })
    }

    /// Messages in a language.
    pub(super) fn in_language(language: Language, zone: TimeZone) -> Result<Self, String> {
        Self::new(language.template().to_owned(), zone)
    }

    /// The text for a row, without space at its ends and cut to what Slack takes. The same row gives the same text, but for
    /// `attempt`; so what fails once fails always.
    pub(super) fn render(&self, row: &WorkRow) -> Result<String, String> {
        let mut text = Bounded(Vec::new());
        let template = self.environment.get_template(NAME).map_err(|error| said(&error))?;
        template.render_captured_to(variables(row), &mut text).map_err(|error| said(&error))?;
        let text = String::from_utf8_lossy(&text.0);
        let text = text.trim();
        if text.chars().nth(MAX_TEXT_CHARS).is_none() {
            return Ok(text.to_owned());
        }
        Ok(text.chars().take(MAX_TEXT_CHARS - 1).chain(['…']).collect())
    }
}

fn variables(row: &WorkRow) -> Value {
    let body = json::of_body(&row.body).unwrap_or_else(|| Value::from(String::from_utf8_lossy(&row.body)));
    let data = body.get_attr("data").unwrap_or_default();
    minijinja::context! {
        id => row.delivery.as_str(),
        type => row.event_type.as_str(),
        key => row.key.as_str(),
        source => row.source.as_str(),
        timestamp => sent_at(row),
        receivedAt => timestamp::format(row.received_at),
        attempt => row.failures.saturating_add(1),
        body,
        data,
    }
}

/// What is wrong, without the values that it was wrong with: they may be a customer's (S19).
fn said(error: &Error) -> String {
    let line = error.line().map_or_else(String::new, |line| format!(" in line {line}"));
    let detail = error.detail().map_or_else(String::new, |detail| format!(": {detail}"));
    format!("the template is wrong{line}: {}{detail}", error.kind())
}

/// Writes a value into the message: `-` for nothing, and the three characters escaped that mean something to Slack.
fn write_escaped(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_undefined() || value.is_none() {
        return Ok(out.write_str(NOTHING)?);
    }
    let text = value.to_string();
    if value.is_safe() {
        return Ok(out.write_str(&text)?);
    }
    for c in text.chars() {
        match c {
            '&' => out.write_str("&amp;")?,
            '<' => out.write_str("&lt;")?,
            '>' => out.write_str("&gt;")?,
            // A text of JSON may hold it, and nothing shows it.
            '\0' => out.write_str("\u{fffd}")?,
            c => out.write_str(c.encode_utf8(&mut [0; 4]))?,
        }
    }
    Ok(())
}

/// An amount as `¥1,234`, in all of its digits; what is no plain number stays as it is.
fn yen(value: Value) -> Value {
    let text = value.to_string();
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = unsigned.split_once('.').map_or((unsigned, None), |(whole, rest)| (whole, Some(rest)));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !matches!(value.kind(), ValueKind::Number | ValueKind::String)
        || !is_digits(whole)
        || !fraction.is_none_or(is_digits)
    {
        return value;
    }
    let mut amount = format!("{sign}¥");
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            amount.push(',');
        }
        amount.push(digit);
    }
    Value::from(fraction.map_or_else(|| amount.clone(), |fraction| format!("{amount}.{fraction}")))
}

/// A point in time as `2026-11-30 18:15` in the destination's zone; what is none stays as it is.
fn datetime(value: Value, zone: &tz::TimeZone) -> Value {
    match timestamp::parse(&value.to_string()) {
        Some(at) => Value::from(at.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string()),
        None => value,
    }
}

/// Keeps the first bytes and lets the rest go.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_TEXT_BYTES.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
