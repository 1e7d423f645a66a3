//! Texts of a closed set, taken from where they are defined.

use hikyaku_core::delivery::{DeliveryState, FailureKind};
use hikyaku_core::disable::MAX_DISABLE_AFTER;
use hikyaku_core::event::MAX_EVENT_TYPE_BYTES;
use hikyaku_core::explain::Code;
use hikyaku_core::signature::Scheme;
use hikyaku_core::webhook::MAX_EVENT_PATTERNS;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{
    AnyOfBuilder, Array, ArrayBuilder, KnownFormat, Object, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type,
};

use crate::store::{EffectState, RecoveryState, RowState, UndeliveredKind, Which};

/// Any bytes.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it is described and never made")]
pub(in crate::http) struct Bytes(Vec<u8>);

/// Where a delivery stands.
pub(in crate::http) fn delivery_state() -> Object {
    one_of("Where it stands.", DeliveryState::ALL.map(DeliveryState::as_str))
}

/// Why an attempt brought no status.
pub(in crate::http) fn error_kind() -> Object {
    one_of("Why no status came, for programs; only if none came.", FailureKind::ALL.map(FailureKind::as_str))
}

/// The same where it is `null` after an answer.
pub(in crate::http) fn error_kind_or_null() -> Object {
    let words = FailureKind::ALL.map(|kind| kind.as_str().into()).into_iter().chain([Value::Null]);
    one_of("Why no status came, for programs; `null` after an answer.", words)
}

/// How an inbox row stands.
pub(in crate::http) fn row_state() -> Object {
    one_of("How the row stands over all of its routes.", RowState::ALL.map(RowState::as_str))
}

/// How a row stands with one route.
pub(in crate::http) fn effect_state() -> Object {
    use EffectState as S;
    let words = [S::Waiting, S::Done, S::Stale, S::Dead, S::Discarded].map(S::as_str);
    one_of("How the row stands with this route.", words)
}

/// Why a webhook is off.
pub(in crate::http) fn off_reason() -> Object {
    one_of("`paused` by somebody, or by an `exhausted` event; only while it is off.", ["paused", "exhausted"])
}

/// Why a webhook did not get an event.
pub(in crate::http) fn undelivered_kind() -> Object {
    let words = [UndeliveredKind::Missed, UndeliveredKind::Exhausted].map(UndeliveredKind::as_str);
    one_of("`missed` while it was off, or `exhausted` by failures.", words)
}

/// What a recovery may be asked to bring.
pub(in crate::http) fn recoverable() -> Object {
    one_of("Which events.", [Which::Missed, Which::Exhausted, Which::All].map(Which::as_str))
}

/// What a recovery brings.
pub(in crate::http) fn recovered() -> Object {
    one_of("Which events.", Which::ALL.map(Which::as_str))
}

/// How far a recovery is.
pub(in crate::http) fn recovery_state() -> Object {
    let words = RecoveryState::ALL.map(RecoveryState::as_str).into_iter().chain(["paused"]);
    one_of("How far it is; `paused` while the webhook is off.", words)
}

/// Why a webhook got an event, or did not.
pub(in crate::http) fn explanation_code() -> Object {
    use Code as C;
    let nothing = [C::UnknownWebhook, C::NotSubscribed, C::AboutItself, C::CreatedLater, C::SubscribedLater];
    let nothing = nothing.into_iter().chain([C::WebhookOff, C::Missed]);
    let delivery = [C::Held, C::Waiting, C::InFlight, C::Delivered, C::Exhausted, C::Cancelled];
    one_of("For programs.", nothing.chain(delivery).map(|code| json!(code)))
}

/// How a body is written as text.
pub(in crate::http) fn body_encoding() -> Object {
    one_of("How `body` is written.", ["utf-8", "base64"])
}

/// What a source does with bad signatures.
pub(in crate::http) fn on_bad_signature() -> Object {
    one_of("What becomes of deliveries whose signature does not verify.", ["refuse", "quarantine"])
}

/// What became of a row.
pub(in crate::http) fn intervened() -> Object {
    let words = ["done", "duplicate"];
    one_of("`duplicate` where a released delivery had come by itself since, and its copy is gone; else `done`.", words)
}

/// What a provider is answered.
pub(in crate::http) fn receipt() -> Object {
    let meaning = "`duplicate` for an id that was stored before; `challenge` for what is no delivery and not stored; \
                   `quarantined` where the signature did not verify and the source keeps such deliveries aside.";
    one_of(meaning, ["stored", "duplicate", "challenge", "quarantined"])
}

/// A type, or a pattern of types.
pub(in crate::http) fn event_pattern() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .max_length(Some(MAX_EVENT_TYPE_BYTES))
        .pattern(Some("^([*]|[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*[.]([*]|[A-Za-z0-9_-]+))$"))
        .description(Some("A type (`sale.created`), all below a prefix (`order.*`), or all (`*`)."))
        .build()
}

/// A type as any provider may have it, or a pattern of types.
pub(in crate::http) fn received_pattern() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .max_length(Some(MAX_EVENT_TYPE_BYTES))
        .pattern(Some("^([*]|[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*([.][*])?)$"))
        .description(Some("Only this type (`sale.created`, `push`), or those below a prefix (`order.*`)."))
        .build()
}

/// Which events a webhook gets.
pub(in crate::http) fn event_patterns() -> Array {
    ArrayBuilder::new()
        .items(event_pattern())
        .min_items(Some(1))
        .max_items(Some(MAX_EVENT_PATTERNS))
        .description(Some("Which types."))
        .build()
}

/// When a webhook is switched off.
pub(in crate::http) fn disable_after() -> Schema {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(MAX_DISABLE_AFTER));
    let never = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["never"]));
    let either = AnyOfBuilder::new()
        .item(number)
        .item(never)
        .item(null())
        .description(Some("How many exhausted events in a row switch it off; by default one."));
    Schema::AnyOf(either.build())
}

/// What becomes of events for a webhook that is off.
pub(in crate::http) fn while_inactive() -> Object {
    let words = ["drop", "hold"].map(Value::from).into_iter().chain([Value::Null]);
    one_of("What becomes of events that match while it is off; by default they are dropped.", words)
}

/// How deliveries are signed.
pub(in crate::http) fn signature() -> Object {
    use Scheme as S;
    let words = [json!(S::ReceiptRoller), json!(S::StandardWebhooks), json!(S::StandardWebhooksEd25519), Value::Null];
    one_of("How deliveries are signed; by default as ReceiptRoller does.", words)
}

fn null() -> Object {
    ObjectBuilder::new().schema_type(Type::Null).build()
}

/// A point in time as it may be written in a request.
pub(in crate::http) fn time() -> Schema {
    let one = |kind, format| {
        let object = ObjectBuilder::new().schema_type(kind);
        object.format(Some(SchemaFormat::KnownFormat(format)))
    };
    let either = AnyOfBuilder::new()
        .item(one(Type::String, KnownFormat::DateTime))
        .item(one(Type::Integer, KnownFormat::Int64))
        .description(Some("RFC 3339 with any offset, or a whole number of epoch seconds or milliseconds."));
    Schema::AnyOf(either.build())
}

/// One of these words, or `null` where that is among them.
fn one_of(description: &str, words: impl IntoIterator<Item = impl Into<Value>>) -> Object {
    let words: Vec<Value> = words.into_iter().map(Into::into).collect();
    let kind = match words.contains(&Value::Null) {
        true => SchemaType::from_iter([Type::String, Type::Null]),
        false => SchemaType::from(Type::String),
    };
    ObjectBuilder::new().schema_type(kind).description(Some(description)).enum_values(Some(words)).build()
}
