//! What may be freed after a flush: a list that grows by frames and never needs any.
//!
//! ```text
//!   word   frame (40) << 20 │ references (19) << 1 │ 0      n references to the folio at `frame`
//!          frame (40) << 20 │                      │ 1      a page table
//! ```

use crate::stock::{Stock, Words, words};
use crate::sync::Ordering;
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Order};

/// How many words fit in without memory.
const INLINE: usize = 32;
/// How many words a frame holds besides its link: the frame before, and how many words that one holds.
const PER_FRAME: usize = 510;
const LINK: usize = 510;
const LINK_LEN: usize = 511;
/// How many frames one list takes at most, so that the memory held back by one flush is bounded (40 MiB of base
/// pages).
const FRAMES_MAX: usize = 20;

/// See the module's text.
pub(crate) struct Doomed {
    inline: [u64; INLINE],
    inline_len: usize,
    /// The newest frame, and the number of words in it.
    newest: Option<Frame>,
    newest_len: usize,
    frames: usize,
}

impl Doomed {
    pub(crate) const fn new() -> Doomed {
        Doomed { inline: [0; INLINE], inline_len: 0, newest: None, newest_len: 0, frames: 0 }
    }

    /// How many more words fit in.
    pub(crate) fn room(&self) -> usize {
        match self.newest {
            Some(_) => PER_FRAME - self.newest_len,
            None => INLINE - self.inline_len,
        }
    }

    /// Tries to have room for `count` words, and says how many there are.
    pub(crate) fn grow<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        count: usize,
    ) -> usize {
        if self.room() < count.min(PER_FRAME)
            && self.frames < FRAMES_MAX
            && let Ok(claim) = stock.claim_cleared(Owner::Records)
        {
            let (frame, _) = claim.give();
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
        self.push(stock, head.get() << 20 | n << 1);
    }
    pub(crate) fn push_table<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        table: Frame,
    ) {
        self.push(stock, table.get() << 20 | 1);
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
    /// Frees everything; the flush is done (F1), and readers of doomed tables are gone.
    pub(crate) fn free_all<M: Machine, P: Paging>(&mut self, stock: &Stock<'_, M, P>) {
        for word in
            core::mem::replace(&mut self.inline, [0; INLINE]).into_iter().take(self.inline_len)
        {
            free(stock, word);
        }
        self.inline_len = 0;
        while let Some(frame) = self.newest {
            let page: &Words = words(stock.machine, frame.pa());
            for word in &page[..self.newest_len] {
                free(stock, word.load(Ordering::Relaxed));
            }
            self.newest = match page[LINK].load(Ordering::Relaxed) {
                0 => None,
                before => Some(Frame::new(before - 1)),
            };
            self.newest_len = page[LINK_LEN].load(Ordering::Relaxed) as usize;
            self.frames -= 1;
            stock.release(crate::frame::Claim::state(frame, Order::BASE));
        }
    }
}

fn free<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, word: u64) {
    let frame = Frame::new(word >> 20);
    if word & 1 == 1 {
        stock.count(crate::stock::Event::TableFreed);
        stock.release(crate::frame::Claim::state(frame, Order::BASE));
    } else {
        stock.drop_references(frame, word >> 1 & 0x7_ffff);
    }
}
