//! Named points at which the program dies at once, without a word to anybody and without tidying anything up: for the tests
//! that show that nothing is lost wherever that happens.
//!
//! Only a build with the feature `crash-points` can die at them, and only where [`VARIABLE`] asks for it; in every other
//! build a point is nothing at all.

#[cfg(feature = "crash-points")]
pub use armed::{POINTS, VARIABLE};

/// Dies here, if that was asked for. `name` is one of the list of points.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub(crate) fn point(_name: &'static str) {}

/// Dies here, if that was asked for. `name` is one of [`POINTS`].
#[cfg(feature = "crash-points")]
pub(crate) fn point(name: &'static str) {
    armed::pass(name);
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Where to die: the name of a point, and after a colon which passing of it is the last (without it, the first).
    pub const VARIABLE: &str = "HIKYAKU_TEST_CRASH_AT";

    /// Every point. What is *committed* is on the disk, and whoever waits for it has not heard of it yet.
    pub const POINTS: [&str; 26] = [
        // The stores, which every other write goes through.
        "sqlite.created",
        "sqlite.migrated",
        "sqlite.uncommitted",
        "sqlite.committed",
        "postgres.migrating",
        "postgres.uncommitted",
        "postgres.committed",
        // An event, from its publish to the end of an attempt.
        "publish.asked",
        "publish.committed",
        "claim.committed",
        "attempt.begun",
        "attempt.answered",
        "attempt.committed",
        "recovery.stepped",
        "removal.stepped",
        // A delivery, from its arrival to its effect.
        "receive.asked",
        "receive.committed",
        "lane.claimed",
        "effect.begun",
        "effect.made",
        "lane.committed",
        "books.uncommitted",
        "books.committed",
        // What happens by itself.
        "reconcile.entered",
        "reconcile.saved",
        "retention.stepped",
    ];

    /// The point at which this process dies, and how many passings of it are left.
    struct Fate {
        point: String,
        left: AtomicU64,
    }

    pub(super) fn pass(name: &'static str) {
        static FATE: OnceLock<Option<Fate>> = OnceLock::new();
        debug_assert!(POINTS.contains(&name), "{name} is missing in the list of points");
        let Some(fate) = FATE.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| fate(&text))) else { return };
        if fate.point == name && fate.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            eprintln!("died at {name}");
            std::process::abort();
        }
    }

    fn fate(text: &str) -> Fate {
        let (point, passing) = text.split_once(':').unwrap_or((text, "1"));
        let left = passing.parse().unwrap_or(0);
        assert!(POINTS.contains(&point) && left > 0, "{VARIABLE} is {text:?}, which names no passing of a point");
        Fate { point: point.to_owned(), left: AtomicU64::new(left) }
    }
}

#[cfg(test)]
#[cfg(feature = "crash-points")]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::POINTS;

    /// The names that stand after this in the files below a folder.
    fn named_after(call: &str, folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                named_after(call, &path, names);
            } else {
                let text = fs::read_to_string(&path).unwrap_or_default();
                names.extend(text.split(call).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
    }

    #[test]
    fn every_point_of_the_list_is_somewhere_and_no_other() {
        let (mut names, src) = (BTreeSet::new(), Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        named_after(concat!("crash::", "point(\""), &src, &mut names);
        assert_eq!(names, POINTS.map(str::to_owned).into());
    }

    #[test]
    fn no_build_dies_that_was_not_asked_to_be_able_to() {
        let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
        let features = manifest.split("[features]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
        assert!(features.contains("crash-points = []") && !features.contains("default"), "{features}");
        let own = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/crash.rs")).unwrap();
        let before = own.split("std::process::abort()").next().unwrap();
        assert!(before.contains("#[cfg(feature = \"crash-points\")]\nmod armed {"), "what dies is behind the feature");
    }
}
