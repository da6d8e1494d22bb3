//! What stands in rows: every byte is known beforehand; and what is done with a row.

use std::sync::Arc;

use bytes::BufMut;
use disklab_units::random::mix;
use disklab_units::sizes::{Bins, Size};

use crate::keys::Key;
use crate::versions::Version;

/// SplitMix64's odd constant; see [`Stream`].
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
/// The upper half of SplitMix64's first multiplier, which is odd.
const FACTOR: u64 = 0xbf58_476d;

/// Eight bytes of a column, from its place in the stream.
///
/// Verification is the largest part of a read that is ours (a sixth of the client's time with all of SplitMix64), and
/// content has to be irregular, not random: one multiplication, of 32 bits by 32, so that every x86-64 has it for two
/// words at once.
#[inline(always)]
fn word(place: u64) -> u64 {
    ((place ^ (place >> 32)) & 0xffff_ffff).wrapping_mul(FACTOR) ^ place
}

/// Bytes at the beginning of a row that its version is in.
pub const VERSION_BYTES: usize = 8;

/// What stands in a row: a pure function of seed, key, version and column.
///
/// Each column is a stream of its own, eight bytes a number, too irregular for compression to get hold of. Without
/// versions, writing a row again writes the same bytes, so that a reader need not know which write it sees. With them,
/// the row's first bytes say which it is, and all others belong to it: a row of parts of two versions is wrong. A row
/// has as many bytes as without, and the same ones as long as it is as it was filled. Where rows have several sizes, the
/// key says which, so that a reader knows how long the row must be.
#[derive(Clone, Debug)]
pub struct Content {
    seed: u64,
    columns: u32,
    column_bytes: u32,
    /// None: every row has the same size.
    sizes: Option<Arc<(Vec<Size>, Bins)>>,
    versions: bool,
}

impl Content {
    /// Rows of `columns` x `column_bytes`.
    pub fn new(seed: u64, columns: u32, column_bytes: u32) -> Content {
        Content {
            seed: mix(seed),
            columns,
            column_bytes,
            sizes: None,
            versions: false,
        }
    }

    /// The same with rows of several sizes, which have no [`disklab_units::sizes::problem`].
    pub fn with_sizes(self, sizes: &[Size]) -> Content {
        let bins = Bins::new(sizes, self.seed);
        Content {
            sizes: Some(Arc::new((sizes.to_vec(), bins))),
            ..self
        }
    }

    /// The same with versions.
    pub fn with_versions(self) -> Content {
        let sizes = self.sizes.iter().flat_map(|sizes| &sizes.0);
        let sizes = sizes.map(|size| size.column_bytes);
        let least = sizes.min().unwrap_or(self.column_bytes);
        assert!(least as usize >= VERSION_BYTES, "checked with the job");
        Content {
            versions: true,
            ..self
        }
    }

    /// Number of columns.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// Bytes of each column of a row.
    #[inline]
    pub fn column_bytes(&self, key: Key) -> u32 {
        match &self.sizes {
            None => self.column_bytes,
            Some(sizes) => sizes.0[sizes.1.of_hash(self.hash(key))].column_bytes,
        }
    }

    fn hash(&self, key: Key) -> u64 {
        mix(self.seed.wrapping_add(key).wrapping_mul(GAMMA))
    }

    /// Appends the bytes of a column of a version.
    pub fn write(&self, key: Key, version: Version, column: u32, to: &mut impl BufMut) {
        let mut place = self.start(key, version, column);
        let bytes = self.column_bytes(key);
        let mut words = bytes / 8;
        if self.versions && column == 0 {
            to.put_u64_le(self.first_word(key) ^ version);
            place = place.wrapping_add(GAMMA);
            words -= 1;
        }
        for _ in 0..words {
            place = place.wrapping_add(GAMMA);
            to.put_slice(&word(place).to_le_bytes());
        }
        let rest = bytes as usize % 8;
        let last = word(place.wrapping_add(GAMMA)).to_le_bytes();
        to.put_slice(&last[..rest]);
    }

    /// Which version a row says that it is, by the bytes of its first column; 0 where rows have none.
    pub fn version(&self, key: Key, first: &[u8]) -> Version {
        match first.first_chunk() {
            Some(bytes) if self.versions => u64::from_le_bytes(*bytes) ^ self.first_word(key),
            _ => 0,
        }
    }

    /// The first bytes of a row as it was filled.
    fn first_word(&self, key: Key) -> u64 {
        word(self.start(key, 0, 0).wrapping_add(GAMMA))
    }

    /// Whether `bytes` are exactly those of a column of a version.
    pub fn matches(&self, key: Key, version: Version, column: u32, bytes: &[u8]) -> bool {
        if bytes.len() != self.column_bytes(key) as usize {
            return false;
        }
        let mut place = self.start(key, version, column);
        let (mut words, rest) = bytes.as_chunks::<8>();
        if self.versions && column == 0 {
            // The version was read from these bytes: they are right by that.
            words = &words[1..];
            place = place.wrapping_add(GAMMA);
        }
        // Differences are gathered, not branched on: a right row is what one nearly always sees.
        let mut difference = 0;
        for bytes in words {
            place = place.wrapping_add(GAMMA);
            difference |= u64::from_le_bytes(*bytes) ^ word(place);
        }
        let last = word(place.wrapping_add(GAMMA)).to_le_bytes();
        difference == 0 && rest == &last[..rest.len()]
    }

    fn start(&self, key: Key, version: Version, column: u32) -> u64 {
        let filled = mix(mix(self.seed.wrapping_add(key)) ^ u64::from(column));
        filled ^ version.wrapping_mul(FACTOR)
    }
}

/// One operation on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read it, and compare it with what was written.
    Read(Key),
    /// Write all of it: this version.
    Write(Key, Version),
    /// Write all of a row that was not there.
    Insert(Key),
    /// Write one column of it.
    Update(Key, u32),
    /// Delete it.
    Delete(Key),
    /// Read so many rows, from it on in the order of the table.
    Scan(Key, u32),
    /// Read it, then write all of it.
    ReadModifyWrite(Key),
}

/// Names of the operations, in the order of [`Step`].
pub const KINDS: [&str; 7] = [
    "read",
    "write",
    "insert",
    "update",
    "delete",
    "scan",
    "read_modify_write",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn column(content: &Content, key: Key, version: Version, column: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        content.write(key, version, column, &mut bytes);
        bytes
    }

    #[test]
    fn is_the_same_on_every_machine() {
        // From this implementation, 2026-11-21: a change of content makes filled tables useless.
        let content = Content::new(1, 5, 11);
        assert_eq!(
            column(&content, 42, 0, 3),
            [6, 77, 71, 14, 2, 164, 108, 190, 36, 241, 158]
        );
    }

    #[test]
    fn rows_of_several_sizes_are_as_long_as_their_keys_say() {
        let sizes = [(16, 500_000), (301, 300_000), (9000, 200_000)];
        let sizes = sizes.map(|(column_bytes, share_ppm)| Size {
            column_bytes,
            share_ppm,
        });
        let content = Content::new(1, 2, 0).with_sizes(&sizes);
        let mut seen = [0_u32; 3];
        for key in 0..10_000 {
            let written = column(&content, key, 0, 1);
            assert_eq!(written, column(&content.clone(), key, 0, 1));
            assert!(content.matches(key, 0, 1, &written));
            assert!(!content.matches(key, 0, 1, &written[1..]));
            let at = sizes
                .iter()
                .position(|size| size.column_bytes as usize == written.len());
            seen[at.expect("it is one of the sizes")] += 1;
        }
        for (seen, size) in seen.iter().zip(sizes) {
            assert!(
                seen.abs_diff(size.share_ppm / 100) < 200,
                "{seen}: {size:?}"
            );
        }
        // From this implementation, 2026-11-25: another size of a key makes filled tables useless.
        let first = [0, 1, 2, 3, 4, 5].map(|key| content.column_bytes(key));
        assert_eq!(first, [301, 9000, 9000, 16, 301, 16]);
        let versions = content.with_versions();
        let row = column(&versions, 3, 9, 0);
        assert_eq!(versions.version(3, &row), 9);
        assert!(versions.matches(3, 9, 0, &row));
    }

    proptest! {
        #[test]
        fn matches_what_was_written_and_nothing_else(
            seed: u64, key: u64, bytes in 1u32..900, at: prop::sample::Index, bit in 0u8..8,
        ) {
            let content = Content::new(seed, 2, bytes);
            let mut written = column(&content, key, 0, 1);
            prop_assert!(content.matches(key, 0, 1, &written));
            prop_assert!(!content.matches(key, 0, 1, &written[1..]));
            if bytes >= 4 {
                // Shorter ones may be alike by chance.
                prop_assert!(!content.matches(key, 0, 0, &written));
                prop_assert!(!content.matches(key.wrapping_add(1), 0, 1, &written));
            }
            let at = at.index(written.len());
            written[at] ^= 1 << bit;
            prop_assert!(!content.matches(key, 0, 1, &written));
        }

        #[test]
        fn a_row_says_which_version_it_is_and_all_of_it_belongs_to_that(
            seed: u64, key: u64, bytes in 16u32..200, version in 1u64..1 << 40, other in 1u64..1 << 40,
            at: prop::sample::Index, bit in 0u8..8,
        ) {
            prop_assume!(version != other);
            let plain = Content::new(seed, 2, bytes);
            let content = plain.clone().with_versions();
            for at in 0..2 {
                prop_assert_eq!(column(&content, key, 0, at), column(&plain, key, 0, at));
            }
            let row = [0, 1].map(|at| column(&content, key, version, at));
            prop_assert_eq!(row[0].len(), bytes as usize);
            prop_assert_eq!(content.version(key, &row[0]), version);
            prop_assert!(content.matches(key, version, 0, &row[0]));
            prop_assert!(content.matches(key, version, 1, &row[1]));
            prop_assert!(!content.matches(key, version, 1, &column(&content, key, other, 1)));
            let mut altered = row[0].clone();
            let at = at.index(altered.len());
            altered[at] ^= 1 << bit;
            let says = content.version(key, &altered);
            prop_assert!(!content.matches(key, says, 0, &altered), "{}", says);
        }
    }
}
