//! Looking for pages of zeros.
#![allow(unsafe_code)]

use crate::stock::{Stock, mix};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Order, Pages};

/// A mark for each piece of a folio.
#[derive(Default)]
pub(super) struct Marks {
    words: [u64; Order::SIZE_2M.pages().get() as usize / 64],
}

impl Marks {
    pub(super) fn set(&mut self, nth: usize) {
        self.words[nth / 64] |= 1 << (nth % 64);
    }
    pub(super) fn has(&self, nth: usize) -> bool {
        self.words[nth / 64] >> (nth % 64) & 1 == 1
    }
}

/// Whether the page, which is one of a folio that the caller holds, holds nothing but zeros at this
/// moment.
pub(super) fn is_zero<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, frame: Frame) -> bool {
    // SAFETY: a folio that is held stays allocated.
    unsafe { stock.machine.is_zero(frame.pa(), Bytes::new(FRAME_BYTES)) }
}

/// How many pages of the folio hold nothing but zeros. It stops where there cannot be more than
/// `most`.
pub(super) fn zero_pages<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    head: Frame,
    order: Order,
    most: Pages,
) -> Pages {
    let (mut zero, mut other) = (0, 0);
    for nth in 0..order.pages().get() {
        match is_zero(stock, head.add(Pages::new(nth))) {
            true => zero += 1,
            false => other += 1,
        }
        if other + most.get() >= order.pages().get() {
            break;
        }
    }
    Pages::new(zero)
}

/// Pages that an estimate looks at, at most.
const SAMPLE: u64 = 16;

/// Whether the page begins with zeros.
fn seems_zero<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, frame: Frame) -> bool {
    // SAFETY: a folio that is held stays allocated.
    unsafe { stock.machine.is_zero(frame.pa(), Bytes::new(64)) }
}

/// About how many pages of the folio are idle, by how one page in each part of it begins, at places
/// that depend on the folio.
pub(super) fn estimate_idle<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    head: Frame,
    order: Order,
) -> u64 {
    let pages = order.pages().get();
    let most = if order < Order::SIZE_2M { SAMPLE / 2 } else { SAMPLE };
    let (looks, part) = (pages.min(most), pages.div_ceil(most));
    let place = |nth: u64| nth * part + mix(head.get() + nth) % part;
    let idle = (0..looks).filter(|nth| seems_zero(stock, head.add(Pages::new(place(*nth)))));
    idle.count() as u64 * part
}
