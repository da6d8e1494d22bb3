//! The locks of the file system on the files of relations: on XFS a write waits for the reads of its file.
//!
//! **Source:** fs/xfs/xfs_file.c of Linux, `xfs_file_buffered_read` and `xfs_file_buffered_write`: the inode's lock is held
//! shared for a whole read, its I/O included, and exclusively for a write; kernel/locking/rwsem.c: who comes while a writer waits
//! queues behind it, and readers are woken all at once. ext4 reads without a lock. In a rehearsal of ours (2026-11-24, PostgreSQL 15, a table
//! of one file) 24 of 64 backends were seen waiting in `xfs_ilock`.

use std::collections::VecDeque;

/// Bytes of a file. **Source:** PostgreSQL's `RELSEG_SIZE`: 1 GiB.
pub const FILE_BYTES: u64 = 1 << 30;

/// Who waits for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiter {
    /// A session that reads.
    Read(u32),
    /// A session that writes a page.
    Write(u32),
    /// A process of the server that writes a page; nobody hears when.
    Background,
}

#[derive(Clone, Debug, Default)]
struct File {
    readers: u32,
    waiting: VecDeque<Waiter>,
}

/// The files of a server, by number.
#[derive(Clone, Debug)]
pub struct Files(Vec<File>);

impl Files {
    /// So many files without a lock held; zero: the file system has no such locks.
    pub fn new(count: usize) -> Files {
        Files(vec![File::default(); count])
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// A session wants to read a file; false: it waits for its turn.
    #[inline]
    pub fn read(&mut self, file: usize, session: u32) -> bool {
        let Some(file) = self.0.get_mut(file) else {
            return true;
        };
        if !file.waiting.is_empty() {
            file.waiting.push_back(Waiter::Read(session));
            return false;
        }
        file.readers += 1;
        true
    }

    /// A session wants to write a page of a file, which takes no time; false: it waits for its turn.
    #[inline]
    pub fn write(&mut self, file: usize, session: u32) -> bool {
        self.enter(file, Waiter::Write(session))
    }

    /// A process of the server writes a page of a file, now or when it can.
    pub fn write_in_background(&mut self, file: usize) {
        self.enter(file, Waiter::Background);
    }

    fn enter(&mut self, file: usize, waiter: Waiter) -> bool {
        let Some(file) = self.0.get_mut(file) else {
            return true;
        };
        if file.readers == 0 && file.waiting.is_empty() {
            return true;
        }
        // One barrier behind another makes no difference to who waits for either.
        if waiter != Waiter::Background || file.waiting.back() != Some(&waiter) {
            file.waiting.push_back(waiter);
        }
        false
    }

    /// A read has ended; those whose turn it is now, in order.
    #[inline]
    pub fn read_ended(&mut self, file: usize, woken: &mut Vec<u32>) {
        let Some(file) = self.0.get_mut(file) else {
            return;
        };
        file.readers -= 1;
        if file.readers > 0 {
            return;
        }
        while let Some(first) = file.waiting.pop_front() {
            match first {
                Waiter::Background => {}
                Waiter::Write(session) => woken.push(session),
                Waiter::Read(session) => {
                    woken.push(session);
                    file.readers += 1;
                    // All that wait to read, those behind writers too.
                    file.waiting.retain(|waiter| match *waiter {
                        Waiter::Read(session) => {
                            woken.push(session);
                            file.readers += 1;
                            false
                        }
                        _ => true,
                    });
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_readers_and_those_behind_it_for_the_write() {
        let mut files = Files::new(1);
        let mut woken = Vec::new();
        assert!(files.read(0, 1) && files.read(0, 2));
        assert!(!files.write(0, 3) && !files.read(0, 4));
        assert!(!files.write(0, 5) && !files.read(0, 6));
        files.read_ended(0, &mut woken);
        assert!(woken.is_empty(), "session 2 still reads");
        files.read_ended(0, &mut woken);
        assert_eq!(woken, [3, 4, 6], "readers are woken all at once");
        woken.clear();
        files.read_ended(0, &mut woken);
        files.read_ended(0, &mut woken);
        assert_eq!(woken, [5]);
        assert!(files.write(0, 7), "nobody reads");
    }

    #[test]
    fn a_file_system_without_locks_never_makes_anybody_wait() {
        let mut files = Files::new(0);
        assert!(files.read(0, 1) && files.write(0, 2));
        let mut woken = Vec::new();
        files.read_ended(0, &mut woken);
        assert!(woken.is_empty());
    }
}
