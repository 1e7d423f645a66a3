//! Rows on their way from one store to another, and what is kept of them to compare.

use std::fmt;
use std::mem;

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};

use super::tables::{Column, Table};
use crate::store::StoreError;

/// Most rows of a page.
const PAGE_ROWS: usize = 2_000;
/// A page is full with so many bytes; its last row may go beyond.
const PAGE_BYTES: usize = 4 << 20;
/// What a value takes beside its own bytes, roughly, in bytes.
const VALUE_BYTES: usize = 16;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum Value {
    /// None.
    Null,
    /// A whole number.
    Number(i64),
    /// A text as it came from outside, whatever a database makes of it.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Value {
    /// The value as it was read; one that is missing where there must be one is damage, which a copy would hide.
    pub(in crate::store) fn checked(self, table: &Table, column: &Column) -> Result<Self, StoreError> {
        if self == Self::Null && !column.may_be_null {
            let (table, column) = (table.name, column.name);
            return Err(StoreError::Damaged(format!("a row of {table} has no {column}; what it belongs to is gone")));
        }
        Ok(self)
    }

    fn bytes(&self) -> (u8, &[u8], [u8; 8]) {
        match self {
            Self::Null => (0, &[], [0; 8]),
            Self::Number(number) => (1, &[], number.to_be_bytes()),
            Self::Text(text) => (2, text.as_bytes(), (text.len() as u64).to_be_bytes()),
            Self::Bytes(bytes) => (3, bytes, (bytes.len() as u64).to_be_bytes()),
        }
    }
}

/// A row: a value for each column of its table.
pub(in crate::store) type Row = Vec<Value>;

/// Rows that travel together.
#[derive(Debug, Default)]
pub(in crate::store) struct Page {
    rows: Vec<Row>,
    bytes: usize,
}

impl Page {
    /// Adds a row; the whole page, if it is full with it.
    pub(in crate::store) fn add(&mut self, row: Row) -> Option<Vec<Row>> {
        self.bytes += row.iter().map(|value| value.bytes().1.len() + VALUE_BYTES).sum::<usize>();
        self.rows.push(row);
        (self.rows.len() >= PAGE_ROWS || self.bytes >= PAGE_BYTES).then(|| self.take())
    }

    /// What is left at the end.
    pub(in crate::store) fn take(&mut self) -> Vec<Row> {
        mem::take(self).rows
    }
}

/// How many rows there are, and a hash of all of them that does not depend on their order: the sum of their SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    rows: u64,
    /// A number of 256 bits, its lowest ones first.
    hash: [u64; 4],
}

impl Sum {
    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn add(&mut self, row: &Row) {
        let mut context = Context::new(&SHA256);
        for value in row {
            let (kind, bytes, length) = value.bytes();
            context.update(&[kind]);
            context.update(&length);
            context.update(bytes);
        }
        let digest = context.finish();
        let mut carry = false;
        for (limb, bytes) in self.hash.iter_mut().zip(digest.as_ref().as_chunks().0) {
            let (sum, first) = limb.overflowing_add(u64::from_be_bytes(*bytes));
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, first || second);
        }
        self.rows += 1;
    }
}

/// The hash, in hexadecimal.
impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hash.iter().rev().try_for_each(|limb| f.write_str(&HEXLOWER.encode(&limb.to_be_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(rows: &[Row]) -> Sum {
        let mut sum = Sum::default();
        rows.iter().for_each(|row| sum.add(row));
        sum
    }

    #[test]
    fn a_sum_tells_values_kinds_borders_and_repetitions_apart_but_not_the_order() {
        let text = |text: &str| Value::Text(text.to_owned());
        let rows = [
            vec![text("a"), text("bc")],
            vec![text("ab"), text("c")],
            vec![text(""), text("abc")],
            vec![text("abc"), Value::Null],
            vec![Value::Bytes(b"a".to_vec()), text("bc")],
            vec![Value::Number(0), Value::Null],
            vec![Value::Null, Value::Number(0)],
        ];
        let sums: Vec<_> = rows.iter().map(|row| sum(std::slice::from_ref(row))).collect();
        for (n, one) in sums.iter().enumerate() {
            assert!(!sums[..n].contains(one), "{:?}", rows[n]);
        }
        let reversed: Vec<_> = rows.iter().rev().cloned().collect();
        assert_eq!(sum(&rows), sum(&reversed));
        let twice = [rows[0].clone(), rows[0].clone()];
        let other = [rows[0].clone(), rows[1].clone()];
        assert_ne!(sum(&twice), sum(&other));
        assert_eq!(sum(&twice).rows(), 2);
        assert_ne!(sum(&twice).to_string(), sum(&[]).to_string());
    }

    #[test]
    fn a_page_is_full_by_rows_or_by_bytes() {
        let mut page = Page::default();
        assert_eq!(page.add(vec![Value::Bytes(vec![0; PAGE_BYTES])]).unwrap().len(), 1);
        let full = (1..=PAGE_ROWS).find_map(|n| page.add(vec![Value::Number(0)]).map(|rows| (n, rows.len())));
        assert_eq!(full, Some((PAGE_ROWS, PAGE_ROWS)));
        assert!(page.take().is_empty());
    }
}
