//! How many files this process may have open. Every connection is one, and one too many would spoil an attempt by our
//! own fault, or keep a caller out.

use crate::sender;

/// What everything but connections takes: the store, the log, name lookups of a moment.
const OWN_FILES: u64 = 64;
/// Files of one attempt: its connection, one that is kept open for the next, and a name lookup.
const FILES_PER_ATTEMPT: u64 = 3;

/// What may be open at a time.
pub(super) struct Room {
    /// Attempts under way.
    pub(super) attempts: u32,
    /// Connections that come in.
    pub(super) connections: usize,
}

/// Room for what is wanted. Most systems give a program few files to begin with and let it have more, so that is asked
/// for; where it is not enough, less is done at a time, and the rest waits where it is safe.
pub(super) fn room(settings: &sender::Settings, connections: usize) -> Room {
    let wanted = OWN_FILES + connections as u64 + FILES_PER_ATTEMPT * u64::from(settings.in_flight);
    let limit = raise_limit(wanted);
    let room = share(limit, settings.in_flight, connections);
    if limit < wanted {
        let Room { attempts, connections } = room;
        tracing::warn!(
            limit,
            wanted,
            attempts,
            connections,
            "few files may be open (ulimit -Hn, LimitNOFILE), so less is done at a time"
        );
    }
    room
}

/// A quarter for connections that come in, the rest for attempts, each up to what is wanted.
fn share(limit: u64, attempts: u32, connections: usize) -> Room {
    let free = limit.saturating_sub(OWN_FILES);
    let in_share = usize::try_from(free / 4).unwrap_or(usize::MAX).clamp(1, connections);
    let out_share = free.saturating_sub(in_share as u64) / FILES_PER_ATTEMPT;
    Room { attempts: u32::try_from(out_share).unwrap_or(u32::MAX).clamp(1, attempts), connections: in_share }
}

/// Raises the limit to what is wanted, as far as it goes; gives the limit that holds.
#[cfg(unix)]
fn raise_limit(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current.unwrap_or(u64::MAX);
    let raised = wanted.min(maximum.unwrap_or(u64::MAX));
    if raised <= current {
        return current;
    }
    // Where the system refuses, what there is has to do.
    setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).map_or(current, |()| raised)
}

/// Where there is no such limit.
#[cfg(not(unix))]
fn raise_limit(_wanted: u64) -> u64 {
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_limit_is_what_is_done_at_a_time_fits_into_it() {
        for limit in [0, 10, 64, 70, 120, 256, 1024, 4096, 20_000, u64::MAX] {
            let Room { attempts, connections } = share(limit, 4096, 4096);
            assert!((1..=4096).contains(&attempts) && (1..=4096).contains(&connections), "{limit}");
            let taken = OWN_FILES + connections as u64 + FILES_PER_ATTEMPT * u64::from(attempts);
            assert!(taken <= limit.max(OWN_FILES + 4), "{limit}: {taken}");
        }
        let ample = share(OWN_FILES + 4096 * 4, 4096, 4096);
        assert_eq!((ample.attempts, ample.connections), (4096, 4096));
    }
}
