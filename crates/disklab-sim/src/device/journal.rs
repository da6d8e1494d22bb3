//! The journal of a device's file system: one transaction is committed at a time, for all that wait for it.
//!
//! A sync waits for the transaction that its metadata were changed in. That may be under way already when its data are
//! on the disk, or over; the one after it takes all that came meanwhile. **Source:** `ext4_sync_file`,
//! `jbd2_complete_transaction`, `jbd2_trans_will_send_data_barrier`; XFS is alike (`xfs_log_force_seq`).
//! **Divergence:** a sync that needs a FLUSH alone waits for the commit before it as well.

/// What a sync asks of the journal.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub slot: u32,
    /// Writes of the journal, one after the other.
    pub writes: u32,
    /// A FLUSH of the disk.
    pub flush: bool,
    /// The transaction that its metadata are in: [`Journal::running`] when they were changed.
    pub transaction: u64,
}

/// What a commit does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Write,
    Flush,
    /// It has ended, for these slots.
    Done(Vec<u32>),
    /// There is none.
    Idle,
}

/// What becomes of a sync whose data are on the disk.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// Nothing is left to do.
    Synced,
    /// Nothing is under way: [`Journal::step`] begins.
    Begins,
    Waits,
}

/// The commit under way, and who waits for the next.
#[derive(Default)]
pub struct Journal {
    running: u64,
    serving: Vec<u32>,
    /// Whether what is under way commits a transaction, or flushes alone.
    commits: bool,
    writes: u32,
    flush: bool,
    waiting: Vec<Request>,
}

impl Journal {
    /// The transaction that takes what is changed now.
    pub fn running(&self) -> u64 {
        self.running
    }

    /// Takes a sync whose data are on the disk.
    pub fn join(&mut self, mut request: Request) -> Joined {
        let idle = self.serving.is_empty();
        if request.transaction < self.running {
            let under_way = !idle && self.commits && request.transaction + 1 == self.running;
            if under_way && (self.flush || !request.flush) {
                self.serving.push(request.slot);
                return Joined::Waits;
            }
            // Committed before its data were flushed: what is left is the FLUSH.
            request.writes = 0;
        }
        if request.writes == 0 && !request.flush {
            return Joined::Synced;
        }
        self.waiting.push(request);
        if idle { Joined::Begins } else { Joined::Waits }
    }

    /// Returns the next step. The last write is the record that makes the commit count: what came before it is
    /// flushed first.
    pub fn step(&mut self) -> Step {
        if self.serving.is_empty() {
            if self.waiting.is_empty() {
                return Step::Idle;
            }
            for request in self.waiting.drain(..) {
                self.serving.push(request.slot);
                self.writes = self.writes.max(request.writes);
                self.flush |= request.flush;
            }
            self.commits = self.writes > 0;
            self.running += u64::from(self.commits);
        }
        if self.flush && self.writes <= 1 {
            self.flush = false;
            Step::Flush
        } else if self.writes > 0 {
            self.writes -= 1;
            Step::Write
        } else {
            Step::Done(std::mem::take(&mut self.serving))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(journal: &Journal, slot: u32, writes: u32, flush: bool) -> Request {
        Request {
            slot,
            writes,
            flush,
            transaction: journal.running(),
        }
    }

    #[test]
    fn syncs_that_come_during_a_commit_share_the_next() {
        let mut journal = Journal::default();
        assert_eq!(journal.step(), Step::Idle);
        let first = request(&journal, 0, 2, true);
        assert_eq!(journal.join(first), Joined::Begins);
        assert_eq!(journal.step(), Step::Write);
        for (slot, writes) in [(1, 2), (2, 0)] {
            let later = request(&journal, slot, writes, true);
            assert_eq!(journal.join(later), Joined::Waits);
        }
        assert_eq!(journal.step(), Step::Flush);
        assert_eq!(journal.step(), Step::Write);
        assert_eq!(journal.step(), Step::Done(vec![0]));
        let next: Vec<Step> = (0..4).map(|_| journal.step()).collect();
        let served = Step::Done(vec![1, 2]);
        assert_eq!(next, [Step::Write, Step::Flush, Step::Write, served]);
        assert_eq!(journal.step(), Step::Idle);
    }

    #[test]
    fn a_sync_is_served_by_the_commit_that_its_changes_are_in() {
        let mut journal = Journal::default();
        let (first, second, third) = (
            request(&journal, 0, 1, false),
            request(&journal, 1, 1, false),
            request(&journal, 2, 1, false),
        );
        assert_eq!(journal.join(first), Joined::Begins);
        assert_eq!(journal.step(), Step::Write);
        assert_eq!(journal.join(second), Joined::Waits);
        assert_eq!(journal.step(), Step::Done(vec![0, 1]));
        assert_eq!(journal.join(third), Joined::Synced);
        assert_eq!(journal.step(), Step::Idle);
    }

    #[test]
    fn a_flush_alone_commits_nothing() {
        let mut journal = Journal::default();
        let (plain, logged) = (request(&journal, 0, 0, true), request(&journal, 1, 1, true));
        assert_eq!(journal.join(plain), Joined::Begins);
        assert_eq!(journal.step(), Step::Flush);
        assert_eq!(journal.join(logged), Joined::Waits);
        let steps: Vec<Step> = (0..4).map(|_| journal.step()).collect();
        let done = |slot| Step::Done(vec![slot]);
        assert_eq!(steps, [done(0), Step::Flush, Step::Write, done(1)]);
    }

    #[test]
    fn data_that_came_after_the_flush_are_flushed_by_the_next() {
        let mut journal = Journal::default();
        let (first, late) = (request(&journal, 0, 1, true), request(&journal, 1, 1, true));
        assert_eq!(journal.join(first), Joined::Begins);
        assert_eq!(journal.step(), Step::Flush);
        assert_eq!(journal.join(late), Joined::Waits);
        let steps: Vec<Step> = (0..4).map(|_| journal.step()).collect();
        let done = |slot| Step::Done(vec![slot]);
        assert_eq!(steps, [Step::Write, done(0), Step::Flush, done(1)]);
    }
}
