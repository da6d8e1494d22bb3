//! What stands on a disk, told by its magic numbers.

use serde::Serialize;

/// What is read of the begin of a disk, and of its end.
pub const LOOKED_AT_BYTES: usize = 1 << 20;

/// A magic number at its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Signature {
    pub kind: &'static str,
    pub offset_bytes: u64,
}

/// Kind, offset from the begin, bytes.
/// **Source:** util-linux, libblkid/src/superblocks and partitions; each project's on-disk format.
const AT_BEGIN: &[(&str, usize, &[u8])] = &[
    ("xfs", 0, b"XFSB"),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("luks", 16384, b"SKUL\xba\xbe"),
    ("ceph bluestore", 0, b"bluestore block device"),
    ("squashfs", 0, b"hsqs"),
    ("dm-verity", 0, b"verity\0\0"),
    ("dm-integrity", 0, b"integrt\0"),
    ("exfat", 3, b"EXFAT   "),
    ("ntfs", 3, b"NTFS    "),
    ("fat", 54, b"FAT1"),
    ("fat", 82, b"FAT32"),
    ("oracleasm", 32, b"ORCLDISK"),
    ("lvm", 0, b"LABELONE"),
    ("lvm", 512, b"LABELONE"),
    ("lvm", 1024, b"LABELONE"),
    ("lvm", 1536, b"LABELONE"),
    ("stratis", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("gpt", 512, b"EFI PART"),
    ("gpt", 4096, b"EFI PART"),
    ("ext", 1080, b"\x53\xef"),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    ("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    ("nilfs2", 1030, b"\x34\x34"),
    ("md", 0, b"\xfc\x4e\x2b\xa9"),
    ("md", 4096, b"\xfc\x4e\x2b\xa9"),
    ("swap", 4086, b"SWAPSPACE2"),
    ("swap", 4086, b"SWAP-SPACE"),
    ("swap", 16374, b"SWAPSPACE2"),
    ("swap", 65526, b"SWAPSPACE2"),
    ("swap", 4086, b"S1SUSPEND"),
    (
        "bcache",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    (
        "bcachefs",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    ("jfs", 32768, b"JFS1"),
    ("iso9660", 32769, b"CD001"),
    ("reiserfs", 65536 + 52, b"ReIsEr"),
    ("btrfs", 65536 + 64, b"_BHRfS_M"),
    ("gfs2", 65536, b"\x01\x16\x19\x70"),
    ("vmfs", 0x0010_0000 - 4, b"\x0d\xd0\x01\xc0"),
    ("mbr", 510, b"\x55\xaa"),
];

/// Finds what stands on a disk of this size, by its begin and its end (`LOOKED_AT_BYTES` each, or the whole disk).
pub fn find(size: u64, begin: &[u8], end: &[u8]) -> Vec<Signature> {
    let mut found: Vec<Signature> = AT_BEGIN
        .iter()
        .filter(|(_, offset, magic)| {
            begin
                .get(*offset..)
                .is_some_and(|rest| rest.starts_with(magic))
        })
        .map(|(kind, offset, _)| Signature {
            kind,
            offset_bytes: *offset as u64,
        })
        .collect();
    let end_begins = size - end.len() as u64;
    let mut at_end = |kind, offset: Option<u64>, magic: &[u8]| {
        let Some(offset) = offset.filter(|offset| *offset >= end_begins) else {
            return;
        };
        let at = usize::try_from(offset - end_begins).unwrap_or(usize::MAX);
        if end.get(at..).is_some_and(|rest| rest.starts_with(magic)) {
            found.push(Signature {
                kind,
                offset_bytes: offset,
            });
        }
    };
    let md = b"\xfc\x4e\x2b\xa9";
    // Metadata 0.90: 64 KiB before the last whole 64 KiB; 1.0: at least 8 KiB before the end, in steps of 4 KiB.
    at_end("md", (size & !0xffff).checked_sub(0x1_0000), md);
    at_end(
        "md",
        size.checked_sub(8192).map(|offset| offset & !0xfff),
        md,
    );
    at_end("gpt", size.checked_sub(512), b"EFI PART");
    at_end("gpt", size.checked_sub(4096), b"EFI PART");
    // Metadata of firmware RAID stands in the last sectors.
    at_end(
        "isw_raid",
        size.checked_sub(1024),
        b"Intel Raid ISM Cfg Sig. ",
    );
    at_end("ddf_raid", size.checked_sub(512), b"\xde\x11\xde\x11");
    found.extend(zfs(begin, 0));
    found.extend(zfs(end, end_begins));
    found
}

/// Uberblocks of ZFS: in the second half of each label of 256 KiB, of either byte order.
fn zfs(part: &[u8], begins: u64) -> Option<Signature> {
    let magics = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()];
    part.chunks_exact(1024)
        .position(|chunk| magics.iter().any(|magic| chunk.starts_with(magic)))
        .map(|chunk| Signature {
            kind: "zfs",
            offset_bytes: begins + chunk as u64 * 1024,
        })
}

/// The offset of the first byte that is not zero.
pub fn first_not_zero(size: u64, begin: &[u8], end: &[u8]) -> Option<u64> {
    let at = |part: &[u8]| part.iter().position(|byte| *byte != 0).map(|at| at as u64);
    at(begin).or_else(|| Some(size - end.len() as u64 + at(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(disk: &[u8]) -> Vec<&'static str> {
        let part = disk.len().min(LOOKED_AT_BYTES);
        let found = find(disk.len() as u64, &disk[..part], &disk[disk.len() - part..]);
        found.iter().map(|signature| signature.kind).collect()
    }

    #[test]
    fn an_empty_disk_has_no_signature_and_no_byte() {
        let disk = vec![0; 4 << 20];
        assert!(kinds(&disk).is_empty());
        assert_eq!(
            first_not_zero(4 << 20, &disk[..1 << 20], &disk[3 << 20..]),
            None
        );
    }

    #[test]
    fn each_magic_is_found_where_it_stands() {
        for (kind, offset, magic) in AT_BEGIN {
            let mut disk = vec![0; 4 << 20];
            disk[*offset..offset + magic.len()].copy_from_slice(magic);
            assert!(kinds(&disk).contains(kind), "{kind} at {offset}");
        }
    }

    #[test]
    fn what_stands_at_the_end_is_found() {
        for (kind, before_end, magic) in [
            ("gpt", 512, &b"EFI PART"[..]),
            ("md", 8192, b"\xfc\x4e\x2b\xa9"),
            ("md", 0x1_0000, b"\xfc\x4e\x2b\xa9"),
        ] {
            let mut disk = vec![0; 4 << 20];
            let at = disk.len() - before_end;
            disk[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(kinds(&disk), [kind]);
        }
    }

    #[test]
    fn a_disk_of_any_size_is_looked_at() {
        for size in [0_usize, 1, 511, 512, 4096, 65536, 100_000] {
            assert!(kinds(&vec![0; size]).is_empty());
            assert!(kinds(&vec![0xff; size]).is_empty(), "{size}");
        }
    }
}
