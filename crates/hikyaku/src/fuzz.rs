//! The readers of this crate as functions of any bytes whatever, beside those of [`hikyaku_core::fuzz`].

use std::str::from_utf8;

use bytes::Bytes;
pub use hikyaku_core::fuzz::Target;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;

use crate::config::{Inputs, read_text};
use crate::http::read_as_any_cursor;
use crate::inbox::fetch::UrlTemplate;
use crate::store::WorkRow;

/// Who owns what comes.
const ORGANIZATION: &str = "acme";

/// The readers, by the names of their corpora.
pub const TARGETS: [Target; 3] = [
    Target { name: "template", run: template },
    Target { name: "cursor", run: cursor },
    Target { name: "configuration", run: configuration },
];

/// Runs the reader of this name on these bytes.
///
/// # Panics
/// Where a property does not hold, or there is no such reader.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("it is one of the list").run)(bytes);
}

/// A template on the first line, a business key on the second, and a body: nothing that somebody sends leads elsewhere than
/// the template does (S3).
fn template(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let (Ok(text), Ok(key), body) = (from_utf8(next()), from_utf8(next()), next()) else { return };
    let Ok(template) = UrlTemplate::parse(text) else { return };
    let organization = OrganizationId::parse(ORGANIZATION).expect("it is a name");
    let fill = |key: &str, body: &[u8]| template.fill(&organization, &row(key, body));
    assert!(template.to_string().len() <= text.len() + text.len() * "(hidden:1-bytes)".len());
    let Ok(url) = fill(key, body) else { return };
    // What the same body with a harmless key leads to, is filled from the same template.
    let Ok(harmless) = fill("x", body) else { return };
    assert_eq!((url.origin(), url.username(), url.password()), (harmless.origin(), "", None), "{text}");
    let parts = |url: &url::Url| (url.path().matches('/').count(), url.query().map(|query| query.matches('&').count()));
    assert_eq!(parts(&url), parts(&harmless), "{key:?} has changed the way: {url}");
    assert_eq!(url.fragment(), harmless.fragment());
}

fn row(key: &str, body: &[u8]) -> WorkRow {
    WorkRow {
        delivery: "d".into(),
        source: "shop".into(),
        event_type: "order.updated".into(),
        key: key.into(),
        version: Version::new(Timestamp::UNIX_EPOCH, "order.updated", "d"),
        failures: 0,
        received_at: Timestamp::UNIX_EPOCH,
        due_since: Timestamp::UNIX_EPOCH,
        body: Bytes::copy_from_slice(body),
    }
}

/// A cursor of any list.
fn cursor(bytes: &[u8]) {
    if let Ok(text) = from_utf8(bytes) {
        read_as_any_cursor(text);
    }
}

/// A configuration file: it is read, or all that is wrong with it is said with its place.
fn configuration(bytes: &[u8]) {
    let Ok(text) = from_utf8(bytes) else { return };
    let read = || read_text("hikyaku.toml".into(), text, &Inputs::default());
    match (read(), read()) {
        (Ok(config), Ok(again)) => assert_eq!(format!("{config:?}"), format!("{again:?}")),
        (Err(invalid), Err(again)) => {
            assert!(!invalid.0.is_empty() && invalid.0.iter().all(|problem| !problem.message.is_empty()));
            assert_eq!(invalid.to_string(), again.to_string());
        }
        _ => panic!("it is read once and not twice"),
    }
}

#[cfg(test)]
mod tests {
    use hikyaku_core::fuzz::{drive, replay};

    use super::*;

    /// Changed inputs of a reader, unless `HIKYAKU_TEST_FUZZ` says otherwise.
    const CHANGED: u64 = 5_000;

    #[test]
    fn every_corpus_holds_and_what_comes_of_it() {
        let most = std::env::var("HIKYAKU_TEST_FUZZ").map_or(CHANGED, |most| most.parse().expect("it is a number"));
        for (seed, target) in (1..).zip(&TARGETS) {
            assert!(replay(target) >= 5, "{}: its corpus is small", target.name);
            assert_eq!(drive(target, seed, |count| count < most), most);
        }
    }
}
