//! Where a provider says what a delivery is about, and reading it there.

use std::borrow::Cow;

use super::{Field, Headers};
use crate::envelope::{Contradiction, Envelope, is_id, is_key, is_type};
use crate::{json, timestamp};

/// Where a provider says what a delivery is about. Of several places the first that says something counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// The delivery's id, the same in every retry (C5). Where none is found, a hash of the body stands for it.
    pub id: Vec<Field>,
    /// The event's type.
    pub event_type: Vec<Field>,
    /// What is added to the type after a dot, where there is something: GitHub's `issues` and `opened`.
    pub action: Option<Field>,
    /// When the event was sent out; better, when it happened (R20).
    pub timestamp: Vec<Field>,
    /// The business key (R24). Opaque: bars, empty parts and month 13 are somebody else's business.
    pub key: Vec<Field>,
}

impl Layout {
    /// Reads a delivery. `parts` are those of its signature's header; `id_is_signed` says whether its id is signed
    /// wherever it stands.
    pub(super) fn read(&self, headers: &Headers<'_>, parts: &[&str], body: &[u8], id_is_signed: bool) -> Envelope {
        let places: Vec<_> = self.fields().filter_map(Field::pointer).collect();
        let root = json::pointer(body, "");
        let values = root.map(|root| json::all_within(root, &places)).unwrap_or_default();
        let value =
            |path: &str| places.iter().zip(&values).find(|(place, _)| **place == path).and_then(|(_, value)| *value);
        let text = |field: &Field| field.text_by(headers, parts, value).map(Cow::into_owned);
        let first =
            |fields: &[Field], is_usable: fn(&str) -> bool| fields.iter().filter_map(text).find(|text| is_usable(text));
        let contradiction = if id_is_signed { None } else { self.contradiction(text) };
        Envelope {
            is_json: root.is_some(),
            is_object: root.is_some_and(|root| root.get().starts_with('{')),
            id: first(&self.id, is_id),
            contradiction,
            event_type: first(&self.event_type, is_type).map(|word| self.whole_type(&word, text)),
            timestamp: first(&self.timestamp, |_| true).as_deref().and_then(timestamp::parse),
            key: first(&self.key, is_key),
        }
    }

    fn fields(&self) -> impl Iterator<Item = &Field> {
        let Self { id, event_type, action, timestamp, key } = self;
        id.iter().chain(event_type).chain(action).chain(timestamp).chain(key)
    }

    /// The type with its action, its words joined by dots whatever the provider joins them by.
    fn whole_type(&self, word: &str, text: impl Fn(&Field) -> Option<String>) -> String {
        let word = word.replace(['/', ':'], ".");
        let action = self.action.as_ref().and_then(text).filter(|action| is_type(action));
        match action.map(|action| format!("{word}.{action}")) {
            Some(whole) if is_type(&whole) => whole,
            _ => word,
        }
    }

    fn contradiction(&self, text: impl Fn(&Field) -> Option<String>) -> Option<Contradiction> {
        let unsigned = self.id.iter().find_map(|field| match field {
            Field::Header(name) => text(field).filter(|id| is_id(id)).map(|id| (name, id)),
            _ => None,
        });
        let signed = self.id.iter().filter(|field| matches!(field, Field::Pointer(_))).find_map(text);
        let ((header, unsigned), signed) = unsigned.zip(signed)?;
        (unsigned != signed).then(|| Contradiction { header: header.clone(), unsigned, signed })
    }
}
