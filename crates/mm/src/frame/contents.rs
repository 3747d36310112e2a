//! The contents of memory.

/// The contents of memory that is handed over, asked for or kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Contents {
    /// Anything.
    #[default]
    Any,
    /// Zeros, in all of it.
    Zero,
}
