//! Exact decimals: SQL's `numeric` as an integer of its smallest unit.

use std::error::Error;
use std::fmt;
use std::ops::AddAssign;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// A `numeric(_, SCALE)` with at most four decimals: `Decimal::<2>(150)` is 1.50.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal<const SCALE: u32>(pub i64);

/// Money.
pub type Cents = Decimal<2>;

/// Tax and discount.
pub type TenThousandths = Decimal<4>;

/// Digits of the wire form count to ten thousand.
const BASE: u64 = 10_000;

/// The sign of the wire form.
const NEGATIVE: u16 = 0x4000;

/// Digits of an i64 in that base, and one behind the point.
const MOST_DIGITS: usize = 6;

impl<const SCALE: u32> Decimal<SCALE> {
    /// Ten thousandths in the smallest unit.
    const UNIT: u64 = 10_u64.pow(4 - SCALE);

    /// Appends the binary form, as in COPY and in parameters.
    pub fn put(self, out: &mut impl BufMut) {
        // In ten thousandths, so that the last digit is all that stands behind the point.
        let mut rest = u128::from(self.0.unsigned_abs()) * u128::from(Self::UNIT);
        let mut digits = [0_u16; MOST_DIGITS];
        let mut count = 0;
        while rest > 0 && count < MOST_DIGITS {
            digits[count] = (rest % u128::from(BASE)) as u16;
            rest /= u128::from(BASE);
            count += 1;
        }
        out.put_i16(count as i16);
        // The weight of the first digit: the fraction's is -1.
        out.put_i16(if count == 0 { 0 } else { count as i16 - 2 });
        out.put_u16(if self.0 < 0 { NEGATIVE } else { 0 });
        out.put_u16(SCALE as u16);
        for digit in digits[..count].iter().rev() {
            out.put_u16(*digit);
        }
    }

    /// Length of what `put` appends, in bytes.
    pub fn wire_bytes(self) -> usize {
        let mut rest = u128::from(self.0.unsigned_abs()) * u128::from(Self::UNIT);
        let mut count = 0;
        while rest > 0 {
            rest /= u128::from(BASE);
            count += 1;
        }
        8 + 2 * count
    }

    fn read(bytes: &[u8]) -> Option<Decimal<SCALE>> {
        let mut halves = bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|half| u16::from_be_bytes(*half));
        let count = halves.next()?;
        let weight = halves.next()? as i16;
        let sign = halves.next()?;
        let _shown_decimals = halves.next()?;
        // Anything else is NaN or infinite.
        if sign != 0 && sign != NEGATIVE {
            return None;
        }
        let mut sum: i128 = 0;
        for place in 0..count {
            let digit = i128::from(halves.next()?);
            // How many digits of the base lie to the right of this one, down to the ten thousandths.
            let power = i32::from(weight) - i32::from(place) + 1;
            match u32::try_from(power) {
                Ok(power) => {
                    let value = digit.checked_mul(i128::from(BASE).checked_pow(power)?)?;
                    sum = sum.checked_add(value)?;
                }
                Err(_) if digit == 0 => {}
                // More than four decimals.
                Err(_) => return None,
            }
        }
        let unit = i128::from(Self::UNIT);
        if sum % unit != 0 {
            return None;
        }
        let value = i64::try_from(sum / unit).ok()?;
        Some(Decimal(if sign == NEGATIVE { -value } else { value }))
    }
}

impl<const SCALE: u32> AddAssign for Decimal<SCALE> {
    fn add_assign(&mut self, other: Decimal<SCALE>) {
        self.0 += other.0;
    }
}

impl<const SCALE: u32> fmt::Display for Decimal<SCALE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10_u64.pow(SCALE);
        let units = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let width = SCALE as usize;
        write!(f, "{sign}{}.{:0width$}", units / one, units % one)
    }
}

impl<const SCALE: u32> ToSql for Decimal<SCALE> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.put(out);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::NUMERIC
    }

    to_sql_checked!();
}

impl<'a, const SCALE: u32> FromSql<'a> for Decimal<SCALE> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Decimal::read(raw).ok_or_else(|| format!("no decimal of {SCALE} places: {raw:?}").into())
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::NUMERIC
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wire(amount: impl ToSql) -> Vec<u8> {
        let mut out = BytesMut::new();
        amount.to_sql(&Type::NUMERIC, &mut out).unwrap();
        out.to_vec()
    }

    #[test]
    fn has_the_server_s_own_form() {
        // From `select numeric_send(...)` of PostgreSQL 15, 2026-11-21.
        let form = |hex: &str| -> Vec<u8> {
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(byte).collect()
        };
        let money = form("0003000100000002007b11d722c4");
        assert_eq!(wire(Decimal::<2>(123_456_789)), money);
        assert_eq!(Cents::read(&money), Some(Decimal(123_456_789)));
        let tax = form("0001ffff0000000404d2");
        assert_eq!(wire(Decimal::<4>(1_234)), tax);
        assert_eq!(TenThousandths::read(&tax), Some(Decimal(1_234)));
        // The server leaves a last digit of zero out.
        assert_eq!(
            Cents::read(&form("0001000040000002000a")),
            Some(Decimal(-1_000))
        );
        assert_eq!(Cents::read(&form("0000000000000002")), Some(Decimal(0)));
        // NaN.
        assert_eq!(Cents::read(&form("00000000c0000000")), None);
    }

    proptest! {
        #[test]
        fn what_is_put_is_read(units: i64) {
            prop_assume!(units != i64::MIN);
            prop_assert_eq!(Cents::read(&wire(Decimal::<2>(units))), Some(Decimal(units)));
            prop_assert_eq!(TenThousandths::read(&wire(Decimal::<4>(units))), Some(Decimal(units)));
            prop_assert_eq!(wire(Decimal::<2>(units)).len(), Decimal::<2>(units).wire_bytes());
        }

        #[test]
        fn is_shown_as_a_decimal(units in -1_000_000_000i64..1_000_000_000) {
            let shown = Decimal::<2>(units).to_string();
            prop_assert_eq!((shown.parse::<f64>().unwrap() * 100.0).round() as i64, units);
        }
    }
}
