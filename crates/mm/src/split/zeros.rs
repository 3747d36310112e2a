//! Looking for pages of zeros.
#![allow(unsafe_code)]

use crate::stock::Stock;
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
