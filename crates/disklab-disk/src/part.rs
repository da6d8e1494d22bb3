//! One member disk's share of an I/O on its way through the gates.

use crate::io::{Io, Op};

/// Who waits for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is the whole I/O, which the caller knows by this tag.
    Whole(u64),
    /// One of several parts; the number of the parent I/O.
    Child(u32),
    /// The host cache, which destages a block.
    Destage,
}

/// The way of a part: which gates it passes and which service time it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A read of the disk; with host caching one that missed.
    Read,
    /// A write to the disk; with host caching also into the cache.
    Write,
    /// A read that the host cache serves.
    Hit,
    /// A write that the host cache acknowledges.
    WriteBack,
    /// A write from the host cache to the disk, on nobody's behalf.
    Destage,
}

/// How many routes there are.
pub const ROUTES: usize = 5;

/// One member disk's share of an I/O.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Who waits for it.
    pub owner: Owner,
    /// First byte, on the member disk.
    pub offset: u64,
    /// Bytes: what the cached budget pays.
    pub len: u32,
    /// What the disk and the network pay: less than `len` for a read that the cache has in part.
    pub disk_len: u32,
    /// The member disk.
    pub lane: u32,
    /// Its way.
    pub route: Route,
    /// Gates passed so far.
    pub step: u8,
    /// Whether it ends as an injected error.
    pub fails: bool,
}

impl Part {
    /// All of a read or write, as if it lay on one disk.
    #[inline]
    pub fn whole(io: &Io, lane: u32, fails: bool) -> Part {
        Part {
            owner: Owner::Whole(io.tag),
            offset: io.offset.get(),
            len: io.len,
            disk_len: io.len,
            lane,
            route: if io.op == Op::Read {
                Route::Read
            } else {
                Route::Write
            },
            step: 0,
            fails,
        }
    }
}
