//! The processes of a task, and how they are ended.
//!
//! While its supervisor lives, a task is exactly the supervisor's descendants: the supervisor is a subreaper, so that
//! orphans come back to it, whatever session, group or environment they made for themselves. When the supervisor is
//! gone, what is left is found by the record's name in the environment, by session, and by descent from those.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The variable that names a task's record directory. An allocation's number alone would not do: each pool counts its
/// own, so another pool on the machine may have the same number.
pub(crate) const RECORD_VARIABLE: &str = "DIVVY_RECORD";

/// A process as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// When it started, in clock ticks since boot.
    pub(crate) start_ticks: u64,
    /// Whether it has ended and waits to be reaped.
    pub(crate) is_zombie: bool,
}

/// Looks at one process.
pub(crate) fn look(pid: u32) -> Option<Seen> {
    parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The command's name is in parentheses and may itself hold spaces and parentheses: fields count from the last one.
fn parse_stat(pid: u32, stat: &str) -> Option<Seen> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let small = |at: usize| u32::try_from(number(at)?).ok();
    Some(Seen {
        pid,
        parent: small(1)?,
        group: small(2)?,
        session: small(3)?,
        start_ticks: number(19)?,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
    })
}

/// Looks at all processes.
pub(crate) fn everything() -> Vec<Seen> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(look).collect()
}

/// Returns those that descend from `roots`, without the roots.
pub(crate) fn descendants(all: &[Seen], roots: &BTreeSet<u32>) -> Vec<Seen> {
    let mut children: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    for seen in all {
        children.entry(seen.parent).or_default().push(*seen);
    }
    let mut found: Vec<Seen> = Vec::new();
    let mut next: Vec<u32> = roots.iter().copied().collect();
    while let Some(parent) = next.pop() {
        // Taken out of the map: if a pid was reused while /proc was read, the search cannot run in circles.
        for child in children.remove(&parent).unwrap_or_default() {
            next.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// Returns the live processes below this one.
pub(crate) fn below_me() -> Vec<Seen> {
    let roots = BTreeSet::from([std::process::id()]);
    let mut found = descendants(&everything(), &roots);
    found.retain(|seen| !seen.is_zombie);
    found
}

/// Sends a signal. It is no error if the process is gone or not ours to signal.
pub(crate) fn send(pid: u32, signal: i32) {
    if let Ok(pid) = i32::try_from(pid)
        && pid > 1
    {
        // SAFETY: kill has no memory effects; pid is a single process.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Sends a signal to a process group, and resumes it if it was stopped; `false` if there is no such group.
pub(crate) fn send_to_group(group: u32, signal: i32) -> bool {
    let Ok(group) = i32::try_from(group) else { return false };
    if group <= 1 {
        return false;
    }
    // SAFETY: kill has no memory effects; the group is greater than 1, so neither "all" nor our own.
    let reached = unsafe { libc::kill(-group, signal) } == 0;
    if reached && signal != libc::SIGKILL {
        // SAFETY: as above.
        unsafe { libc::kill(-group, libc::SIGCONT) };
    }
    reached
}

/// Marks by which to recognise what a lost supervisor left behind.
#[derive(Debug)]
pub(crate) struct Marks {
    /// The record directory, absolute.
    pub(crate) record: String,
    /// The first process and its start time in ticks.
    pub(crate) first: Option<(u32, u64)>,
    /// The pids that its cgroups list.
    pub(crate) in_cgroup: Vec<u32>,
}

/// Returns the live processes of a task whose supervisor is gone.
pub(crate) fn left_behind(marks: &Marks) -> Vec<Seen> {
    let all = everything();
    let me = std::process::id();
    let needle = format!("{RECORD_VARIABLE}={}", marks.record).into_bytes();
    let session = marks.first.and_then(|(pid, ticks)| session_of(&all, pid, ticks));
    let is_marked = |seen: &Seen| {
        Some(seen.session) == session
            || marks.in_cgroup.contains(&seen.pid)
            || has_variable(seen.pid, &needle)
    };
    let roots: BTreeSet<u32> = all.iter().filter(|seen| is_marked(seen)).map(|seen| seen.pid).collect();
    let below = descendants(&all, &roots);
    let mut found: BTreeMap<u32, Seen> = BTreeMap::new();
    for seen in all.iter().filter(|seen| roots.contains(&seen.pid)).chain(&below) {
        if !seen.is_zombie && seen.pid != me {
            found.insert(seen.pid, *seen);
        }
    }
    found.into_values().collect()
}

/// While a session exists, the number of its first process is not used again. So if another process has that number
/// now, or sessions of that number hold processes older than the task, the task's session is gone.
fn session_of(all: &[Seen], pid: u32, start_ticks: u64) -> Option<u32> {
    let is_ours = |seen: &Seen| match seen.pid == pid {
        true => seen.start_ticks == start_ticks,
        false => seen.session != pid || seen.start_ticks >= start_ticks,
    };
    all.iter().all(is_ours).then_some(pid)
}

/// The environment at exec time has the variable; one that wrote over its own is found by session or descent.
fn has_variable(pid: u32, needle: &[u8]) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|entry| entry == needle)
}

/// Kills what a lost supervisor left behind, and returns when nothing of it is alive.
pub(crate) fn kill_left_behind(marks: &mut Marks, refresh: impl Fn() -> Vec<u32>) {
    loop {
        marks.in_cgroup = refresh();
        let found = left_behind(marks);
        if found.is_empty() {
            return;
        }
        for seen in &found {
            send(seen.pid, libc::SIGKILL);
        }
        await_end(&found);
    }
}

/// Waits until all have ended, at most a second each: a process that sleeps in the kernel is looked at again.
fn await_end(processes: &[Seen]) {
    let pid = |seen: &Seen| Pid::from_raw(i32::try_from(seen.pid).ok()?);
    let pidfds = processes.iter().filter_map(|seen| pidfd_open(pid(seen)?, PidfdFlags::empty()).ok());
    for pidfd in pidfds.collect::<Vec<_>>() {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = poll(&mut fds, Some(&second));
    }
}

/// Returns the path of a record's directory as it stands in the environment of its tasks.
pub(crate) fn record_name(directory: &Path) -> String {
    directory.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, parent: u32, session: u32, start_ticks: u64) -> Seen {
        Seen { pid, parent, group: pid, session, start_ticks, is_zombie: false }
    }

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b (c)) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 1 2";
        let seen = parse_stat(42, stat).unwrap();
        assert_eq!((seen.parent, seen.group, seen.session, seen.start_ticks), (7, 8, 9, 12345));
    }

    #[test]
    fn this_process_is_seen_as_it_is() {
        let me = look(std::process::id()).unwrap();
        assert_eq!(me.parent, std::os::unix::process::parent_id());
        assert!(me.start_ticks > 0);
    }

    #[test]
    fn descent_is_followed_through_all_generations() {
        let all = [seen(2, 1, 2, 1), seen(3, 2, 2, 1), seen(4, 3, 4, 1), seen(5, 1, 5, 1)];
        let pids: Vec<u32> = descendants(&all, &BTreeSet::from([2])).iter().map(|seen| seen.pid).collect();
        assert_eq!(pids, [3, 4]);
    }

    #[test]
    fn a_picture_with_a_circle_ends() {
        let all = [seen(2, 3, 2, 1), seen(3, 2, 2, 1)];
        assert_eq!(descendants(&all, &BTreeSet::from([2])).len(), 2);
    }

    #[test]
    fn a_session_whose_number_was_used_again_is_not_the_tasks() {
        assert_eq!(session_of(&[seen(9, 1, 9, 50), seen(10, 9, 9, 60)], 9, 50), Some(9));
        assert_eq!(session_of(&[seen(10, 1, 9, 60)], 9, 50), Some(9));
        assert_eq!(session_of(&[seen(9, 1, 9, 51)], 9, 50), None);
        assert_eq!(session_of(&[seen(10, 1, 9, 40)], 9, 50), None);
    }
}
