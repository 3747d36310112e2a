//! What a program of tests is told.

use std::path::Path;

/// A mutant's number, or the file that the mutants reached are noted in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Switch<'a> {
    On(u32),
    Note(&'a Path),
}
