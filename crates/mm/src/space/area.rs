//! An area: a stretch of a space's addresses with one set of properties.

use crate::frame::AnonOffset;
use crate::ranges::Ranged;
use crate::rmap::{Attachment, AttachmentName};
use crate::stock::Stock;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Order, VaRange};

pub(super) const PAGE: Bytes = Bytes::new(FRAME_BYTES);

/// How many areas a space may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AreaLimit(pub u64);

impl AreaLimit {
    /// As many as Linux allows a program unless it is told otherwise: one more than
    /// `vm.max_map_count` says, which is looked at before another one comes.
    pub const LINUX: AreaLimit = AreaLimit(65_531);
}

/// Properties of an area, as a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(u64);

impl Flags {
    /// No property: no access, no wish.
    pub const NONE: Flags = Flags(0);
    /// May be read.
    pub const READ: Flags = Flags(1);
    /// May be written.
    pub const WRITE: Flags = Flags(1 << 1);
    /// May be executed.
    pub const EXEC: Flags = Flags(1 << 2);
    /// The program asked for large folios.
    pub const HUGEPAGE: Flags = Flags(1 << 3);
    /// The program asked for none.
    pub const NOHUGEPAGE: Flags = Flags(1 << 4);
    /// Missing pages are the program's to fill: every fault is handed to it, at order 0.
    pub const USERFAULT: Flags = Flags(1 << 5);
    /// Writes to pages that are watched are the program's to allow ([`Watch`](super::Watch)).
    pub const USERFAULT_WRITE: Flags = Flags(1 << 16);
    /// Pages that the object has and that are not mapped are the program's to let in: every fault
    /// of one is handed to it. Only of an area that maps an object.
    pub const USERFAULT_PRESENT: Flags = Flags(1 << 17);
    /// A fault below it, within reach, extends it downwards.
    pub const GROWS_DOWN: Flags = Flags(1 << 6);
    /// Its pages are huge pages of 2 MiB, out of the pool.
    pub const HUGE_2M: Flags = Flags(1 << 7);
    /// Its pages are huge pages of 1 GiB, out of the pool.
    pub const HUGE_1G: Flags = Flags(1 << 8);
    /// Its huge pages are not reserved: a fault gets one, or not.
    pub const NORESERVE: Flags = Flags(1 << 9);
    /// Its pages are the kernel's, mapped all at once: no fault brings one, and a fork leaves the
    /// area out.
    pub const KERNEL: Flags = Flags(1 << 10);
    /// What is written goes to the object that is mapped, and is seen by all programs that map it;
    /// without it a page is copied first. Only of an area that maps an object.
    pub const SHARED: Flags = Flags(1 << 14);
    /// It maps an object. The manager sets it; a request is known by its call.
    pub const OBJECT: Flags = Flags(1 << 15);
    /// Faults are told, of any kind: where pages are missing, where the object has them, and of
    /// writes to those that are watched.
    pub const ARMED: Flags =
        Flags::USERFAULT.with(Flags::USERFAULT_WRITE).with(Flags::USERFAULT_PRESENT);
    /// Readable and writable.
    pub const READ_WRITE: Flags = Flags(3);
    /// All access rights.
    pub const RIGHTS: Flags = Flags(7);
    /// The first bit of the rights that it may never have, the complement of its
    /// [`ceiling`](Flags::ceiling).
    const NEVER: u32 = 11;

    /// Both sets together.
    pub const fn with(self, more: Flags) -> Flags {
        Flags(self.0 | more.0)
    }
    /// Without those of `less`.
    pub const fn without(self, less: Flags) -> Flags {
        Flags(self.0 & !less.0)
    }
    /// Whether all of `wanted` are set.
    pub const fn has(self, wanted: Flags) -> bool {
        self.0 & wanted.0 == wanted.0
    }
    /// The common part.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }
    /// The same with a lower ceiling: whatever is asked for later, the area gets no rights but
    /// those of `rights`, and none that an earlier ceiling left out.
    pub const fn at_most(self, rights: Flags) -> Flags {
        Flags(self.0 | (!rights.0 & Flags::RIGHTS.0) << Flags::NEVER)
    }
    /// The most rights that the area may ever have: all, unless a lower ceiling was set.
    pub const fn ceiling(self) -> Flags {
        Flags(!(self.0 >> Flags::NEVER) & Flags::RIGHTS.0)
    }
    /// Whether its rights stay below its ceiling.
    pub const fn is_below_ceiling(self) -> bool {
        self.ceiling().has(self.and(Flags::RIGHTS))
    }
    /// The flag of areas with huge pages of `order`, 2 MiB or 1 GiB.
    pub const fn huge(order: Order) -> Option<Flags> {
        match order.get() {
            9 => Some(Flags::HUGE_2M),
            18 => Some(Flags::HUGE_1G),
            _ => None,
        }
    }
    /// The size of the area's pages, if they come out of a pool.
    pub const fn huge_order(self) -> Option<Order> {
        match self.0 & (Flags::HUGE_2M.0 | Flags::HUGE_1G.0) {
            0 => None, // one look, for most areas
            size if size & Flags::HUGE_2M.0 != 0 => Some(Order::SIZE_2M),
            _ => Some(Order::SIZE_1G),
        }
    }
    /// The size of the area's pages, if each of its empty entries stands for a reservation of the
    /// pool.
    pub const fn reserved(self) -> Option<Order> {
        if self.has(Flags::NORESERVE) { None } else { self.huge_order() }
    }
    /// How many bits there are.
    const BITS: u32 = 18;
}
// They share a word with an offset, or with the name of an attachment: 40 bits of a frame, and
// which of the lots in it.
const _: () = assert!(Flags::BITS + AnonOffset::BITS <= 64);

/// One area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// Its addresses, page-aligned, never empty.
    pub range: VaRange,
    /// Its properties.
    pub flags: Flags,
    /// A word of the embedder's (a kind, an object): areas that touch become one only where it is
    /// equal.
    pub tag: u64,
    /// How far it was moved, for the reverse map; or, if it maps an object, the name of its
    /// attachment, which says so.
    pub(super) place: u64,
}

impl Area {
    /// Of memory of the space's own, which was moved so far.
    pub(crate) const fn own(range: VaRange, flags: Flags, tag: u64, offset: AnonOffset) -> Area {
        Area { range, flags: flags.without(Flags::OBJECT), tag, place: offset.word() }
    }
    /// The same with this attachment.
    pub(super) fn attached(self, name: AttachmentName) -> Area {
        Area { flags: self.flags.with(Flags::OBJECT), place: name.word(), ..self }
    }
    /// What it maps of an object, if it maps one.
    pub(crate) fn attachment(&self) -> Option<AttachmentName> {
        if self.flags.has(Flags::OBJECT) { AttachmentName::named(self.place) } else { None }
    }
    /// How far it was moved, if it maps no object.
    pub(crate) const fn own_offset(&self) -> AnonOffset {
        AnonOffset::from_word(self.place)
    }
    /// How far it was moved. The caller is in the section in which it found the area, or keeps
    /// changes out.
    pub(crate) fn offset<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) -> AnonOffset {
        match self.attachment() {
            Some(name) => Attachment::of(stock, name).copies(),
            None => self.own_offset(),
        }
    }
    /// Whether the program answers faults of it.
    pub(crate) fn is_armed(&self) -> bool {
        self.flags.and(Flags::ARMED) != Flags::NONE
    }
    /// Whether what is watched in it stays so where pages leave (watch::H5).
    pub(super) fn keeps_watch(&self) -> bool {
        let stays = self.flags.has(Flags::OBJECT) || self.flags.huge_order().is_some();
        stays && self.flags.has(Flags::USERFAULT_WRITE)
    }
    /// Whether the two may become one area when they touch.
    pub(super) fn is_like(&self, other: &Area) -> bool {
        (self.flags, self.tag, self.place) == (other.flags, other.tag, other.place)
    }
}

/// The words are properties and place, and the tag.
impl Ranged for Area {
    const WORDS: usize = 2;

    fn range(&self) -> VaRange {
        self.range
    }
    fn word(&self, nth: usize) -> u64 {
        [self.flags.0 | self.place << Flags::BITS, self.tag][nth]
    }
    fn read(range: VaRange, word: impl Fn(usize) -> u64) -> Area {
        let flags = Flags(word(0) & ((1 << Flags::BITS) - 1));
        Area { range, flags, tag: word(1), place: word(0) >> Flags::BITS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_of_huge_pages_say_of_which() {
        for order in Order::all() {
            let flags = Flags::huge(order);
            assert_eq!(flags.is_some(), [Order::SIZE_2M, Order::SIZE_1G].contains(&order));
            assert!(flags.is_none_or(|flags| flags.huge_order() == Some(order)));
        }
        assert_eq!(Flags::READ_WRITE.huge_order(), None);
    }
}
