//! A machine's network: a bandwidth that its messages share.

/// What one machine sends.
#[derive(Clone, Debug)]
pub struct Link {
    bytes_per_s: Option<u64>,
    free_at: u64,
    sent_bytes: u64,
}

impl Link {
    /// An idle link; without a rate it never makes anybody wait.
    pub fn new(bytes_per_s: Option<u64>) -> Link {
        Link {
            bytes_per_s: bytes_per_s.filter(|&rate| rate > 0),
            free_at: 0,
            sent_bytes: 0,
        }
    }

    /// Sends a message, decided at `now`, that is ready at `at`; returns when its last byte has
    /// left. `now` never runs backwards.
    ///
    /// **Divergence:** the message takes its place in the queue at `now`, one service time early:
    /// two messages that are decided within that time of each other may change places.
    #[inline]
    pub fn send(&mut self, now: u64, at: u64, bytes: u64) -> u64 {
        self.sent_bytes += bytes;
        let Some(rate) = self.bytes_per_s else {
            return at;
        };
        // Below 18 GB, which every message is, a division of 64 bits will do.
        let span = match bytes.checked_mul(1_000_000_000) {
            Some(product) => product / rate,
            None => (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64,
        };
        self.free_at = self.free_at.max(now) + span;
        at + (self.free_at - now)
    }

    /// Bytes sent.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Its rate in bytes per second.
    pub fn bytes_per_s(&self) -> Option<u64> {
        self.bytes_per_s
    }

    /// Counts anew from here.
    pub fn reset(&mut self) {
        self.sent_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_share_the_bandwidth() {
        let mut link = Link::new(Some(1_000_000_000));
        assert_eq!(link.send(100, 100, 50), 150);
        assert_eq!(link.send(100, 120, 50), 220, "behind the first");
        assert_eq!(link.send(300, 300, 50), 350);
        assert_eq!(Link::new(None).send(7, 100, 1 << 30), 100);
        assert_eq!(link.sent_bytes(), 150);
    }
}
