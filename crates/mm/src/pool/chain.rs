//! Huge pages on their way between a list and a batch, linked through their heads: a chain needs no
//! memory, so it can be made under a lock, and as long as need be.

use crate::frame::Link;
use crate::memmap::Huge;
use crate::stock::Stock;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::Frame;

/// The page that came in last goes out first. A chain that is dropped with pages in it leaks them.
#[derive(Default)]
pub(super) struct Chain {
    /// The first page's frame with 1 added; 0 for none.
    top: u64,
    len: u64,
}

impl Chain {
    pub(super) const fn len(&self) -> u64 {
        self.len
    }
    /// The pages that are linked from `top` on, a frame with 1 added.
    pub(super) fn adopt<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, top: u64) -> Chain {
        let (mut next, mut len) = (top, 0);
        while let Some(frame) = next.checked_sub(1) {
            next = stock.link(Frame::new(frame), Link::Next);
            len += 1;
        }
        Chain { top, len }
    }
    pub(super) fn push<M: Machine, P: Paging>(&mut self, stock: &Stock<'_, M, P>, huge: Huge) {
        stock.set_link(huge.head(), Link::Next, self.top);
        self.top = huge.head().get() + 1;
        self.len += 1;
    }
    pub(super) fn pop<M: Machine, P: Paging>(&mut self, stock: &Stock<'_, M, P>) -> Option<Huge> {
        let Some(head) = self.top.checked_sub(1).map(Frame::new) else {
            debug_assert_eq!(self.len, 0, "pages that no link leads to");
            return None;
        };
        self.top = stock.link(head, Link::Next);
        stock.set_link(head, Link::Next, 0);
        self.len -= 1;
        Some(Huge::from_raw(stock.brand(), head, stock.identity(head).order()))
    }
}
