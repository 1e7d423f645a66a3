//! Everything that the console says, in two languages, and the templates that say it. A sentence stands in the catalogues
//! (`text/en.toml`, `text/ja.toml`) and nowhere else.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value, context};

use super::said;

/// The catalogues.
pub(super) const CATALOGUES: [(Language, &str); 2] =
    [(Language::English, include_str!("text/en.toml")), (Language::Japanese, include_str!("text/ja.toml"))];

macro_rules! templates {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("templates/", $name)))),*] };
}

/// The templates.
const TEMPLATES: [(&str, &str); 27] = templates![
    "layout.html",
    "sign-in.html",
    "problem.html",
    "organizations.html",
    "overview.html",
    "webhooks.html",
    "webhook.html",
    "secret.html",
    "recovery.html",
    "deliveries.html",
    "event.html",
    "inbox.html",
    "row.html",
    "many.html",
    "reconcile.html",
    "tail.html",
    "part/attempts.html",
    "part/code.html",
    "part/effects.html",
    "part/field.html",
    "part/first-source.html",
    "part/form.html",
    "part/line.html",
    "part/more.html",
    "part/spark.html",
    "part/timeline.html",
    "part/tree.html",
];

/// A language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// English, where nothing else is asked for.
    English,
    /// Japanese.
    Japanese,
}

impl Language {
    /// As in `<html lang>`.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Japanese => "ja",
        }
    }

    /// Reads a code.
    pub(super) fn parse(code: &str) -> Option<Self> {
        CATALOGUES.map(|(language, _)| language).into_iter().find(|language| language.code() == code)
    }

    /// The one of ours that an `Accept-Language` wants most.
    pub(super) fn accepted(header: &str) -> Self {
        let wish = |part: &str| {
            let mut parts = part.split(';').map(str::trim);
            let language = Self::parse(parts.next()?.split('-').next()?.to_ascii_lowercase().as_str())?;
            let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f32>().ok())?;
            (weight > 0.0).then_some((language, weight))
        };
        let mut best: Option<(Self, f32)> = None;
        for (language, weight) in header.split(',').filter_map(wish) {
            if best.is_none_or(|(_, most)| weight > most) {
                best = Some((language, weight));
            }
        }
        best.map_or(Self::English, |(language, _)| language)
    }
}

/// A catalogue's sentences by key. A key has the tables that it stands in before it: `webhook.title`.
pub(super) fn sentences(catalogue: &str) -> BTreeMap<String, String> {
    let tables: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(catalogue).expect("the catalogues are read by a test");
    let keys = tables
        .into_iter()
        .flat_map(|(table, rows)| rows.into_iter().map(move |(key, sentence)| (format!("{table}.{key}"), sentence)));
    keys.collect()
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Only what is named .html is HTML; sentences are text, and become text in it.
    environment.set_auto_escape_callback(|name| match name.ends_with(".html") {
        true => AutoEscape::Html,
        false => AutoEscape::None,
    });
    for (name, source) in TEMPLATES {
        environment.add_template(name, source).expect("the templates are read by a test");
    }
    for (language, catalogue) in CATALOGUES {
        for (key, sentence) in sentences(catalogue) {
            let name = format!("{}/{key}", language.code());
            environment.add_template_owned(name, sentence).expect("the catalogues are read by a test");
        }
    }
    environment.add_function("t", translate);
    environment.add_function("known", |key: &str| is_known(key));
    environment.add_function("part", part);
    environment.add_function("path", path);
    environment.add_function("time", time);
    environment.add_function("pause", pause);
    environment.add_function("pauses", pauses);
    environment.add_function("outcomes", outcomes);
    environment.add_function("said", said);
    environment
});

/// Renders a template.
pub(super) fn render(template: &str, values: &Value) -> Result<String, Error> {
    ENVIRONMENT.get_template(template)?.render(values)
}

/// Whether the catalogues have a sentence.
pub(super) fn is_known(key: &str) -> bool {
    ENVIRONMENT.get_template(&format!("{}/{key}", Language::English.code())).is_ok()
}

/// `t("key", name=value)`: a sentence in the page's language.
fn translate(state: &State<'_, '_>, key: &str, values: Kwargs) -> Result<String, Error> {
    let values = Value::from(values);
    sentence(state, key, &values)
}

fn sentence(state: &State<'_, '_>, key: &str, values: &Value) -> Result<String, Error> {
    let language = state.lookup("lang").ok_or_else(|| missing("lang"))?;
    let name = format!("{}/{key}", language.as_str().unwrap_or_default());
    state.env().get_template(&name)?.render(values)
}

/// `part("part/x.html", name=value)`: a part of a page, with these values and those that every page has.
fn part(state: &State<'_, '_>, name: &str, values: Kwargs) -> Result<Value, Error> {
    let common = |name: &str| state.lookup(name).ok_or_else(|| missing(name));
    let values = context! {
        lang => common("lang")?, base => common("base")?, form_token => common("form_token")?, here => common("here")?,
        ..Value::from(values)
    };
    state.env().get_template(name)?.render(values).map(Value::from_safe_string)
}

/// `path("events", id)`: a page of this organization.
fn path(state: &State<'_, '_>, parts: minijinja::value::Rest<Value>) -> Result<String, Error> {
    let base = state.lookup("base").ok_or_else(|| missing("base"))?;
    let parts: Vec<String> = parts.iter().map(|part| part.to_string()).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    Ok(super::path::below(base.as_str().unwrap_or_default(), &parts))
}

/// `time(at)`: a time of the API's, in UTC, for a script to show in the viewer's zone.
fn time(at: &Value) -> Value {
    let Some(text) = at.as_str() else { return Value::from("–") };
    let (date, rest) = text.split_once('T').unwrap_or((text, ""));
    let second = rest.get(..8).unwrap_or(rest);
    let escape = |text: &str| minijinja::HtmlEscape(text).to_string();
    let html = format!("<time datetime=\"{}\">{} {} UTC</time>", escape(text), escape(date), escape(second));
    Value::from_safe_string(html)
}

/// `pause(seconds)`: a length of time, in the unit that fits.
fn pause(state: &State<'_, '_>, seconds: f64) -> Result<String, Error> {
    let (key, n) = match seconds {
        s if s < 1.0 => ("unit.milliseconds", s * 1000.0),
        s if s < 60.0 => ("unit.seconds", s),
        s if s < 100.0 * 60.0 => ("unit.minutes", s / 60.0),
        s if s < 48.0 * 3600.0 => ("unit.hours", s / 3600.0),
        s => ("unit.days", s / 86_400.0),
    };
    // One digit where the number is small, and none of zero.
    let n = (n * 10.0).round() / 10.0;
    let n = if n >= 10.0 || n.fract() == 0.0 { format!("{n:.0}") } else { format!("{n:.1}") };
    sentence(state, key, &context! { n })
}

/// `pauses(list)`: lengths of time, in their order.
fn pauses(state: &State<'_, '_>, list: Vec<f64>) -> Result<String, Error> {
    let pauses: Result<Vec<_>, _> = list.into_iter().map(|seconds| pause(state, seconds)).collect();
    enumerated(state, &pauses?)
}

/// `outcomes(attempts)`: what each came to, in short.
fn outcomes(state: &State<'_, '_>, attempts: Vec<Value>) -> Result<String, Error> {
    let outcome = |attempt: &Value| {
        let (status, kind) = (attempt.get_attr("httpStatus")?, attempt.get_attr("errorKind")?);
        match (status.as_i64(), kind.as_str()) {
            (Some(0), Some(kind)) => sentence(state, &format!("error.{kind}"), &context! {}),
            _ => Ok(status.to_string()),
        }
    };
    let outcomes: Result<Vec<_>, _> = attempts.iter().map(outcome).collect();
    enumerated(state, &outcomes?)
}

fn enumerated(state: &State<'_, '_>, parts: &[String]) -> Result<String, Error> {
    Ok(parts.join(&sentence(state, "unit.and", &context! {})?))
}

/// `said(text)`: what the program says in English, in the page's language where the catalogues know it.
fn said(state: &State<'_, '_>, text: &str) -> Result<Value, Error> {
    let html = match said::known(text) {
        Some((key, what)) => {
            // What a sentence ends with may be one that is known as well.
            let what = match said::known(what) {
                Some((key, what)) => sentence(state, key, &context! { what })?,
                None => what.to_owned(),
            };
            minijinja::HtmlEscape(&sentence(state, key, &context! { what })?).to_string()
        }
        None => format!("<span lang=\"en\">{}</span>", minijinja::HtmlEscape(text)),
    };
    Ok(Value::from_safe_string(html))
}

fn missing(name: &str) -> Error {
    Error::new(ErrorKind::UndefinedError, format!("{name} is not among a page's values"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn both_catalogues_say_the_same_things_with_the_same_values() {
        let [english, japanese] = CATALOGUES.map(|(_, catalogue)| sentences(catalogue));
        assert_eq!(english.keys().collect::<Vec<_>>(), japanese.keys().collect::<Vec<_>>());
        let environment = Environment::new();
        let names = |sentence: &str| environment.template_from_str(sentence).unwrap().undeclared_variables(false);
        for (key, sentence) in &english {
            // A plural is English alone, but what is named in one must be there for the other.
            assert_eq!(names(sentence), names(&japanese[key]), "{key}");
        }
    }

    #[test]
    fn every_sentence_is_said_and_every_key_is_known() {
        let known: BTreeSet<String> = sentences(CATALOGUES[0].1).into_keys().collect();
        let mut said = BTreeSet::new();
        for (name, source) in TEMPLATES {
            said.insert(format!("{}.title", name.trim_end_matches(".html")));
            let keys = source.split("t(\"").skip(1).filter_map(|rest| rest.split_once('"'));
            for (key, rest) in keys.filter(|(key, _)| !key.starts_with("part/")) {
                // What is the beginning of a key goes on with a word of the API's.
                let begins = |known: &&String| rest.starts_with(" ~") && known.starts_with(key);
                assert!(
                    known.contains(key) || known.iter().any(|known| begins(&known)),
                    "{name} says {key:?}, which no catalogue has"
                );
                said.extend(known.iter().filter(begins).cloned().chain([key.to_owned()]));
            }
        }
        let code = [
            include_str!("overview.rs"),
            include_str!("frame.rs"),
            include_str!("text.rs"),
            include_str!("webhooks.rs"),
        ];
        let is_said = |key: &String| {
            said.contains(key)
                || code.iter().any(|code| code.contains(&format!("\"{key}\"")))
                || ["concern.", "problem.", "why.", "said."].iter().any(|table| key.starts_with(table))
        };
        let silent: Vec<_> = known.iter().filter(|key| !is_said(key)).collect();
        assert!(silent.is_empty(), "nobody says {silent:?}");
    }

    /// What is left of a template without what is computed, without tags, and without what is no language: the command
    /// lines and settings in `<code data-literal>`.
    fn text_of(source: &str) -> String {
        let mut text = source.to_owned();
        for (begin, end) in [("{#", "#}"), ("{%", "%}"), ("{{", "}}"), ("<code data-literal", "</code>")] {
            while let Some(start) = text.find(begin) {
                let length = text[start..].find(end).unwrap() + end.len();
                text.replace_range(start..start + length, "");
            }
        }
        let spoken = ["alt=\"", "aria-label=\"", "title=\"", "placeholder=\""];
        let attributes =
            spoken.iter().flat_map(|name| text.split(name).skip(1)).filter_map(|rest| rest.split('"').next());
        let attributes: String = attributes.collect();
        while let (Some(start), Some(end)) = (text.find('<'), text.find('>')) {
            assert!(start < end, "{source}");
            text.replace_range(start..=end, " ");
        }
        format!("{text} {attributes}").replace("&nbsp;", "").replace("&thinsp;", "")
    }

    #[test]
    fn no_template_holds_a_word_of_its_own() {
        for (name, source) in TEMPLATES {
            let text = text_of(source);
            let word = text.split_whitespace().find(|word| word.chars().any(char::is_alphabetic));
            assert_eq!(word, None, "{name}: it belongs into the catalogues");
        }
    }

    #[test]
    fn the_script_says_only_what_the_page_gives_it() {
        let script = include_str!("../../assets/console/console.js");
        for said in ["textContent = \"", "textContent = `", "title = \"", "alert(", "placeholder"] {
            let at =
                script.find(said).filter(|at| script[*at..].chars().nth(said.len()).is_some_and(char::is_alphabetic));
            assert_eq!(at, None, "{said}");
        }
    }

    #[test]
    fn the_browsers_wish_is_heard() {
        for (header, language) in [
            ("", Language::English),
            ("ja", Language::Japanese),
            ("ja-JP,ja;q=0.9,en;q=0.8", Language::Japanese),
            ("en-GB,en;q=0.9,ja;q=0.8", Language::English),
            ("fr, ja;q=0.5, en;q=0.4", Language::Japanese),
            ("ja;q=0, en;q=0.1", Language::English),
            ("de", Language::English),
            ("ja;q=x", Language::English),
        ] {
            assert_eq!(Language::accepted(header), language, "{header}");
        }
    }
}
