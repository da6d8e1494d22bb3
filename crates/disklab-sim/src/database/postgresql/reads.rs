//! Who reads which page, through which open file.
//!
//! **Source:** fd.c of PostgreSQL: each backend opens a relation's files for itself, so that what Linux knows of the order in
//! which a file is read (`struct file_ra_state`) is one backend's own; bufmgr.c, `StartBufferIO`: who wants a page that another
//! backend reads waits for that one.

use std::collections::HashMap;

use crate::storage::{File, NOBODY, Storage};

/// Files that backends have open, and pages that they read.
#[derive(Debug)]
pub struct Reads {
    /// By session and file.
    open: HashMap<(u32, usize), File>,
    /// By page: the last of the sessions that wait for it; each knows the one before.
    under_way: HashMap<u32, u32>,
    /// Whether each backend's open files are its own.
    own_files: bool,
}

impl Reads {
    /// Nobody reads. Without `own_files` all backends read through the same open files.
    pub fn new(own_files: bool) -> Reads {
        Reads {
            open: HashMap::new(),
            under_way: HashMap::new(),
            own_files,
        }
    }

    /// The same of backends that have just started: nothing is open, nobody reads.
    pub fn closed(&self) -> Reads {
        Reads::new(self.own_files)
    }

    /// The open file through which a session reads `file`; `bounds` tells its first page of the page cache, and the one
    /// behind its last.
    pub fn file(
        &mut self,
        (session, file): (u32, usize),
        storage: &mut Storage,
        bounds: impl Fn() -> (u64, u64),
    ) -> File {
        let session = if self.own_files { session } else { NOBODY };
        *self.open.entry((session, file)).or_insert_with(|| {
            let (first, end) = bounds();
            storage.open(first, end)
        })
    }

    /// A session begins to read a page.
    #[inline]
    pub fn begin(&mut self, page: u32) {
        self.under_way.insert(page, NOBODY);
    }

    /// A session wants a page: if another one reads it, it waits from now on, and gets the one that waits already.
    #[inline]
    pub fn wait(&mut self, page: u32, session: u32) -> Option<u32> {
        let last = self.under_way.get_mut(&page)?;
        Some(std::mem::replace(last, session))
    }

    /// A page is there; the last of those that waited for it.
    #[inline]
    pub fn end(&mut self, page: u32) -> u32 {
        self.under_way.remove(&page).unwrap_or(NOBODY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_want_a_page_that_is_being_read_wait_for_it() {
        let mut reads = Reads::new(true);
        assert_eq!(reads.wait(7, 1), None, "nobody reads it");
        reads.begin(7);
        assert_eq!(reads.wait(7, 2), Some(NOBODY));
        assert_eq!(reads.wait(7, 3), Some(2));
        assert_eq!(reads.wait(8, 4), None);
        assert_eq!(reads.end(7), 3);
        assert_eq!(reads.wait(7, 5), None, "it is there");
    }
}
