//! Where a schema has the columns of a table that is copied.

use super::tables::{Column, Table};

/// Some of a table's columns.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum Part {
    /// All of them.
    All,
    /// Those of these names.
    Only(&'static [&'static str]),
    /// All but those of these names.
    Without(&'static [&'static str]),
}

impl Part {
    /// The columns, each with its place in a row.
    pub(in crate::store) fn of(self, table: &'static Table) -> Vec<(usize, &'static Column)> {
        let has = |column: &Column| match self {
            Self::All => true,
            Self::Only(names) => names.contains(&column.name),
            Self::Without(names) => !names.contains(&column.name),
        };
        table.columns.iter().enumerate().filter(|(_, column)| has(column)).collect()
    }
}

/// Where a schema has a table, if that is not simply a table of the same columns.
#[derive(Debug)]
pub(in crate::store) struct Layout {
    /// The table's name.
    pub(in crate::store) name: &'static str,
    /// What it is read from; the table itself is called `t` there.
    pub(in crate::store) from: &'static str,
    /// The columns that are not read from `t`, each with what it is read from.
    pub(in crate::store) elsewhere: &'static [(&'static str, &'static str)],
    /// Into which tables its columns are written, in this order.
    pub(in crate::store) into: &'static [(&'static str, Part)],
}

/// How a schema's tables differ from those of [`TABLES`](super::tables::TABLES).
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Layouts(pub(in crate::store) &'static [Layout]);

impl Layouts {
    fn find(self, table: &Table) -> Option<&'static Layout> {
        self.0.iter().find(|layout| layout.name == table.name)
    }

    /// What a table is read from.
    pub(in crate::store) fn from(self, table: &Table) -> String {
        self.find(table).map_or_else(|| format!("{} AS t", table.name), |layout| layout.from.to_owned())
    }

    /// The table's columns with what each is read from, as a list.
    pub(in crate::store) fn columns(self, table: &Table) -> String {
        let elsewhere = self.find(table).map_or(&[][..], |layout| layout.elsewhere);
        let place = |column: &Column| {
            let found = elsewhere.iter().find(|(name, _)| *name == column.name);
            format!("{}.{}", found.map_or("t", |(_, from)| from), column.name)
        };
        table.columns.iter().map(place).collect::<Vec<_>>().join(", ")
    }

    /// Into which tables its columns are written.
    pub(in crate::store) fn into(self, table: &'static Table) -> Vec<(&'static str, Part)> {
        self.find(table).map_or_else(|| vec![(table.name, Part::All)], |layout| layout.into.to_vec())
    }
}
