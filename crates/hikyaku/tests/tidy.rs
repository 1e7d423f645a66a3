//! Style as a test: dependency arrows, sizes, and documents that fit each other. The lists of exceptions only shrink.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot read")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "tidy/statements.rs"]
mod statements;

/// Longest function, in lines from its signature to its closing brace.
const MAX_FUNCTION_LINES: usize = 70;
/// Longest file, in lines.
const MAX_FILE_LINES: usize = 400;

/// What each module of the program may import from its own crate. The arrows of ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 23] = [
    ("client", &[]),
    ("clock", &[]),
    ("crash", &[]),
    ("file", &[]),
    ("role", &[]),
    ("postgres", &[]),
    ("outbound", &["clock"]),
    ("store", &["clock", "crash", "file", "outbound", "postgres"]),
    ("trace", &["clock", "outbound"]),
    ("sender", &["clock", "crash", "outbound", "store", "trace"]),
    ("provider_api", &["clock", "outbound"]),
    ("inbox", &["clock", "crash", "file", "outbound", "postgres", "provider_api", "store", "trace"]),
    ("reconcile", &["clock", "crash", "outbound", "provider_api", "store"]),
    ("retention", &["clock", "crash", "store"]),
    ("duty", &["clock", "store"]),
    ("heartbeat", &["clock", "store"]),
    ("http", &["clock", "inbox", "outbound", "reconcile", "role", "sender", "store", "trace"]),
    ("console", &["client", "clock"]),
    (
        "config",
        &[
            "clock",
            "heartbeat",
            "inbox",
            "postgres",
            "provider_api",
            "reconcile",
            "retention",
            "role",
            "sender",
            "store",
            "trace",
        ],
    ),
    (
        "app",
        &[
            "clock",
            "config",
            "console",
            "duty",
            "heartbeat",
            "http",
            "inbox",
            "log",
            "outbound",
            "reconcile",
            "retention",
            "role",
            "sender",
            "store",
            "trace",
        ],
    ),
    ("sandbox", &["clock", "log", "outbound"]),
    ("check", &["client", "clock", "outbound", "sandbox"]),
    ("demo", &["app", "client", "clock", "config", "log", "sandbox"]),
];

/// What the rules may not know of.
const NOT_IN_CORE: [&str; 8] = ["tokio", "hyper", "axum", "rusqlite", "postgres", "reqwest", "tracing", "rand"];

/// Where SQL and its libraries may be: what two of the others share, behind the store's trait, in the destination that writes to a user's own database, and in
/// the demo, which reads that database from outside.
const SQL: [&str; 5] = ["postgres.rs", "store/sqlite/", "store/postgres/", "inbox/destination/sql/", "demo/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files(below: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()
}

fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn modules_import_only_along_the_arrows() {
    let src = root().join("crates/hikyaku/src");
    let arrows: BTreeMap<_, _> = ARROWS.into_iter().collect();
    let mut complaints = Vec::new();
    for file in files(&src, ".rs") {
        let inside = file.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
        let module = inside.split(['/', '.']).next().unwrap_or_default();
        let Some(allowed) = arrows.get(module) else { continue };
        if inside.ends_with("tests.rs") || inside.contains("/tests/") {
            continue; // a test may set up more than its module knows of
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            for target in line.split("crate::").skip(1) {
                let target = target.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                if target != module && arrows.contains_key(target) && !allowed.contains(&target) {
                    complaints.push(format!("{}:{}: {module} must not import {target}", relative(&file), number + 1));
                }
            }
        }
    }
    assert_none(complaints);
}

#[test]
fn sql_is_spoken_in_its_places_only() {
    let src = root().join("crates/hikyaku/src");
    let mut complaints = Vec::new();
    for file in files(&src, ".rs") {
        let inside = file.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
        let is_test = inside.ends_with("tests.rs") || inside.contains("/tests/");
        let allowed = is_test || SQL.iter().any(|place| inside.starts_with(place));
        let text = fs::read_to_string(&file).unwrap();
        if !allowed && ["rusqlite", "tokio_postgres"].iter().any(|library| text.contains(library)) {
            complaints.push(format!("{}: SQL belongs into {}", relative(&file), SQL.join(", ")));
        }
    }
    assert_none(complaints);
}

#[test]
fn every_module_has_its_place_in_the_arrows() {
    let known: Vec<_> = ARROWS.iter().map(|(module, _)| *module).chain(["main", "lib", "cli", "log", "fuzz"]).collect();
    let unknown = fs::read_dir(root().join("crates/hikyaku/src")).unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.split('.').next().unwrap_or_default().to_owned();
        (!known.contains(&module.as_str())).then(|| format!("{name}: say in tidy.rs what it may import"))
    });
    assert_none(unknown.collect());
}

#[test]
fn the_core_has_no_io_in_its_dependencies() {
    let manifest = fs::read_to_string(root().join("crates/hikyaku-core/Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
    let found = NOT_IN_CORE.iter().filter(|name| dependencies.contains(*name));
    assert_none(found.map(|name| format!("hikyaku-core must not depend on {name}")).collect());
}

/// What only proves and measures is in nothing that is shipped.
#[test]
fn nothing_depends_on_what_proves_and_measures() {
    let manifests = files(&root().join("crates"), "Cargo.toml").into_iter();
    let text = manifests.map(|manifest| fs::read_to_string(manifest).unwrap()).collect::<String>();
    let uses = text.lines().filter(|line| line.starts_with("hikyaku-sim") || line.starts_with("hikyaku-bench"));
    assert_none(uses.map(str::to_owned).collect());
}

/// What an embedded receiver brings along is what its README says, and nothing that runs or connects.
#[test]
fn the_embedded_receiver_stays_small() {
    let tree = ["tree", "--locked", "--offline", "--package", "hikyaku-inbox", "--edges", "normal", "--prefix", "none"];
    let output = Command::new(env!("CARGO")).args(tree).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let crates: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let found = NOT_IN_CORE.iter().filter(|name| crates.iter().any(|one| one.split('-').next() == Some(**name)));
    assert_none(found.map(|name| format!("hikyaku-inbox without features must not depend on {name}")).collect());
    let count = format!("in {} crates", crates.iter().filter(|name| **name != "hikyaku-inbox").count());
    let readme = fs::read_to_string(root().join("crates/hikyaku-inbox/README.md")).unwrap();
    assert!(readme.contains(&count), "crates/hikyaku-inbox/README.md does not say \"{count}\": {crates:?}");
}

#[test]
fn functions_and_files_stay_short() {
    let mut complaints = Vec::new();
    for file in files(&root().join("crates"), ".rs") {
        let name = relative(&file);
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().collect();
        if lines.len() > MAX_FILE_LINES {
            complaints.push(format!("{name}: {} lines, at most {MAX_FILE_LINES}", lines.len()));
        }
        for (start, length) in long_functions(&lines) {
            complaints
                .push(format!("{name}:{}: a function of {length} lines, at most {MAX_FUNCTION_LINES}", start + 1));
        }
    }
    assert_none(complaints);
}

/// Where functions begin that are too long, and how long they are. rustfmt puts the closing brace at the indentation
/// of the line that the function begins on.
fn long_functions(lines: &[&str]) -> Vec<(usize, usize)> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let begins = |line: &str| {
        let words: Vec<_> = line.split_whitespace().take_while(|word| *word != "fn").collect();
        words.len() < line.split_whitespace().count()
            && words.iter().all(|word| matches!(*word, "async" | "const" | "unsafe") || word.starts_with("pub"))
    };
    // A signature in a trait may have none.
    let has_body = |start: usize| {
        let end = lines[start..].iter().find(|line| line.ends_with(['{', '}', ';']));
        end.is_some_and(|line| line.ends_with('{'))
    };
    let length = |start: usize| {
        let closing = format!("{}}}", " ".repeat(indentation(lines[start])));
        lines[start..].iter().position(|line| *line == closing).map_or(0, |end| end + 1)
    };
    let starts = (0..lines.len()).filter(|start| begins(lines[*start]) && has_body(*start));
    starts.map(|start| (start, length(start))).filter(|(_, length)| *length > MAX_FUNCTION_LINES).collect()
}

#[test]
fn a_long_function_would_be_noticed() {
    let body = "        1;\n".repeat(MAX_FUNCTION_LINES);
    let text = format!("impl X {{\n    pub(crate) async fn long() {{\n{body}    }}\n    fn short() {{\n    }}\n}}\n");
    assert_eq!(long_functions(&text.lines().collect::<Vec<_>>()), [(1, MAX_FUNCTION_LINES + 2)]);
    let text = format!("trait X {{\n    fn none(\n        self,\n    );\n{body}    fn short() {{\n    }}\n}}\n");
    assert_eq!(long_functions(&text.lines().collect::<Vec<_>>()), []);
}

#[test]
fn nothing_is_left_for_later() {
    let marks = ["TO\u{44}O", "FIX\u{4d}E", "XX\u{58}", "#[ignore]", "todo!(", "unimplemented!("];
    let mut complaints = Vec::new();
    for file in files(&root().join("crates"), ".rs").into_iter().filter(|file| !file.ends_with("tidy.rs")) {
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            complaints.extend(
                marks
                    .iter()
                    .filter(|mark| line.contains(**mark))
                    .map(|mark| format!("{}:{}: {mark}", relative(&file), number + 1)),
            );
        }
    }
    assert_none(complaints);
}

/// The rules that the tests below these folders are named after: `r2_r3_…` is named after R2 and R3.
fn rules_with_tests(folders: &[&str]) -> BTreeSet<u32> {
    let mut rules = BTreeSet::new();
    for file in folders.iter().flat_map(|folder| files(&root().join("crates/hikyaku").join(folder), ".rs")) {
        let text = fs::read_to_string(file).unwrap();
        let mut lines = text.lines().map(str::trim_start);
        while lines.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
            let name = lines.find_map(|line| line.split_once("fn ")?.1.split_once('(')).map_or("", |(name, _)| name);
            rules.extend(name.split('_').filter_map(|word| word.strip_prefix('r')?.parse::<u32>().ok()));
        }
    }
    rules
}

#[test]
fn each_rule_of_the_provider_has_a_test_on_the_sandbox_and_on_the_sender() {
    let all: BTreeSet<_> = (1..=25).collect();
    assert_eq!(rules_with_tests(&["src/sandbox"]), all);
    // Beyond R22 it is about receivers and the provider's lists; where the sender departs, its tests say from what.
    let of_the_sender = rules_with_tests(&["src/sender", "tests/blackbox"]);
    assert_eq!(all.iter().filter(|rule| **rule <= 22).find(|rule| !of_the_sender.contains(rule)), None);
}

#[test]
fn both_readmes_say_the_same() {
    let outline = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(root().join(name)).unwrap();
        let marks =
            text.lines().filter(|line| line.starts_with('#') || line.starts_with("```") || line.starts_with('|'));
        marks.map(|line| line.chars().take_while(|c| "#`|".contains(*c)).collect()).collect()
    };
    assert_eq!(outline("README.md"), outline("README.ja.md"), "headings, code blocks and tables in their order");
}

/// Everything that the API takes is JSON and has to say so; the providers' door takes what comes.
#[test]
fn commands_in_the_documents_say_what_they_send() {
    let mut complaints = Vec::new();
    for path in files(&root(), ".md") {
        let text = fs::read_to_string(&path).unwrap().replace("\\\n", " ");
        let sends = |line: &&str| line.contains("curl ") && line.contains(" -d ") && !line.contains("/in/");
        let silent = text.lines().filter(sends).filter(|line| !line.contains("content-type") && !line.contains("$J"));
        complaints.extend(silent.map(|line| format!("{}: no content type in {line}", relative(&path))));
    }
    assert_none(complaints);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut complaints = Vec::new();
    for file in files(&root(), ".md") {
        let text = fs::read_to_string(&file).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains(':') && !file.parent().unwrap().join(path).exists() {
                complaints.push(format!("{}: {target} does not exist", relative(&file)));
            }
        }
    }
    assert_none(complaints);
}

#[test]
fn every_problem_setting_and_metric_is_documented() {
    let src = root().join("crates/hikyaku/src");
    let quoted = |line: &str| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let read = |file: &str| fs::read_to_string(src.join(file)).unwrap();

    let problems = read("http/problem.rs");
    let problems =
        problems.lines().filter(|line| line.contains("(S::")).filter_map(|line| quoted(line).into_iter().next());
    assert_documented("docs/api.md", problems.map(|name| format!("| `/problems/{name}` |")).collect());

    let takes = [".get(\"", ".require(\"", ".list(\"", ".table(\"", ".tables(\"", ".texts(\"", "pause(\""];
    let settings =
        ["config/read.rs", "config/fetch.rs", "config/destination.rs", "config/source.rs", "config/reconcile.rs"]
            .map(read)
            .concat();
    let settings = takes.iter().flat_map(|take| settings.split(take).skip(1)).filter_map(|rest| rest.split('"').next());
    let tables = [
        "api",
        "sender",
        "targets",
        "inbox",
        "log",
        "retention",
        "tracing",
        "source",
        "fetch",
        "destination",
        "route",
        "reconcile",
        "watch",
    ];
    let form = |key: &str| if tables.contains(&key) { format!("{key}]") } else { format!("| `{key}` |") };
    assert_documented("docs/configuration.md", settings.map(form).collect());

    let code = files(&src, ".rs").into_iter().map(|file| fs::read_to_string(file).unwrap()).collect::<String>();
    let is_metric = |name: &String| {
        ["hikyaku_", "process_"].iter().any(|prefix| name.starts_with(prefix))
            && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let metrics = code.lines().filter(|line| line.contains("const ") || line.contains("metrics::"));
    let metrics = metrics.flat_map(quoted).filter(is_metric).filter(|name| name != "hikyaku_");
    assert_documented("docs/operations.md", metrics.map(|name| format!("| `{name}` |")).collect());
}

fn assert_documented(document: &str, rows: Vec<String>) {
    assert!(rows.len() > 10, "the code is no longer read as it should be; found only {rows:?}");
    let text = fs::read_to_string(root().join(document)).unwrap();
    let missing = rows.iter().filter(|row| !text.contains(*row));
    assert_none(missing.map(|row| format!("{document} lacks {row}")).collect());
}

#[test]
fn s26_what_is_built_is_what_was_locked_and_checked() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    assert!(read("Cargo.lock").contains("name = \"hikyaku\""), "the lockfile is part of the repository");
    let test = read("test");
    let unlocked =
        ["build", "clippy", "test", "nextest run", "install", "deny check"].into_iter().flat_map(|command| {
            let command = format!("cargo {command}");
            let calls = test.lines().filter(move |line| line.contains(&command) && !line.contains("--locked"));
            calls.map(|line| format!("./test: {} has no --locked", line.trim()))
        });
    assert_none(unlocked.collect());
    assert!(test.contains("\nstep deny\n") && test.contains("cargo deny --locked check bans licenses sources"));
    let deny = read("deny.toml");
    for rule in
        ["unknown-registry = \"deny\"", "unknown-git = \"deny\"", "wildcards = \"deny\"", "[licenses]\nallow = ["]
    {
        assert!(deny.contains(rule), "deny.toml has no {rule}");
    }
    assert!(read(".ci/run").contains("./test"), "what CI runs is ./test");
}
