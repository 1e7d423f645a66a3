//! The provider's side of the inbox: signed deliveries, and configurations of where they go.

use hikyaku_core::signature::{Secret, receiptroller};
use rusqlite::Connection;

use super::Server;

/// The secret of the source `receiptroller`.
pub(crate) const SOURCE_SECRET: &str = "a-shared-secret-of-the-test-source";

/// The headers of a delivery with this id, signed with the source's secret.
pub(crate) fn signed(delivery: &str, body: &[u8]) -> [(&'static str, String); 2] {
    let signature = receiptroller::sign(&Secret::new(SOURCE_SECRET), body);
    [("x-rr-delivery", delivery.to_owned()), ("x-rr-signature", signature)]
}

/// A body as the provider sends it; `data` as it is written.
pub(crate) fn event_body(id: &str, event_type: &str, timestamp: &str, data: &str) -> String {
    format!(r#"{{"id":"{id}","type":"{event_type}","timestamp":"{timestamp}","data":{data}}}"#)
}

/// The source `receiptroller`.
pub(crate) fn source() -> String {
    format!(
        "[[source]]\nname = \"receiptroller\"\nprovider = \"receiptroller\"\norganization = \"acme\"\n\
         secrets = [\"{SOURCE_SECRET}\"]\n"
    )
}

/// A source whose events go, every one of them, to this URL.
pub(crate) fn forward_to(url: &str) -> String {
    format!(
        "{}\n[[destination]]\nname = \"forward\"\nkind = \"http\"\nurl = \"{url}\"\n\n\
         [[route]]\nsource = \"receiptroller\"\nevents = [\"*\"]\ndestination = \"forward\"\norder = \"every\"\n",
        source()
    )
}

/// A source whose sales go to the table `sales` of `books.db`, the newest of each winning.
pub(crate) fn sales_to_sql() -> String {
    const BOOKS: &str = r#"
[[destination]]
name = "books"
kind = "sql"
url = "sqlite:books.db"
table = "sales"
key = "id"

[destination.columns]
id = "/data/id"
total = "/data/paymentSummary/grandTotal"
event = "/id"
biz = "/data/bizId"

[[route]]
source = "receiptroller"
events = ["sale.*"]
destination = "books"
order = "latest"
"#;
    source() + BOOKS
}

/// Makes the table `sales` in a directory's `books.db`, with a trigger that writes down every effect: the ledger E.
pub(crate) fn fresh_sales_table(dir: &std::path::Path) {
    let books = Connection::open(dir.join("books.db")).unwrap();
    let schema = "
        CREATE TABLE sales (id TEXT PRIMARY KEY, total INTEGER, event TEXT, biz TEXT);
        CREATE TABLE effects (n INTEGER PRIMARY KEY, id TEXT, event TEXT);
        CREATE TRIGGER inserted AFTER INSERT ON sales BEGIN
            INSERT INTO effects (id, event) VALUES (new.id, new.event); END;
        CREATE TRIGGER updated AFTER UPDATE ON sales BEGIN
            INSERT INTO effects (id, event) VALUES (new.id, new.event); END;";
    books.execute_batch(schema).unwrap();
}

/// A row of the table `sales`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sale {
    /// The business key.
    pub(crate) id: String,
    /// What it came to.
    pub(crate) total: Option<i64>,
    /// The event that wrote it last.
    pub(crate) event: String,
    /// A number that is too long for an integer.
    pub(crate) biz: Option<String>,
}

impl Server {
    fn books(&self) -> Connection {
        Connection::open(self.path("books.db")).unwrap()
    }

    /// The table `sales`, by key.
    pub(crate) fn sales(&self) -> Vec<Sale> {
        let books = self.books();
        let mut query = books.prepare("SELECT id, total, event, CAST(biz AS TEXT) FROM sales ORDER BY id").unwrap();
        let sale = |row: &rusqlite::Row<'_>| {
            Ok(Sale { id: row.get(0)?, total: row.get(1)?, event: row.get(2)?, biz: row.get(3)? })
        };
        query.query_map([], sale).unwrap().map(Result::unwrap).collect()
    }

    /// Every write to the table `sales`, in its order: the key and the event that did it.
    pub(crate) fn effects(&self) -> Vec<(String, String)> {
        let books = self.books();
        let mut query = books.prepare("SELECT id, event FROM effects ORDER BY n").unwrap();
        query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    }
}
