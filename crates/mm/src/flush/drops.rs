#![allow(unsafe_code)]
//! What may be freed after a flush: a list that grows by frames and never needs any.
//!
//! ```text
//!   word   frame (40) << 24 │ count (22) << 2 │ 0      so many references to the folio at `frame`
//!                                             │ 1      a page table
//!                                             │ 2      so many frames of descriptors, each a block of its own
//!                                             │ 3      a reference to each of so many pages, each a folio of its own
//! ```

use crate::frame::{Flushed, Stale, Unmapped};
use crate::stock::{Event, OwnFrames, Stock, Words};
use crate::sync::Ordering;
use crate::table::Paging;
use core::mem::MaybeUninit;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Order, Pages};

/// How many words fit in without memory.
const INLINE: usize = 32;
/// How many words a frame holds besides its link on the chain, and how many words the list held
/// before it in the frame below.
const PER_FRAME: usize = 510;
const LINK: usize = 510;
const LEN_BEFORE: usize = 511;
/// How many frames one list takes at most, so that the memory held back by one flush is bounded (40
/// MiB of base pages).
const FRAMES_MAX: usize = 20;
/// The same bound for pages side by side, of which a word can hold any number.
const PAGES_MAX: usize = FRAMES_MAX * PER_FRAME;

/// What a word lets go of.
#[derive(Clone, Copy)]
enum Tag {
    References = 0,
    Table = 1,
    Descriptors = 2,
    Pages = 3,
}

impl Tag {
    const FRAME_SHIFT: u32 = 24;
    const COUNT_MAX: u64 = (1 << 22) - 1;

    const fn word(self, frame: Frame, n: u64) -> u64 {
        frame.get() << Tag::FRAME_SHIFT | n << 2 | self as u64
    }
}

const _: () = assert!(Order::SIZE_1G.pages().get() <= Tag::COUNT_MAX);

/// See the module's text.
pub(crate) struct Drops<'m> {
    /// Those below `inline_len` were written.
    inline: [MaybeUninit<u64>; INLINE],
    inline_len: usize,
    more: OwnFrames<LINK>,
    /// The words of the newest frame of `more`, and how many of them are used.
    newest: Option<&'m Words>,
    newest_len: usize,
    frames: usize,
    /// Pages beyond the first of a word.
    joined: usize,
}

impl<'m> Drops<'m> {
    pub(crate) fn new() -> Drops<'m> {
        Drops {
            inline: [const { MaybeUninit::uninit() }; INLINE],
            inline_len: 0,
            more: OwnFrames::default(),
            newest: None,
            newest_len: 0,
            frames: 0,
            joined: 0,
        }
    }

    /// How many more words may come before a flush. Those of a run that was begun fit in.
    pub(crate) fn room(&self) -> usize {
        if self.joined < PAGES_MAX { self.fits() } else { 0 }
    }
    /// How many more words fit in.
    fn fits(&self) -> usize {
        match self.newest {
            Some(_) => PER_FRAME - self.newest_len,
            None => INLINE - self.inline_len,
        }
    }

    /// Tries to have room for `count` words, and says for how many there is.
    pub(crate) fn grow<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'m, M, P>,
        count: usize,
    ) -> usize {
        if self.room() < count.min(PER_FRAME)
            && self.joined < PAGES_MAX
            && self.frames < FRAMES_MAX
            && let Ok(claim) = stock.claim_cleared(Owner::Records)
        {
            let page = self.more.push(stock.machine, claim);
            page[LEN_BEFORE].store(self.newest_len as u64, Ordering::Relaxed);
            (self.newest, self.newest_len) = (Some(page), 0);
            self.frames += 1;
        }
        self.room()
    }

    pub(crate) fn push_references(&mut self, unmapped: Unmapped) {
        let (head, entries) = unmapped.into_raw();
        self.push(Tag::References.word(head, entries));
    }
    /// The same for an entry of each of so many pages from one on. Pages side by side become one
    /// word.
    #[inline]
    pub(crate) fn push_pages(&mut self, unmapped: Unmapped) {
        let (page, more) = unmapped.into_raw();
        let next = Tag::Pages.word(page, 0);
        if let Some(last) = self.last() {
            let count = last >> 2 & Tag::COUNT_MAX;
            let goes_on = last + (count << Tag::FRAME_SHIFT) == next + (count << 2);
            if goes_on && count + more <= Tag::COUNT_MAX {
                self.joined += more as usize;
                return self.set_last(last + (more << 2));
            }
        }
        self.joined += more as usize - 1;
        self.push(next + (more << 2));
    }
    pub(crate) fn push_table(&mut self, table: Stale) {
        self.push(Tag::Table.word(table.into_raw().0, 1));
    }
    pub(crate) fn push_descriptors(&mut self, first: Frame, n: u64) {
        self.push(Tag::Descriptors.word(first, n));
    }

    /// The word that was pushed last into what is written now.
    #[inline]
    fn last(&self) -> Option<u64> {
        match self.newest {
            Some(page) => Some(page[self.newest_len.checked_sub(1)?].load(Ordering::Relaxed)),
            None => {
                let last = &self.inline[self.inline_len.checked_sub(1)?];
                // SAFETY: `push` wrote each word below `inline_len` before it counted it.
                Some(unsafe { last.assume_init() })
            }
        }
    }
    #[inline]
    fn set_last(&mut self, word: u64) {
        match self.newest {
            Some(page) => page[self.newest_len - 1].store(word, Ordering::Relaxed),
            None => {
                self.inline[self.inline_len - 1].write(word);
            }
        }
    }
    #[inline]
    fn push(&mut self, word: u64) {
        assert!(self.fits() > 0, "the caller asked for room first (flush::F5)");
        match self.newest {
            Some(page) => {
                page[self.newest_len].store(word, Ordering::Relaxed);
                self.newest_len += 1;
            }
            None => {
                self.inline[self.inline_len].write(word);
                self.inline_len += 1;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inline_len == 0 && self.newest.is_none()
    }
    /// Frees everything behind the flush (F1). Readers of tables on the list are gone.
    pub(crate) fn free_all<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'m, M, P>,
        flushed: Flushed,
    ) {
        // None is done twice, whatever ends the first one.
        self.joined = 0;
        let count = core::mem::take(&mut self.inline_len);
        for word in &self.inline[..count] {
            // SAFETY: `push` wrote each word below `inline_len` before it counted it.
            let word = unsafe { word.assume_init() };
            free(stock, word, flushed);
        }
        while let Some(page) = self.newest {
            for word in &page[..self.newest_len] {
                free(stock, word.load(Ordering::Relaxed), flushed);
            }
            self.newest_len = page[LEN_BEFORE].load(Ordering::Relaxed) as usize;
            self.more.pop(stock.machine).into_iter().for_each(|frame| stock.release(frame));
            self.newest = self.more.last(stock.machine);
            self.frames -= 1;
        }
    }
}

fn free<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, word: u64, flushed: Flushed) {
    let claim = |frame| {
        // SAFETY: a table whose token became a word of this list (`push_table`), or frames of
        // descriptors that were unmapped before they were noted (`push_descriptors`).
        unsafe { Stale::unmapped(frame, Order::BASE) }.flushed(flushed)
    };
    let (frame, n) = (Frame::new(word >> Tag::FRAME_SHIFT), word >> 2 & Tag::COUNT_MAX);
    match word & 3 {
        0 => stock.drop_references(Unmapped::of(frame, n), flushed),
        1 => {
            stock.count(Event::TableFreed);
            stock.release(claim(frame));
        }
        3 => stock.drop_pages(frame, n, flushed),
        _ => {
            stock.uncount_by(Event::MemmapPages, n);
            for nth in 0..n {
                stock.release(claim(frame.add(Pages::new(nth))));
            }
        }
    }
}
