//! Memory that was in use for long: base pages of another program, spread over a share of its 2 MiB
//! blocks.

use super::stop::{Mm, Stop};
use foliant::Policy;
use foliant::fault::Orders;
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId as Id};
use foliant::split::SplitInto;
use foliant_units::{Bytes, FRAME_BYTES, Order, Va, VaRange};
use std::collections::BTreeSet;
use std::fmt;

/// Base pages in a fragmented block of 512. In such a block no 1 MiB folio finds room, and one in
/// three 64 KiB folios does.
pub const PINS_PER_BLOCK: u64 = 32;

/// A share of 0 to 100 in a hundred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Percent(u8);

impl Percent {
    /// `n` in a hundred; `None` above 100.
    pub const fn new(n: u8) -> Option<Percent> {
        if n <= 100 { Some(Percent(n)) } else { None }
    }
    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// The program that fragments memory.
pub(super) struct Other {
    pub(super) id: Id,
    /// The blocks that hold pages of it.
    pub(super) blocks: u64,
}

/// The pages of another program, [`PINS_PER_BLOCK`] in each of `share` of all free blocks. Which
/// ones is the same each time. They can be moved: what they keep in pieces, compaction can make
/// whole. The switches of folio sizes are changed, and the caller's to set again.
pub(super) fn fragment(mm: &Mm<'_>, share: Percent) -> Result<Option<Other>, Stop> {
    if share.get() == 0 {
        return Ok(None);
    }
    let census = mm.free_blocks();
    let within = |order: Order| census.blocks(order) << (order.get() - Order::SIZE_2M.get());
    let whole: u64 = Order::all().skip(Order::SIZE_2M.index()).map(within).sum();
    // Each block keeps a table, and the tables above want a block.
    let blocks = whole.saturating_sub(whole / Order::SIZE_2M.pages().get() + 1);
    let id = mm.create(None)?;
    let bytes = Bytes::new((blocks * Order::SIZE_2M.bytes().get()).max(FRAME_BYTES));
    let (place, flags) = (Place::NoReplace(Va::new(0x10_0000_0000)), Flags::READ_WRITE);
    let all = mm.map(id, &MapRequest { place, bytes, flags, tag: 0 })?;
    mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
    mm.advise(id, all, Advice::PopulateWrite)?;
    // Evenly spread: block n is taken where the running share reaches the next whole number.
    let upto = |n: u64| n * u64::from(share.get()) / 100;
    for number in 0..blocks {
        let start = all.start().add(number * Order::SIZE_2M.bytes().get());
        let Some(block) = VaRange::sized(start, Order::SIZE_2M.bytes()) else { continue };
        let kept = if upto(number + 1) == upto(number) { 0 } else { PINS_PER_BLOCK };
        thin_out(mm, id, (number, block), kept)?;
    }
    Ok(Some(Other { id, blocks: upto(blocks) }))
}

/// Gives back all of a block but `kept` pages at most, at pseudo-random places; some coincide.
fn thin_out(mm: &Mm<'_>, id: Id, (number, block): (u64, VaRange), kept: u64) -> Result<(), Stop> {
    let pages = block.pages().get();
    // One in each stretch of 16 pages would leave no 64 KiB block at all, so places are drawn from
    // the whole block.
    let stays: BTreeSet<u64> = (0..kept).map(|pin| scramble(number << 8 | pin) % pages).collect();
    let mut from = 0;
    for stay in stays.iter().copied().chain([pages]) {
        let start = block.start().add(from * FRAME_BYTES);
        if let Some(gone) = VaRange::sized(start, Bytes::new((stay - from) * FRAME_BYTES))
            && stay > from
        {
            mm.advise(id, gone, Advice::DontNeed)?;
        }
        from = stay + 1;
    }
    if let Some(first) = stays.first() {
        let va = block.start().add(first * FRAME_BYTES);
        let _ = mm.split(id, va, SplitInto::BASE); // a block of pages has none
    }
    Ok(())
}

/// A fixed mixing of bits (the finalizer of SplitMix64).
fn scramble(n: u64) -> u64 {
    let n = (n ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 30).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
