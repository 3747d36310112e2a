//! The parameter `thp_anon=` of Linux's command line: which sizes folios have from the start on.
//!
//! ```text
//!   16K-64K,256K:always;2M:inherit
//! ```

use core::{error, fmt};
use foliant::fault::{Orders, Policy, PolicyError, Size, parse_order};
use foliant_units::Order;

/// Where and why a text was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThpAnonError<'t> {
    /// The part that is wrong.
    pub part: &'t str,
    /// What is wrong with it.
    pub why: Wrong,
}

/// What is wrong with a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// It is no size, or no state.
    Policy(PolicyError),
    /// A range whose end lies below its start.
    Inverted,
    /// There is no `:state`.
    NoState,
}

impl From<PolicyError> for Wrong {
    fn from(why: PolicyError) -> Wrong {
        Wrong::Policy(why)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Policy(why) => why.fmt(f),
            Wrong::Inverted => f.write_str("the range ends below its start"),
            Wrong::NoState => f.write_str("expected size:state, like 64k:always"),
        }
    }
}

impl fmt::Display for ThpAnonError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.part, self.why)
    }
}
impl error::Error for ThpAnonError<'_> {}

/// Reads `<size>[,<size>|<low>-<high>]:<state>[;...]`. Sizes that it does not mention become
/// `never`; the other switches stay as they are in `before`. A mistake refuses the whole text.
pub fn thp_anon<'t>(before: &Policy, text: &'t str) -> Result<Policy, ThpAnonError<'t>> {
    let none = Orders::NONE;
    let mut policy = Policy { always: none, madvise: none, inherit: none, auto: none, ..*before };
    let fail = |part: &'t str, why: Wrong| ThpAnonError { part, why };
    for part in text.split(';') {
        let (sizes, state) = part.split_once(':').ok_or(fail(part, Wrong::NoState))?;
        let state = Size::parse(state).map_err(|why| fail(state, why.into()))?;
        for size in sizes.split(',') {
            let (low, high) = size.split_once('-').unwrap_or((size, size));
            let order = |text| parse_order(text).map_err(|why| fail(text, why.into()));
            let (low, high) = (order(low)?, order(high)?);
            if low > high {
                return Err(fail(size, Wrong::Inverted));
            }
            for order in Order::all().filter(|o| (low..=high).contains(o)) {
                policy.set(order, state).map_err(|why| fail(size, why.into()))?;
            }
        }
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_units::{Bytes, SizeError};

    fn order(n: u8) -> Order {
        Order::new(n).unwrap()
    }

    /// `thp_anon=` once took 15K for 16K.
    #[test]
    fn tr_a5_sizes_are_never_rounded() {
        let start = Policy::default();
        let not_a_power = |kb: u64| PolicyError::NotAPower(Bytes::new(kb << 10)).into();
        let unsupported = |kb: u64| PolicyError::Unsupported(Bytes::new(kb << 10)).into();
        for (text, part, why) in [
            ("15K:always", "15K", not_a_power(15)),
            ("17K:always", "17K", not_a_power(17)),
            ("48K:always", "48K", not_a_power(48)),
            ("8K:always", "8K", unsupported(8)),
            ("4K:always", "4K", unsupported(4)),
            ("4M:always", "4M", unsupported(4 << 10)),
            ("2G:always", "2G", unsupported(2 << 20)),
            ("2K:always", "2K", unsupported(2)),
            ("64K", "64K", Wrong::NoState),
            ("64K:", "", PolicyError::UnknownState.into()),
            ("64K:allways", "allways", PolicyError::UnknownState.into()),
            ("64K:always;", "", Wrong::NoState),
            ("128K-64K:always", "128K-64K", Wrong::Inverted),
            ("64K-:always", "", PolicyError::Size(SizeError::NoNumber).into()),
            ("64Q:always", "64Q", PolicyError::Size(SizeError::UnknownUnit).into()),
        ] {
            assert_eq!(thp_anon(&start, text), Err(ThpAnonError { part, why }), "{text}");
        }
        let good = thp_anon(&start, "16K-64K,256k:always;2M:inherit").unwrap();
        let always = [2, 3, 4, 6].map(order).map(Orders::of).into_iter();
        assert_eq!(good.always, always.fold(Orders::NONE, Orders::with));
        assert_eq!((good.inherit, good.madvise), (Orders::of(Order::SIZE_2M), Orders::NONE));
        assert_eq!(good.get(order(5)), Size::Never);
    }
}
