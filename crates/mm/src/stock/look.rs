//! Looking at a folio: about how many of its pages are idle.
//!
//! **Not here**: when a guess is looked at, and what follows (`deferred`, `split`).
#![allow(unsafe_code)]

use super::{Stock, deferred::mix};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Frame, Order, Pages};

/// Pages that a look reads of 2 MiB and more; of smaller folios it reads half as many.
const LOOKS: u64 = 16;
/// Where these hold zeros the page seems to.
const BEGINNING: Bytes = Bytes::new(64);

impl<M: Machine, P: Paging> Stock<'_, M, P> {
    /// About how many pages of a folio that the caller holds or ends are idle, by how one page in
    /// each part of it begins, at places that depend on the folio.
    pub(crate) fn estimate_idle(&self, head: Frame, order: Order) -> u64 {
        let pages = order.pages().get();
        let most = if order < Order::SIZE_2M { LOOKS / 2 } else { LOOKS };
        let (looks, part) = (pages.min(most), pages.div_ceil(most));
        let place = |nth: u64| nth * part + mix(head.get() + nth) % part;
        let seems_idle = |nth: &u64| self.seems_zero(head.add(Pages::new(place(*nth))));
        (0..looks).filter(seems_idle).count() as u64 * part
    }
    fn seems_zero(&self, frame: Frame) -> bool {
        // SAFETY: the page is allocated while the caller holds its folio, or has not given it back.
        unsafe { self.machine.is_zero(frame.pa(), BEGINNING) }
    }
}
