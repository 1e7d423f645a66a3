//! A URL with gaps, which an event fills.

use std::fmt;

use hikyaku_core::address::TargetPolicy;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::json;
use hikyaku_core::webhook::WebhookUrl;
use url::{Position, Url};

use crate::store::WorkRow;

/// Where the present state of a business key is read: a URL in whose path and query `{key}`, `{organization}` and JSON
/// pointers into the event (`{/data/shop}`) are gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    text: String,
    /// Scheme and authority, which nothing that somebody sent can change.
    base: String,
    rest: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Key,
    Organization,
    Pointer(String),
}

impl UrlTemplate {
    /// Reads a template. The error says what it must be, to follow its name.
    ///
    /// # Errors
    /// It is no URL of http or https, a gap is unknown or not closed, one stands before the path, none tells one
    /// event from another, or the host is one that S7 refuses.
    pub fn parse(text: &str) -> Result<Self, String> {
        let host_at = text.find("://").map_or(0, |at| at + "://".len());
        let path_at = text[host_at..].find('/').map(|at| host_at + at);
        let Some((base, rest)) = path_at.map(|at| text.split_at(at)) else {
            return Err(format!("must be a URL with a path like \"https://api.example/orders/{{key}}\", not {text:?}"));
        };
        if base.contains(['{', '?', '#']) {
            return Err(format!("has something other than scheme, host and port before its path: {text:?}"));
        }
        let template = Self { text: text.to_owned(), base: base.to_owned(), rest: parts(rest)? };
        let sample = template.join(|_| Ok("x".to_owned()))?;
        let sample = WebhookUrl::parse(sample.as_str()).map_err(|error| error.to_string())?;
        TargetPolicy::everywhere().vet_url(sample.as_url()).map_err(|refusal| format!("leads nowhere: {refusal}"))?;
        if !template.rest.iter().any(|part| matches!(part, Part::Key | Part::Pointer(_))) {
            return Err(format!(
                "would read the same of every event; put {{key}}, or a JSON pointer like {{/data/id}}, into its path or \
                 query, not {text:?}"
            ));
        }
        Ok(template)
    }

    /// The URL for a row. What fills the gaps is percent-encoded, so that it stays within its part of the path or query
    /// whatever it holds: a key `../x` leads nowhere else.
    ///
    /// # Errors
    /// A gap has nothing to fill it, or what fills it cannot stand in a path (`..`).
    pub(crate) fn fill(&self, organization: &OrganizationId, row: &WorkRow) -> Result<Url, String> {
        self.join(|part| {
            let value = match part {
                Part::Text(text) => return Ok(text.clone()),
                Part::Key => Some(row.key.clone()).filter(|key| !key.is_empty()).ok_or("a business key")?,
                Part::Organization => organization.to_string(),
                Part::Pointer(pointer) => {
                    let value = json::pointer(&row.body, pointer).and_then(json::text_or_number);
                    value.filter(|text| !text.is_empty()).ok_or_else(|| format!("a text or number at {pointer}"))?
                }
            };
            Ok(encode(&value))
        })
        .map_err(|missing| format!("the provider cannot be asked about it: {missing}"))
    }

    fn join(&self, fill: impl Fn(&Part) -> Result<String, String>) -> Result<Url, String> {
        let fill = |part: &Part| match part {
            Part::Text(text) => Ok(text.clone()),
            gap => fill(gap).map_err(|what| format!("the event lacks {what}")),
        };
        let rest: String = self.rest.iter().map(fill).collect::<Result<_, _>>()?;
        let url = Url::parse(&format!("{}{rest}", self.base)).map_err(|error| format!("{:?}: {error}", self.text))?;
        // A parser takes `..` for a step upwards, even when it is percent-encoded.
        if &url[Position::BeforePath..] != rest.as_str() {
            return Err(format!("{rest:?} is no path that means what it says"));
        }
        Ok(url)
    }
}

impl UrlTemplate {
    /// The same without what may be as good as a password: the values of its query, but for gaps (S19).
    pub(in crate::inbox) fn without_secrets(&self) -> Self {
        let Some((path, query)) = self.text.split_once('?') else { return self.clone() };
        let hide = |pair: &str| match pair.split_once('=') {
            Some((name, value)) if !value.contains('{') => format!("{name}=(hidden:{}-bytes)", value.len()),
            None if !pair.contains('{') => format!("(hidden:{}-bytes)", pair.len()),
            _ => pair.to_owned(),
        };
        let query: Vec<_> = query.split('&').map(hide).collect();
        // Only plain characters have taken the place of others, so it reads like the original.
        Self::parse(&format!("{path}?{}", query.join("&"))).unwrap_or_else(|_| Self {
            text: path.to_owned(),
            rest: Vec::new(),
            ..self.clone()
        })
    }
}

impl fmt::Display for UrlTemplate {
    /// Shows it without what may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_secrets().text)
    }
}

fn parts(mut rest: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    while let Some((text, gap)) = rest.split_once('{') {
        let Some((name, after)) = gap.split_once('}') else {
            return Err(format!("has a {{ that is not closed, in {rest:?}"));
        };
        parts.push(Part::Text(text.to_owned()));
        parts.push(match name {
            "key" => Part::Key,
            "organization" => Part::Organization,
            pointer if pointer.starts_with('/') && json::is_pointer(pointer) => Part::Pointer(pointer.to_owned()),
            _ => {
                return Err(format!(
                    "has the gap {{{name}}}; there are {{key}}, {{organization}} and JSON pointers like {{/data/id}}"
                ));
            }
        });
        rest = after;
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

/// Everything but letters, digits, `-`, `_`, `~` and `.` as its bytes in hexadecimal.
fn encode(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b'.');
    let encode = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    value.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hikyaku_core::ordering::Version;
    use jiff::Timestamp;

    use super::*;

    fn row(key: &str, body: &str) -> WorkRow {
        WorkRow {
            delivery: "d".into(),
            source: "shop".into(),
            event_type: "order.updated".into(),
            key: key.into(),
            version: Version::new(Timestamp::UNIX_EPOCH, "order.updated", "d"),
            failures: 0,
            received_at: Timestamp::UNIX_EPOCH,
            due_since: Timestamp::UNIX_EPOCH,
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    fn fill(template: &str, key: &str, body: &str) -> Result<String, String> {
        let organization = OrganizationId::parse("default").unwrap();
        UrlTemplate::parse(template).unwrap().fill(&organization, &row(key, body)).map(String::from)
    }

    #[test]
    fn gaps_are_filled_from_the_row() {
        let body = r#"{"data":{"shop":12,"none":null}}"#;
        let url =
            fill("https://api.example/{organization}/shops/{/data/shop}/orders/{key}?full=1&k={key}", "o-1", body);
        assert_eq!(url.unwrap(), "https://api.example/default/shops/12/orders/o-1?full=1&k=o-1");
        for (template, key) in [("https://h/{/data/none}", "k"), ("https://h/{/data/x}", "k"), ("https://h/{key}", "")]
        {
            let error = fill(template, key, body).unwrap_err();
            assert!(error.contains("the event lacks"), "{error}");
        }
    }

    /// A key is somebody else's text: it names one thing, wherever it would like to lead.
    #[test]
    fn s3_a_key_cannot_leave_its_place() {
        for (key, expected) in [
            ("../x", "..%2Fx"),
            ("t1|2026-13|9", "t1%7C2026-13%7C9"),
            ("a/b?c#d", "a%2Fb%3Fc%23d"),
            ("a\\b", "a%5Cb"),
            ("%2e%2e", "%252e%252e"),
            ("@evil.example", "%40evil.example"),
            ("注文\n", "%E6%B3%A8%E6%96%87%0A"),
        ] {
            assert_eq!(fill("https://h/orders/{key}", key, "{}").unwrap(), format!("https://h/orders/{expected}"));
        }
        for key in ["..", "."] {
            assert!(fill("https://h/orders/{key}", key, "{}").is_err(), "{key}");
        }
        assert_eq!(fill("https://h/orders/n{key}", "..", "{}").unwrap(), "https://h/orders/n..");
    }

    #[test]
    fn s19_values_of_the_query_are_not_shown() {
        let template =
            UrlTemplate::parse("https://h/orders/{key}?api_key=sesame&sesame&shop={/data/shop}&k={key}").unwrap();
        let shown = "https://h/orders/{key}?api_key=(hidden:6-bytes)&(hidden:6-bytes)&shop={/data/shop}&k={key}";
        assert_eq!(template.to_string(), shown);
        let organization = OrganizationId::parse("default").unwrap();
        let filled = template.without_secrets().fill(&organization, &row("o-1", r#"{"data":{"shop":12}}"#)).unwrap();
        assert!(filled.as_str().ends_with("&(hidden:6-bytes)&shop=12&k=o-1"), "{filled}");
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for bad in [
            "",
            "orders/{key}",
            "https://h",
            "https://{key}/x",
            "https://h?{key}/",
            "https://h/{key",
            "https://h/{name}",
            "https://h/{/a~2}",
            "https://h/a b/{key}",
            "https://h/../{key}",
            "https://user:pass@h/{key}",
            "ftp://h/{key}",
            "https://h/orders",
            "https://h/{organization}",
            "http://169.254.169.254/{key}",
        ] {
            assert!(UrlTemplate::parse(bad).is_err(), "{bad}");
        }
    }
}
