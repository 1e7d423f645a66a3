//! What the provider says of a sale or an order.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A sale or an order as the provider writes it: once, so that its event, lists and reads say the same to the byte.
#[derive(Debug, Clone)]
pub struct Data(Arc<RawValue>);

impl Data {
    pub(super) fn of(value: &Value) -> Self {
        Self(RawValue::from_string(value.to_string()).expect("a JSON value's text is JSON").into())
    }

    /// Its text.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// What it says.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
