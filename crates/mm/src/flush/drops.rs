//! What may be freed after a flush: a list that grows by frames and never needs any.
//!
//! ```text
//!   word   frame (40) << 24 │ count (22) << 2 │ 0      so many references to the folio at `frame`
//!                                             │ 1      a page table
//!                                             │ 2      so many frames of descriptors, each a block of its own
//! ```

use crate::frame::{Claim, Flushed, Stale};
use crate::stock::{Event, Stock, Words, words};
use crate::sync::Ordering;
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Order, Pages};

/// How many words fit in without memory.
const INLINE: usize = 32;
/// How many words a frame holds besides its link: the frame before, and how many words that one
/// holds.
const PER_FRAME: usize = 510;
const LINK: usize = 510;
const LINK_LEN: usize = 511;
/// How many frames one list takes at most, so that the memory held back by one flush is bounded (40
/// MiB of base pages).
const FRAMES_MAX: usize = 20;

/// What a word lets go of.
#[derive(Clone, Copy)]
enum Tag {
    References = 0,
    Table = 1,
    Descriptors = 2,
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
pub(crate) struct Drops {
    inline: [u64; INLINE],
    inline_len: usize,
    /// The newest frame, and the number of words in it.
    newest: Option<Frame>,
    newest_len: usize,
    frames: usize,
}

impl Drops {
    pub(crate) const fn new() -> Drops {
        Drops { inline: [0; INLINE], inline_len: 0, newest: None, newest_len: 0, frames: 0 }
    }

    /// How many more words fit in.
    pub(crate) fn room(&self) -> usize {
        match self.newest {
            Some(_) => PER_FRAME - self.newest_len,
            None => INLINE - self.inline_len,
        }
    }

    /// Tries to have room for `count` words, and says for how many there is.
    pub(crate) fn grow<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        count: usize,
    ) -> usize {
        if self.room() < count.min(PER_FRAME)
            && self.frames < FRAMES_MAX
            && let Ok(claim) = stock.claim_cleared(Owner::Records)
        {
            let (frame, _) = claim.into_raw();
            let page: &Words = words(stock.machine, frame.pa());
            page[LINK].store(self.newest.map_or(0, |f| f.get() + 1), Ordering::Relaxed);
            page[LINK_LEN].store(self.newest_len as u64, Ordering::Relaxed);
            (self.newest, self.newest_len) = (Some(frame), 0);
            self.frames += 1;
        }
        self.room()
    }

    pub(crate) fn push_references<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        head: Frame,
        n: u64,
    ) {
        self.push(stock, Tag::References.word(head, n));
    }
    pub(crate) fn push_table<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        table: Frame,
    ) {
        self.push(stock, Tag::Table.word(table, 1));
    }
    pub(crate) fn push_descriptors<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        first: Frame,
        n: u64,
    ) {
        self.push(stock, Tag::Descriptors.word(first, n));
    }

    fn push<M: Machine, P: Paging>(&mut self, stock: &Stock<'_, M, P>, word: u64) {
        assert!(self.room() > 0, "the caller asked for room first (flush::F5)");
        match self.newest {
            Some(frame) => {
                words(stock.machine, frame.pa())[self.newest_len].store(word, Ordering::Relaxed);
                self.newest_len += 1;
            }
            None => {
                self.inline[self.inline_len] = word;
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
        stock: &Stock<'_, M, P>,
        flushed: Flushed,
    ) {
        // None is done twice, whatever ends the first one.
        let count = core::mem::take(&mut self.inline_len);
        for word in core::mem::replace(&mut self.inline, [0; INLINE]).into_iter().take(count) {
            free(stock, word, flushed);
        }
        while let Some(frame) = self.newest {
            let page: &Words = words(stock.machine, frame.pa());
            for word in &page[..self.newest_len] {
                free(stock, word.load(Ordering::Relaxed), flushed);
            }
            self.newest = match page[LINK].load(Ordering::Relaxed) {
                0 => None,
                before => Some(Frame::new(before - 1)),
            };
            self.newest_len = page[LINK_LEN].load(Ordering::Relaxed) as usize;
            self.frames -= 1;
            stock.release(Claim::from_raw(frame, Order::BASE));
        }
    }
}

fn free<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, word: u64, flushed: Flushed) {
    let claim = |frame| Stale::unmapped(frame, Order::BASE).flushed(flushed);
    let (frame, n) = (Frame::new(word >> Tag::FRAME_SHIFT), word >> 2 & Tag::COUNT_MAX);
    match word & 3 {
        0 => stock.drop_references(frame, n),
        1 => {
            stock.count(Event::TableFreed);
            stock.release(claim(frame));
        }
        _ => {
            stock.uncount_by(Event::MemmapPages, n);
            for nth in 0..n {
                stock.release(claim(frame.add(Pages::new(nth))));
            }
        }
    }
}
