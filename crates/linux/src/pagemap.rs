//! `/proc/PID/pagemap` and `/proc/PID/clear_refs`: what is where, and what was written.
//!
//! ```text
//!   63      62      61    58     57        56         55          54..0
//!   present swapped file  guard  write-    exclusive  soft dirty  frame, for those who may know it
//!                                protected
//! ```
//!
//! **Invariants**
//! - G1. A word says *soft dirty* unless its vma was there when soft dirty was cleared last, and
//!   the page was not written since ([`Marks::CLEAN`]).
//!
//! A guard counts as swapped, as on Linux; nothing else ever is. Zeros of 2 MiB count as a file's,
//! and a page of zeros does not. A private copy of a file's page is no file's.
//!
//! **Not here**: descriptors, and who may read the file.

use crate::errno::Errno;
use crate::pages::{PAGE, range};
use crate::process::Process;
use crate::vma::{Marks, Tag, Vma};
use foliant::space::Refs;
use foliant::table::{Attrs, Entry, Found, Paging, SoftKind};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Level, Pages};

/// Bytes of a word.
const WORD: u64 = 8;

pub(crate) const PRESENT: u64 = 1 << 63;
pub(crate) const SWAPPED: u64 = 1 << 62;
pub(crate) const FILE: u64 = 1 << 61;
pub(crate) const GUARD: u64 = 1 << 58;
pub(crate) const WRITE_PROTECTED: u64 = 1 << 57;
const EXCLUSIVE: u64 = 1 << 56;
pub(crate) const SOFT_DIRTY: u64 = 1 << 55;

/// Whether a reader of `pagemap` may know where a page is: Linux wants `CAP_SYS_ADMIN` for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frames {
    /// It gets their numbers.
    Shown,
    /// It gets 0.
    Hidden,
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Reads `/proc/PID/pagemap` from `offset` on, in bytes: a word for each page. Says how many
    /// words were read: fewer where the addresses of a program end.
    pub fn pagemap(&self, offset: u64, words: &mut [u64], frames: Frames) -> Result<usize, Errno> {
        if !offset.is_multiple_of(WORD) {
            return Err(Errno::INVAL);
        }
        let first = (offset / WORD).min(Self::size() / PAGE);
        let pages = (words.len() as u64).min(Self::size() / PAGE - first);
        let words = &mut words[..pages as usize];
        words.fill(0);
        let (start, end) = (first * PAGE, (first + pages) * PAGE);
        for vma in self.vmas_in(start, end) {
            let (from, to) = (vma.start().max(start), vma.end().min(end));
            let part = &mut words[((from - start) / PAGE) as usize..((to - start) / PAGE) as usize];
            self.vma_words(&vma, from, part, frames);
        }
        Ok(pages as usize)
    }

    /// Takes what is written to `/proc/PID/clear_refs`: 1 forgets that pages were used, 2 of
    /// anonymous memory, 3 of files, 4 that pages were written (soft dirty), and 5 what was
    /// resident at most.
    pub fn clear_refs(&mut self, text: &str) -> Result<(), Errno> {
        let all = range(0, Self::size());
        match text.trim().parse::<i32>() {
            Ok(1) => Ok(self.mm.clear_refs(self.space, all, Refs::Accessed)?),
            Ok(kind @ (2 | 3)) => self.each_part(0, u64::MAX, |process, vma, part| {
                match vma.is_of_file() == (kind == 3) {
                    true => Ok(process.mm.clear_refs(process.space, part, Refs::Accessed)?),
                    false => Ok(()),
                }
            }),
            Ok(4) => {
                self.each_part(0, u64::MAX, |process, vma, part| {
                    let marks = vma.tag.marks.with(Marks::CLEAN);
                    match marks == vma.tag.marks {
                        true => Ok(()),
                        false => process.retag(part, vma.flags, Tag { marks, ..vma.tag }),
                    }
                })?;
                Ok(self.mm.clear_refs(self.space, all, Refs::SoftDirty)?)
            }
            Ok(5) => {
                self.size.reset_resident(self.resident());
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// The words of a vma's pages from address `from` on.
    fn vma_words(&self, vma: &Vma, from: u64, words: &mut [u64], frames: Frames) {
        if !vma.tag.marks.has(Marks::CLEAN) {
            words.fill(SOFT_DIRTY);
        }
        let to = from + words.len() as u64 * PAGE;
        self.mm.with_leaves(self.space, range(from, to), |leaves| {
            for found in leaves {
                let span = found.level.span().get();
                let (start, end) = (found.va.get(), found.va.get() + span);
                let (low, high) = (start.max(from), end.min(to));
                // Linux has no large leaf over the end of a vma.
                let is_whole = vma.start() <= start && end <= vma.end();
                let step = if is_whole { high - low } else { PAGE };
                for part in (low..high).step_by(step as usize) {
                    let (word, first) = self.word(vma, &found, part, is_whole);
                    let first = first.filter(|_| frames == Frames::Shown);
                    for at in (part..part + step).step_by(PAGE as usize) {
                        let nth = Pages::new((at - part) / FRAME_BYTES);
                        let number = first.map_or(0, |first| first.add(nth).get());
                        words[((at - from) / PAGE) as usize] |= word | number;
                    }
                }
            }
        });
    }

    /// What an entry says of the page at an address, and where that is. Of a large leaf that is
    /// whole Linux asks how often its first page is mapped, whichever it is about.
    pub(crate) fn word(
        &self,
        vma: &Vma,
        found: &Found,
        at: u64,
        is_whole: bool,
    ) -> (u64, Option<Frame>) {
        let leaf = match found.entry {
            Entry::Leaf { pa, attrs } => Some((pa, attrs)),
            // A leaf that is out of use for a moment is there.
            Entry::Soft(soft) => soft.migrating_leaf().or(soft.broken_leaf()),
            Entry::None | Entry::Table(_) => None,
        };
        let Some((pa, attrs)) = leaf else {
            let word = match found.entry {
                Entry::Soft(soft) if soft.kind == SoftKind::Guard => SWAPPED | GUARD,
                // Linux does not say of huge pages of a pool that they are elsewhere.
                Entry::Soft(soft) if soft.kind == SoftKind::Poison => match found.level {
                    Level::BASE => SWAPPED,
                    _ => 0,
                },
                Entry::Soft(soft) if soft.kind == SoftKind::Marker => match found.level {
                    Level::BASE => SWAPPED | WRITE_PROTECTED,
                    _ => WRITE_PROTECTED,
                },
                _ => 0,
            };
            return (word, None);
        };
        let when = |attr, bit| if attrs.has(attr) { bit } else { 0 };
        let page = |at: u64| pa.frame().add(Pages::new((at - found.va.get()) / FRAME_BYTES));
        let frame = page(at);
        let is_zero = attrs.has(Attrs::SPECIAL);
        let is_files = !is_zero && self.is_files(vma, at, frame);
        let asked = page(if is_whole { found.va.get() } else { at });
        let sole = !is_zero && self.is_sole(asked, attrs, is_files);
        let sole = if sole { EXCLUSIVE } else { 0 };
        let is_huge_zero = is_zero && found.level > Level::BASE && is_whole;
        let kind = if is_files || is_huge_zero { FILE | sole } else { sole };
        let dirty = when(Attrs::SOFT_DIRTY, SOFT_DIRTY);
        (PRESENT | dirty | when(Attrs::UFFD_WP, WRITE_PROTECTED) | kind, Some(frame))
    }
    /// Whether one entry alone maps a page. The manager knows it of what it made the process's own;
    /// of what others had meanwhile, it looks. A page of a file is in the file's index besides.
    pub(crate) fn is_sole(&self, frame: Frame, attrs: Attrs, is_files: bool) -> bool {
        match is_files {
            false => attrs.has(Attrs::EXCLUSIVE) || self.mm.page_mappings(frame) == Some(1),
            true => self.mm.page_mappings(frame) == Some(2),
        }
    }
}
