//! Random times in integer arithmetic: the same on every machine, whatever its logarithm.

use disklab_units::random::Stream;

/// ln 2 in units of 2^-32.
const LN_2: u64 = 2_977_044_472;

/// ln(1 + i/256) in units of 2^-32.
static LN: [u64; 256] = ln_table();

const fn ln_table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        // ln x = 2 artanh((x - 1) / (x + 1)), summed in units of 2^-60 until nothing is left.
        let z = ((i as u128) << 60) / (512 + i as u128);
        let square = (z * z) >> 60;
        let (mut power, mut sum, mut n) = (z, 0, 1);
        while power > 0 {
            sum += power / n;
            power = (power * square) >> 60;
            n += 2;
        }
        table[i] = ((2 * sum + (1 << 27)) >> 28) as u64;
        i += 1;
    }
    table
}

/// A time with exponential distribution.
#[inline]
pub fn exponential(stream: &mut Stream, mean_ns: u64) -> u64 {
    let draw = stream.draw() | 1;
    // The draw is x * 2^-(zeros + 1) with x in [1, 2).
    let zeros = draw.leading_zeros();
    let x = draw << zeros;
    let index = (x >> 55) & 0xff;
    // x = (1 + index/256) (1 + rest), and ln(1 + rest) by its series: rest is below 2^-8, so what
    // is left out is below 2^-34.
    let rest = ((x & ((1 << 55) - 1)) >> 23) / (256 + index);
    let ln_rest = rest - ((rest * rest) >> 33) + ((((rest * rest) >> 32) * rest) >> 32) / 3;
    let minus_ln = u64::from(zeros + 1) * LN_2 - LN[index as usize] - ln_rest.min(LN_2);
    ((u128::from(mean_ns) * u128::from(minus_ln)) >> 32) as u64
}

/// The time of a piece of work: half of the mean always, the other half exponential. Requests of
/// one kind differ (allocation, cache misses, branches taken), but none is done in no time. The
/// coefficient of variation is one half.
#[inline]
pub fn work(stream: &mut Stream, mean_ns: u64) -> u64 {
    let half = mean_ns / 2;
    mean_ns - half + exponential(stream, half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_times_have_their_quantiles() {
        let mut stream = Stream::new(3, "test");
        let count = 2_000_000;
        let mut times: Vec<u64> = (0..count)
            .map(|_| exponential(&mut stream, 1_000_000))
            .collect();
        times.sort_unstable();
        let mean = times.iter().sum::<u64>() as f64 / count as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.003, "{mean}");
        for share in [0.1, 0.5, 0.9, 0.99, 0.999] {
            let seen = times[(count as f64 * share) as usize] as f64;
            let exact = -(1.0_f64 - share).ln() * 1e6;
            assert!((seen / exact - 1.0).abs() < 0.02, "{share}: {seen} {exact}");
        }
    }

    #[test]
    fn the_logarithm_table_is_right() {
        for (i, &entry) in LN.iter().enumerate() {
            let exact = (1.0 + i as f64 / 256.0).ln() * 2_f64.powi(32);
            assert!((entry as f64 - exact).abs() < 1.0, "{i}");
        }
    }

    #[test]
    fn work_varies_by_half() {
        let mut stream = Stream::new(4, "test");
        let times: Vec<f64> = (0..500_000)
            .map(|_| work(&mut stream, 200_000) as f64)
            .collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let square = times.iter().map(|t| (t - mean) * (t - mean)).sum::<f64>();
        let deviation = (square / times.len() as f64).sqrt();
        assert!((mean / 200_000.0 - 1.0).abs() < 0.005, "{mean}");
        assert!((deviation / mean - 0.5).abs() < 0.01, "{deviation}");
    }
}
