//! Amounts of data and rates.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An amount of data in bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` bytes.
    pub const fn new(n: u64) -> Bytes {
        Bytes(n)
    }

    /// `n` KiB (1024 bytes each).
    pub const fn from_kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }

    /// `n` MiB.
    pub const fn from_mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// `n` GiB.
    pub const fn from_gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// The amount as a plain number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0 - other.0)
    }
}

/// The value is not an amount that disklab reads: what was given and which suffixes exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuantityError {
    /// The text as given.
    pub value: String,
    /// What would have been understood.
    pub expected: &'static str,
}

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not an amount; expected {}",
            self.value, self.expected
        )
    }
}

impl std::error::Error for ParseQuantityError {}

/// Suffix and factor, longest first so that `GiB` is not read as `B`.
const BYTE_SUFFIXES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl FromStr for Bytes {
    type Err = ParseQuantityError;

    /// Reads `64KiB`, `4096`, `250 MB`: a whole number, an optional blank, an optional suffix.
    fn from_str(text: &str) -> Result<Bytes, ParseQuantityError> {
        let error = || ParseQuantityError {
            value: text.to_owned(),
            expected: "a whole number with B, kB, KiB, MB, MiB, GB, GiB, TB or TiB",
        };
        let trimmed = text.trim();
        let (number, factor) = BYTE_SUFFIXES
            .iter()
            .find_map(|(suffix, factor)| Some((trimmed.strip_suffix(suffix)?, *factor)))
            .unwrap_or((trimmed, 1));
        let number: u64 = number.trim_end().parse().map_err(|_| error())?;
        number.checked_mul(factor).map(Bytes).ok_or_else(error)
    }
}

impl fmt::Display for Bytes {
    /// The largest binary unit that divides the amount, so that parsing gives the same amount back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = BYTE_SUFFIXES
            .iter()
            .filter(|(suffix, _)| suffix.ends_with("iB"));
        for (suffix, factor) in binary {
            if self.0 != 0 && self.0.is_multiple_of(*factor) {
                return write!(f, "{} {suffix}", self.0 / factor);
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// I/O operations per second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Iops(u64);

impl Iops {
    /// `n` operations per second.
    pub const fn new(n: u64) -> Iops {
        Iops(n)
    }

    /// The rate as a plain number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Iops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} IOPS", self.0)
    }
}

/// Bytes per second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ByteRate(u64);

impl ByteRate {
    /// `n` bytes per second.
    pub const fn new(n: u64) -> ByteRate {
        ByteRate(n)
    }

    /// The rate as a plain number of bytes per second.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteRate {
    /// In MB/s (10^6 bytes), as vendors quote it, with one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{} MB/s",
            self.0 / 1_000_000,
            self.0 % 1_000_000 / 100_000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_suffixes() {
        assert_eq!("64KiB".parse(), Ok(Bytes::new(65_536)));
        assert_eq!("250 MB".parse(), Ok(Bytes::new(250_000_000)));
        assert_eq!("4096".parse(), Ok(Bytes::new(4_096)));
    }

    #[test]
    fn refuses_what_is_no_amount() {
        for text in ["", "GiB", "1.5GiB", "-1", "64 Kib", "99999999999TiB"] {
            let error = text.parse::<Bytes>().unwrap_err();
            assert_eq!(error.value, text);
            assert!(error.to_string().contains("KiB"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(n in any::<u64>()) {
            prop_assert_eq!(Bytes::new(n).to_string().parse(), Ok(Bytes::new(n)));
        }
    }
}
