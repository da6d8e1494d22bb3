//! Where a volume's bytes really are.
//!
//! Holes of a sparse file need no special care in timing: the model charges a read of a hole as the disk
//! read that it would be on the real disk, and neither backing is on the timing path.

mod file;
mod memory;
mod write_back;

pub use file::{FileBacking, Found, remove};
pub use memory::MemoryBacking;

use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// What an attach request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackingChoice {
    /// File or memory.
    pub kind: BackingKind,
    /// Takes all the space at once, so that it cannot run out later.
    #[serde(default)]
    pub preallocate: bool,
}

impl Default for BackingChoice {
    fn default() -> BackingChoice {
        BackingChoice {
            kind: BackingKind::File,
            preallocate: false,
        }
    }
}

/// The kinds of backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackingKind {
    /// A sparse file in the data directory. What was written outlives this process, even after kill -9: it
    /// is in the page cache. It does not outlive a crash of this machine, FLUSH or not.
    File,
    /// Memory of this process; gone with it. The fastest.
    Memory,
}

impl Backing {
    /// Why the volume takes no more writes; nothing while all is well.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Backing::Memory(_) => None,
            Backing::File(file) => file.failure(),
        }
    }

    /// Looks whether this machine has lost data since the last look; see [`FileBacking::look`].
    pub fn look(&mut self) {
        if let Backing::File(file) = self {
            file.look();
        }
    }

    /// Reads a range at once.
    ///
    /// A file whose data have left the page cache makes the caller wait for this machine's disk.
    pub fn read_now(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Backing::Memory(memory) => {
                memory.read(offset, into);
                Ok(())
            }
            Backing::File(file) => file.file().read_exact_at(into, offset),
        }
    }

    /// Writes a range at once, as above.
    pub fn write_now(&mut self, offset: u64, from: &[u8]) -> io::Result<()> {
        match self {
            Backing::Memory(memory) => {
                memory.write(offset, from);
                Ok(())
            }
            Backing::File(file) => file.file().write_all_at(from, offset),
        }
    }
}

/// An open backing.
pub enum Backing {
    /// See [`BackingKind::File`].
    File(FileBacking),
    /// See [`BackingKind::Memory`].
    Memory(MemoryBacking),
}
