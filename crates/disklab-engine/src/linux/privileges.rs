//! Giving up root: a client of a database needs nothing of it.

use std::io;
use std::str::FromStr;

use clap::Args;

/// Who a command that was started by root runs as.
#[derive(Args)]
pub struct RunAs {
    /// Becomes this user before it speaks to anybody: `UID:GID`, numbers.
    #[arg(long)]
    run_as: Option<User>,
}

/// A user and its group, neither of them root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    uid: libc::uid_t,
    gid: libc::gid_t,
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<User, String> {
        let parts = text.split_once(':');
        let number = |text: &str| text.parse().ok().filter(|number| *number != 0);
        let user = parts.and_then(|(uid, gid)| Some((number(uid)?, number(gid)?)));
        let (uid, gid) = user.ok_or("give UID:GID, two numbers above 0")?;
        Ok(User { uid, gid })
    }
}

impl RunAs {
    /// Becomes the user for good. Before other threads are started: only the calling one changes.
    pub fn give_up_root(&self) -> io::Result<()> {
        let Some(User { uid, gid }) = self.run_as else {
            return Ok(());
        };
        // The kernel forgets the signal that ends this process with its parent when the user changes.
        let mut with_parent: libc::c_int = 0;
        // SAFETY: the kernel writes one integer, which is there; the other call involves no memory.
        let parent = unsafe {
            libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut with_parent);
            libc::getppid()
        };
        // SAFETY: no memory involved but an empty list. Groups go first: without root they could not.
        let done = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(gid, gid, gid) == 0
                && libc::setresuid(uid, uid, uid) == 0
                && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_PDEATHSIG, with_parent) == 0
        };
        if !done {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no memory involved.
        if with_parent != 0 && unsafe { libc::getppid() } != parent {
            return Err(io::Error::other("the process that started it has ended"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_two_numbers_and_never_root() {
        assert_eq!("998:997".parse(), Ok(User { uid: 998, gid: 997 }));
        for wrong in ["0:997", "998:0", "998", "disklab:disklab", "-1:5", ""] {
            assert!(wrong.parse::<User>().is_err(), "{wrong}");
        }
    }
}
