//! What the mount looks like: one directory with a file for each volume. Answers everything except
//! the I/O itself.

use disklab_disk::Op;

use crate::fuse::protocol::{
    AttrOut, Attributes, Dirent, EntryOut, FallocateIn, InHeader, OpenOut, ROOT, SETATTR_SIZE,
    SetattrIn, StatfsOut, TransferIn, bytes_of, opcode, open_flag, read,
};
use crate::transport::{Errno, Shown, VolumeIndex};

/// The root is node 1, so that volume 0 is node 2.
const FIRST_NODE: u64 = 2;
/// Block size of the mount. The loop device takes it as the granularity of discard.
const BLOCK: u32 = 4096;
/// Attributes never change behind the kernel's back.
const VALID_S: u64 = 86_400;

/// How a request goes on.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The driver must do it.
    Io {
        /// Which volume.
        volume: VolumeIndex,
        /// What.
        op: Op,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// So many bytes of `out` are the reply.
    Reply(usize),
    /// It fails.
    Error(Errno),
    /// Nobody waits for an answer.
    Silence,
}

/// The directory.
#[derive(Default)]
pub struct Session {
    volumes: Vec<Option<Shown>>,
}

impl Session {
    /// Shows a volume, or no longer.
    pub fn show(&mut self, volume: VolumeIndex, shown: Option<Shown>) {
        let index = volume.0 as usize;
        if self.volumes.len() <= index {
            self.volumes.resize(index + 1, None);
        }
        self.volumes[index] = shown;
    }

    /// Answers a request. `arguments` is its fixed part, `rest` what follows (a name); a reply goes
    /// into `out`, which holds at least a page.
    pub fn answer(
        &self,
        header: &InHeader,
        arguments: &[u8],
        rest: &[u8],
        out: &mut [u8],
    ) -> Answer {
        match header.opcode {
            opcode::READ | opcode::WRITE => self.transfer(header, arguments),
            opcode::FSYNC => self.io(header, Op::Flush, 0, 0),
            opcode::FALLOCATE => self.fallocate(header, arguments),
            opcode::LOOKUP => self.lookup(header, rest, out),
            opcode::GETATTR => self.attributes(header, out),
            opcode::SETATTR => match read::<SetattrIn>(arguments) {
                // The size of a disk is not changed through the file.
                Some(change) if change.valid & SETATTR_SIZE == 0 => self.attributes(header, out),
                Some(_) => Answer::Error(Errno(libc::EPERM)),
                None => Answer::Error(Errno(libc::EINVAL)),
            },
            opcode::OPEN => match self.shown(header.nodeid) {
                Some(_) => reply(
                    out,
                    &OpenOut {
                        // Without PARALLEL_DIRECT_WRITES the kernel writes one at a time. With a flush at close,
                        // an engine that is killed while it makes a loop device waits for itself for ever: its last
                        // thread closes the file before /dev/fuse, and no abort of the mount ends that request.
                        open_flags: open_flag::DIRECT_IO
                            | open_flag::PARALLEL_DIRECT_WRITES
                            | open_flag::NOFLUSH,
                        ..OpenOut::default()
                    },
                ),
                None => Answer::Error(Errno(libc::ENOENT)),
            },
            opcode::OPENDIR => reply(out, &OpenOut::default()),
            opcode::READDIR => self.read_directory(arguments, out),
            opcode::STATFS => reply(
                out,
                &StatfsOut {
                    bsize: BLOCK,
                    frsize: BLOCK,
                    namelen: 255,
                    ..StatfsOut::default()
                },
            ),
            opcode::RELEASE | opcode::RELEASEDIR | opcode::DESTROY => Answer::Reply(0),
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Answer::Silence,
            // The kernel remembers this answer and does not ask again (LSEEK, GETXATTR, ...). FLUSH, which means the
            // close of a file, is only sent by kernels before Linux 5.16.
            _ => Answer::Error(Errno(libc::ENOSYS)),
        }
    }

    fn shown(&self, node: u64) -> Option<(VolumeIndex, &Shown)> {
        let index = usize::try_from(node.checked_sub(FIRST_NODE)?).ok()?;
        let shown = self.volumes.get(index)?.as_ref()?;
        Some((VolumeIndex(u32::try_from(index).ok()?), shown))
    }

    fn io(&self, header: &InHeader, op: Op, offset: u64, len: u32) -> Answer {
        match self.shown(header.nodeid) {
            Some((volume, _)) => Answer::Io {
                volume,
                op,
                offset,
                len,
            },
            None => Answer::Error(Errno(libc::EIO)),
        }
    }

    fn transfer(&self, header: &InHeader, arguments: &[u8]) -> Answer {
        let Some(transfer) = read::<TransferIn>(arguments) else {
            return Answer::Error(Errno(libc::EINVAL));
        };
        let op = if header.opcode == opcode::READ {
            Op::Read
        } else {
            Op::Write
        };
        self.io(header, op, transfer.offset, transfer.size)
    }

    /// Punched holes are discards. Zeroing a range is refused: the kernel then writes zeros, which a
    /// disk charges as the writes that they are.
    fn fallocate(&self, header: &InHeader, arguments: &[u8]) -> Answer {
        let Some(range) = read::<FallocateIn>(arguments) else {
            return Answer::Error(Errno(libc::EINVAL));
        };
        let punch = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
        if range.mode != punch {
            return Answer::Error(Errno(libc::EOPNOTSUPP));
        }
        match u32::try_from(range.length) {
            Ok(len) => self.io(header, Op::Discard, range.offset, len),
            Err(_) => Answer::Error(Errno(libc::EINVAL)),
        }
    }

    fn lookup(&self, header: &InHeader, rest: &[u8], out: &mut [u8]) -> Answer {
        let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
        let found = self
            .volumes
            .iter()
            .position(|shown| {
                shown
                    .as_ref()
                    .is_some_and(|shown| shown.name.as_bytes() == name)
            })
            .filter(|_| header.nodeid == ROOT);
        let Some(index) = found else {
            return Answer::Error(Errno(libc::ENOENT));
        };
        let node = FIRST_NODE + index as u64;
        // The name may go at any time (detach), so it is not kept: entry_valid is zero.
        reply(
            out,
            &EntryOut {
                nodeid: node,
                attr_valid: VALID_S,
                attributes: self.stat(node).unwrap_or_default(),
                ..EntryOut::default()
            },
        )
    }

    fn attributes(&self, header: &InHeader, out: &mut [u8]) -> Answer {
        match self.stat(header.nodeid) {
            Some(attributes) => reply(
                out,
                &AttrOut {
                    attr_valid: VALID_S,
                    attributes,
                    ..AttrOut::default()
                },
            ),
            None => Answer::Error(Errno(libc::ENOENT)),
        }
    }

    fn stat(&self, node: u64) -> Option<Attributes> {
        let (mode, nlink, size) = if node == ROOT {
            (libc::S_IFDIR | 0o700, 2, 0)
        } else {
            (libc::S_IFREG | 0o600, 1, self.shown(node)?.1.size)
        };
        Some(Attributes {
            ino: node,
            size,
            blocks: size / 512,
            mode,
            nlink,
            blksize: BLOCK,
            ..Attributes::default()
        })
    }

    /// Entries from `offset` on, which counts them.
    fn read_directory(&self, arguments: &[u8], out: &mut [u8]) -> Answer {
        let Some(asked) = read::<TransferIn>(arguments) else {
            return Answer::Error(Errno(libc::EINVAL));
        };
        let room = out.len().min(asked.size as usize);
        let mut used = 0;
        let files = self.volumes.iter().zip(FIRST_NODE..);
        let entries = [(".", ROOT, libc::S_IFDIR), ("..", ROOT, libc::S_IFDIR)]
            .into_iter()
            .chain(files.filter_map(|(shown, node)| {
                shown
                    .as_ref()
                    .map(|shown| (shown.name.as_str(), node, libc::S_IFREG))
            }));
        for ((name, ino, mode), off) in entries.zip(1..).skip(asked.offset as usize) {
            let len = (size_of::<Dirent>() + name.len()).next_multiple_of(8);
            if used + len > room {
                break;
            }
            let dirent = Dirent {
                ino,
                off,
                namelen: name.len() as u32,
                kind: mode >> 12,
            };
            let place = &mut out[used..used + len];
            place.fill(0);
            place[..size_of::<Dirent>()].copy_from_slice(bytes_of(&dirent));
            place[size_of::<Dirent>()..][..name.len()].copy_from_slice(name.as_bytes());
            used += len;
        }
        Answer::Reply(used)
    }
}

fn reply<T: crate::fuse::protocol::Wire>(out: &mut [u8], part: &T) -> Answer {
    let bytes = bytes_of(part);
    out[..bytes.len()].copy_from_slice(bytes);
    Answer::Reply(bytes.len())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn session() -> Session {
        let mut session = Session::default();
        for (index, name) in ["data", "log", "gone"].into_iter().enumerate() {
            let shown = Shown {
                name: name.to_owned(),
                size: 1 << 30,
            };
            session.show(VolumeIndex(index as u32), Some(shown));
        }
        session.show(VolumeIndex(2), None);
        session
    }

    fn ask(opcode: u32, nodeid: u64, arguments: &[u8], rest: &[u8]) -> (Answer, Vec<u8>) {
        let header = InHeader {
            opcode,
            nodeid,
            ..InHeader::default()
        };
        let mut out = vec![0; 4096];
        let answer = session().answer(&header, arguments, rest, &mut out);
        if let Answer::Reply(len) = answer {
            out.truncate(len);
        }
        (answer, out)
    }

    #[test]
    fn finds_files_by_name_with_their_size() {
        let (answer, out) = ask(opcode::LOOKUP, ROOT, &[], b"log\0");
        assert_eq!(answer, Answer::Reply(size_of::<EntryOut>()));
        let entry: EntryOut = read(&out).expect("an entry");
        assert_eq!((entry.nodeid, entry.attributes.size), (3, 1 << 30));
        assert_eq!(entry.attributes.mode, libc::S_IFREG | 0o600);
        let missing = Answer::Error(Errno(libc::ENOENT));
        assert_eq!(ask(opcode::LOOKUP, ROOT, &[], b"gone\0").0, missing);
        assert_eq!(ask(opcode::LOOKUP, ROOT, &[], b"lo\0").0, missing);
    }

    #[test]
    fn hands_io_to_the_driver() {
        let transfer = TransferIn {
            offset: 8192,
            size: 4096,
            ..TransferIn::default()
        };
        let (answer, _) = ask(opcode::WRITE, 2, bytes_of(&transfer), &[]);
        let expected = Answer::Io {
            volume: VolumeIndex(0),
            op: Op::Write,
            offset: 8192,
            len: 4096,
        };
        assert_eq!(answer, expected);
        let gone = ask(opcode::READ, 4, bytes_of(&transfer), &[]).0;
        assert_eq!(gone, Answer::Error(Errno(libc::EIO)));
    }

    #[test]
    fn discards_but_does_not_zero() {
        let mut range = FallocateIn {
            offset: 4096,
            length: 1 << 20,
            mode: 3,
            ..FallocateIn::default()
        };
        let discard = ask(opcode::FALLOCATE, 2, bytes_of(&range), &[]).0;
        assert!(matches!(
            discard,
            Answer::Io {
                op: Op::Discard,
                offset: 4096,
                len: 0x10_0000,
                ..
            }
        ));
        range.mode = libc::FALLOC_FL_ZERO_RANGE as u32;
        let zero = ask(opcode::FALLOCATE, 2, bytes_of(&range), &[]).0;
        assert_eq!(zero, Answer::Error(Errno(libc::EOPNOTSUPP)));
    }

    #[test]
    fn lists_what_is_there() {
        let all = TransferIn {
            size: 4096,
            ..TransferIn::default()
        };
        let (answer, out) = ask(opcode::READDIR, ROOT, bytes_of(&all), &[]);
        assert!(matches!(answer, Answer::Reply(_)));
        let text = String::from_utf8_lossy(&out).into_owned();
        assert!(text.contains("data") && text.contains("log") && !text.contains("gone"));
        let after = TransferIn { offset: 4, ..all };
        assert_eq!(
            ask(opcode::READDIR, ROOT, bytes_of(&after), &[]).0,
            Answer::Reply(0)
        );
    }

    proptest! {
        // PROPTEST_CASES asks for more: see `make fuzz`.
        #![proptest_config(ProptestConfig {
            cases: ProptestConfig::default().cases.max(4096),
            ..ProptestConfig::default()
        })]

        #[test]
        fn fuzz_no_request_reaches_what_is_not_shown_or_writes_beyond_the_reply(
            opcode in prop_oneof![0..60u32, any::<u32>()],
            nodeid in prop_oneof![0..8u64, any::<u64>()],
            arguments in vec(any::<u8>(), 0..64),
            size: Option<u32>,
            rest in prop_oneof![Just(b"data\0".to_vec()), vec(any::<u8>(), 0..40)],
        ) {
            let mut arguments = arguments;
            if let (Some(size), Some(place)) = (size, arguments.get_mut(16..20)) {
                // Of a transfer: a page and less is likelier than what four random bytes say.
                place.copy_from_slice(&(size % 8192).to_ne_bytes());
            }
            let header = InHeader { opcode, nodeid, ..InHeader::default() };
            let mut out = vec![0xEE; 4096];
            match session().answer(&header, &arguments, &rest, &mut out) {
                Answer::Reply(len) => {
                    prop_assert!(len <= out.len());
                    prop_assert!(out[len..].iter().all(|byte| *byte == 0xEE));
                }
                Answer::Io { volume, .. } => {
                    // The third is detached.
                    prop_assert!(volume.0 < 2);
                    prop_assert_eq!(u64::from(volume.0) + FIRST_NODE, nodeid);
                }
                Answer::Error(Errno(number)) => prop_assert!(number > 0),
                Answer::Silence => (),
            }
        }
    }
}
