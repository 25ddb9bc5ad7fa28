//! Numbers: fractions of integers of any size, up to a limit.

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// The most decimal digits of an integer. The costliest expression of numbers that large takes 600 million units of fuel, of the thousand
/// million that a call usually has.
const MAX_INTEGER_DIGITS: u64 = 5_000;

/// The same for both parts of a fraction, which is less as a fraction has to be reduced.
const MAX_FRACTION_DIGITS: u64 = 500;

/// How many significant digits a rounded result has.
const DIGITS: i64 = 30;

/// A number.
#[derive(Clone, Debug)]
pub(crate) struct Number {
    numerator: BigInt,
    /// Positive, and without a common factor with the numerator.
    denominator: BigInt,
    exact: bool,
}

type Outcome = Result<Number, String>;

impl Number {
    /// `mantissa * 10^exponent`.
    pub(crate) fn decimal(mantissa: BigInt, exponent: i64) -> Outcome {
        let power = ten_to(exponent.unsigned_abs())?;
        if exponent < 0 { Self::new(mantissa, power, true) } else { Self::new(mantissa * power, BigInt::one(), true) }
    }

    fn new(numerator: BigInt, denominator: BigInt, exact: bool) -> Outcome {
        if denominator.is_zero() {
            return Err("division by zero".to_owned());
        }
        let mut number = Self { numerator, denominator, exact };
        if number.denominator.is_negative() {
            number.numerator = -number.numerator;
            number.denominator = -number.denominator;
        }
        if !number.denominator.is_one() {
            check_size(&number.numerator, 2 * MAX_FRACTION_DIGITS)?;
            check_size(&number.denominator, 2 * MAX_FRACTION_DIGITS)?;
            let common = number.numerator.gcd(&number.denominator);
            number.numerator /= &common;
            number.denominator /= &common;
        }
        let limit = if number.denominator.is_one() { MAX_INTEGER_DIGITS } else { MAX_FRACTION_DIGITS };
        check_size(&number.numerator, limit)?;
        check_size(&number.denominator, limit)?;
        Ok(number)
    }

    /// Whether it was never rounded and has an end as a decimal number.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact && self.decimal_places().is_some()
    }

    pub(crate) fn add(&self, other: &Self) -> Outcome {
        let numerator = &self.numerator * &other.denominator + &other.numerator * &self.denominator;
        Self::new(numerator, &self.denominator * &other.denominator, self.exact && other.exact)
    }

    pub(crate) fn subtract(&self, other: &Self) -> Outcome {
        self.add(&other.negate())
    }

    pub(crate) fn multiply(&self, other: &Self) -> Outcome {
        let numerator = &self.numerator * &other.numerator;
        Self::new(numerator, &self.denominator * &other.denominator, self.exact && other.exact)
    }

    pub(crate) fn divide(&self, other: &Self) -> Outcome {
        let numerator = &self.numerator * &other.denominator;
        Self::new(numerator, &self.denominator * &other.numerator, self.exact && other.exact)
    }

    /// What is left of a division that rounds towards zero: it has the sign of `self`.
    pub(crate) fn remainder(&self, other: &Self) -> Outcome {
        let quotient = self.divide(other)?;
        let whole =
            Self { numerator: quotient.numerator / quotient.denominator, denominator: BigInt::one(), exact: quotient.exact };
        self.subtract(&other.multiply(&whole)?)
    }

    pub(crate) fn power(&self, exponent: &Self) -> Outcome {
        let too_large = || format!("the power is too large: it would have more than {MAX_INTEGER_DIGITS} digits");
        if !exponent.denominator.is_one() {
            return Err("an exponent has to be a whole number; for a square root use `sqrt(x)`".to_owned());
        }
        let exact = self.exact && exponent.exact;
        if self.denominator.is_one() && self.numerator.magnitude().is_one() {
            let negative = self.numerator.is_negative() && exponent.numerator.is_odd();
            return Self::new(if negative { -BigInt::one() } else { BigInt::one() }, BigInt::one(), exact);
        }
        if self.numerator.is_zero() && exponent.numerator.is_positive() {
            return Ok(self.clone());
        }
        let times = exponent.numerator.magnitude().to_u32().ok_or_else(too_large)?;
        // The power has at least `(bits - 1) * times` bits.
        let bits = self.numerator.bits().max(self.denominator.bits()).saturating_sub(1);
        if bits.saturating_mul(times.into()) > bits_of(MAX_INTEGER_DIGITS) {
            return Err(too_large());
        }
        let (numerator, denominator) = (self.numerator.pow(times), self.denominator.pow(times));
        if exponent.numerator.is_negative() {
            Self::new(denominator, numerator, exact)
        } else {
            Self::new(numerator, denominator, exact)
        }
    }

    pub(crate) fn negate(&self) -> Self {
        Self { numerator: -&self.numerator, ..self.clone() }
    }

    pub(crate) fn absolute(&self) -> Self {
        Self { numerator: self.numerator.abs(), ..self.clone() }
    }

    pub(crate) fn floor(&self) -> Self {
        Self { numerator: self.numerator.div_floor(&self.denominator), denominator: BigInt::one(), exact: self.exact }
    }

    pub(crate) fn ceiling(&self) -> Self {
        self.negate().floor().negate()
    }

    /// Rounds to a number of decimal places, halves away from zero.
    pub(crate) fn round(&self, places: i64) -> Outcome {
        let power = Self::decimal(BigInt::one(), places)?;
        let scaled = self.absolute().multiply(&power)?;
        let half = Self::decimal(BigInt::from(5), -1)?;
        let rounded = scaled.add(&half)?.floor().divide(&power)?;
        Ok(if self.numerator.is_negative() { rounded.negate() } else { rounded })
    }

    pub(crate) fn square_root(&self) -> Outcome {
        if self.numerator.is_negative() {
            return Err("the square root of a negative number is not a real number".to_owned());
        }
        let (numerator, denominator) = (self.numerator.sqrt(), self.denominator.sqrt());
        if &numerator * &numerator == self.numerator && &denominator * &denominator == self.denominator {
            return Self::new(numerator, denominator, self.exact);
        }
        // Twice the digits that are shown, so that what is done with the root is right as far as it is shown.
        let places = (2 * DIGITS - self.magnitude() / 2).max(0).unsigned_abs();
        let scaled = &self.numerator * ten_to(2 * places)? / &self.denominator;
        Self::new(scaled.sqrt(), ten_to(places)?, false)
    }

    /// The number if it is a whole one and small.
    pub(crate) fn to_small_integer(&self) -> Option<i64> {
        if self.denominator.is_one() { self.numerator.to_i64() } else { None }
    }

    pub(crate) fn is_less_than(&self, other: &Self) -> bool {
        &self.numerator * &other.denominator < &other.numerator * &self.denominator
    }

    /// Writes it as a decimal number: all of it if it is exact, and else to [`DIGITS`] significant digits.
    pub(crate) fn to_text(&self) -> String {
        let (places, rounded) = match self.decimal_places() {
            Some(places) if self.exact => (places, false),
            // At least every digit before the point.
            _ => ((DIGITS - 1 - self.magnitude()).max(0), true),
        };
        let scaled = self.numerator.abs() * BigInt::from(10).pow(u32::try_from(places).unwrap_or(u32::MAX));
        let mut digits = (&scaled + &self.denominator / BigInt::from(2)).div_floor(&self.denominator).to_string();
        let sign = if self.numerator.sign() == Sign::Minus && digits != "0" { "-" } else { "" };
        let places = usize::try_from(places).unwrap_or(0);
        if rounded && places > 40 && digits.len() < places {
            // As a plain number it would begin with many zeros.
            let exponent = places + 1 - digits.len();
            digits.insert(1, '.');
            return format!("{sign}{}e-{exponent}", trim(&digits));
        }
        if places > 0 {
            if digits.len() <= places {
                digits.insert_str(0, &"0".repeat(places + 1 - digits.len()));
            }
            digits.insert(digits.len() - places, '.');
            digits.truncate(trim(&digits).len());
        }
        format!("{sign}{digits}")
    }

    /// How many decimal places it has, if it has an end as a decimal number: only 2 and 5 divide the denominator.
    fn decimal_places(&self) -> Option<i64> {
        let mut rest = self.denominator.clone();
        let twos = i64::try_from(rest.trailing_zeros().unwrap_or(0)).ok()?;
        rest >>= twos;
        let mut fives = 0;
        while !rest.is_one() {
            let (quotient, remainder) = rest.div_rem(&BigInt::from(5));
            if !remainder.is_zero() {
                return None;
            }
            rest = quotient;
            fives += 1;
        }
        Some(twos.max(fives))
    }

    /// The power of ten of its first digit; zero for zero.
    fn magnitude(&self) -> i64 {
        if self.numerator.is_zero() {
            return 0;
        }
        let numerator = self.numerator.abs();
        let digits = |number: &BigInt| i64::try_from(number.to_string().len()).unwrap_or(i64::MAX);
        let estimate = digits(&numerator) - digits(&self.denominator);
        let power = BigInt::from(10).pow(u32::try_from(estimate.unsigned_abs()).unwrap_or(u32::MAX));
        let reached = if estimate < 0 { numerator * power >= self.denominator } else { numerator >= &self.denominator * power };
        if reached { estimate } else { estimate - 1 }
    }
}

fn trim(digits: &str) -> &str {
    digits.trim_end_matches('0').trim_end_matches('.')
}

fn ten_to(exponent: u64) -> Result<BigInt, String> {
    match u32::try_from(exponent) {
        Ok(exponent) if u64::from(exponent) <= MAX_INTEGER_DIGITS => Ok(BigInt::from(10).pow(exponent)),
        _ => Err(format!("the number is too large or too small: it would have more than {MAX_INTEGER_DIGITS} digits")),
    }
}

fn check_size(number: &BigInt, digits: u64) -> Result<(), String> {
    if number.bits() > bits_of(digits) {
        return Err(format!("the number is too large: it would have more than {digits} digits"));
    }
    Ok(())
}

/// How many bits that many decimal digits have; a digit has `log2(10)`, or 3.33.
fn bits_of(digits: u64) -> u64 {
    digits * 10 / 3
}
