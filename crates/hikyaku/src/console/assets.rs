//! The files that pages load, all of them in this binary. A name holds its content's hash, so that a browser may keep a file
//! for ever and still never shows a page with the files of another version.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;
use minijinja::Value;
use ring::digest::{SHA256, digest};

/// Bytes of a content's hash that stand in a name.
const HASH_BYTES: usize = 8;

/// What a file is.
struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    is_compressed: bool,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! file {
    ($name:literal, $path:literal, $kind:expr, $is_compressed:literal) => {
        File {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(concat!("../../assets/console/", $path)),
            is_compressed: $is_compressed,
        }
    };
}

/// What others have written is compressed in the repository, and for every browser.
const FILES: [File; 6] = [
    file!("console.css", "console.css", STYLE, false),
    file!("console.js", "console.js", SCRIPT, false),
    file!("icon.svg", "icon.svg", "image/svg+xml", false),
    file!("htmx.js", "htmx.min.js.gz", SCRIPT, true),
    file!("uplot.js", "uPlot.iife.min.js.gz", SCRIPT, true),
    file!("uplot.css", "uPlot.min.css", STYLE, false),
];

/// The files under the names that they are asked for by.
static NAMED: LazyLock<Vec<(String, &'static File)>> = LazyLock::new(|| {
    let named = |file: &'static File| {
        let hash = HEXLOWER.encode(&digest(&SHA256, file.bytes).as_ref()[..HASH_BYTES]);
        let (stem, ending) = file.name.rsplit_once('.').unwrap_or((file.name, ""));
        (format!("{stem}.{hash}.{ending}"), file)
    };
    FILES.iter().map(named).collect()
});

/// The paths of the files, by the part of the name before its dot and the ending: `console_css`.
pub(super) fn paths() -> Value {
    let named = NAMED.iter().map(|(named, file)| (file.name.replace('.', "_"), format!("/console/assets/{named}")));
    Value::from(named.collect::<BTreeMap<_, _>>())
}

/// A file.
pub(super) async fn serve(Path(asked): Path<String>) -> Response {
    let Some((_, file)) = NAMED.iter().find(|(name, _)| *name == asked) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, file.kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    let encoding = file.is_compressed.then_some([(header::CONTENT_ENCODING, "gzip")]);
    (headers, encoding.map(axum::response::AppendHeaders), file.bytes).into_response()
}
