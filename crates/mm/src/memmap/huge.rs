#![allow(unsafe_code)]
//! The token of a huge page, and the checks before anything is done with one.

use super::Memmap;
use crate::frame::{Claim, Flag, Identity, Kind};
use crate::stock::{Block, Brand, SECTION_BYTES};
use crate::table::{Entry, Paging};
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Frame, FrameRange, Level, Order, VaRange};

/// A huge page that is mapped nowhere and is exclusively the holder's: the descriptor of its head
/// says that it is a huge page, and that nobody has a reference. It is dense or folded.
///
/// It can be neither copied nor cloned; dropping it leaks the page.
///
/// ```compile_fail
/// fn twice(huge: foliant::memmap::Huge) -> (foliant::memmap::Huge, foliant::memmap::Huge) {
///     (huge.clone(), huge) // a Huge is not Clone
/// }
/// ```
/// ```compile_fail
/// fn hasty(huge: foliant::memmap::Huge) -> foliant::frame::Claim {
///     huge.into() // its tails may be folded: only `free` and `release` give the block up
/// }
/// ```
#[must_use = "a dropped huge page leaks its frames"]
#[derive(Debug, PartialEq, Eq)]
pub struct Huge {
    head: Frame,
    order: Order,
    brand: Brand,
}

/// A page that was not taken, and why.
#[derive(PartialEq, Eq, Debug)]
pub struct Declined {
    /// The page, as it was.
    pub huge: Huge,
    /// Why.
    pub why: MemmapError,
}

/// Why nothing was done with a huge page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemmapError {
    /// The descriptor does not say that it is one.
    NotHuge(Frame),
    /// Somebody has references to it.
    InUse {
        /// The huge page.
        head: Frame,
        /// How many.
        references: u64,
    },
    /// Its memory is broken: it is left alone for good.
    Poisoned(Frame),
    /// Its tails are folded: unfold it first, or release it.
    StillFolded(Frame),
    /// Huge pages have 2 MiB or 1 GiB.
    Order(Order),
    /// No memory, for the block or for its descriptors.
    NoMemory(Order),
    /// The page is another manager's.
    Foreign(Frame),
    /// The batch is full, or there is no memory to make it longer.
    Full,
}

impl fmt::Display for MemmapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemmapError::NotHuge(frame) => write!(f, "{frame} is not the head of a huge page"),
            MemmapError::InUse { head, references } => {
                write!(f, "the huge page at {head} has {references} references, and must have none")
            }
            MemmapError::Poisoned(head) => {
                write!(f, "the memory of the huge page at {head} is broken")
            }
            MemmapError::StillFolded(head) => {
                write!(f, "the huge page at {head} is folded: unfold or release it")
            }
            MemmapError::Order(order) => {
                write!(f, "a huge page has 2m or 1g, not {}", order.bytes())
            }
            MemmapError::Foreign(head) => {
                write!(f, "the huge page at {head} is another manager's: give it to that one")
            }
            MemmapError::Full => f.write_str("the batch takes no more pages: work it off first"),
            MemmapError::NoMemory(order) => {
                write!(f, "no memory for a huge page of {}", order.bytes())
            }
        }
    }
}
impl error::Error for MemmapError {}

impl Huge {
    /// States that the caller is the only holder of a huge page. The only callers are the maker of
    /// a huge page, one that takes it out of a list that it alone can reach, and one that has
    /// frozen it and put its entries elsewhere.
    pub(crate) const fn from_raw(brand: Brand, head: Frame, order: Order) -> Huge {
        Huge { head, order, brand }
    }
    /// Which manager it is of.
    pub(super) const fn brand(&self) -> Brand {
        self.brand
    }
    /// Its first frame.
    pub const fn head(&self) -> Frame {
        self.head
    }
    /// Its size.
    pub const fn order(&self) -> Order {
        self.order
    }
    /// All its frames.
    pub fn frames(&self) -> FrameRange {
        FrameRange::block(self.head, self.order)
    }
    /// The block, which is no huge page any more. Each writer to the page made the allocator forget
    /// that it was zero.
    pub(super) fn block(self) -> Claim {
        // SAFETY: a huge page's token is the only handle to it, as its claim was, and goes here.
        unsafe { Claim::taken(self.head, self.order) }
    }
    /// Its 2 MiB blocks, that of the head last, so that a walker that sees the stretch of any other
    /// block sees the head's stretch too.
    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = Block> + use<> {
        let first = Block::of(self.head).0;
        (first..first + (self.order.pages().get() >> Order::SIZE_2M.get())).rev().map(Block)
    }

    pub(super) const fn word(&self) -> u64 {
        self.head.get() << 8 | self.order.get() as u64
    }
    pub(super) const fn from_word(brand: Brand, word: u64) -> Huge {
        let order = Order::new(word as u8).expect("a word of a batch holds an order");
        Huge { head: Frame::new(word >> 8), order, brand }
    }
}

impl<M: Machine, P: Paging> Memmap<'_, '_, M, P> {
    /// Whether the tails of the page are folded.
    pub fn is_folded(&self, huge: &Huge) -> bool {
        huge.brand == self.stock.brand() && self.stock.identity(huge.head()).has(Flag::Optimized)
    }

    /// Whether its descriptors came folded, from a block that had none.
    pub fn is_born_folded(&self, huge: &Huge) -> bool {
        huge.brand == self.stock.brand() && self.stock.identity(huge.head()).has(Flag::Born)
    }

    /// The identity of the head, if it is that of a huge page without references.
    pub(super) fn admit(&self, huge: &Huge) -> Result<Identity, MemmapError> {
        let head = huge.head();
        if huge.brand != self.stock.brand() {
            return Err(MemmapError::Foreign(head));
        }
        let identity = self.stock.identity(head);
        if (identity.kind(), identity.order()) != (Kind::Huge, huge.order()) {
            return Err(MemmapError::NotHuge(head));
        }
        match self.stock.references(head) {
            0 if identity.has(Flag::Poisoned) => Err(MemmapError::Poisoned(head)),
            0 => Ok(identity),
            references => Err(MemmapError::InUse { head, references }),
        }
    }

    /// The addresses of all its descriptors.
    pub(super) fn range(&self, huge: &Huge) -> VaRange {
        let first = Block::of(huge.head());
        let start = self.stock.stretch(first).start();
        let last = Block(first.0 + (huge.order().pages().get() >> Order::SIZE_2M.get()) - 1);
        VaRange::new(start, self.stock.stretch(last).end())
            .expect("a stretch ends behind its start")
    }

    /// The parts of a range of descriptors that lie in one section each.
    pub(super) fn sections(&self, range: VaRange) -> impl Iterator<Item = VaRange> + use<M, P> {
        let mut at = range.start();
        core::iter::from_fn(move || {
            let next = at.align_down(SECTION_BYTES).add(SECTION_BYTES.get()).min(range.end());
            let part = VaRange::new(at, next).filter(|part| !part.is_empty())?;
            at = next;
            Some(part)
        })
    }

    /// Whether any of the page's descriptors are mapped by a leaf, which other blocks share.
    pub(super) fn has_leaf(&self, huge: &Huge) -> bool {
        self.sections(self.range(huge)).any(|part| {
            let found = self.stock.kernel.walk(part.start());
            found.level >= Level::SIZE_2M && matches!(found.entry, Entry::Leaf { .. })
        })
    }
}
