//! The process group of a program that was started.

use tokio::process::{Child, Command};

/// Makes the program to be started the leader of a new group.
pub(super) fn lead_its_own(command: &mut Command) {
    #[cfg(unix)]
    command.process_group(0);
    #[cfg(not(unix))]
    let _ = command;
}

/// A group that is killed when this is dropped.
pub(super) struct Group {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

impl Group {
    /// The group that a child leads.
    #[cfg(unix)]
    pub(super) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self { leader: id.and_then(rustix::process::Pid::from_raw) }
    }

    /// Elsewhere there are none, and only the child itself is killed.
    #[cfg(not(unix))]
    pub(super) fn of(_: &Child) -> Self {
        Self {}
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The leader may be gone by now. While others are left, its number stays theirs; when nobody is, it was free for
        // less time than it takes to give all the other numbers away first, as systems do.
        #[cfg(unix)]
        if let Some(leader) = self.leader {
            // An error says that nobody is left.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}
