//! The FUSE wire format, as far as a directory of plain files needs it.
//!
//! **Source:** the kernel's `include/uapi/linux/fuse.h`, protocol 7.31 (Linux 5.4) to 7.45.

/// The major version, the same since 2006.
pub const MAJOR: u32 = 7;
/// The newest minor version whose messages this module knows: 7.42 brought FUSE over io_uring.
pub const MINOR: u32 = 42;
/// The oldest minor version accepted; since 7.23 the INIT reply has its present 64 bytes.
pub const OLDEST_MINOR: u32 = 31;

/// The node of the mount's root directory.
pub const ROOT: u64 = 1;

/// Operation codes.
pub mod opcode {
    #![allow(missing_docs)] // The names are the kernel's.
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
}

/// Flags of INIT.
pub mod init_flag {
    #![allow(missing_docs)] // The names are the kernel's.
    /// Direct I/O may be asynchronous: without it the queue depth is one.
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of an OPEN reply.
pub mod open_flag {
    #![allow(missing_docs)] // The names are the kernel's.
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// A message part that is plain old data without padding.
///
/// # Safety
/// Every bit pattern is a value, and there are no padding bytes.
pub unsafe trait Wire: Copy {}

/// Reads a part from the start of `bytes`; `None` when they are too few.
pub fn read<T: Wire>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: enough bytes, and by `Wire` every bit pattern is a value. Unaligned reads are allowed for.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The bytes of a part.
pub fn bytes_of<T: Wire>(part: &T) -> &[u8] {
    // SAFETY: by `Wire` there is no padding, so that all bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(part).cast(), size_of::<T>()) }
}

macro_rules! wire {
    ($($(#[$meta:meta])* struct $name:ident [$size:literal] { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs)] // The fields are the kernel's.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name { $(pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
        // SAFETY: only integers and arrays of them, and the size, checked above, leaves no padding.
        unsafe impl Wire for $name {}
    )*};
}

wire! {
    /// Starts every request.
    struct InHeader [40] {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        extension_len: u16, padding: u16,
    }
    /// Starts every reply.
    struct OutHeader [16] { len: u32, error: i32, unique: u64, }
    /// INIT, the part that all versions have.
    struct InitIn [16] { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// INIT's reply.
    struct InitOut [64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    /// What stat shows.
    struct Attributes [88] {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atime_ns: u32,
        mtime_ns: u32, ctime_ns: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    /// LOOKUP's reply.
    struct EntryOut [128] {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_ns: u32,
        attr_valid_ns: u32, attributes: Attributes,
    }
    /// GETATTR's and SETATTR's reply.
    struct AttrOut [104] { attr_valid: u64, attr_valid_ns: u32, padding: u32, attributes: Attributes, }
    /// SETATTR, the part that matters here.
    struct SetattrIn [8] { valid: u32, padding: u32, }
    /// OPEN's and OPENDIR's reply.
    struct OpenOut [16] { fh: u64, open_flags: u32, padding: u32, }
    /// READ, WRITE and READDIR: the same layout.
    struct TransferIn [40] {
        fh: u64, offset: u64, size: u32, transfer_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// WRITE's reply.
    struct WriteOut [8] { size: u32, padding: u32, }
    /// FALLOCATE.
    struct FallocateIn [32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// STATFS's reply.
    struct StatfsOut [80] {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// A directory entry, followed by the name and padding to 8 bytes.
    struct Dirent [24] { ino: u64, off: u64, namelen: u32, kind: u32, }
    /// The state of an io_uring entry.
    struct EntryInOut [32] { flags: u64, commit_id: u64, payload_size: u32, padding: u32, reserved: u64, }
    /// The command part of an io_uring entry.
    struct UringCommand [24] { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6], }
}

/// SETATTR changes the size.
pub const SETATTR_SIZE: u32 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_wrote_at_any_alignment() {
        let header = InHeader {
            len: 40,
            opcode: opcode::READ,
            unique: 0x0123_4567_89ab_cdef,
            nodeid: 7,
            ..InHeader::default()
        };
        let mut bytes = [0; 41];
        bytes[1..].copy_from_slice(bytes_of(&header));
        let back: InHeader = read(&bytes[1..]).expect("all bytes are there");
        assert_eq!(
            (back.len, back.opcode, back.unique, back.nodeid),
            (40, 15, header.unique, 7)
        );
        assert!(read::<InHeader>(&bytes[2..]).is_none(), "one byte short");
    }

    #[test]
    fn fields_lie_where_the_kernel_has_them() {
        assert_eq!(std::mem::offset_of!(InitOut, flags2), 32);
        assert_eq!(std::mem::offset_of!(InHeader, nodeid), 16);
        assert_eq!(std::mem::offset_of!(EntryOut, attributes), 40);
        assert_eq!(std::mem::offset_of!(TransferIn, size), 16);
        assert_eq!(std::mem::offset_of!(FallocateIn, mode), 24);
        assert_eq!(std::mem::offset_of!(UringCommand, queue), 16);
    }
}
