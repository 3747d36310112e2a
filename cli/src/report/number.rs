//! Numbers for people.

/// A number with three digits that count, two where it is small, and commas above a thousand.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        n if n.fract() == 0.0 && n < 1e15 => crate::table::count(value as u64),
        n if n >= 1000.0 => crate::table::count(value.round() as u64),
        n if n >= 100.0 => format!("{value:.0}"),
        n if n >= 10.0 => format!("{value:.1}"),
        n if n >= 0.1 => format!("{value:.2}"),
        n if n > 0.0 => format!("{value:.*}", (1.0 - n.log10().floor()) as usize),
        _ => "–".to_owned(),
    }
}

/// Nanoseconds in microseconds.
pub(crate) fn micros(nanos: f64) -> String {
    number(nanos / 1000.0)
}

/// Something that may not be there.
pub(crate) fn maybe(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or("–".to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_count() {
        let check = |value: f64, expect: &str| assert_eq!(number(value), expect, "{value}");
        check(0.0, "0");
        check(32.0, "32");
        check(262_144.0, "262,144");
        check(1234.6, "1,235");
        check(282.4, "282");
        check(10.66, "10.7");
        check(2.148, "2.15");
        check(0.5, "0.50");
        check(0.041, "0.041");
        check(0.002_04, "0.0020");
        check(0.000_012, "0.000012");
        check(f64::NAN, "–");
    }
}
