//! Reading a JSON object field by field, so that an answer names everything that is wrong at once, and a value is
//! handed on as it was written.

use std::fmt;

use axum::extract::Request;
use hikyaku_core::{json, timestamp};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::body::{read, read_json};
use super::problem::{FieldError, Kind, MAX_FIELD_ERRORS, Problem};

/// Largest body of a request that has nothing to say, in bytes.
const MAX_EMPTY_BYTES: usize = 1024;

/// Takes the body of a request that has nothing to say: none, or an object without fields.
pub(super) async fn read_nothing(request: Request) -> Result<(), Problem> {
    let (head, body) = request.into_parts();
    let body = read(body, MAX_EMPTY_BYTES).await?;
    if body.is_empty() {
        return Ok(());
    }
    let body = read_json(Request::from_parts(head, body.into()), MAX_EMPTY_BYTES).await?;
    Fields::of_body(&body, &[])?.finish()
}

/// What a text field is expected to be.
pub(super) const A_STRING: &str = "a string";

/// The fields of one object, and what is wrong with them so far.
pub(super) struct Fields<'a> {
    /// Where the object stands in the body, as in `events[3].`; empty for the body itself.
    place: String,
    members: Vec<(String, &'a RawValue)>,
    errors: Vec<FieldError>,
}

impl<'a> Fields<'a> {
    /// Takes a whole body, which must be an object. A leading byte order mark is passed over.
    pub(super) fn of_body(body: &'a [u8], known: &[&str]) -> Result<Self, Problem> {
        let json = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        match serde_json::from_slice::<Members<'a>>(json) {
            Ok(members) => Ok(Self::new(String::new(), members.0, known)),
            Err(error) if error.is_data() => {
                Err(Problem::new(Kind::InvalidRequest, format!("The body must be a JSON object: {error}.")))
            }
            Err(error) => Err(Problem::not_json(&error)),
        }
    }

    /// Takes a value inside a body, at `place`, which must be an object.
    pub(super) fn of_value(value: &'a RawValue, place: &str, known: &[&str]) -> Result<Self, FieldError> {
        match serde_json::from_str::<Members<'a>>(value.get()) {
            Ok(members) => Ok(Self::new(format!("{place}."), members.0, known)),
            Err(_) => Err(FieldError::new(place, "must be an object")),
        }
    }

    fn new(place: String, members: Vec<(String, &'a RawValue)>, known: &[&str]) -> Self {
        let mut fields = Self { place, members: Vec::new(), errors: Vec::new() };
        for (name, value) in members {
            if !known.contains(&name.as_str()) {
                let known =
                    if known.is_empty() { "no field is".to_owned() } else { format!("known are {}", known.join(", ")) };
                fields.fail(&name, &format!("is not known here; {known}"));
            } else if fields.has(&name) {
                fields.fail(&name, "is given more than once");
            } else {
                fields.members.push((name, value));
            }
        }
        fields
    }

    fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(known, _)| known == name)
    }

    /// Notes that something is wrong with a field. Beyond [`MAX_FIELD_ERRORS`] nobody would read it.
    pub(super) fn fail(&mut self, name: &str, detail: &str) {
        if self.errors.len() < MAX_FIELD_ERRORS {
            self.errors.push(FieldError::new(&format!("{}{name}", self.place), detail));
        }
    }

    /// The value of a field, as it was written.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.members.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Notes which of these fields are missing.
    pub(super) fn require(&mut self, names: &[&str]) {
        for name in names {
            if !self.has(name) {
                self.fail(name, "is missing");
            }
        }
    }

    /// The value of a field as a `T`; `expected` says what that is.
    pub(super) fn get<T: Deserialize<'a>>(&mut self, name: &str, expected: &str) -> Option<T> {
        let value = serde_json::from_str(self.raw(name)?.get());
        if value.is_err() {
            // The one thing that JSON can write and no text can hold.
            let is_text = self.raw(name).is_some_and(|raw| raw.get().starts_with('"'));
            let half = if is_text && expected == A_STRING {
                " of whole characters, without half of a surrogate pair"
            } else {
                ""
            };
            self.fail(name, &format!("must be {expected}{half}"));
        }
        value.ok()
    }

    /// The value of a field as a `T` that says itself what is wrong with it; `null` gives the default. `expected` says
    /// what it should be.
    pub(super) fn checked<T: Deserialize<'a> + Default>(&mut self, name: &str, expected: &str) -> Option<T> {
        match serde_json::from_str::<Option<T>>(self.raw(name)?.get()) {
            Ok(value) => Some(value.unwrap_or_default()),
            Err(error) => {
                let (words, end) = (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
                self.fail(name, &format!("must be {expected}: {}", words.trim_end_matches(&end)));
                None
            }
        }
    }

    /// The value of a text field, as what `parse` makes of it.
    pub(super) fn parse<T, E: fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(String) -> Result<T, E>,
    ) -> Option<T> {
        let text: String = self.get(name, A_STRING)?;
        parse(text).map_err(|error| self.fail(name, &error.to_string())).ok()
    }

    /// The value of a field that is a point in time, to the millisecond.
    pub(super) fn time(&mut self, name: &str) -> Option<Timestamp> {
        let text = json::text_or_number(self.raw(name)?);
        let at = text.as_deref().and_then(timestamp::parse);
        if at.is_none() {
            self.fail(name, "must be a time such as \"2026-11-30T09:15:00.000Z\", or a whole number of epoch seconds or milliseconds");
        }
        Timestamp::from_millisecond(at?.as_millisecond()).ok()
    }

    /// What is wrong, so far.
    pub(super) fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// Ends the reading: whatever is wrong is one problem.
    pub(super) fn finish(self) -> Result<(), Problem> {
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors.into()) }
    }

    /// What is wrong.
    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }
}

/// An object's members in their order, repeated ones included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of a few bytes per field must not become many times as much of complaints.
    #[test]
    fn what_is_wrong_is_told_up_to_a_bound() {
        let many: Vec<_> = (0..10 * MAX_FIELD_ERRORS).map(|n| format!("\"f{n}\":1")).collect();
        let body = format!("{{{}}}", many.join(","));
        let fields = Fields::of_body(body.as_bytes(), &["type"]).unwrap();
        assert_eq!(fields.into_errors().len(), MAX_FIELD_ERRORS);
    }
}
