//! The policies that a replay compares, by name.

use foliant::Policy;
use foliant::fault::{Orders, PolicyError, parse_order};
use foliant_units::{Bytes, FRAME_BYTES, Order};
use std::fmt;

/// Which folio sizes a row allows everywhere. One name means one thing, wherever it is said:
/// `up-to-64k` is every size up to it, `only-64k` that size or 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Every supported size up to this one: `4k`, `up-to-16k` to `up-to-2m`.
    UpTo(Order),
    /// This size or 4 KiB, nothing else: `only-64k`; `only-2m` is also called `thp`.
    Only(Order),
    /// Sizes that the manager chooses at each fault: `auto`.
    Auto,
}

const THP: &str = "thp";
const UP_TO: &str = "up-to-";
const ONLY: &str = "only-";
const AUTO: &str = "auto";

impl Choice {
    /// The rows of a full table.
    pub fn all() -> Vec<Choice> {
        let sizes = Order::all().filter(|o| *o <= Order::SIZE_2M && o.get() != 1).map(Choice::UpTo);
        sizes.chain([Choice::Only(Order::SIZE_2M), Choice::Auto]).collect()
    }

    /// Those of them that Linux has switches for: all but [`Choice::Auto`].
    pub fn of_linux() -> Vec<Choice> {
        Choice::all().into_iter().filter(|choice| choice.is_of_linux()).collect()
    }
    /// Whether Linux has switches for it.
    pub fn is_of_linux(self) -> bool {
        self != Choice::Auto
    }

    /// The row that others are compared with.
    pub const BASE: Choice = Choice::UpTo(Order::BASE);

    /// The sizes above 4 KiB.
    pub const fn orders(self) -> Orders {
        match self {
            Choice::UpTo(order) => Orders::up_to(order),
            Choice::Only(order) => Orders::of(order),
            Choice::Auto => Orders::ANON,
        }
    }

    /// The switches for the manager.
    pub fn policy(self) -> Policy {
        match self {
            Choice::Auto => Policy::tuned(self.orders()),
            _ => Policy::always(self.orders()),
        }
    }

    /// Reads a name as [`Choice`] displays it, or `thp`.
    pub fn parse(text: &str) -> Result<Choice, ChoiceError> {
        let fail = |why| ChoiceError { text: text.to_owned(), why };
        let size = |size| parse_order(size).map_err(|why| fail(WrongName::Unknown(why)));
        if text.eq_ignore_ascii_case(THP) {
            return Ok(Choice::Only(Order::SIZE_2M));
        }
        if text.eq_ignore_ascii_case(AUTO) {
            return Ok(Choice::Auto);
        }
        if let Some(text) = text.strip_prefix(UP_TO) {
            return size(text).map(Choice::UpTo);
        }
        if let Some(text) = text.strip_prefix(ONLY) {
            return size(text).map(Choice::Only);
        }
        if Bytes::parse(text) == Ok(Bytes::new(FRAME_BYTES)) {
            return Ok(Choice::BASE);
        }
        size(text).and_then(|order| Err(fail(WrongName::Bare(order))))
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
            Choice::UpTo(order) if *order == Order::BASE => write!(f, "{}", order.bytes()),
            Choice::UpTo(order) => write!(f, "{UP_TO}{}", order.bytes()),
            Choice::Only(order) => write!(f, "{ONLY}{}", order.bytes()),
            Choice::Auto => f.write_str(AUTO),
        }
    }
}

/// A text that names no policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChoiceError {
    /// The name that was wrong.
    pub text: String,
    /// What is wrong with it.
    pub why: WrongName,
}

/// What is wrong with a policy's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongName {
    /// A size alone, which does not say what becomes of smaller ones.
    Bare(Order),
    /// No size.
    Unknown(PolicyError),
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match self.why {
            WrongName::Bare(order) => {
                let size = order.bytes();
                write!(
                    f,
                    "'{text}' says one size and not what becomes of smaller ones; \
                     use {UP_TO}{size} (every size up to it) or {ONLY}{size} (that one or 4k)"
                )
            }
            WrongName::Unknown(why) => write!(
                f,
                "'{text}' names no policy ({why}); use 4k, up-to-16k to up-to-2m, only-64k, thp or \
                 auto, with commas between"
            ),
        }
    }
}

impl std::error::Error for ChoiceError {}
