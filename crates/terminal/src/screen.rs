//! Where a terminal shows its bytes.

/// Where bytes are shown.
pub trait Screen {
    /// Bytes that there is room for.
    fn room(&self) -> usize;
    /// Shows bytes, for which there is room.
    fn show(&mut self, bytes: &[u8]);
    /// Drops what nobody has seen yet.
    fn flush(&mut self);
}

/// Bytes that one byte becomes, at most.
pub(crate) const LONGEST: usize = 8;
