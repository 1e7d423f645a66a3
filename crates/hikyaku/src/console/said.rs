//! What the program itself says in English, found again in the catalogues: reasons and details come through the API as text.

use std::sync::LazyLock;

use super::text::{CATALOGUES, sentences};

/// The catalogues' table of them. A sentence has at most one place for what differs.
const TABLE: &str = "said.";
/// That place.
const PLACE: &str = "{{ what }}";

/// A sentence of the program.
struct Said {
    key: String,
    begin: String,
    /// What comes after the place, where there is one.
    end: Option<String>,
}

static SAID: LazyLock<Vec<Said>> = LazyLock::new(|| {
    let english = sentences(CATALOGUES[0].1).into_iter().filter(|(key, _)| key.starts_with(TABLE));
    let said = |(key, sentence): (String, String)| match sentence.split_once(PLACE) {
        Some((begin, end)) => Said { key, begin: begin.to_owned(), end: Some(end.to_owned()) },
        None => Said { key, begin: sentence, end: None },
    };
    english.map(said).collect()
});

/// The key of a sentence, and what stands in its place; `None` where the catalogues do not know it.
pub(super) fn known(text: &str) -> Option<(&'static str, &str)> {
    SAID.iter().find_map(|said| {
        let rest = text.strip_prefix(said.begin.as_str())?;
        let what = match &said.end {
            Some(end) => rest.strip_suffix(end.as_str())?,
            None => Some(rest).filter(|rest| rest.is_empty())?,
        };
        Some((said.key.as_str(), what))
    })
}
