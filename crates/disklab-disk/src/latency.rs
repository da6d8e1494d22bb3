//! Service times: samples of a quantile table, in integer arithmetic.

use crate::profile::Distribution;
use disklab_units::random::Stream;

/// Bytes whose cost is part of the quantiles; the size term starts beyond them.
const FREE_BYTES: u64 = 4096;

/// The guide has one entry for each value of a draw's top bits. With 1024 entries nearly every draw lies
/// in a cell of one segment only: the step to the next one, which no branch predictor foresees, is rare.
const GUIDE_BITS: u32 = 10;

/// A straight piece of the quantile function.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// First draw that belongs to it.
    start: u64,
    /// Nanoseconds at its start.
    base_ns: u64,
    /// Nanoseconds that a whole turn of 2^64 draws would add.
    slope: u64,
}

/// A distribution, compiled for sampling.
///
/// A draw of 64 random bits is a probability in units of 2^-64; the sample is the quantile there,
/// linear between the points of the table, so every percentile of the table comes out as promised,
/// the extreme ones too. The error of the integer arithmetic is below a nanosecond.
#[derive(Clone, Debug)]
pub struct Sampler {
    segments: Box<[Segment]>,
    guide: Box<[u8; 1 << GUIDE_BITS]>,
    per_kib_ns: u64,
}

impl Sampler {
    /// Compiles a valid distribution (see `validate`).
    pub fn new(distribution: &Distribution) -> Sampler {
        let mut points = distribution.quantiles_ppm_ns.clone();
        let (first, last) = (points[0], points[points.len() - 1]);
        if first.0 > 0 {
            points.insert(0, (0, first.1));
        }
        if last.0 < 1_000_000 {
            points.push((1_000_000, last.1));
        }
        let position = |ppm: u32| (u128::from(ppm) << 64) / 1_000_000;
        let segments: Box<[Segment]> = points
            .windows(2)
            .filter(|pair| pair[0].0 < pair[1].0)
            .map(|pair| {
                let width = position(pair[1].0) - position(pair[0].0);
                let rise = u128::from(pair[1].1 - pair[0].1);
                Segment {
                    start: u64::try_from(position(pair[0].0)).expect("below one"),
                    base_ns: pair[0].1,
                    slope: u64::try_from((rise << 64) / width).unwrap_or(u64::MAX),
                }
            })
            .collect();
        let mut guide = Box::new([0; 1 << GUIDE_BITS]);
        for (bits, entry) in guide.iter_mut().enumerate() {
            let start = (bits as u64) << (64 - GUIDE_BITS);
            let index = segments.partition_point(|segment| segment.start <= start) - 1;
            *entry = u8::try_from(index).expect("validation bounds the table");
        }
        Sampler {
            segments,
            guide,
            per_kib_ns: distribution.per_kib_ns,
        }
    }

    /// A service time in nanoseconds for an I/O of `len` bytes.
    #[inline]
    pub fn sample(&self, stream: &mut Stream, len: u32) -> u64 {
        let draw = stream.draw();
        let mut index = usize::from(self.guide[(draw >> (64 - GUIDE_BITS)) as usize]);
        while let Some(next) = self.segments.get(index + 1)
            && next.start <= draw
        {
            index += 1;
        }
        let segment = &self.segments[index];
        let rise = u128::from(draw - segment.start) * u128::from(segment.slope);
        let extra = u64::from(len).saturating_sub(FREE_BYTES);
        segment.base_ns + (rise >> 64) as u64 + extra * self.per_kib_ns / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(distribution: &Distribution, count: usize, len: u32) -> Vec<u64> {
        let sampler = Sampler::new(distribution);
        let mut stream = Stream::new(42, "test");
        let mut samples: Vec<u64> = (0..count)
            .map(|_| sampler.sample(&mut stream, len))
            .collect();
        samples.sort_unstable();
        samples
    }

    /// The E8ds_v4 temp disk at depth 1. **Source:** measurements of 2020-09-07, 8 KiB writes.
    fn temp_disk() -> Distribution {
        let percentiles = [
            (0, 60),
            (10_000, 62),
            (50_000, 67),
            (100_000, 71),
            (200_000, 82),
            (300_000, 130),
            (400_000, 139),
            (500_000, 145),
            (600_000, 153),
            (700_000, 163),
            (800_000, 184),
            (900_000, 223),
            (950_000, 269),
            (990_000, 498),
            (995_000, 701),
            (999_000, 1_713),
            (999_500, 2_409),
            (999_900, 5_080),
            (1_000_000, 6_000),
        ];
        Distribution {
            quantiles_ppm_ns: percentiles.map(|(ppm, us)| (ppm, us * 1_000)).to_vec(),
            per_kib_ns: 0,
        }
    }

    #[test]
    fn every_percentile_comes_out_up_to_p99_99() {
        let distribution = temp_disk();
        let count = 4_000_000;
        let samples = samples(&distribution, count, 4096);
        for &(ppm, ns) in &distribution.quantiles_ppm_ns[1..18] {
            let seen = samples[count / 1_000_000 * ppm as usize];
            let (seen, ns) = (seen as f64, ns as f64);
            assert!(
                (seen / ns - 1.0).abs() < 0.03,
                "{ppm} ppm: {seen} ns, promised {ns}"
            );
        }
        assert!(samples[0] >= 60_000);
        assert!(samples[count - 1] <= 6_000_000);
    }

    #[test]
    fn a_constant_is_a_constant() {
        let samples = samples(&Distribution::constant(3_300_000), 1_000, 4096);
        assert!(samples.iter().all(|&ns| ns == 3_300_000));
    }

    #[test]
    fn size_counts_beyond_four_kib() {
        let distribution = Distribution {
            per_kib_ns: 1_000,
            ..Distribution::constant(100_000)
        };
        let ns = |len| samples(&distribution, 1, len)[0];
        assert_eq!(ns(512), 100_000);
        assert_eq!(ns(4096), 100_000);
        assert_eq!(ns(8192), 104_000);
        assert_eq!(ns(1 << 20), 100_000 + 1_020_000);
        assert_eq!(ns(4096 + 512), 100_500, "parts of a KiB count too");
    }

    #[test]
    fn a_step_in_the_table_is_a_step_in_the_samples() {
        let distribution = Distribution {
            quantiles_ppm_ns: vec![(0, 10), (500_000, 10), (500_000, 1_000), (1_000_000, 1_000)],
            per_kib_ns: 0,
        };
        let samples = samples(&distribution, 100_000, 4096);
        assert!(samples.iter().all(|&ns| ns == 10 || ns == 1_000));
        let low = samples.iter().filter(|&&ns| ns == 10).count();
        assert!((49_000..51_000).contains(&low), "{low}");
    }

    #[test]
    fn hours_do_not_overflow() {
        let distribution = Distribution {
            quantiles_ppm_ns: vec![(0, 0), (999_999, 0), (1_000_000, 3_600_000_000_000)],
            per_kib_ns: 0,
        };
        assert!(samples(&distribution, 1_000_000, u32::MAX)[999_999] <= 3_600_000_000_000);
    }
}
