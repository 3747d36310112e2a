//! Lines of numbers as Linux's files about memory have them. Programs read them by the ten
//! thousand, and a format pads a character at a time.
//!
//! ```text
//!   Rss:               12 kB
//!   name, 16 columns  number, 8 at least
//! ```

use core::fmt::{self, Write};

const NAME: usize = 16;
const NUMBER: usize = 8;
const UNIT: &str = " kB\n";
const NOTHING: &str = "       0 kB\n";
const SPACES: &str = match core::str::from_utf8(&[b' '; 80]) {
    Ok(spaces) => spaces,
    Err(_) => "",
};

/// A line of a name and kilobytes.
pub(crate) fn kilobytes(out: &mut impl Write, name: &str, kilobytes: u64) -> fmt::Result {
    out.write_str(name)?;
    spaces(out, NAME.saturating_sub(name.len()))?;
    if kilobytes == 0 {
        return out.write_str(NOTHING); // most are
    }
    const DIGITS: usize = u64::MAX.ilog10() as usize + 1;
    let mut number = [b' '; DIGITS];
    let (mut left, mut at) = (kilobytes, DIGITS);
    loop {
        at -= 1;
        number[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let from = at.min(DIGITS - NUMBER);
    let number = core::str::from_utf8(&number[from..]).map_err(|_| fmt::Error)?;
    out.write_str(number)?;
    out.write_str(UNIT)
}
/// So many spaces, which are few.
pub(crate) fn spaces(out: &mut impl Write, count: usize) -> fmt::Result {
    out.write_str(&SPACES[..count.min(SPACES.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    #[test]
    fn a_line_is_what_formats_make_of_it() {
        for name in ["a:", "Private_Hugetlb:", "a_name_that_is_longer:"] {
            for number in [0, 9, 10, 12_345_678, 123_456_789, u64::MAX] {
                let mut line = String::new();
                kilobytes(&mut line, name, number).unwrap();
                assert_eq!(line, format!("{name:16}{number:8} kB\n"));
            }
        }
    }
}
