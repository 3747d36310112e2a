//! Page tables, to look at: copies of entries, read a few at a time.
//!
//! ```text
//!   enter a section ─▶ is the space still there? ─▶ copy up to 16 entries ─▶ leave it ─▶ hand them out one by one
//! ```
//!
//! **Invariants**
//! - Q1. The caller's code never runs in a reader's section: it may call operations that wait for
//!   readers (an unmap), and take its time.
//! - Q2. Nothing here leads to a word that can be written, because these tables map memory that the
//!   manager writes through them, descriptors among it.
//!
//! **Not here**: tables of the embedder's own (`table`).

use crate::space::{SpaceId, user_half};
use crate::stock::{READ_MOST, Stock};
use crate::table::{Found, Leaves, Paging};
use core::fmt;
use foliant_machine::Machine;
use foliant_units::{Level, Pa, Pages, Va, VaRange};

/// Entries that are copied in one section.
const COPIED: usize = 16;

/// The tables of the kernel half, to look at. Their top words are made at setup: spaces repeat
/// them.
///
/// ```
/// use foliant::table::{Found, Paging};
/// fn look<M: foliant_machine::Machine, P: Paging>(manager: &foliant::Manager<'_, M, P>, va: foliant_units::Va) -> Found {
///     manager.kernel_tables().walk(va)
/// }
/// ```
/// ```compile_fail
/// use foliant::table::Paging;
/// fn edit<M: foliant_machine::Machine, P: Paging>(manager: &foliant::Manager<'_, M, P>, va: foliant_units::Va) {
///     let _ = manager.kernel_tables().lock(va, foliant_units::Level::BASE); // it has no locks to give
/// }
/// ```
pub struct KernelTables<'a, 'm, M: Machine, P: Paging> {
    stock: &'a Stock<'m, M, P>,
}

impl<M: Machine, P: Paging> Clone for KernelTables<'_, '_, M, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Machine, P: Paging> Copy for KernelTables<'_, '_, M, P> {}

impl<M: Machine, P: Paging> fmt::Debug for KernelTables<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stock.kernel.fmt(f)
    }
}

impl<'a, 'm, M: Machine, P: Paging> KernelTables<'a, 'm, M, P> {
    pub(super) fn new(stock: &'a Stock<'m, M, P>) -> Self {
        KernelTables { stock }
    }
    /// The top table.
    pub fn root(&self) -> Pa {
        self.stock.kernel.root()
    }
    /// The word that translates `va`, or the one where the walk ends, as it was when it was read.
    /// An address of the other half reads as nothing.
    pub fn walk(&self, va: Va) -> Found {
        let _reading = self.stock.reading();
        self.stock.kernel.walk(va)
    }
    /// The leaves and software words of a range.
    pub fn leaves(&self, range: VaRange) -> Entries<'a, 'm, M, P> {
        Entries::new(self.stock, Whose::Kernel, range)
    }
}

/// The tables of a space below its top one, those that are kept for splits not counted (space::S4);
/// `None` where there is no such space. Each is as it was when it was looked at.
pub(super) fn count_tables<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    id: SpaceId,
) -> Option<Pages> {
    let (mut va, end) = (user_half::<P>().start(), user_half::<P>().end());
    let mut count = 0;
    while va < end {
        let _reading = stock.reading();
        let tables = id.peek(stock)?.tables(stock);
        for _ in 0..READ_MOST {
            let found = tables.walk(va);
            // The way goes through a table of each level from the one found up to the top one. It
            // is counted where its first address is.
            let mut level = found.level;
            while level < P::TOP && va.is_aligned(level.up().span()) {
                count += 1;
                level = level.up();
            }
            let step = found.level.max(Level::SIZE_2M).span();
            va = match va.align_down(step).checked_add(step.get()).filter(|next| *next < end) {
                Some(next) => next,
                None => return Some(Pages::new(count)),
            };
        }
    }
    Some(Pages::new(count))
}

/// The owner of the tables that are read.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    Kernel,
    Space(SpaceId),
}

/// The leaves and software words that translate addresses of a range, lowest first. Each is as it
/// was when it was read, and a few are read ahead. The first may begin before the range, and the
/// last may end behind it. The iterator ends with its space.
pub struct Entries<'a, 'm, M: Machine, P: Paging> {
    stock: &'a Stock<'m, M, P>,
    of: Whose,
    at: Va,
    end: Va,
    copies: [Option<Found>; COPIED],
    next: usize,
}

impl<M: Machine, P: Paging> fmt::Debug for Entries<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entries({}..{})", self.at, self.end)
    }
}

impl<'a, 'm, M: Machine, P: Paging> Entries<'a, 'm, M, P> {
    pub(super) fn new(stock: &'a Stock<'m, M, P>, of: Whose, range: VaRange) -> Self {
        let (at, end) = (range.start(), range.end());
        Entries { stock, of, at, end, copies: [None; COPIED], next: COPIED }
    }
    /// Copies the next few.
    fn refill(&mut self) {
        self.next = 0;
        self.copies = [None; COPIED];
        let Some(range) = VaRange::new(self.at, self.end) else { return };
        self.at = self.end;
        let _reading = self.stock.reading();
        let Some(leaves) = self.of.leaves(self.stock, range) else { return };
        let mut leaves = leaves.within(READ_MOST);
        for (copy, found) in self.copies.iter_mut().zip(&mut leaves) {
            *copy = Some(found);
        }
        self.at = leaves.upto();
    }
}

impl Whose {
    /// The entries themselves, while the caller is in a reader's section.
    fn leaves<'m, M: Machine, P: Paging>(
        self,
        stock: &Stock<'m, M, P>,
        range: VaRange,
    ) -> Option<Leaves<'m, M, P>> {
        match self {
            Whose::Kernel => Some(stock.kernel.leaves(range)),
            Whose::Space(id) => Some(id.peek(stock)?.tables(stock).leaves(range)),
        }
    }
}

impl<M: Machine, P: Paging> Iterator for Entries<'_, '_, M, P> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            if let Some(found) = self.copies.get(self.next).copied().flatten() {
                self.next += 1;
                return Some(found);
            }
            if self.at >= self.end {
                return None;
            }
            self.refill();
        }
    }
}
