//! Giving memory back from where nothing may be waited for: an interrupt, a spin lock held.
//!
//! The call takes no lock of this room, since it may have interrupted the lock's holder. It finds
//! the area's first page by a walk, and puts that on a list to which a CPU may push from anywhere
//! (`stock::pile`). [`Vmap::collect`] takes the whole list: the embedder calls it, and so do the
//! next request for memory ([`Vmap::alloc`]) and the face's purge (`Manager::purge_vmalloc`).
//!
//! ```text
//!   free_later ──push──▶ page ─▶ page ─▶ 0        word 2 of the descriptor of the area's first page: the next one
//!                         │ take                  word 3: the area's first address
//!                         ▼ collect: free each
//! ```
//!
//! **Invariants**
//! - D1. Word 3 of the first page of memory in use is the area's first address, marked. It loses
//!   the mark by compare-and-exchange, so an area is on the list once, and by no other address: not
//!   one of another page, nor one at which the page is mapped besides. It is 0 before the area is
//!   given back.
//! - D2. A page on the list is held by a pin of its own: an area that is given back twice does not
//!   break the list, nor does another area go that has its addresses by then.
//! - D3. Links are written only after the page was seen to be the area's while it was held: until
//!   then its words may be another list's.
//!
//! **Locking**: none of this room. Where the page has become a program's between the two
//! looks of `hold_kernel`, and the program drops all of it meanwhile, the pin that goes back is its
//! last one, and its end may take the leaf lock of a list of folios that wait to be split.

use super::area::For;
use super::{Vmap, VmapError};
use crate::frame::Link;
use crate::stock::Event;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Level, Va};

/// Word 3 of the first page of memory at `start`, while it is in use.
pub(super) fn in_use(start: Va) -> u64 {
    start.get() | 1
}

impl<M: Machine, P: Paging> Vmap<'_, '_, M, P> {
    /// [`free`](Self::free) of memory, by its first address, from where nothing may be waited for.
    /// A mistake that can be seen without a lock is refused at once; any other when the list is
    /// collected.
    pub fn free_later(&self, va: Va) -> Result<(), VmapError> {
        let (frame, _) = self.frame_at(va).ok_or(VmapError::NoArea(va))?;
        if !va.is_aligned(Level::BASE.span()) {
            return Err(VmapError::NotMemory(va));
        }
        let page = self.stock.hold_kernel(frame).ok_or(VmapError::OtherKind(va))?;
        // A page that is held cannot become another area's: if the address still leads to it, it is
        // this one's (D3).
        let is_mine = self.frame_at(va).is_some_and(|(now, _)| now == frame);
        if !is_mine {
            return Err(VmapError::Freed(va));
        }
        if !self.stock.replace_link(frame, Link::Before, in_use(va), va.get()) {
            return Err(match self.stock.link(frame, Link::Before) == va.get() {
                true => VmapError::Freed(va),
                false => VmapError::NotMemory(va),
            });
        }
        page.keep();
        self.stock.count(Event::VmapDeferred);
        self.state.deferred.push(self.stock, frame);
        Ok(())
    }

    /// Gives back the areas that were deferred. It is cheap where there are none. Says how many of
    /// them were in use. One that a call is at work on stays for the next time.
    pub fn collect(&self) -> u64 {
        if self.state.deferred.is_empty() {
            return 0;
        }
        let mut next = self.state.deferred.take();
        let mut freed = 0;
        while let Some(frame) = next.checked_sub(1).map(Frame::new) {
            next = self.stock.link(frame, Link::Next);
            let va = Va::new(self.stock.link(frame, Link::Before));
            self.stock.set_link(frame, Link::Before, 0);
            match self.free_that(va, frame) {
                Ok(()) => {
                    freed += 1;
                    self.stock.let_go(frame); // D2
                }
                // A call is at work on it, which a moment later would have been no reason.
                Err(VmapError::Busy(_))
                    if self.stock.replace_link(frame, Link::Before, 0, va.get()) =>
                {
                    self.state.deferred.push(self.stock, frame);
                }
                Err(_) => self.stock.let_go(frame),
            }
        }
        freed
    }
    /// Gives back the area at `va` whose first page is in `frame`. Given back twice, its addresses
    /// may be another area's by now, but not with this page, which is held.
    fn free_that(&self, va: Va, frame: Frame) -> Result<(), VmapError> {
        let area = self.seize_named(va, For::Memory, |_| {
            let is_it = self.frame_at(va).is_some_and(|(now, _)| now == frame);
            is_it.then_some(()).ok_or(VmapError::Freed(va))
        })?;
        self.dismantle(&area);
        Ok(())
    }
}
