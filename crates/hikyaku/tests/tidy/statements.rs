//! S22: statements are fixed texts, and values are bound to them. What has to be put together is named here.

use std::fs;

use super::{assert_none, files, root};

/// Where statements are.
const PLACES: [&str; 3] = ["store/sqlite/", "store/postgres/", "inbox/destination/sql/"];

/// The files that put statements together, and how many of them. Into these come names of our own tables and columns, names
/// from the configuration, quoted, and numbers and words that we make ourselves; nothing that anybody sent.
const PUT_TOGETHER: [(&str, usize); 10] = [
    ("store/sqlite/copy.rs", 4),
    ("store/postgres/copy.rs", 5),
    ("store/postgres/connections.rs", 1),
    ("store/postgres/days.rs", 1),
    ("store/postgres/nudges.rs", 1),
    ("store/postgres/retention/partitions.rs", 2),
    ("inbox/destination/sql/postgres/table.rs", 3),
    ("inbox/destination/sql/sqlite/table.rs", 3),
    ("inbox/destination/sql/preview.rs", 1), // shown to people, never run
    ("inbox/destination/sql/postgres/session.rs", 1),
];

/// What texts are put together with; `concat!` is not among them, which takes nothing but what stands there.
const WAYS: [&str; 6] = ["format!(", "write!(", "writeln!(", ".push_str(", ".concat()", ".replace("];

/// The words that a statement, or a part of one, cannot do without.
const WORDS: [&str; 17] = [
    "ALTER", "ANALYZE", "AND", "CREATE", "DELETE", "DROP", "FROM", "INSERT", "LIMIT", "LOCK", "NOTIFY", "OR", "ORDER",
    "SELECT", "SET", "UPDATE", "WHERE",
];

/// How many statements a code puts together: calls of these, and what they are called on, with a text that has such a word.
fn put_together(code: &str) -> usize {
    let is_statement = |expression: &str| {
        let texts = expression.split('"').skip(1).step_by(2);
        texts.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric())).any(|word| WORDS.contains(&word))
    };
    let expressions = WAYS.iter().flat_map(|way| {
        code.match_indices(way).map(move |(at, _)| match way.starts_with('.') {
            true => &code[beginning(&code[..at])..at + in_brackets(&code[at..])],
            false => &code[at..at + in_brackets(&code[at..])],
        })
    });
    expressions.filter(|expression| is_statement(expression)).count()
}

/// Where the statement of Rust begins that this code ends in.
fn beginning(code: &str) -> usize {
    ["; ", ";\n", "{\n", "}\n"].iter().filter_map(|end| code.rfind(end)).max().unwrap_or(0)
}

/// How long a call is, to the bracket that ends it.
fn in_brackets(code: &str) -> usize {
    let mut open = 0_usize;
    let end = code.find(|c| {
        open += usize::from(c == '(');
        open -= usize::from(c == ')');
        c == ')' && open == 0
    });
    end.map_or(code.len(), |end| end + 1)
}

#[test]
fn s22_statements_are_fixed_texts_but_for_those_that_are_listed() {
    let src = root().join("crates/hikyaku/src");
    let mut complaints = Vec::new();
    for file in files(&src, ".rs") {
        let inside = file.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
        let is_test = inside.ends_with("tests.rs") || inside.contains("/tests/");
        if is_test || !PLACES.iter().any(|place| inside.starts_with(place)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let found = put_together(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
        let listed = PUT_TOGETHER.iter().find(|(name, _)| *name == inside).map_or(0, |(_, count)| *count);
        if found != listed {
            complaints
                .push(format!("{inside}: puts {found} statements together, not {listed}: bind the values instead"));
        }
    }
    assert_none(complaints);
}

#[test]
fn s22_a_value_that_is_pasted_would_be_noticed() {
    for (code, count) in [
        (r#"const ONE: &str = "SELECT 1"; db.execute(ONE, [id]);"#, 0),
        (r#"Err(format!("an attempt of {event} is in an index only"));"#, 0),
        (r#"db.execute(&format!("DELETE FROM tokens WHERE id = '{id}'"));"#, 1),
        ("let sql = format!(\n    \"{columns}\n        WHERE id = '{id}'\"\n);", 1),
        (r#"sql.push_str(" AND id = '"); sql.push_str(id);"#, 1),
        (r#"let sql = ["SELECT 1 WHERE id = '", id, "'"].concat();"#, 1),
        (r#"let sql = "SELECT 1 WHERE id = '$'".replace('$', id);"#, 1),
    ] {
        assert_eq!(put_together(code), count, "{code}");
    }
}
