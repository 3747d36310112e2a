#![allow(unsafe_code)]
//! The record of an address space: one frame.

use super::area::{Area, AreaLimit, Flags};
use super::areas::Areas;
use super::error::RangeError;
use crate::frame::Claim;
use crate::rmap::Member;
use crate::stock::{Charge, Event, OverLimit, OwnFrames, Record, Stock, Subpool, record};
use crate::sync::{AtomicU64, Ordering, Patient, Spin};
use crate::table::{Paging, Tables};
use foliant_machine::Machine;
use foliant_units::{Cpu, Order, Pages, Va, VaRange};

/// An address space. All words; valid when cleared.
///
/// Key: `[w]` `writer` held (space, Locking); `[a]` atomics of their own protocol; `[d]` the lock
/// `depositing` and what it guards.
#[repr(C)]
pub(crate) struct Space {
    /// It stands first, for what a fork tree links is the space's frame.
    pub(crate) member: Member,
    /// Held by map and `has_place`, unmap, protect, advise, remap, grow, `map_kernel`, `clear_way`,
    /// the collapse, and fork (the parent's). Neither faults in their section nor splits and moves
    /// of folios take it.
    pub(crate) writer: Patient,
    pub(crate) areas: Areas, // [w], read under its sequence
    /// Non-zero: a caller is about to end the space, and finds out whether a CPU runs it
    /// (life::N1).
    ending: AtomicU64, // [a]
    /// Non-zero: the process switched large folios off for itself.
    pub(super) thp_off: AtomicU64, // [a]
    /// Non-zero: there are anchors of its pages, or were (anchor::A1).
    anchored: AtomicU64, // [a]
    pub(super) as_object: AsObject,
    pub(crate) charge: Charge, // [a]
    deposits: OwnFrames<0>,    // [d] tables kept for the splits of leaves
    depositing: Spin,          // [d]
}

// SAFETY: words and structs of words.
unsafe impl Record for Space {}
const _: () = assert!(size_of::<Space>() <= 4096);
const _: () = assert!(core::mem::offset_of!(Space, member) == 0);

/// What a read of an object's page brings, besides the rest of its folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Around {
    /// What the object has of the 64 KiB around it, as Linux does for files.
    #[default]
    Present,
    /// Nothing, as Linux does for segments of System V.
    Nothing,
}

/// What an object's folios may be: the kind with the number n is bit n of [`AsObject::flags`].
const KINDS: [Flags; 4] = [Flags::HUGEPAGE, Flags::NOHUGEPAGE, Flags::HUGE_2M, Flags::HUGE_1G];
/// There: it is an object.
const OBJECT: u64 = 1 << 4;
/// There: a read brings its page's folio alone ([`Around::Nothing`]).
const LONE: u64 = 1 << 5;
/// There: a program answers faults of an area that maps it, or did so once.
const ARMED: u64 = 1 << 6;
/// In `holds`: the object has its name.
const NAMED: u64 = 1 << 63;

/// What a space keeps that is an object's. All words; valid when cleared, of a space that is none.
///
/// Key: `[a]` atomic; `[w]` the space's writer; `[c]` constant.
#[repr(C)]
pub(super) struct AsObject {
    /// Its attachments, and [`NAMED`] as long as it has its name.
    holds: AtomicU64, // [a]
    /// Where its areas end.
    end: AtomicU64, // [w], read at any time
    /// [`OBJECT`], what its folios are, [`LONE`] and [`ARMED`], which alone may come later.
    flags: AtomicU64, // [a]
    /// The word of the subpool that its pages count for.
    subpool: AtomicU64, // [c]
    /// Held over a change of its size and over a punch, from the first step to the last one.
    cutting: Patient,
}

impl AsObject {
    /// Counts an attachment, unless the object is at its end.
    pub(super) fn hold(&self) -> bool {
        let more = |holds: u64| (holds != 0).then_some(holds + 1);
        self.holds.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }
    /// An attachment is gone. Says whether that was the last that kept the object.
    pub(super) fn let_go(&self) -> bool {
        self.holds.fetch_sub(1, Ordering::SeqCst) == 1
    }
    #[cfg(feature = "verify")]
    pub(super) fn attachments(&self) -> u64 {
        self.holds.load(Ordering::SeqCst) & !NAMED
    }
    pub(super) fn is_named(&self) -> bool {
        self.holds.load(Ordering::SeqCst) & NAMED != 0
    }
    /// Of a new object: it has its name.
    pub(super) fn begin(&self, flags: Flags, around: Around, subpool: Subpool) {
        let bits = (0..).zip(KINDS).filter(|(_, kind)| flags.has(*kind));
        let one = if around == Around::Nothing { OBJECT | LONE } else { OBJECT };
        let word = bits.fold(one, |word, (bit, _)| word | 1 << bit);
        self.flags.store(word, Ordering::Relaxed);
        self.subpool.store(subpool.word(), Ordering::Relaxed);
        self.holds.store(NAMED, Ordering::SeqCst);
    }
    /// The name goes. Says whether that was the last that held the object; `None` where it was gone
    /// before.
    pub(super) fn unname(&self) -> Option<bool> {
        let before = self.holds.fetch_and(!NAMED, Ordering::SeqCst);
        (before & NAMED != 0).then_some(before == NAMED)
    }
    /// Whether the space is an object's. It stays so to its end.
    #[inline(always)]
    pub(super) fn is_one(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }
    /// A program is about to answer faults of an area that maps it.
    pub(super) fn note_armed(&self) {
        self.flags.fetch_or(ARMED, Ordering::SeqCst);
    }
    pub(super) fn subpool(&self) -> Subpool {
        Subpool::from_word(self.subpool.load(Ordering::Relaxed))
    }
    /// What a read brings of it.
    pub(super) fn around(&self) -> Around {
        match self.flags.load(Ordering::Relaxed) & LONE {
            0 => Around::Present,
            _ => Around::Nothing,
        }
    }
    /// Where the object ends.
    pub(super) fn end(&self) -> Va {
        Va::new(self.end.load(Ordering::Relaxed))
    }
    pub(super) fn set_end(&self, end: Va) {
        self.end.store(end.get(), Ordering::Relaxed);
    }
    /// What its areas are: of a pool's pages none is reserved at first.
    pub(super) fn flags(&self) -> Flags {
        let word = self.flags.load(Ordering::Relaxed);
        let kinds = (0..).zip(KINDS).filter(|(bit, _)| word & (1 << bit) != 0);
        let flags = kinds.fold(Flags::READ_WRITE, |flags, (_, kind)| flags.with(kind));
        match flags.huge_order() {
            Some(_) => flags.with(Flags::NORESERVE),
            None => flags,
        }
    }
}

/// The switch of one process (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessSwitch {
    /// As the other switches say.
    On,
    /// No large folios in this process.
    Off,
}

/// The frames that a space has for itself.
#[cfg(feature = "verify")]
pub(crate) struct Own {
    /// Its tables, the top one and those kept for splits included.
    pub(crate) tables: Pages,
    /// Those kept for splits.
    pub(crate) deposits: u64,
    /// Its records.
    pub(crate) records: Pages,
    /// The frame of its fork tree's record, where that is not its own.
    pub(crate) tree: Option<foliant_units::Frame>,
}

impl Space {
    /// The space that a fork tree's member is.
    pub(crate) fn of<'m, M: Machine, P: Paging>(
        stock: &Stock<'m, M, P>,
        member: &'m Member,
    ) -> &'m Space {
        record(stock.machine, member.frame().pa())
    }
    /// Refuses a change of its areas that would leave more than there may be now
    /// ([`Areas::admit`]). An object has no limit.
    pub(crate) fn admit<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        range: VaRange,
        change: impl Fn(Area) -> Option<(Flags, u64)>,
        put: (Option<&Area>, u64),
    ) -> Result<(), RangeError> {
        let limit =
            if self.is_object() { u64::MAX } else { stock.area_limit.load(Ordering::Relaxed) };
        Ok(self.areas.admit(stock.machine, AreaLimit(limit), range, change, put)?)
    }
    /// The user half of its tables.
    pub(crate) fn tables<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
    ) -> Tables<'m, M, P> {
        self.member.tables(stock)
    }

    /// Whether it is an object's whose pages a program may have been told of as missing.
    pub(crate) fn is_armed_object(&self) -> bool {
        self.as_object.flags.load(Ordering::SeqCst) & ARMED != 0
    }
    /// Whether it is an object's.
    #[inline(always)]
    pub(crate) fn is_object(&self) -> bool {
        self.as_object.is_one()
    }
    /// Of an object: the size of its pages, if they come out of a pool.
    pub(crate) fn object_huge(&self) -> Option<Order> {
        self.as_object.flags().huge_order()
    }
    /// Of an object: the subpool that its pages count for.
    pub(crate) fn object_subpool(&self) -> Subpool {
        self.as_object.subpool()
    }
    /// Of an object: what a read brings of it.
    pub(crate) fn object_around(&self) -> Around {
        self.as_object.around()
    }
    /// Of an object: where its pages end.
    pub(crate) fn object_end(&self) -> Va {
        self.as_object.end()
    }

    /// Of an object: the lock of calls that take pages out of it.
    pub(crate) fn cutting(&self) -> &Patient {
        &self.as_object.cutting
    }
    /// Of an object: how many attachments keep it.
    #[cfg(feature = "verify")]
    pub(crate) fn attachments_counted(&self) -> u64 {
        self.as_object.attachments()
    }

    /// Tries to become the caller that ends the space. One is, until it gives up.
    pub(super) fn begin_end(&self) -> bool {
        self.ending.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
    /// Says that the space is not ended after all.
    pub(super) fn give_up_end(&self) {
        self.ending.store(0, Ordering::SeqCst);
    }
    /// Whether a caller is about to end the space. A CPU asks after it has announced itself in the
    /// space: either it sees the end here, or the caller that ends the space sees the CPU
    /// (life::N1).
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst) != 0
    }

    /// Pages mapped, each counted once per entry.
    pub(crate) fn pages(&self) -> Pages {
        self.charge.pages()
    }
    /// Counts `pages` as the space's, unless that exceeds its limit.
    pub(crate) fn charge(&self, cpu: Cpu, pages: u64) -> Result<(), OverLimit> {
        self.charge.charge(cpu, pages)
    }
    /// Whether `pages` more would be admitted by [`charge`](Self::charge) now.
    pub(crate) fn admits(&self, pages: u64) -> bool {
        self.charge.admits(pages)
    }
    pub(crate) fn uncharge(&self, cpu: Cpu, pages: u64) {
        self.charge.uncharge(cpu, pages);
    }
    /// Counts pages of the pools, which are charged to nobody: they were paid for when the pool was
    /// filled.
    pub(crate) fn count_huge(&self, cpu: Cpu, pages: u64) {
        self.charge.count_huge(cpu, pages);
    }
    pub(crate) fn uncount_huge(&self, cpu: Cpu, pages: u64) {
        self.charge.uncount_huge(cpu, pages);
    }

    /// Keeps a cleared table, charged already, for the split of a leaf that is about to be mapped,
    /// so that splitting needs no memory.
    pub(crate) fn deposit<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>, table: Claim) {
        let _held = self.depositing.lock(stock.machine);
        self.deposits.push(stock.machine, table);
    }
    /// Takes the table of a leaf that is split or gone. From here on the table counts as made,
    /// whether it is used or given back; it stays charged as long as it is there.
    pub(crate) fn withdraw<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) -> Claim {
        let _held = self.depositing.lock(stock.machine);
        stock.count(Event::TableMade);
        self.deposits.pop(stock.machine).expect("each large leaf has a deposit")
    }

    /// The frames of tables and records that the space has, counted one by one (stock::charge::C2).
    /// No operation is at work meanwhile.
    #[cfg(feature = "verify")]
    pub(crate) fn recount_own<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) -> Own {
        let deposits = self.deposits.each(stock.machine).count() as u64;
        let below = self.tables(stock).count(super::user_half::<P>()).get();
        let offsets = self.member.offsets().frames(stock);
        Own {
            tables: Pages::new(1 + below + deposits),
            deposits,
            records: Pages::new(
                1 + self.areas.count_frames(stock.machine)
                    + offsets
                    + self.member.attachments.frames(),
            ),
            tree: Some(self.member.tree()).filter(|home| *home != self.member.frame()),
        }
    }

    /// Says that a page of it is about to be anchored, by a caller that locks its table next.
    pub(super) fn note_anchor(&self) {
        if !self.may_have_anchors() {
            self.anchored.store(1, Ordering::Relaxed);
        }
    }
    /// Whether a page of it may be anchored that is in a table which the caller has locked.
    pub(super) fn may_have_anchors(&self) -> bool {
        self.anchored.load(Ordering::Relaxed) != 0
    }
    pub(crate) fn set_thp(&self, switch: ProcessSwitch) {
        let off = switch == ProcessSwitch::Off;
        self.thp_off.store(off as u64, Ordering::Relaxed);
    }
    pub(crate) fn thp_off(&self) -> ProcessSwitch {
        match self.thp_off.load(Ordering::Relaxed) {
            0 => ProcessSwitch::On,
            _ => ProcessSwitch::Off,
        }
    }
}
