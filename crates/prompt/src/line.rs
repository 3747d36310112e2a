//! The line, and where in it the cursor is.

/// Characters that a line has room for.
pub(crate) const ROOM: usize = 256;

/// The line is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// The line (T1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    text: [u8; ROOM],
    len: usize,
    cursor: usize,
}

impl Line {
    pub(crate) const fn new() -> Line {
        Line { text: [0; ROOM], len: 0, cursor: 0 }
    }
    pub(crate) fn text(&self) -> &str {
        core::str::from_utf8(&self.text[..self.len]).expect("T1")
    }
    pub(crate) fn cursor(&self) -> usize {
        self.cursor
    }
    pub(crate) fn is_at_end(&self) -> bool {
        self.cursor == self.len
    }
    pub(crate) fn before(&self) -> &str {
        &self.text()[..self.cursor]
    }

    /// Puts a character where the cursor is.
    pub(crate) fn put(&mut self, byte: u8) -> Result<(), Full> {
        if self.len == ROOM {
            return Err(Full);
        }
        self.text.copy_within(self.cursor..self.len, self.cursor + 1);
        self.text[self.cursor] = byte;
        (self.len, self.cursor) = (self.len + 1, self.cursor + 1);
        Ok(())
    }
    /// Takes out what is between `start` and `end`, and puts the cursor there.
    fn take(&mut self, start: usize, end: usize) {
        self.text.copy_within(end..self.len, start);
        self.len -= end - start;
        self.cursor = start;
    }
    /// Takes out up to `count` characters before the cursor.
    pub(crate) fn erase_before(&mut self, count: usize) {
        self.take(self.cursor.saturating_sub(count), self.cursor);
    }
    /// Takes out up to `count` characters from the cursor on.
    pub(crate) fn erase_behind(&mut self, count: usize) {
        self.take(self.cursor, self.len.min(self.cursor.saturating_add(count)));
    }
    /// Takes out the word before the cursor, and the blanks behind it.
    pub(crate) fn erase_word(&mut self) {
        let start = self.before().trim_end_matches(' ').rfind(' ').map_or(0, |blank| blank + 1);
        self.take(start, self.cursor);
    }
    /// Puts the cursor there, or to the end.
    pub(crate) fn go(&mut self, to: usize) {
        self.cursor = to.min(self.len);
    }
}
