//! Tables in stock: cleared frames that an operation may turn into tables.

use foliant_claim::Claim;
use foliant_units::Order;

/// Up to [`Spare::MAX`] cleared base frames. An operation that needs a table takes it from here
/// and, when none is left, returns how far it got: no operation of this room allocates.
///
/// The frames that are left over go back to the caller by [`pop`](Spare::pop); dropping a stock
/// with frames in it leaks them, which the conservation checker reports.
#[must_use = "a dropped stock leaks its frames"]
#[derive(Debug, Default)]
pub struct Spare {
    stock: [Option<Claim>; Spare::MAX],
    len: usize,
}

impl Spare {
    /// How many frames it holds at most.
    pub const MAX: usize = 8;

    /// An empty stock.
    #[inline]
    pub const fn new() -> Spare {
        Spare { stock: [const { None }; Spare::MAX], len: 0 }
    }
    /// One frame **that the caller has cleared** (table::I2).
    #[inline]
    pub fn of(claim: Claim) -> Spare {
        let mut spare = Spare::new();
        spare.push(claim).expect("it has room for one base frame");
        spare
    }
    /// Adds a frame **that the caller has cleared** (table::I2). It comes back where the stock is
    /// full or the claim is not one base frame.
    #[inline]
    pub fn push(&mut self, claim: Claim) -> Result<(), Claim> {
        if self.len == Spare::MAX || claim.order() != Order::BASE {
            return Err(claim);
        }
        self.stock[self.len] = Some(claim);
        self.len += 1;
        Ok(())
    }
    /// Takes a frame out; it is still cleared.
    #[inline]
    pub fn pop(&mut self) -> Option<Claim> {
        self.len = self.len.checked_sub(1)?;
        self.stock[self.len].take()
    }
    /// How many frames are left.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }
    /// Whether none is left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Whether no more fit.
    #[inline]
    pub const fn is_full(&self) -> bool {
        self.len == Spare::MAX
    }
}
