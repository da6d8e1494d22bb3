//! Named random streams: same seed and name, same numbers, on every machine.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): one addition and three multiplications' worth of
/// mixing for each number, and every 64-bit seed is a good one. Service times and keys need no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    state: u64,
}

/// The odd constant of the paper: 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Stream {
    /// The stream called `name` of a `seed`. Streams with other names do not change it.
    pub fn new(seed: u64, name: &str) -> Stream {
        // FNV-1a, to turn a name into a number; the mixing below takes care of its weak bits.
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Stream {
            state: mix(seed).wrapping_add(mix(name)),
        }
    }

    /// The next number, uniform over all 64-bit numbers.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// A number uniform over `0..bound`; `bound` is not zero. Multiply and shift (Lemire, 2019) without its
    /// rejection step: no number is off by more than `bound` in 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number uniform over (0, 1]: never zero, so that its logarithm is finite.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        // The upper 53 bits are what a double can hold.
        ((self.draw() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True for this share of the calls, in parts per million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        let part = (u128::from(self.draw()) * 1_000_000) >> 64;
        part < u128::from(ppm)
    }
}

/// The paper's finaliser: a bijection of the 64-bit numbers in which every bit of the result hangs on
/// every bit of `value`.
#[inline]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_splitmix64() {
        // First numbers of the reference implementation for seed 1234567.
        let mut stream = Stream { state: 1_234_567 };
        assert_eq!(stream.draw(), 6_457_827_717_110_365_317);
        assert_eq!(stream.draw(), 3_203_168_211_198_807_973);
        assert_eq!(stream.draw(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn names_and_seeds_make_different_streams() {
        let first = |seed, name| Stream::new(seed, name).draw();
        assert_eq!(first(1, "data 0 read"), first(1, "data 0 read"));
        assert_ne!(first(1, "data 0 read"), first(1, "data 1 read"));
        assert_ne!(first(1, "data 0 read"), first(2, "data 0 read"));
    }

    #[test]
    fn chance_is_a_share() {
        let mut stream = Stream::new(7, "faults");
        let hits = (0..1_000_000).filter(|_| stream.chance(10_000)).count();
        assert!((9_600..10_400).contains(&hits), "{hits}");
        assert!(!stream.chance(0));
        assert!(stream.chance(1_000_000));
    }
}
