//! What Linux says of processes and of the machine. CPU time is user and system time together.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// In which parts of a second `/proc/PID/stat` counts, on every Linux of today.
const TICKS_PER_SECOND: u64 = 100;

/// The machine's shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    pub(crate) cpus: usize,
    pub(crate) model: String,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn read() -> io::Result<Self> {
        let cpus = std::thread::available_parallelism()?.get();
        let model = field(&fs::read_to_string("/proc/cpuinfo")?, "model name");
        let memory_mib = kib(&fs::read_to_string("/proc/meminfo")?, "MemTotal") / 1024;
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
        Ok(Self { cpus, model, memory_mib, kernel })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus, model, memory_mib, kernel } = self;
        write!(f, "{cpus} CPUs ({model}), {memory_mib} MiB, Linux {kernel}")
    }
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

fn kib(text: &str, name: &str) -> u64 {
    field(text, name).trim_end_matches(" kB").parse().unwrap_or_default()
}

/// What a process has of the machine.
struct Stat {
    parent: u32,
    own: Duration,
    of_ended_children: Duration,
}

fn stat(pid: u32) -> io::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name before it may hold anything, spaces and parentheses included.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = after_name.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
    let ticks = |first: usize| {
        let ticks: u64 = fields.iter().skip(first).take(2).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    };
    let parent = fields.get(1).copied().unwrap_or_default();
    Ok(Stat { parent: u32::try_from(parent).unwrap_or_default(), own: ticks(11), of_ended_children: ticks(13) })
}

/// The CPU time of one process.
pub(crate) fn cpu(pid: u32) -> io::Result<Duration> {
    Ok(stat(pid)?.own)
}

/// The CPU time of a process and of all that it has started, those that have ended included.
pub(crate) fn cpu_of_tree(root: u32) -> io::Result<Duration> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) {
            all.extend(stat(pid).map(|stat| (pid, stat)));
        }
    }
    let mut tree = HashSet::from([root]);
    while all.iter().any(|(pid, stat)| tree.contains(&stat.parent) && tree.insert(*pid)) {}
    let members = all.iter().filter(|(pid, _)| tree.contains(pid));
    Ok(members.map(|(_, stat)| stat.own + stat.of_ended_children).sum())
}

/// Memory of a process in MiB: what it has now, and the most it ever had.
pub(crate) fn memory(pid: u32) -> io::Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mib = |name| f64::from(u32::try_from(kib(&status, name)).unwrap_or(u32::MAX)) / 1024.0;
    Ok((mib("VmRSS"), mib("VmHWM")))
}

/// Takes as many open files as this process may have: endpoints that never answer keep thousands of connections.
pub(crate) fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_uses_is_seen() {
        let pid = std::process::id();
        let before = cpu(pid).unwrap();
        let mut sum = 0_u64;
        while cpu(pid).unwrap() < before + Duration::from_millis(20) {
            sum = (0..100_000_u64).fold(sum, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
        }
        assert!(cpu_of_tree(pid).unwrap() >= cpu(pid).unwrap() - Duration::from_millis(10), "{sum}");
        let (now, most) = memory(pid).unwrap();
        assert!(now > 0.5 && most >= now);
    }
}
