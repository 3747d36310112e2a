//! Numbers as Linux's files take them, of which there are two kinds.
//!
//! ```text
//!   /sys        "511\n"        digits alone, with a sign or a line's end if there is one
//!   /proc/sys   " 0x1ff 7\n"   the first number of a line: octal after 0, hexadecimal after 0x
//! ```

use crate::errno::Errno;
use linux_raw_sys::errno;

/// What ends a number in `/proc/sys`.
const SPACES: [char; 3] = [' ', '\t', '\n'];
/// The longest number there: what is longer might have been cut.
const LONGEST: usize = 20;

/// The number of a file in `/sys`: `kstrtoul` of Linux.
pub(crate) fn of_sysfs(text: &str) -> Result<u64, Errno> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Errno::INVAL);
    }
    digits.parse().map_err(|_| Errno(errno::ERANGE))
}

/// The first number of a file in `/proc/sys`, without its sign: `proc_get_long` of Linux.
fn first_of_proc(text: &str) -> Result<(bool, u64), Errno> {
    // What begins a line may be any white space.
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
    let number = text.split(SPACES).next().unwrap_or_default();
    let (is_negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number),
    };
    let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // A sign of its own is none of a number's digits.
    if number.len() > LONGEST || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(Errno::INVAL);
    }
    let size = u64::from_str_radix(digits, radix).map_err(|_| Errno::INVAL)?;
    Ok((is_negative, size))
}

/// A number that is not below zero: `proc_doulongvec_minmax` of Linux.
pub(crate) fn of_proc(text: &str) -> Result<u64, Errno> {
    match first_of_proc(text)? {
        (false, size) => Ok(size),
        (true, _) => Err(Errno::INVAL),
    }
}

/// A number of 32 bits with a sign: `proc_dointvec` of Linux.
pub(crate) fn int_of_proc(text: &str) -> Result<i32, Errno> {
    let (is_negative, size) = first_of_proc(text)?;
    let size = i64::try_from(size).map_err(|_| Errno::INVAL)?;
    i32::try_from(if is_negative { -size } else { size }).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysfs_takes_for_a_number() {
        let (inval, range) = (Err(Errno::INVAL), Err(Errno(errno::ERANGE)));
        for (text, number) in [
            ("0", Ok(0)),
            ("0511\n", Ok(511)),
            ("+7", Ok(7)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", range),
            ("", inval),
            ("\n", inval),
            ("+", inval),
            ("-1", inval),
            ("++1", inval),
            (" 1", inval),
            ("1 ", inval),
            ("1\n\n", inval),
            ("0x1", inval),
        ] {
            assert_eq!(of_sysfs(text), number, "{text:?}");
        }
    }

    #[test]
    fn what_proc_takes_for_a_number() {
        let no_int: Result<i32, Errno> = Err(Errno::INVAL);
        let no_long: Result<u64, Errno> = Err(Errno::INVAL);
        for (text, int, long) in [
            ("0", Ok(0), Ok(0)),
            (" \t\n7\n", Ok(7), Ok(7)),
            ("7 8", Ok(7), Ok(7)),
            ("010", Ok(8), Ok(8)),
            ("0x1F", Ok(31), Ok(31)),
            ("-3", Ok(-3), no_long),
            ("2147483647", Ok(i32::MAX), Ok(0x7fff_ffff)),
            ("2147483648", no_int, Ok(0x8000_0000)),
            ("-2147483648", Ok(i32::MIN), no_long),
            ("-2147483649", no_int, no_long),
            ("18446744073709551615", no_int, Ok(u64::MAX)),
            ("18446744073709551616", no_int, no_long),
            ("000000000000000000001", no_int, no_long),
            ("", no_int, no_long),
            ("\n", no_int, no_long),
            ("-", no_int, no_long),
            ("+1", no_int, no_long),
            ("0x", no_int, no_long),
            ("0x+1", no_int, no_long),
            ("08", no_int, no_long),
            ("1a", no_int, no_long),
            ("1,2", no_int, no_long),
        ] {
            assert_eq!((int_of_proc(text), of_proc(text)), (int, long), "{text:?}");
        }
    }
}
