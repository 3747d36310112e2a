//! The naive twin of one CPU's part of a space: a map from page to what the page is.
//!
//! ```text
//!   page number ─▶ Page { flags, tag, guard, words }      no entry: no area
//! ```
//!
//! Two words of each page are followed, the first and the last, so that half a copy and half a
//! clear show.
//!
//! **Not here**: folios, tables, flushes, CPUs. The model cannot tell large pages from small ones.

use foliant::space::Flags;
use foliant_units::FRAME_BYTES;
use std::collections::BTreeMap;

/// Offsets in a page of the words that are followed.
pub(crate) const WORDS: [u64; 2] = [0, FRAME_BYTES - 8];

/// What a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub(crate) flags: Flags,
    pub(crate) tag: u64,
    pub(crate) guard: bool,
    pub(crate) words: [u64; 2],
    /// Whether it was stored to since the manager was last told that its contents may go: the entry
    /// must say dirty then.
    pub(crate) dirty: bool,
    /// The same since the manager last forgot that it was written.
    pub(crate) written: bool,
}

/// See the module's text.
#[derive(Clone, Default, Debug)]
pub(crate) struct Model {
    pub(crate) pages: BTreeMap<u64, Page>,
}

/// A stretch of page numbers.
pub(crate) type Stretch = core::ops::Range<u64>;

/// The page number of an address.
pub(crate) const fn page_of(va: u64) -> u64 {
    va / FRAME_BYTES
}

/// Which of the words of its page an address names.
pub(crate) const fn word_of(va: u64) -> usize {
    !va.is_multiple_of(FRAME_BYTES) as usize
}

/// The value of a store: in which space it was stored, where, and when.
pub(crate) const fn value(lineage: u64, va: u64, serial: u64) -> u64 {
    let word = word_of(va) as u64;
    lineage << 48 | (page_of(va) & 0xffff) << 32 | word << 31 | serial & 0x7fff_ffff
}

impl Model {
    pub(crate) fn get(&self, va: u64) -> Option<&Page> {
        self.pages.get(&page_of(va))
    }
    /// The first page of `stretch` without an area.
    pub(crate) fn hole(&self, stretch: &Stretch) -> Option<u64> {
        stretch.clone().find(|page| !self.pages.contains_key(page))
    }
    /// Whether no page of `stretch` has an area.
    pub(crate) fn is_empty(&self, stretch: &Stretch) -> bool {
        self.pages.range(stretch.clone()).next().is_none()
    }
    pub(crate) fn map(&mut self, stretch: &Stretch, flags: Flags, tag: u64) {
        for page in stretch.clone() {
            let fresh =
                Page { flags, tag, guard: false, words: [0; 2], dirty: false, written: false };
            self.pages.insert(page, fresh);
        }
    }
    pub(crate) fn unmap(&mut self, stretch: &Stretch) {
        stretch.clone().for_each(|page| {
            self.pages.remove(&page);
        });
    }
    /// Changes every page of `stretch` that is there.
    pub(crate) fn each(&mut self, stretch: &Stretch, change: impl Fn(&mut Page)) {
        self.pages.range_mut(stretch.clone()).for_each(|(_, page)| change(page));
    }
    /// The contents go, guards stay.
    pub(crate) fn drop_contents(&mut self, stretch: &Stretch) {
        self.each(stretch, |page| {
            (page.words, page.dirty, page.written) = ([0; 2], false, false);
        });
    }
    /// The first page behind `start` that is not in the same area as it.
    pub(crate) fn area_end(&self, start: u64) -> u64 {
        let Some(first) = self.pages.get(&start) else { return start };
        let like = |page: &Page| page.flags == first.flags && page.tag == first.tag;
        let mut end = start + 1;
        while self.pages.get(&end).is_some_and(like) {
            end += 1;
        }
        end
    }
    /// Moves `from` to where `to` is; what is there goes.
    pub(crate) fn shift(&mut self, from: &Stretch, to: u64) {
        let moved: Vec<Page> = from.clone().filter_map(|page| self.pages.remove(&page)).collect();
        for (page, what) in (to..).zip(moved) {
            self.pages.insert(page, what);
        }
    }
    /// The first page of `stretch` where a populating access that needs `right` is refused.
    pub(crate) fn refuses(&self, stretch: &Stretch, right: Flags) -> Option<u64> {
        stretch.clone().find(|page| {
            !self.pages.get(page).is_some_and(|page| page.flags.has(right) && !page.guard)
        })
    }
}
