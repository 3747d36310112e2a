//! Counting what maps a folio, by looking.

use super::places::{Folio, Next, places};
use crate::rmap::relatives;
use crate::stock::Stock;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Level, Order};

/// What maps a folio, as a walk found it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mappings {
    /// Leaves as large as the folio.
    pub whole: u64,
    /// Entries that map one page of it.
    pub pages: u64,
    /// Spaces with any of them.
    pub spaces: u64,
}

impl Mappings {
    /// In base pages.
    pub fn entries(&self, order: Order) -> u64 {
        self.pages + self.whole * order.pages().get()
    }
}

/// Looks at all entries of a folio that the caller keeps, migration entries included. The result is
/// exact while nobody changes them.
pub(crate) fn mappings<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    head: Frame,
    order: Order,
) -> Mappings {
    let folio = Folio::of(stock, head, order);
    let mut found = Mappings::default();
    for pin in relatives(stock, head, 0) {
        let before = found.entries(order);
        places(stock, pin, folio).run(|word| {
            match word.locked.level() {
                Level::BASE => found.pages += 1,
                _ => found.whole += 1,
            }
            Next::On
        });
        found.spaces += u64::from(found.entries(order) > before);
    }
    found
}
