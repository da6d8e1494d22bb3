//! RAID 0: which bytes of a volume lie on which disk.

/// The layout of a stripe of at least two disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Bytes per chunk.
    pub chunk_bytes: u64,
    /// Number of member disks.
    pub disks: u64,
}

impl Stripe {
    /// The part of the volume's range that lies on one member: offset there and length.
    ///
    /// Chunks of one member that follow each other are neighbours on its disk, so a range touches
    /// each member in one piece. **Source:** Linux md/raid0 cuts at chunk borders and the block
    /// layer merges neighbours of one submission again before they reach the disk.
    pub fn on_member(self, member: u64, offset: u64, len: u64) -> Option<(u64, u64)> {
        let Stripe { chunk_bytes, disks } = self;
        if len == 0 {
            return None;
        }
        let end = offset + len;
        let (first, last) = (offset / chunk_bytes, (end - 1) / chunk_bytes);
        // First and last chunk of the range that belong to the member.
        let lowest = first + (member + disks - first % disks) % disks;
        if lowest > last {
            return None;
        }
        let highest = last - (last % disks + disks - member) % disks;
        let start = lowest / disks * chunk_bytes
            + if lowest == first {
                offset % chunk_bytes
            } else {
                0
            };
        let stop = highest / disks * chunk_bytes
            + if highest == last {
                (end - 1) % chunk_bytes + 1
            } else {
                chunk_bytes
            };
        Some((start, stop - start))
    }

    /// The only member on which a range of the volume lies, and where on it; `None`: it has several.
    #[inline]
    pub fn only_member(self, offset: u64, len: u32) -> Option<(usize, u64)> {
        let chunk = offset / self.chunk_bytes;
        let within = offset - chunk * self.chunk_bytes;
        if within + u64::from(len) > self.chunk_bytes {
            return None;
        }
        let row = chunk / self.disks;
        let member = (chunk - row * self.disks) as usize;
        Some((member, row * self.chunk_bytes + within))
    }

    /// The member on which a byte of the volume lies, and where on it.
    pub fn place(self, offset: u64) -> (usize, u64) {
        let chunk = offset / self.chunk_bytes;
        let row = chunk / self.disks;
        let within = offset % self.chunk_bytes;
        (
            (chunk % self.disks) as usize,
            row * self.chunk_bytes + within,
        )
    }

    /// Where a byte of a member lies in the volume, and for how many bytes the two run in step.
    pub fn in_volume(self, member: u64, offset: u64) -> (u64, u64) {
        let (row, within) = (offset / self.chunk_bytes, offset % self.chunk_bytes);
        let chunk = row * self.disks + member;
        (chunk * self.chunk_bytes + within, self.chunk_bytes - within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FOUR: Stripe = Stripe {
        chunk_bytes: 65_536,
        disks: 4,
    };

    #[test]
    fn an_io_inside_a_chunk_goes_to_one_disk() {
        let parts: Vec<_> = (0..4)
            .map(|m| FOUR.on_member(m, 5 * 65_536 + 4096, 8192))
            .collect();
        assert_eq!(parts, [None, Some((65_536 + 4096, 8192)), None, None]);
    }

    #[test]
    fn neighbouring_chunks_of_a_disk_are_one_piece() {
        let parts: Vec<_> = (0..4).map(|m| FOUR.on_member(m, 0, 1 << 20)).collect();
        assert_eq!(parts, [Some((0, 262_144)); 4]);
    }

    proptest! {
        #[test]
        fn every_byte_lies_on_exactly_one_disk(
            chunk in 1..9_u64, disks in 2..6_u64, offset in 0..200_u64, len in 1..100_u64,
        ) {
            let stripe = Stripe { chunk_bytes: chunk, disks };
            let mut seen = Vec::new();
            for member in 0..disks {
                let Some((start, len)) = stripe.on_member(member, offset, len) else { continue };
                for byte in start..start + len {
                    let (at, run) = stripe.in_volume(member, byte);
                    prop_assert!(run >= 1 && run <= chunk);
                    // By hand: chunk number, then its place.
                    prop_assert_eq!(at / chunk % disks, member);
                    prop_assert_eq!(at / chunk / disks * chunk + at % chunk, byte);
                    prop_assert_eq!(stripe.place(at), (member as usize, byte));
                    seen.push(at);
                }
            }
            let first = u32::try_from(len).ok().and_then(|len| stripe.only_member(offset, len));
            let pieces: Vec<_> = (0..disks)
                .filter_map(|member| Some((member, stripe.on_member(member, offset, len)?.0)))
                .collect();
            if let Some((member, start)) = first {
                prop_assert_eq!(pieces, [(member as u64, start)]);
            } else {
                prop_assert!(offset / chunk < (offset + len - 1) / chunk);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (offset..offset + len).collect::<Vec<_>>());
        }
    }
}
