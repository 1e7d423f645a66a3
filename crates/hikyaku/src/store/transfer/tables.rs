//! What a store holds, table by table, as every store can give it and take it.
//!
//! A table here is what one of the schemas or both of them have, with all that any of them needs of a row: an inbox row
//! has its body, an attempt the time of its event. What only serves one process or one schema is left out: leases of
//! duties, versions of what is cached, ids that stand twice.

/// How a column's values look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Kind {
    /// A whole number.
    Number,
    /// A text of any characters.
    Text,
    /// Bytes.
    Bytes,
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Column {
    /// Its name, the same in every store.
    pub(in crate::store) name: &'static str,
    /// How its values look.
    pub(in crate::store) kind: Kind,
    /// Whether a row may have none.
    pub(in crate::store) may_be_null: bool,
}

/// A table.
#[derive(Debug)]
pub(in crate::store) struct Table {
    /// Its name, the same in every store.
    pub(in crate::store) name: &'static str,
    /// Its columns.
    pub(in crate::store) columns: &'static [Column],
}

const fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number, may_be_null: false }
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text, may_be_null: false }
}

const fn bytes(name: &'static str) -> Column {
    Column { name, kind: Kind::Bytes, may_be_null: false }
}

const fn or_null(column: Column) -> Column {
    Column { may_be_null: true, ..column }
}

/// All tables, in the order in which they are copied.
pub(in crate::store) const TABLES: &[Table] = &[
    Table {
        name: "webhooks",
        columns: &[
            text("organization"),
            text("id"),
            text("url"),
            text("events"),
            text("description"),
            text("secret"),
            or_null(number("off_since")),
            or_null(text("off_event")),
            number("created_at"),
            text("settings"),
            number("exhausted"),
            or_null(text("previous_secret")),
            or_null(number("rotated_at")),
            or_null(number("previous_until")),
        ],
    },
    Table {
        name: "events",
        columns: &[
            text("organization"),
            text("id"),
            number("created_at"),
            text("type"),
            number("timestamp"),
            or_null(text("key")),
            bytes("content_hash"),
            number("deliveries"),
            bytes("body"),
        ],
    },
    Table {
        name: "waiting",
        columns: &[
            text("organization"),
            text("webhook"),
            text("event"),
            number("created_at"),
            number("due_at"),
            number("run"),
            number("attempt"),
            number("spoiled"),
            or_null(text("owner")),
            or_null(number("attempt_started_at")),
        ],
    },
    Table {
        name: "undelivered",
        columns: &[
            text("organization"),
            text("event"),
            text("webhook"),
            text("kind"),
            number("timestamp"),
            number("created_at"),
            text("type"),
            or_null(number("off_since")),
            or_null(text("off_event")),
        ],
    },
    Table {
        name: "deliveries",
        columns: &[
            text("organization"),
            text("event"),
            text("webhook"),
            number("created_at"),
            text("state"),
            text("reason"),
            number("ended_at"),
            number("run"),
        ],
    },
    Table {
        name: "attempts",
        columns: &[
            text("organization"),
            text("event"),
            text("webhook"),
            number("created_at"),
            number("run"),
            number("number"),
            number("started_at"),
            number("duration_micros"),
            number("http_status"),
            or_null(text("failure")),
            text("error"),
            bytes("response_body"),
        ],
    },
    Table {
        name: "recoveries",
        columns: &[
            text("organization"),
            text("webhook"),
            text("id"),
            text("which"),
            or_null(number("from_at")),
            or_null(number("to_at")),
            number("total"),
            number("recovered"),
            number("position_at"),
            text("position_event"),
            text("state"),
            number("created_at"),
        ],
    },
    Table { name: "removals", columns: &[text("organization"), text("webhook"), number("removed_at")] },
    Table {
        name: "inbox_rows",
        columns: &[
            text("organization"),
            number("position"),
            number("due_since"),
            text("provider"),
            text("delivery"),
            text("source"),
            text("type"),
            text("key"),
            number("micros"),
            number("rank"),
            text("event"),
            number("received_at"),
            text("state"),
            text("reason"),
            bytes("body"),
        ],
    },
    Table {
        name: "known_ids",
        columns: &[text("organization"), text("provider"), text("delivery"), number("due_since")],
    },
    Table {
        name: "quarantine",
        columns: &[text("organization"), text("source"), number("position"), number("bytes"), bytes("headers")],
    },
    Table {
        name: "work",
        columns: &[
            text("organization"),
            text("route"),
            text("provider"),
            text("lane"),
            number("micros"),
            number("rank"),
            text("event"),
            text("delivery"),
            number("due_since"),
            number("position"),
            number("failures"),
            text("error"),
        ],
    },
    Table {
        name: "lanes",
        columns: &[
            text("organization"),
            text("route"),
            text("provider"),
            text("lane"),
            number("due_at"),
            or_null(text("owner")),
            number("claim"),
            or_null(text("begun")),
            or_null(text("taken_to")),
        ],
    },
    Table {
        name: "effects",
        columns: &[
            text("organization"),
            text("provider"),
            text("delivery"),
            number("position"),
            number("due_since"),
            text("route"),
            text("state"),
            number("failures"),
            text("detail"),
            number("ended_at"),
        ],
    },
    Table {
        name: "applied",
        columns: &[
            text("organization"),
            text("route"),
            text("provider"),
            text("lane"),
            number("micros"),
            number("rank"),
            text("event"),
            number("applied_at"),
        ],
    },
    Table {
        name: "tokens",
        columns: &[
            text("id"),
            or_null(text("organization")),
            text("name"),
            bytes("hash"),
            number("created_at"),
            or_null(number("revoked_at")),
        ],
    },
    Table {
        name: "reconciles",
        columns: &[
            text("organization"),
            text("name"),
            or_null(number("mark")),
            or_null(number("wanted_from")),
            or_null(number("wanted_to")),
            number("calls"),
            or_null(number("calls_since")),
            or_null(number("active_at")),
        ],
    },
    Table {
        name: "reconcile_cycles",
        columns: &[
            text("organization"),
            text("name"),
            number("number"),
            number("from_at"),
            number("to_at"),
            number("done_to"),
            number("started_at"),
            or_null(number("ended_at")),
            number("listed"),
            number("known"),
            number("missing"),
            number("repaired"),
            number("different"),
            number("unknown"),
            number("calls"),
            text("problem"),
        ],
    },
    Table { name: "heartbeat", columns: &[number("id"), number("at")] },
    Table { name: "outages", columns: &[number("from_at"), number("to_at")] },
];
