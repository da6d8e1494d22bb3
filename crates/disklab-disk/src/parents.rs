//! I/Os that end when several parts have ended.

use crate::io::Op;

/// An I/O in several parts.
#[derive(Clone, Copy, Debug)]
pub struct Parent {
    /// The caller's name for it.
    pub tag: u64,
    /// Its volume.
    pub volume: u32,
    /// What it does.
    pub op: Op,
    /// Its bytes.
    pub len: u32,
    /// Parts whose end is not decided.
    pub left: u32,
    /// End of the slowest part so far, in nanoseconds.
    pub at: u64,
    /// Whether some part failed.
    pub failed: bool,
}

/// The parents of parts on their way, by number. Numbers are used again.
#[derive(Clone, Debug, Default)]
pub struct Parents {
    all: Vec<Parent>,
    free: Vec<u32>,
}

impl Parents {
    /// Adds a parent and returns its number.
    pub fn add(&mut self, parent: Parent) -> u32 {
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = parent;
            return number;
        }
        self.all.push(parent);
        u32::try_from(self.all.len() - 1).expect("fewer I/Os than 2^32")
    }

    /// Notes the end of one part; returns the parent when it was the last.
    pub fn end_part(&mut self, number: u32, at: u64, failed: bool) -> Option<Parent> {
        let parent = &mut self.all[number as usize];
        parent.left -= 1;
        parent.at = parent.at.max(at);
        parent.failed |= failed;
        if parent.left > 0 {
            return None;
        }
        self.free.push(number);
        Some(*parent)
    }
}
