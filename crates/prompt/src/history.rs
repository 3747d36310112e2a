//! Lines that were typed before.

use crate::line::Line;

/// So many are kept.
pub(crate) const KEPT: usize = 16;

/// The lines, newest first; and which of them is shown.
#[derive(Debug)]
pub(crate) struct History {
    lines: [Line; KEPT],
    len: usize,
    /// How far back; 0 is the line that was typed and not yet given.
    shown: usize,
    draft: Line,
}

impl History {
    pub(crate) const fn new() -> History {
        History { lines: [Line::new(); KEPT], len: 0, shown: 0, draft: Line::new() }
    }

    /// Keeps a line that was given. One of blanks is not kept, nor one that is the last one again.
    pub(crate) fn keep(&mut self, line: &Line) {
        self.shown = 0;
        let is_again = self.len > 0 && self.lines[0].text() == line.text();
        if is_again || line.text().trim().is_empty() {
            return;
        }
        self.len = KEPT.min(self.len + 1);
        self.lines[..self.len].rotate_right(1);
        self.lines[0] = *line;
    }
    /// Forgets which line is shown: a new one begins.
    pub(crate) fn leave(&mut self) {
        self.shown = 0;
    }

    /// The next older line instead of `now`, if there is one.
    pub(crate) fn older(&mut self, now: &Line) -> Option<Line> {
        if self.shown == self.len {
            return None;
        }
        if self.shown == 0 {
            self.draft = *now;
        }
        self.shown += 1;
        Some(self.at_end(self.lines[self.shown - 1]))
    }
    /// The next newer one.
    pub(crate) fn newer(&mut self) -> Option<Line> {
        self.shown = self.shown.checked_sub(1)?;
        let line = if self.shown == 0 { self.draft } else { self.lines[self.shown - 1] };
        Some(self.at_end(line))
    }
    fn at_end(&self, mut line: Line) -> Line {
        line.go(usize::MAX);
        line
    }
}
