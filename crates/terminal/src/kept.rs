//! What waits: bytes to be read, echoes to be shown.

use crate::settings::NONE;

/// A byte that waits to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) byte: u8,
    /// A line ends here.
    pub(crate) ends: bool,
}

impl Kept {
    /// Whether it says that a line ends, and is no byte of it.
    pub(crate) fn is_end(self) -> bool {
        self.ends && self.byte == NONE
    }
}

/// What is to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Echo {
    /// As a program's output.
    Byte(u8),
    /// A control character, as `^C`.
    Control(u8),
    /// A byte as it is.
    Plain(u8),
    /// As far back as a tab went, which came behind so many columns, of the line or of another tab.
    Back(u8, Behind),
    /// The line begins here.
    Begin,
    /// What was shown last takes no column.
    Left,
}

/// What the columns before a tab are counted from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behind {
    Line,
    Tab,
}
