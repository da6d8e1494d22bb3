//! Keeps the process alive and quick where its own disks would otherwise stop it.
//!
//! A daemon that serves a disk must never wait for that disk: a full memory cgroup, a page swapped out or
//! written back could make it do so. Each step that this machine refuses is a warning, not an error.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::precedence;

/// Takes every step; returns what could not be done.
pub fn protect() -> Vec<String> {
    let mut warnings = Vec::new();
    for controller in ["memory", "cpu", "blkio"] {
        if let Err(error) = move_to_root(controller) {
            warnings.push(format!(
                "the process stays in its {controller} cgroup ({error}): a limit there slows or hangs its disks"
            ));
        }
    }
    // Only pages that are touched, now and later: buffers are reserved generously.
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: changes no memory's content.
    if unsafe { libc::mlockall(flags) } != 0 {
        let error = io::Error::last_os_error();
        warnings.push(format!(
            "memory is not locked ({error}): under memory pressure I/O gets slow"
        ));
    }
    // The lowest score that this process may have; -1000 needs CAP_SYS_RESOURCE.
    if fs::write("/proc/self/oom_score_adj", "-1000").is_err() {
        warnings.push(
            "the out-of-memory killer may choose this process (no CAP_SYS_RESOURCE)".to_owned(),
        );
    }
    // A database that loads every CPU must not hold its own disk back.
    warnings.extend(precedence::take());
    // SAFETY: no memory involved. Timers of this thread fire when they should, not 50 us later; threads inherit it.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    warnings
}

/// Moves this process to the root of the hierarchy that has `controller`, version 1 or 2.
fn move_to_root(controller: &str) -> io::Result<()> {
    let Some(root) = hierarchy(controller)? else {
        return Ok(());
    };
    fs::write(root.join("cgroup.procs"), std::process::id().to_string())
}

/// Where the hierarchy is mounted; `None`: there is none, or this process is at its root.
fn hierarchy(controller: &str) -> io::Result<Option<PathBuf>> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(find_hierarchy(controller, &own, &mounts))
}

fn find_hierarchy(controller: &str, own: &str, mounts: &str) -> Option<PathBuf> {
    let member = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?.to_owned();
        Some((controllers, fields.next()?.to_owned()))
    };
    let lines: Vec<(String, String)> = own.lines().filter_map(member).collect();
    let legacy = lines
        .iter()
        .find(|(controllers, _)| controllers.split(',').any(|name| name == controller));
    let (kind, path) = match legacy {
        Some((_, path)) => ("cgroup", path),
        None => (
            "cgroup2",
            &lines
                .iter()
                .find(|(controllers, _)| controllers.is_empty())?
                .1,
        ),
    };
    if path == "/" {
        return None;
    }
    mounts.lines().find_map(|line| {
        // Fields: id, parent, device, root, mount point, options, ... - type, source, super options.
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        let right_kind = back.next()? == kind;
        let options = back.nth(1)?;
        let right_controller =
            kind == "cgroup2" || options.split(',').any(|option| option == controller);
        let mut front = front.split(' ');
        let whole = front.nth(3)? == "/";
        let point = front.next()?;
        (right_kind && right_controller && whole).then(|| PathBuf::from(point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGACY: &str = "24 20 0:21 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                          25 20 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                          26 20 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn finds_the_hierarchy_of_either_version() {
        let own = "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/\n";
        let memory = find_hierarchy("memory", own, LEGACY);
        assert_eq!(memory, Some(PathBuf::from("/sys/fs/cgroup/memory")));
        assert_eq!(
            find_hierarchy("cpu", own, LEGACY),
            None,
            "at the root already"
        );
        assert_eq!(
            find_hierarchy("blkio", own, LEGACY),
            None,
            "unified, at its root"
        );
        let unified = "26 20 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let found = find_hierarchy("memory", "0::/user.slice/a.scope\n", unified);
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup")));
    }
}
