//! The settings of the kinds of destinations that have no table of their own elsewhere: one function per kind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use hikyaku_core::signature::{Scheme, Secret};
use hikyaku_core::webhook::CustomHeaders;

use super::section::Section;
use super::tree::Node;
use super::value::{choice, integer, parsed, secret, target, text};
use crate::inbox::destination::{
    CommandSettings, FileSettings, HttpSettings, Kind, Language, SlackSettings, TimeZone, VARIABLE_PREFIX,
    check_template,
};

type Environment = BTreeMap<String, String>;

/// Largest template, in bytes.
const MAX_TEMPLATE_BYTES: u64 = 64 * 1024;
/// Most arguments of a command.
const MAX_ARGS: usize = 100;
/// Longest argument of a command, in bytes.
const MAX_ARG_BYTES: usize = 4096;
/// Smallest and largest size at which a file is full, in bytes.
const FILE_BYTES: std::ops::RangeInclusive<i64> = 1024..=1024 * 1024 * 1024 * 1024;
/// A file is full at this size unless set otherwise.
const DEFAULT_FILE_BYTES: u64 = 100 * 1024 * 1024;
/// Most full files that can be kept.
const MAX_KEPT_FILES: i64 = 10_000;
/// As many full files are kept unless set otherwise.
const DEFAULT_KEPT_FILES: u32 = 100;

/// Reads `kind = "http"`.
pub(super) fn http(section: &mut Section<'_>, environment: &Environment) -> Option<Kind> {
    let url = section.require("url", parsed(target));
    let schemes = &[
        ("receiptroller", Scheme::ReceiptRoller),
        ("standard-webhooks", Scheme::StandardWebhooks),
        ("standard-webhooks-ed25519", Scheme::StandardWebhooksEd25519),
    ];
    let scheme = section.get("scheme", choice(schemes)).unwrap_or_default();
    let secret_of_scheme = |node: &Node| {
        let secret = secret(environment)(node)?;
        scheme.check(&secret).map_err(|error| error.to_string())?;
        Ok(secret)
    };
    if scheme != Scheme::default() && !section.has("secret") {
        section.problem("scheme", "is of no use without `secret`, which signs");
    }
    let secret_place = section.get("secret", secret_of_scheme);
    let values = |node: &Node| Ok(secret(environment)(node)?.reveal().to_owned());
    let mut headers = CustomHeaders::default();
    for (name, value) in section.texts("headers", values).unwrap_or_default() {
        let own = ["idempotency-key", "content-type"].iter().any(|own| name.eq_ignore_ascii_case(own));
        let added = if own {
            Err(format!("{name:?} is reserved"))
        } else {
            headers.add(&name, &value).map_err(|e| e.to_string())
        };
        if let Err(problem) = added {
            section.problem("headers", &format!("cannot be sent: {problem}"));
        }
    }
    Some(Kind::Http(HttpSettings { url: url?.as_url().clone(), secret: secret_place, scheme, headers }))
}

/// Reads `kind = "slack"`.
pub(super) fn slack(section: &mut Section<'_>, environment: &Environment) -> Option<Kind> {
    let url = section.require("url", |node| {
        let url = secret(environment)(node)?;
        // What is wrong may be said, but nothing of the URL: it is a secret.
        target(url.reveal()).map_err(|_| {
            "must be the URL of an incoming webhook like \"https://hooks.slack.com/services/…\"; better as \"env:NAME\" \
             or \"file:PATH\", because whoever knows it can write to the channel"
                .to_owned()
        })?;
        Ok(url)
    });
    let languages = &[("ja", Language::Japanese), ("en", Language::English)];
    let has_both = section.has("language") && section.has("template");
    let language = section.get("language", choice(languages)).unwrap_or_default();
    if has_both {
        section
            .problem("language", "chooses a message of our own, and `template` is one of yours; leave one of them out");
    }
    let template = section.get("template", template);
    let time_zone = section.get("time_zone", parsed(TimeZone::parse)).unwrap_or_default();
    Some(Kind::Slack(SlackSettings { url: url?, template, language, time_zone }))
}

/// A template, or `file:PATH` of one.
fn template(node: &Node) -> Result<String, String> {
    let text = text(node)?;
    let source = match text.strip_prefix("file:") {
        Some(path) => {
            let mut source = String::new();
            let read = File::open(path).and_then(|file| file.take(MAX_TEMPLATE_BYTES + 1).read_to_string(&mut source));
            read.map_err(|error| format!("needs the file {path:?}, which cannot be read: {error}"))?;
            source
        }
        None => text,
    };
    if source.len() as u64 > MAX_TEMPLATE_BYTES {
        return Err(format!("has more than {MAX_TEMPLATE_BYTES} bytes"));
    }
    check_template(&source).map_err(|error| format!("cannot be used: {error}"))?;
    Ok(source)
}

/// Reads `kind = "command"`.
pub(super) fn command(section: &mut Section<'_>, environment: &Environment) -> Option<Kind> {
    let program = section.require("program", parsed(argument));
    let args = section.list("args", parsed(argument)).unwrap_or_default();
    if args.len() > MAX_ARGS {
        section.problem("args", &format!("has {} arguments; at most {MAX_ARGS} are allowed", args.len()));
    }
    let values = |node: &Node| {
        let value = secret(environment)(node)?;
        argument(value.reveal())
    };
    let env = section.texts("env", values).unwrap_or_default();
    for name in env.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            section.problem("env", &format!("has a variable named {name:?}, which no environment can have"));
        } else if name.starts_with(VARIABLE_PREFIX) {
            let message =
                format!("has a variable named {name:?}; names that begin with {VARIABLE_PREFIX} tell of the row");
            section.problem("env", &message);
        }
    }
    let directory = section.get("directory", parsed(argument)).map(PathBuf::from);
    let env = env.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    Some(Kind::Command(CommandSettings { program: program?, args, env, directory }))
}

/// A text that can be passed to a program.
fn argument(text: &str) -> Result<String, String> {
    if text.contains('\0') || text.len() > MAX_ARG_BYTES {
        return Err(format!("must have at most {MAX_ARG_BYTES} bytes and no NUL"));
    }
    Ok(text.to_owned())
}

/// Reads `kind = "file"`.
pub(super) fn file(section: &mut Section<'_>, _: &Environment) -> Option<Kind> {
    let path = section.require("path", parsed(path));
    let max_bytes = section.get("max_bytes", integer(FILE_BYTES)).unwrap_or(DEFAULT_FILE_BYTES);
    let keep = section.get("keep", integer(1..=MAX_KEPT_FILES)).unwrap_or(DEFAULT_KEPT_FILES);
    Some(Kind::File(FileSettings { path: path?, max_bytes, keep }))
}

fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(argument(text)?);
    if path.file_name().is_none() || text.ends_with('/') {
        return Err(format!("must be the path of a file, not {text:?}"));
    }
    Ok(path)
}
