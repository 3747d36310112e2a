//! Sizes in bytes and how people write them.

use core::fmt;

/// A size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Bytes(u64);

/// Why a text is not a size. The caller holds the text and names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeError {
    /// There is no number at its start.
    NoNumber,
    /// Something other than one of `k m g t` (with or without `b` or `ib`) follows the number.
    UnknownUnit,
    /// The value exceeds 2^64 - 1 bytes.
    TooLarge,
}

impl Bytes {
    /// 2 MiB.
    pub const SIZE_2M: Bytes = Bytes(2 << 20);
    /// 1 GiB.
    pub const SIZE_1G: Bytes = Bytes(1 << 30);

    /// `n` bytes.
    pub const fn new(n: u64) -> Bytes {
        Bytes(n)
    }
    /// The count of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Reads `4096`, `64k`, `2M`, `1GiB`. Units are powers of 1024; case does not matter.
    pub fn parse(text: &str) -> Result<Bytes, SizeError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::NoNumber);
        }
        let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
        let is = |c: &str| {
            unit.len() <= 3
                && (unit.eq_ignore_ascii_case(c)
                    || (unit.len() > 1
                        && unit[..1].eq_ignore_ascii_case(c)
                        && (unit[1..].eq_ignore_ascii_case("b")
                            || unit[1..].eq_ignore_ascii_case("ib"))))
        };
        let shift = match unit {
            "" => 0,
            _ if !unit.is_ascii() => return Err(SizeError::UnknownUnit),
            _ if unit.eq_ignore_ascii_case("b") => 0,
            _ if is("k") => 10,
            _ if is("m") => 20,
            _ if is("g") => 30,
            _ if is("t") => 40,
            _ => return Err(SizeError::UnknownUnit),
        };
        if shift > 0 && number.leading_zeros() < shift {
            return Err(SizeError::TooLarge);
        }
        Ok(Bytes(number << shift))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The largest unit that divides the size: `64k`, `2m`, `1g`, `100` for 100 bytes.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("t", 40), ("g", 30), ("m", 20), ("k", 10)] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SizeError::NoNumber => "a size starts with a number, like 64k or 2m",
            SizeError::UnknownUnit => "a size ends in k, m, g or t, like 64k or 2m",
            SizeError::TooLarge => "the size exceeds 64 bits",
        })
    }
}

impl core::error::Error for SizeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expect) in [
            ("0", Ok(0)),
            ("4096", Ok(4096)),
            ("64k", Ok(65536)),
            ("64KB", Ok(65536)),
            ("2MiB", Ok(2 << 20)),
            ("1g", Ok(1 << 30)),
            ("16777215t", Ok(16777215 << 40)),
            ("16777216t", Err(SizeError::TooLarge)),
            ("99999999999999999999", Err(SizeError::TooLarge)),
            ("", Err(SizeError::NoNumber)),
            ("k", Err(SizeError::NoNumber)),
            ("-1", Err(SizeError::NoNumber)),
            ("64x", Err(SizeError::UnknownUnit)),
            ("64kk", Err(SizeError::UnknownUnit)),
            ("64 k", Err(SizeError::UnknownUnit)),
            ("64µ", Err(SizeError::UnknownUnit)),
        ] {
            assert_eq!(Bytes::parse(text).map(Bytes::get), expect, "{text:?}");
        }
    }

    #[test]
    fn what_is_displayed_parses_to_the_same() {
        extern crate alloc;
        use alloc::string::ToString;
        for n in [0, 1, 4096, 65536, 3 << 20, 1 << 30, (1 << 30) + 4096, 5 << 40] {
            assert_eq!(Bytes::parse(&Bytes::new(n).to_string()), Ok(Bytes::new(n)));
        }
    }
}
