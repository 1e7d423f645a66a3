//! What becomes of values.

use super::*;

const PAIRS: Pairs<'_> = &[("id", "/data/id"), ("v", "/data/v")];

impl Rig {
    async fn with_column(&mut self, declared: &str) {
        self.renewed(&format!("CREATE TABLE sales (id text PRIMARY KEY, v {declared})"), PAIRS).await;
    }
}

/// Case 3: a value arrives as it was written, in a column of its kind.
#[tokio::test]
async fn case3_no_value_is_changed_on_the_way() {
    let mut rig = Rig::new("", "sales", PAIRS).await;
    rig.user.batch_execute("SET TimeZone = 'UTC'").await.unwrap();
    for (declared, values) in [
        (
            "numeric",
            &[
                ("29383937493038367292", "29383937493038367292"),
                ("0.10000000000000000555", "0.10000000000000000555"),
                ("1980", "1980"),
                (r#""12.50""#, "12.50"),
                ("-0.5E1", "-5"),
                ("null", "NULL"),
            ][..],
        ),
        (
            "bigint",
            &[("9223372036854775807", "9223372036854775807"), ("5.0", "5"), ("1e3", "1000"), (r#""-12""#, "-12")],
        ),
        ("double precision", &[("0.1", "0.1"), ("1e300", "1e+300"), ("1980", "1980")]),
        (
            "text",
            &[
                ("29383937493038367292", "29383937493038367292"),
                ("1e400", "1e400"),
                (r#""O'Brien \"領\"""#, "O'Brien \"領\""),
                (r#""\ud800""#, r#""\ud800""#),
                ("true", "true"),
                (r#"{"a": [1,2.0]}"#, r#"{"a": [1,2.0]}"#),
                ("null", "NULL"),
            ],
        ),
        ("varchar(20)", &[(r#""12345678901234567890""#, "12345678901234567890"), ("null", "NULL")]),
        ("char(5)", &[(r#""abc""#, "abc"), (r#""ab ""#, "ab")]),
        ("timestamptz(0)", &[(r#""2026-11-30T09:15:00+09:00""#, "2026-11-30 00:15:00+00")]),
        ("timestamp(3)", &[(r#""2026-11-30T09:15:00.125Z""#, "2026-11-30 09:15:00.125")]),
        ("boolean", &[("true", "true"), ("false", "false")]),
        (
            "timestamptz",
            &[
                (r#""2026-11-30T09:15:00.123+09:00""#, "2026-11-30 00:15:00.123+00"),
                ("1796030100250", "2026-11-30 09:15:00.25+00"),
                (r#""1796030100""#, "2026-11-30 09:15:00+00"),
            ],
        ),
        ("timestamp", &[(r#""2026-11-30T09:15:00+09:00""#, "2026-11-30 00:15:00")]),
        ("date", &[(r#""2026-11-30""#, "2026-11-30")]),
        ("json", &[(r#"{"b":1, "a":29383937493038367292}"#, r#"{"b":1, "a":29383937493038367292}"#)]),
        ("jsonb", &[(r#"{"b":1, "a":29383937493038367292}"#, r#"{"a": 29383937493038367292, "b": 1}"#), ("7", "7")]),
        ("uuid", &[(r#""0192E6F3-0000-7000-8000-000000000001""#, "0192e6f3-0000-7000-8000-000000000001")]),
    ] {
        rig.with_column(declared).await;
        for (n, (json, stored)) in values.iter().enumerate() {
            let effect = rig.apply(&format!("d{n}"), 1, &format!(r#"{{"id":"k{n}","v":{json}}}"#)).await;
            assert_eq!(effect, written(), "{declared} {json}");
            let query = format!("SELECT v::text FROM sales WHERE id = 'k{n}'");
            assert_eq!(rig.seen(&query).await, [*stored], "{declared} {json}");
        }
    }
}

/// A value of the wrong kind, or one that would not survive, ends as refused: it says which one, and not what it is.
#[tokio::test]
async fn case3_case4_a_value_that_its_column_cannot_hold_is_refused_with_the_reason() {
    let mut rig = Rig::new("", "sales", PAIRS).await;
    let wants = |what| format!(r#"the column "v" takes {what}, and the value at "/data/v" is "#);
    let changes = r#"the column "v" would change the value at "/data/v""#.to_owned();
    let not_taken =
        |code| format!(r#"the column "v" does not take the value at "/data/v" (PostgreSQL's error {code})"#);
    for (declared, json, reason) in [
        ("integer", "true", wants("a whole number") + "true or false"),
        ("integer", "12.5", wants("a whole number") + "another number"),
        ("integer", r#""twelve""#, wants("a whole number") + "another text"),
        ("integer", "29383937493038367292", not_taken("22003")),
        ("numeric", "{}", wants("a number") + "an object"),
        ("numeric(10,2)", "1.005", changes.clone()),
        ("varchar(5)", r#""abc       ""#, changes.clone()),
        ("timestamptz(0)", r#""2026-11-30T09:15:00.600Z""#, changes.clone()),
        ("timestamp(1)", r#""2026-11-30T09:15:00.15Z""#, changes.clone()),
        ("real", "16777217", changes.clone()),
        ("double precision", "9007199254740993", changes.clone()),
        ("double precision", "1e400", not_taken("22003")),
        ("boolean", "1", wants("true or false") + "another number"),
        (
            "timestamptz",
            r#""yesterday""#,
            wants("a time as of RFC 3339, or epoch seconds or milliseconds") + "another text",
        ),
        ("date", r#""2026-11-30T09:15:00Z""#, changes.clone()),
        ("date", r#""2026-13-30""#, not_taken("22008")),
        ("uuid", r#""7""#, not_taken("22P02")),
        ("uuid", "7", wants("a text") + "another number"),
        ("varchar(2)", r#""abc""#, not_taken("22001")),
        ("char(2)", r#""領収書""#, not_taken("22001")),
        ("numeric(6,2)", "12345", not_taken("22003")),
        ("numeric(6,2)", "9999.995", not_taken("22003")),
        ("numeric(3,-2)", "99950", not_taken("22003")),
        ("jsonb", r#""a\u0000b""#, not_taken("22P05")),
        (
            "text",
            r#""a\u0000b""#,
            r#"the column "v" cannot hold the value at "/data/v": PostgreSQL has no character NUL"#.to_owned(),
        ),
    ] {
        rig.with_column(declared).await;
        let said = refusal(rig.apply("d1", 1, &format!(r#"{{"id":"a","v":{json}}}"#)).await);
        assert!(said.contains(&reason), "{declared} {json}: {said}");
        assert!(!said.contains("twelve") && !said.contains("yesterday"), "S19: {said}");
        assert_eq!(rig.seen("SELECT id FROM sales").await, [""; 0], "{declared} {json}");
        assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed").await, [""; 0], "{declared} {json}");
        assert_eq!(rig.apply("d1", 1, r#"{"id":"a","v":null}"#).await, written(), "{declared}");
    }
}

#[tokio::test]
async fn a_row_whose_key_is_missing_or_odd_is_refused_with_the_reason() {
    let rig = Rig::new("", "sales", SALES).await;
    for data in ["{}", r#"{"id":null}"#, r#"{"id":""}"#, r#"{"id":true}"#, r#"{"id":{}}"#, r#"{"id":1.5}"#, "7"] {
        let reason = refusal(rig.apply("d1", 1, data).await);
        assert!(reason.contains("\"/data/id\""), "{data}: {reason}");
    }
    let long = refusal(rig.apply("d1", 1, &format!(r#"{{"id":"{}"}}"#, random_text(9000))).await);
    assert!(long.contains("index row"), "{long}");
    let rig = Rig::new("CREATE TABLE sales (id integer PRIMARY KEY, total text)", "sales", SALES).await;
    assert!(refusal(rig.apply("d1", 1, r#"{"id":"t1|2026-13||9"}"#).await).contains("takes a whole number"));
    assert_eq!(rig.apply("d1", 1, r#"{"id":29}"#).await, written());
}

/// A text that does not compress.
fn random_text(length: usize) -> String {
    let mut state = 1u32;
    let draw = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24) as u8 % 26)
    };
    (0..length).map(draw).collect()
}
