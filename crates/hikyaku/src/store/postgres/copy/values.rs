//! A copy's values as PostgreSQL has them.

use std::borrow::Cow;

use tokio_postgres::types::ToSql;

use crate::store::StoreError;
use crate::store::postgres::columns::{read_optional_text, text};
use crate::store::transfer::{Column, Kind, Row, Table, Value};

/// A column of rows, as a statement takes it.
pub(super) fn array(rows: &[Row], place: usize, kind: Kind) -> Box<dyn ToSql + Send + Sync + '_> {
    let values = rows.iter().map(|row| row.get(place).unwrap_or(&Value::Null));
    match kind {
        Kind::Number => Box::new(values.map(number).collect::<Vec<_>>()),
        Kind::Text => Box::new(values.map(characters).collect::<Vec<_>>()),
        Kind::Bytes => Box::new(values.map(bytes).collect::<Vec<_>>()),
    }
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

fn characters(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Text(characters) => Some(text(characters)),
        _ => None,
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// A row as it was read.
pub(super) fn row(table: &'static Table, row: &tokio_postgres::Row) -> Result<Row, StoreError> {
    let value = |(index, column): (usize, &Column)| {
        let value = match column.kind {
            Kind::Number => row.try_get::<_, Option<i64>>(index)?.map(Value::Number),
            Kind::Text => read_optional_text(row, index)?.map(Value::Text),
            Kind::Bytes => row.try_get::<_, Option<Vec<u8>>>(index)?.map(Value::Bytes),
        };
        value.unwrap_or(Value::Null).checked(table, column)
    };
    table.columns.iter().enumerate().map(value).collect()
}
