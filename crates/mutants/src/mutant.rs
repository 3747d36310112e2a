//! One small mistake: where it stands, what it changes, and the text that makes it switchable.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// What sort of mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `<` for `<=`, `==` for `!=`.
    Comparison,
    /// `&&` for `||`.
    Logic,
    /// `+` for `-`.
    Arithmetic,
    /// `|` for `&`, `<<` for `>>`.
    Bits,
    /// A `!` that is missing.
    Negation,
    /// A condition that always holds, or never.
    Condition,
    /// A call or an assignment that is missing.
    Statement,
    /// A function that does nothing, or always answers the same.
    Body,
    /// A match that has an arm less.
    Arm,
    /// A number off by one, a truth turned round.
    Literal,
    /// A range that ends elsewhere.
    Range,
    /// A method's counterpart: `min` for `max`.
    Method,
    /// The other variant of two.
    Variant,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

/// The name of a mutant, which a change elsewhere in its file leaves as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Name {
    /// Path of the file, from the workspace's root.
    pub file: String,
    /// The function, with the type that it belongs to.
    pub function: String,
    /// The line, or the lines as one.
    pub before: String,
    /// The same with the mistake.
    pub after: String,
}

/// One mistake.
#[derive(Clone, Debug, Serialize)]
pub struct Mutant {
    /// What it is called.
    #[serde(flatten)]
    pub name: Name,
    /// Its line.
    pub line: usize,
    /// The last line of what it changes.
    #[serde(skip)]
    pub last_line: usize,
    /// The room that it is in.
    pub room: String,
    /// What sort it is.
    pub kind: Kind,
    /// How it is written.
    #[serde(skip)]
    pub(crate) edits: Vec<Edit>,
}

/// A way to write a mutant: text before and after a region of the file, and a token in it that is
/// replaced. `weave::ID` stands for the mutant's number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Edit {
    pub(crate) region: Range<usize>,
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) token: Option<(Range<usize>, String)>,
}

impl Edit {
    /// Two texts around a region.
    pub(crate) fn around(region: Range<usize>, before: String, after: &str) -> Edit {
        Edit { region, before, after: after.to_owned(), token: None }
    }

    /// One text between two bytes.
    pub(crate) fn at(place: usize, text: String) -> Edit {
        Edit { region: place..place, before: text, after: String::new(), token: None }
    }
}
