//! Looking for pages of zeros.

use crate::stock::{Stock, Words, words};
use crate::sync::Ordering;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Order, Pages};

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

/// Whether the page holds nothing but zeros at this moment. It is read word by word: where the page
/// is mapped, programs may write it meanwhile.
pub(super) fn is_zero<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, frame: Frame) -> bool {
    let page: &Words = words(stock.machine, frame.pa());
    page.iter().all(|word| word.load(Ordering::Relaxed) == 0)
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
