use super::*;
use crate::inbox::destination::testing::row;

const SALE: &str = r#"{"id":"d1","type":"sale.created","timestamp":"2026-11-30T09:15:00.250Z","data":{
    "id":"T01|2026-11|1001","transactionType":1,"terminalTransactionId":"1001",
    "terminalTransactionDateTime":"2026-11-30T15:30:00Z","store":{"storeId":"s","storeName":"銀座 <本店> & 友"},
    "paymentSummary":{"grandTotal":1234567,"taxes":[]},
    "itemDetailLines":[{"productName":"茶","salesPrice":540,"quantity":2},{"productName":"菓子","price":200,"quantity":1}]}}"#;

fn default_text(language: Language, event_type: &str, key: &str, body: &str) -> String {
    let message = Message::in_language(language, TimeZone::default()).unwrap();
    message.render(&row("d1", event_type, key, body)).unwrap()
}

fn text(template: &str, body: &str) -> Result<String, String> {
    Message::new(template.to_owned(), TimeZone::default()).unwrap().render(&row("d1", "sale.created", "k", body))
}

#[test]
fn a_sale_is_announced_in_both_languages() {
    assert_eq!(
        default_text(Language::Japanese, "sale.created", "k", SALE),
        "*売上* ¥1,234,567\n店舗: 銀座 &lt;本店&gt; &amp; 友\n日時: 2026-12-01 00:30\n取引: 1001\n• 茶 × 2 ¥540\n• 菓子 × 1 ¥200"
    );
    assert_eq!(
        default_text(Language::English, "sale.created", "k", SALE),
        "*Sale* ¥1,234,567\nStore: 銀座 &lt;本店&gt; &amp; 友\nTime: 2026-12-01 00:30\nTransaction: 1001\n• 茶 × 2 ¥540\n• 菓子 × 1 ¥200"
    );
}

#[test]
fn t2_t4_that_nothing_comes_any_more_is_said_in_both_languages() {
    let off = |more: &str| format!(r#"{{"data":{{"source":"shop","providerWebhookId":"wh-1"{more}}}}}"#);
    let stays = off(r#","activeAt":"2026-11-30T15:30:00Z","isReenabled":false"#);
    let text = default_text(Language::Japanese, "webhook.source_disabled", "shop", &stays);
    assert!(
        text.starts_with(":warning: 送信元が *shop* への Webhook を無効にしました。何も届かなくなっています。"),
        "{text}"
    );
    assert!(text.ends_with("\n最後に有効だった日時: 2026-12-01 00:30"), "{text}");
    let text = default_text(Language::English, "webhook.source_disabled", "shop", &stays);
    assert!(
        text.starts_with(":warning: The provider has switched off the webhook that sends to *shop*: nothing"),
        "{text}"
    );
    let again = off(r#","activeAt":null,"isReenabled":true"#);
    let text = default_text(Language::Japanese, "webhook.source_disabled", "shop", &again);
    assert!(text.ends_with("有効に戻し、届かなかった分を照合しています。"), "{text}");
    let text = default_text(Language::English, "webhook.source_disabled", "shop", &again);
    assert!(text.ends_with("*shop*. It was switched on again, and what was missed is being compared."), "{text}");
    let unverified = off(r#","since":"2026-11-30T15:30:00Z","switchedOffAt":"2026-11-30T16:40:00Z""#);
    let text = default_text(Language::Japanese, "webhook.source_unverified", "shop", &unverified);
    assert!(text.contains("2026-12-01 00:30 から一度も") && text.contains("2026-12-01 01:40 ごろ"), "{text}");
    let text = default_text(Language::English, "webhook.source_unverified", "shop", &unverified);
    assert!(text.contains("since 2026-12-01 00:30") && text.contains("at about 2026-12-01 01:40"), "{text}");
}

#[test]
fn returns_cancellations_and_changes_are_marked() {
    let returned = SALE.replace("\"transactionType\":1", "\"transactionType\":2");
    assert!(default_text(Language::Japanese, "sale.created", "k", &returned).starts_with("*返品* ¥1,234,567\n"));
    assert!(default_text(Language::English, "sale.created", "k", &returned).starts_with("*Return* ¥1,234,567\n"));
    assert!(default_text(Language::Japanese, "sale.voided", "k", SALE).starts_with("*売上*（取消） ¥"));
    assert!(default_text(Language::English, "sale.updated", "k", SALE).starts_with("*Sale* (changed) ¥"));
}

#[test]
fn what_is_missing_is_a_dash_and_no_error() {
    let bare = r#"{"data":{"id":"T01|2026-11|1001"}}"#;
    assert_eq!(
        default_text(Language::English, "sale.created", "T01|2026-11|1001", bare),
        "*Sale* -\nStore: -\nTime: 2026-11-30 18:15\nTransaction: T01|2026-11|1001"
    );
    for body in ["{}", "[]", "null", "7", "\"x\"", r#"{"data":null}"#, r#"{"data":[1]}"#, "not JSON \u{0}"] {
        for event_type in ["", "sale.created", "order.updated", "customer.merged"] {
            for language in [Language::Japanese, Language::English] {
                assert!(!default_text(language, event_type, "", body).is_empty(), "{event_type} {body}");
            }
        }
    }
}

#[test]
fn orders_and_every_other_type_have_their_message() {
    let order = r#"{"data":{"order_id":"A-7","status":"paid","total":5000}}"#;
    assert_eq!(
        default_text(Language::English, "order.updated", "A-7", order),
        "*Order* A-7 (changed)\nStatus: paid\nTotal: ¥5,000\nTime: 2026-11-30 18:15"
    );
    assert_eq!(
        default_text(Language::Japanese, "order.created", "A-7", r#"{"data":{"order_id":"A-7"}}"#),
        "*注文*（新規） A-7\n日時: 2026-11-30 18:15"
    );
    assert_eq!(
        default_text(Language::English, "customer.merged", "c1", r#"{"data":{"id":"c1"}}"#),
        "*customer.merged* c1\nTime: 2026-11-30 18:15\nDelivery: d1"
    );
}

#[test]
fn case3_amounts_keep_every_digit() {
    for (number, shown) in [
        ("29383937493038367292", "¥29,383,937,493,038,367,292"),
        ("0", "¥0"),
        ("999", "¥999"),
        ("1000", "¥1,000"),
        ("-1234", "-¥1,234"),
        ("1280.50", "¥1,280.50"),
        ("\"12345\"", "¥12,345"),
        ("1e400", "1e400"),
        ("\"about 5\"", "about 5"),
        ("\"\"", ""),
        ("null", "-"),
        ("[1]", "[1]"),
    ] {
        let body = format!(r#"{{"data":{{"n":{number}}}}}"#);
        assert_eq!(text("{{ data.n|yen }}", &body).unwrap(), shown, "{number}");
    }
    let long = r#"{"bizId":29383937493038367292}"#;
    assert_eq!(text("{{ body.bizId }}", long).unwrap(), "29383937493038367292");
    assert_eq!(text("{{ body.bizId + 1 }}", long).unwrap(), "29383937493038367293");
}

#[test]
fn times_are_shown_in_the_zone_that_was_set() {
    let shown = |zone: &str, time: &str| {
        let message = Message::new("{{ data.t|datetime }}".to_owned(), TimeZone::parse(zone).unwrap()).unwrap();
        message.render(&row("d", "t", "k", &format!(r#"{{"data":{{"t":{time}}}}}"#))).unwrap()
    };
    for (zone, at) in [
        ("Asia/Tokyo", "2026-12-01 00:30"),
        ("UTC", "2026-11-30 15:30"),
        ("-03:30", "2026-11-30 12:00"),
        ("+0545", "2026-11-30 21:15"),
    ] {
        for time in ["\"2026-11-30T15:30:00Z\"", "\"2026-12-01T00:30:00+09:00\"", "1796052600", "1796052600000"] {
            assert_eq!(shown(zone, time), at, "{zone} {time}");
        }
    }
    assert_eq!(shown("UTC", "\"yesterday\""), "yesterday");
    assert_eq!(shown("UTC", "null"), "-");
    for wrong in ["", "Tokio", "+9", "+15:00", "+09:60", "+ab:cd", "../../etc/passwd"] {
        assert!(TimeZone::parse(wrong).unwrap_err().contains("must be an offset"), "{wrong}");
    }
}

#[test]
fn what_means_something_to_slack_is_escaped_in_values_and_not_in_the_template() {
    let body = r#"{"data":{"name":"<!channel> & <@U1>\u0000"}}"#;
    assert_eq!(
        text("<https://example.com|{{ data.name }}> & {{ data.name|safe }}", body).unwrap(),
        "<https://example.com|&lt;!channel&gt; &amp; &lt;@U1&gt;\u{fffd}> & <!channel> & <@U1>\u{0}"
    );
}

#[test]
fn a_template_that_cannot_be_read_is_refused_with_its_line() {
    let refused = check_template("fine\n{{ fine }}\n{% if %}\n").unwrap_err();
    assert!(refused.starts_with("the template is wrong in line 3: syntax error"), "{refused}");
    for language in [Language::Japanese, Language::English] {
        check_template(language.template()).unwrap();
    }
}

#[test]
fn s19_a_template_that_fails_says_where_and_not_on_what() {
    let failed = text("a\n{{ data.secret / 2 }}", r#"{"data":{"secret":"PRIVATE"}}"#).unwrap_err();
    assert!(failed.starts_with("the template is wrong in line 2: "), "{failed}");
    assert!(!failed.contains("PRIVATE"), "{failed}");
}

#[test]
fn a_template_is_bounded_in_its_steps_and_its_output() {
    let endless = text("{% for i in range(10000) %}{% for j in range(10000) %}{{ j }}{% endfor %}{% endfor %}", "{}");
    assert!(endless.unwrap_err().contains("fuel"));
    let body = format!(r#"{{"data":"{}"}}"#, "あ".repeat(MAX_TEXT_CHARS + 1));
    let long = text("{{ data }}{{ data }}", &body).unwrap();
    assert_eq!(long.chars().count(), MAX_TEXT_CHARS);
    assert!(long.ends_with("あ…"));
    let exact = "x".repeat(MAX_TEXT_CHARS);
    assert_eq!(text("{{ data }}", &format!(r#"{{"data":"{exact}"}}"#)).unwrap(), exact);
}

/// What no row could render is found at the start, in whichever branch it stands.
#[test]
fn a_filter_test_or_function_that_there_is_not_is_found_when_the_template_is_read() {
    for (template, part) in [
        ("{{ id|nope }}", "in line 1: there is no filter \"nope\""),
        ("\n{% if data.x %}{{ data.x|upper|moneyy }}{% endif %}", "in line 2: there is no filter \"moneyy\""),
        ("{% if data.x is endingwit('y') %}{% endif %}", "there is no test \"endingwit\""),
        ("{% if data.x %}{{ now() }}{% endif %}", "there is no function \"now\""),
        ("{% filter nope %}x{% endfilter %}", "there is no filter \"nope\""),
        ("{% if data.x %}{% elif data.y %}{% else %}{{ id|nope }}{% endif %}", "there is no filter \"nope\""),
        ("{% for x in data.lines %}{{ data(x) }}{% endfor %}", "there is no function \"data\""),
    ] {
        let error = check_template(template).expect_err(template);
        assert!(error.contains(part), "{template}: {error}");
    }
    for template in [
        "{% set count = range %}{{ count(3)|join(',') }}{{ data.total|yen }}{{ timestamp|datetime }}",
        "{% for x in data.lines recursive %}{{ x.name }}{{ loop(x.lines) }}{% endfor %}{{ range(3)|join(',') }}",
        "{{ dict(a=1) }}{{ id.upper() }}{{ data.lines|map('upper')|select('string')|list }}",
        "{# {{ x|nope }} #}{% raw %}{{ x|nope }}{% endraw %}{{ 'x|nope' }}{{ data.a is defined and data.b is not none }}",
    ] {
        assert_eq!(check_template(template), Ok(()), "{template}");
    }
}
