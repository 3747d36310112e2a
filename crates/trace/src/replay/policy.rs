//! The policies that a replay compares, by name.

use foliant::Policy;
use foliant::fault::{Orders, PolicyError, parse_order};
use foliant_units::{Bytes, FRAME_BYTES, Order};
use std::fmt;

/// Which folio sizes a row allows everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Every supported size up to this one: `4k`, `16k` to `2m`.
    UpTo(Order),
    /// 2 MiB or 4 KiB, nothing in between: `thp`.
    Thp,
    /// This size or 4 KiB, nothing else: `only-64k`.
    Only(Order),
}

impl Choice {
    /// The rows of a full table.
    pub fn all() -> Vec<Choice> {
        let sizes = Order::all().filter(|o| *o <= Order::SIZE_2M && o.get() != 1).map(Choice::UpTo);
        sizes.chain([Choice::Thp]).collect()
    }

    /// The row that others are compared with.
    pub const BASE: Choice = Choice::UpTo(Order::BASE);

    /// The switches for the manager.
    pub fn policy(self) -> Policy {
        match self {
            Choice::UpTo(order) => Policy::always(Orders::up_to(order)),
            Choice::Thp => Policy::always(Orders::of(Order::SIZE_2M)),
            Choice::Only(order) => Policy::always(Orders::of(order)),
        }
    }

    /// Reads a name as [`Choice`] displays it.
    pub fn parse(text: &str) -> Result<Choice, ChoiceError> {
        let fail = |why| ChoiceError { text: text.to_owned(), why };
        if text.eq_ignore_ascii_case("thp") {
            return Ok(Choice::Thp);
        }
        let (only, size) = match text.strip_prefix("only-") {
            Some(size) => (true, size),
            None => (false, text),
        };
        let base = Bytes::parse(size) == Ok(Bytes::new(FRAME_BYTES));
        let order = if base && !only { Order::BASE } else { parse_order(size).map_err(fail)? };
        Ok(if only { Choice::Only(order) } else { Choice::UpTo(order) })
    }

    /// Reads names separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Choice>, ChoiceError> {
        let mut list = Vec::new();
        for name in text.split(',') {
            let choice = Choice::parse(name.trim())?;
            if !list.contains(&choice) {
                list.push(choice);
            }
        }
        Ok(list)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::UpTo(order) => write!(f, "{}", order.bytes()),
            Choice::Thp => f.write_str("thp"),
            Choice::Only(order) => write!(f, "only-{}", order.bytes()),
        }
    }
}

/// A text that names no policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChoiceError {
    /// The name that was wrong.
    pub text: String,
    /// What is wrong with it.
    pub why: PolicyError,
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} names no policy ({}); use 4k, 16k to 2m, thp, or only-64k, with commas between",
            self.text, self.why
        )
    }
}

impl std::error::Error for ChoiceError {}
