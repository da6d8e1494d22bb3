//! The processes of a job: what descends from its keeper, and what carries its mark.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use crate::system::Pinned;

/// What /proc/PID/stat says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub parent: i32,
    /// Clock ticks from the host's start: with the number, it names one process of one boot.
    pub start: u64,
    pub ended: bool,
}

/// Looks at one process; None: there is none.
pub fn look(pid: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<Process> {
    // The name may hold anything, a bracket too; the fields after it cannot.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .collect();
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
    })
}

/// Whether this very process runs.
pub fn runs(pid: i32, start: u64) -> bool {
    look(pid).is_some_and(|found| found.start == start && !found.ended)
}

/// The numbers of all processes.
pub fn numbers() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn all() -> BTreeMap<i32, Process> {
    numbers()
        .into_iter()
        .filter_map(|pid| Some((pid, look(pid)?)))
        .collect()
}

/// Whether a process was started with a variable of this value.
fn marked(pid: i32, mark: &str) -> bool {
    let wanted = format!("{}={mark}", crate::MARK);
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|found| {
        found
            .split(|byte| *byte == 0)
            .any(|one| one == wanted.as_bytes())
    })
}

/// A job's processes: those whose ancestor is the keeper (it is the parent of whoever lost his own), and those that
/// carry its mark, in case that the keeper is gone.
fn members(keeper: Option<(i32, u64)>, mark: &str) -> BTreeMap<i32, Process> {
    let all = all();
    let keeper = keeper.filter(|(pid, start)| {
        all.get(pid)
            .is_some_and(|found| found.start == *start && !found.ended)
    });
    let keeper = keeper.map(|(pid, _)| pid);
    let mut below: BTreeSet<i32> = BTreeSet::new();
    for pid in all.keys() {
        let mut way = vec![*pid];
        // Bounded by the number of processes: what is read while they change may be a circle.
        while way.len() <= all.len() {
            let Some(parent) = all.get(way.last().unwrap_or(pid)).map(|found| found.parent) else {
                break;
            };
            if keeper == Some(parent) || below.contains(&parent) {
                below.extend(&way);
                break;
            }
            if parent <= 1 {
                break;
            }
            way.push(parent);
        }
    }
    all.into_iter()
        .filter(|(pid, found)| {
            !found.ended && Some(*pid) != keeper && (below.contains(pid) || marked(*pid, mark))
        })
        .collect()
}

/// How often is looked again for what was started while others were killed.
const ROUNDS: usize = 10;

/// Sends a signal to every process of a job; returns how many there were. SIGKILL is sent until none is left.
pub fn signal(keeper: Option<(i32, u64)>, mark: &str, number: i32) -> usize {
    let first = signal_once(keeper, mark, number);
    let mut left = first;
    for _ in 1..ROUNDS {
        if number != libc::SIGKILL || left == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
        left = signal_once(keeper, mark, number);
    }
    first
}

fn signal_once(keeper: Option<(i32, u64)>, mark: &str, number: i32) -> usize {
    let found = members(keeper, mark);
    for (pid, process) in &found {
        match Pinned::new(*pid) {
            // From here on it cannot become another process: one look says that it is still the one that was found.
            Some(pinned) if runs(*pid, process.start) => pinned.signal(number),
            Some(_) => {}
            // Before Linux 5.3: between look and signal lies a moment.
            None if runs(*pid, process.start) => {
                // SAFETY: a call without memory.
                unsafe { libc::kill(*pid, number) };
            }
            None => {}
        }
    }
    found.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_nothing() {
        let fields = "S 7 8 9 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
        let found = parse(&format!("12 (a) R (b) {fields}")).unwrap();
        assert_eq!((found.parent, found.start, found.ended), (7, 4711, false));
        assert_eq!(parse("12 (a"), None);
        assert_eq!(parse("12 (a) R 1"), None);
    }

    #[test]
    fn this_process_runs_and_another_start_is_another_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let found = look(own).unwrap();
        assert!(runs(own, found.start));
        assert!(!runs(own, found.start + 1));
    }
}
