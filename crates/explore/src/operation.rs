//! What lanes do: every public operation of the manager, on pages that the others work on as well.
//!
//! Any refusal is legal; what must not be is seen by the judge. What an operation takes and keeps
//! it notes in the scene, which gives it back in the end. Between two calls of one operation there
//! is a border where others can see the first without the second: serial orders go on with another
//! lane there as well.

use crate::engine;
use crate::ground::{
    self, BASE, ELSEWHERE, FULL, HUGE, LAST_HUGE, MB, OBJECT_PAGES, PAGE, POOLED, POOLED_COPY,
    SHARED, STACK, Scene, TRANSFERRED, TREE, at, page_at, range,
};
use crate::machine;
use foliant::compact::{CompactRequest, Effort};
use foliant::fault::{Defrag, FillWith, Orders, ProcessSwitch};
use foliant::manager::{CollapseLimits, Damage, Poisoned, UserMapError};
use foliant::memmap::{Batch, Form};
use foliant::object::ObjectRequest;
use foliant::pool::{Budget, Folding};
use foliant::space::{
    Advice, Area, Edge, Flags, Holes, MapRequest, Move, Place, Refs, SpaceId, Watch,
};
use foliant::split::{MoveGrain, Shrink, SplitInto, SplitRequest};
use foliant::table::{Attrs, Paging};
use foliant::vmap::{Caller, FrameMapping, Request, Rights, VmapError};
use foliant::{Access, Event, FlushGrain, Outcome, Policy, SizeEvent};
use foliant_machine::KernelVa;
use foliant_units::{Bytes, Frame, FrameRange, Level, Nanos, Order, Pa, Pages, Va, VaRange};

/// Where nothing but a device is.
const DEVICE: Pa = Pa::new(0xfe00_0000);
/// The tag that `Retag` gives.
const RETAGGED: u64 = 7;
/// The kernel address that `MapKernel` maps.
pub(crate) fn kernel_at<P: Paging>() -> Va {
    const AT: u64 = 0x7f_0000_0000;
    let (start, _) = P::half(foliant::table::Half::Kernel);
    start.add(AT & ((1 << (P::HALF_BITS - 1)) - 1))
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One operation.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Operation { $($(#[$doc])* $name,)* }

        impl Operation {
            /// All of them.
            pub const ALL: &[Operation] = &[$(Operation::$name,)*];
        }
    };
}

operations! {
    /// A fault that writes to a page that holds something.
    Write,
    /// A fault that writes to a page where the page of zeros is mapped.
    WriteZero,
    /// A fault that writes to a page where nothing is mapped, if the area has no tag of another.
    WriteEmpty,
    /// A fault that reads a page that holds something.
    Read,
    /// A fault that reads a page where nothing is mapped.
    ReadEmpty,
    /// A program loads, and sees what some serial order shows.
    Load,
    /// A program loads twice from pages that lie apart.
    LoadTwice,
    /// A program stores.
    Store,
    /// A program stores where nothing is mapped, not even near.
    StoreEmpty,
    /// A program fetches an instruction.
    Fetch,
    /// A fault where nothing is near, with which the manager guesses and looks at guesses.
    Guess,
    /// A fault of a child that writes to a page that it shares.
    ChildWrite,
    /// A child ends.
    EndChild,
    /// The second child ends.
    EndSecond,
    /// A fork.
    Fork,
    /// A fork whose child has the areas, and of their pages none.
    ForkBare,
    /// A space is made, and ends.
    Create,
    /// The CPU runs nothing, and then the space again.
    Away,
    /// The CPU runs the child, and then the space again.
    Visit,
    /// Rights to read alone.
    ReadOnly,
    /// Rights to read and write.
    Writable,
    /// Rights to read, write and fetch.
    Executable,
    /// No rights.
    NoAccess,
    /// Contents are dropped.
    DontNeed,
    /// All contents are dropped.
    DropAll,
    /// All contents are dropped, and a page is written to.
    Renew,
    /// All contents are dropped, and a page is read.
    RenewZeros,
    /// Contents may be dropped.
    Free,
    /// Guards are put.
    Guard,
    /// Guards are taken away.
    Unguard,
    /// Pages are made present.
    Populate,
    /// Pages are made present to be read.
    PopulateRead,
    /// Large folios are welcome.
    WantHuge,
    /// Large folios are not welcome.
    WantNone,
    /// A part gets another tag.
    Retag,
    /// That pages were used is forgotten.
    ForgetUse,
    /// That pages were written is forgotten.
    ForgetWrites,
    /// Missing pages are the program's.
    Userfault,
    /// Pages are dropped, and the program fills them.
    UserFill,
    /// Pages are dropped, and the program says that memory is broken there.
    UserPoison,
    /// The program has pages go to where they are missing.
    UserTransfer,
    /// It has all of a block go there.
    UserTransferBlock,
    /// Writes to pages are the program's to allow.
    Watch,
    /// All is unmapped.
    Unmap,
    /// One page is unmapped.
    UnmapPage,
    /// All is dropped and then unmapped, so that the table goes without an entry.
    UnmapDropped,
    /// New memory in the place of old.
    MapOver,
    /// New memory where there is room.
    Map,
    /// A mapping grows.
    Grow,
    /// A mapping moves.
    MoveAway,
    /// A mapping moves, and comes back.
    MoveBack,
    /// A mapping moves to the place of huge pages.
    MoveOver,
    /// A stack grows.
    GrowStack,
    /// A folio is split.
    Split,
    /// A folio is split that is named by its frame.
    SplitFrame,
    /// A folio is split that is in a list.
    SplitList,
    /// A folio is moved.
    Relocate,
    /// Folios that wait to be split are split.
    ShrinkDeferred,
    /// Pages are put together.
    Collapse,
    /// Pages, or folios of 64 KiB, become one that is a little larger.
    CollapseSmall,
    /// A scanner looks for such pages.
    CollapseScan,
    /// The leaf of 2 MiB over an address becomes base entries.
    CutLeaf,
    /// All of memory is compacted.
    Compact,
    /// Memory is compacted if a fault wanted it.
    CompactLater,
    /// A reference is taken and kept.
    Keep,
    /// A reference is taken to what the next fault makes, and kept.
    KeepNew,
    /// A page is anchored, to be read, and stays so.
    Anchor,
    /// A page is anchored where nothing is, to be written, and stays so.
    AnchorEmpty,
    /// A page is anchored for a moment.
    AnchorShort,
    /// Memory is reported as broken.
    Poison,
    /// A page is lost: it is taken away from all that have it.
    Lose,
    /// A page is about to break: what it holds is moved away from there.
    Retire,
    /// What maps a folio is counted.
    Mappings,
    /// Memory is lent and taken back.
    Lend,
    /// A block of 2 MiB is lent and kept.
    Lend2m,
    /// Cleared memory is lent and taken back.
    LendCleared,
    /// A free frame is taken out for good.
    Reserve,
    /// Memory is added.
    AddMemory,
    /// Free memory is cleared.
    ClearAhead,
    /// Kernel memory is taken and given back.
    Vmalloc,
    /// Kernel memory is taken and kept.
    VmallocKeep,
    /// Kernel memory with a large leaf is taken and given back.
    VmallocHuge,
    /// Kernel memory is given back.
    Vfree,
    /// Kernel memory is given back later.
    VfreeLater,
    /// Kernel memory gets other rights.
    ProtectKernel,
    /// Kernel memory is read.
    ReadKernel,
    /// Kernel memory is mapped to a program.
    MapUser,
    /// A program writes to kernel memory that is mapped to it.
    WriteShared,
    /// A program drops kernel memory that is mapped to it.
    DropShared,
    /// A program unmaps kernel memory that is mapped to it.
    UnmapShared,
    /// A program moves kernel memory that is mapped to it.
    MoveShared,
    /// Frames are mapped for the kernel, and unmapped.
    VmapFrames,
    /// A device is mapped, and unmapped.
    Ioremap,
    /// Addresses are flushed and used again.
    Purge,
    /// A kernel range is mapped by hand.
    MapKernel,
    /// The pool grows.
    PoolGrow,
    /// The pool shrinks.
    PoolShrink,
    /// A huge page of the pool is written to.
    WriteHuge,
    /// A huge page that is mapped is written to; in a scene with a child it is shared.
    CopyHuge,
    /// A huge page that is mapped is anchored, and stays so.
    AnchorHuge,
    /// A huge page that is mapped is reported as broken.
    PoisonHuge,
    /// One is lost.
    LoseHuge,
    /// One is about to break.
    LeaveHuge,
    /// A free page of the pool is reported as broken.
    PoisonFree,
    /// A huge page beyond the pool's size is made on demand, and given up.
    Surplus,
    /// Huge pages are dropped.
    DropHuge,
    /// Huge pages are unmapped.
    UnmapHuge,
    /// Huge pages are mapped.
    MapHuge,
    /// Huge pages are mapped in the place of whatever is there.
    MapHugeOver,
    /// A huge page is mapped in the place of the pages that all lanes work on, and a fault comes
    /// there.
    HugeInstead,
    /// New memory is mapped in the place of huge pages, and a fault comes there.
    MapOverHuge,
    /// Huge pages are moved, to where nothing is.
    MoveHuge,
    /// A huge page is moved to the place of the pages that all lanes work on, and a fault comes
    /// there.
    MoveHugeOver,
    /// A huge page of a pool is dropped, and the program fills it.
    HandleHuge,
    /// A huge page of a pool is dropped, and the program says that memory is broken there.
    UserPoisonHuge,
    /// Writes to huge pages of a pool, there or missing, are told for a while.
    WatchHuge,
    /// A program wants the only huge page that is left, without a reservation, and goes on.
    FillHuge,
    /// The same where no page is left and one may be made.
    FillSurplus,
    /// A program drops the only huge page, and wants it again.
    RefillHuge,
    /// A program wants a page where no memory is free, and goes on.
    FillFull,
    /// A free huge page goes back to the allocator.
    Dissolve,
    /// A huge page of the embedder's, unfolded, folded and given back.
    OwnHuge,
    /// A huge page of an object that is mapped privately is written to; in a scene with a child the
    /// child has the copy too, and the pool has no page left.
    WritePooled,
    /// The same page is read.
    ReadPooled,
    /// It is anchored, to be read, and stays so.
    AnchorPooled,
    /// A child drops its huge page, and wants one again.
    ChildPooled,
    /// A program stores to a huge page of an object.
    StorePooled,
    /// Copies of huge pages of an object are dropped.
    DropPooled,
    /// An area with such copies is unmapped.
    UnmapPooled,
    /// A hole is made in an object of huge pages.
    PunchPooled,
    /// An object of huge pages ends before its first page, and has it again.
    RegrowPooled,
    /// The huge pages of an object are reserved.
    ReservePooled,
    /// The huge pages of an object are brought.
    PromisePooled,
    /// The kernel has a page of an object of huge pages for a moment.
    PageOfPooled,
    /// A huge page of the object is lost.
    LosePooled,
    /// One is about to break.
    LeavePooled,
    /// A handler fills a huge page that an object has not.
    HandlePooled,
    /// Writes to an object's huge page are told for a while.
    WatchPooled,
    /// What an object has of huge pages is let in by a handler, for a while.
    LetInPooled,
    /// A fault that writes to a page of an object that is shared.
    WriteObject,
    /// The same where the object has no page.
    WriteObjectEmpty,
    /// A fault that reads a page of an object that is mapped privately.
    ReadObject,
    /// A fault that writes to a page of an object that is mapped privately and not seen yet.
    CopyObject,
    /// A page of an object that is mapped privately is anchored, to be read, and stays so.
    AnchorPrivate,
    /// A page of an object that is shared is anchored, and stays so.
    AnchorObject,
    /// A program loads from an object.
    LoadObject,
    /// A program loads from a page of an object that is private and no copy yet.
    LoadPrivate,
    /// A program stores to an object.
    StoreObject,
    /// A program stores to a page that it has seen of an object that it maps privately.
    StorePrivate,
    /// The child stores to what it shares with everybody and to what it has for itself.
    ChildObject,
    /// Pages of an object are dropped.
    PunchObject,
    /// Pages of an object become one folio of 2 MiB, which is mapped where that was asked for.
    CollapseObject,
    /// Pages of an object are promised.
    PromiseObject,
    /// A handler fills a page that an object has not.
    FillObject,
    /// Writes to pages of an object are told, and then not any more.
    WatchObject,
    /// What an object has is let in by a handler, for a while.
    LetIn,
    /// An object becomes shorter.
    ShrinkObject,
    /// An object becomes shorter, and longer again.
    RegrowObject,
    /// An object is unmapped where it is shared.
    UnmapObject,
    /// An object is unmapped where it is private.
    UnmapPrivate,
    /// A shared mapping of an object moves.
    MoveObject,
    /// A private mapping of an object moves.
    MovePrivate,
    /// A part of an object moves to where another part lies alike.
    MoveObjectOnto,
    /// An object is mapped once more, and touched there.
    MapObject,
    /// An object loses its name.
    EndObject,
    /// An object is made, and ends.
    CreateObject,
    /// The kernel has a page of an object for a moment.
    PageOfObject,
    /// The kernel has a page of an object made.
    NewPageOfObject,
    /// A folio of an object is split.
    SplitObject,
    /// A folio of an object is moved.
    RelocateObject,
    /// A page of an object is lost.
    LoseObject,
    /// Other sizes of folios.
    SetPolicy,
    /// Other switches.
    SetSwitches,
    /// An area is looked up.
    FindArea,
    /// Areas of a large tree go and come.
    ChangeTree,
    /// Everything is looked at.
    Look,
}

use Operation as Op;

impl Operation {
    /// The operation of this name.
    pub fn parse(name: &str) -> Option<Operation> {
        Operation::ALL.iter().copied().find(|op| format!("{op:?}").eq_ignore_ascii_case(name))
    }
    /// Whether it does nothing in a scene without children.
    pub(crate) fn needs_child(self) -> bool {
        matches!(
            self,
            Op::ChildWrite | Op::EndChild | Op::Visit | Op::ChildObject | Op::ChildPooled
        )
    }
    /// Whether it works on an object.
    pub(crate) fn needs_object(self) -> bool {
        matches!(
            self,
            Op::WriteObject
                | Op::AnchorPrivate
                | Op::AnchorObject
                | Op::WriteObjectEmpty
                | Op::ReadObject
                | Op::CopyObject
                | Op::LoadObject
                | Op::LoadPrivate
                | Op::StoreObject
                | Op::StorePrivate
                | Op::ChildObject
                | Op::PunchObject
                | Op::CollapseObject
                | Op::PromiseObject
                | Op::FillObject
                | Op::WatchObject
                | Op::LetIn
                | Op::ShrinkObject
                | Op::RegrowObject
                | Op::UnmapObject
                | Op::UnmapPrivate
                | Op::MoveObject
                | Op::MovePrivate
                | Op::MoveObjectOnto
                | Op::MapObject
                | Op::EndObject
                | Op::CreateObject
                | Op::PageOfObject
                | Op::NewPageOfObject
                | Op::SplitObject
                | Op::RelocateObject
                | Op::LoseObject
        )
    }
    /// Whether it works on an object of huge pages.
    pub(crate) fn needs_pooled(self) -> bool {
        matches!(
            self,
            Op::WritePooled
                | Op::AnchorPooled
                | Op::ReadPooled
                | Op::ChildPooled
                | Op::StorePooled
                | Op::DropPooled
                | Op::UnmapPooled
                | Op::PunchPooled
                | Op::RegrowPooled
                | Op::ReservePooled
                | Op::PromisePooled
                | Op::PageOfPooled
                | Op::LosePooled
                | Op::LeavePooled
                | Op::HandlePooled
                | Op::WatchPooled
                | Op::LetInPooled
        )
    }
    /// Whether it works on kernel memory that the scene has taken.
    pub(crate) fn needs_kernel(self) -> bool {
        matches!(
            self,
            Op::Vfree
                | Op::VfreeLater
                | Op::ProtectKernel
                | Op::ReadKernel
                | Op::MapUser
                | Op::Purge
        ) || self.needs_shared()
    }
    /// Whether it works on kernel memory that is mapped to a program.
    pub(crate) fn needs_shared(self) -> bool {
        matches!(self, Op::WriteShared | Op::DropShared | Op::UnmapShared | Op::MoveShared)
    }
    /// Whether it works on kernel memory while no other operation does.
    pub(crate) fn wants_kernel_alone(self) -> bool {
        matches!(self, Op::Vfree | Op::VfreeLater | Op::ProtectKernel | Op::Purge)
    }
    /// Whether it works on a pool.
    pub(crate) fn needs_pool(self) -> bool {
        matches!(
            self,
            Op::PoolGrow
                | Op::PoolShrink
                | Op::WriteHuge
                | Op::CopyHuge
                | Op::AnchorHuge
                | Op::PoisonHuge
                | Op::LoseHuge
                | Op::LeaveHuge
                | Op::PoisonFree
                | Op::Surplus
                | Op::DropHuge
                | Op::UnmapHuge
                | Op::MapHuge
                | Op::MapHugeOver
                | Op::HugeInstead
                | Op::MapOverHuge
                | Op::MoveHuge
                | Op::MoveHugeOver
                | Op::HandleHuge
                | Op::UserPoisonHuge
                | Op::WatchHuge
                | Op::MoveOver
                | Op::Dissolve
        ) || self.needs_last_huge()
    }
    /// Whether it is about the last page of a pool.
    pub(crate) fn needs_last_huge(self) -> bool {
        matches!(self, Op::FillHuge | Op::FillSurplus | Op::RefillHuge)
    }
    /// Whether it wants more memory than a few pages.
    pub(crate) fn needs_blocks(self) -> bool {
        self.needs_pool()
            || self.needs_pooled()
            || matches!(
                self,
                Op::Collapse
                    | Op::CollapseScan
                    | Op::CollapseObject
                    | Op::Compact
                    | Op::AddMemory
                    | Op::Lend2m
                    | Op::VmallocHuge
                    | Op::OwnHuge
            )
    }
}

/// Any answer is legal.
fn any<T>(_answer: T) {}

impl<P: Paging> Scene<P> {
    /// Does an operation, which is the n-th of its lane.
    pub(crate) fn act(&self, lane: usize, nth: usize, op: Operation) {
        let (mm, id) = (self.mm, self.id);
        let (whole, half) = (range(BASE, 2 * MB), range(BASE, MB));
        let advise = |range, advice| any(mm.advise(id, range, advice));
        let see = |page| {
            let seen = self.load(id, page);
            engine::observe(&format!("lane {lane}, operation {nth}: page {page} reads {seen}"));
        };
        let goes_on = |outcome| {
            let ends = match outcome {
                Outcome::OutOfMemory | Outcome::OverLimit | Outcome::NoHugePage(_) => "ends",
                _ => "goes on",
            };
            engine::observe(&format!("lane {lane}, operation {nth}: the program {ends}"));
        };
        let of = |place: ground::Place, page| at(place.page(page));
        let fault = |va, access| any(mm.fault(id, va, access));
        match op {
            Op::Write => any(mm.fault(id, at(0), Access::Write)),
            Op::WriteZero => any(mm.fault(id, at(2), Access::Write)),
            Op::WriteEmpty => {
                let is_as_made = |area: &Area| area.tag != RETAGGED;
                any(mm.fault_where(id, at(3), Access::Write, &is_as_made));
            }
            Op::Read => any(mm.fault(id, at(0), Access::Read)),
            Op::ReadEmpty => any(mm.fault(id, at(3), Access::Read)),
            Op::Load => see(0),
            Op::LoadTwice => {
                see(20);
                engine::border();
                see(1);
            }
            Op::Store => {
                let stored = self.store(id, 0, 77);
                engine::observe(&format!("lane {lane}, operation {nth}: a store is {stored:?}"));
            }
            Op::StoreEmpty => {
                let stored = self.store(id, 100, 78);
                engine::observe(&format!("lane {lane}, operation {nth}: a store is {stored:?}"));
            }
            Op::Fetch => {
                let touch = || self.machine.sim.user_touch(at(0), foliant_sim::Access::Exec).ok();
                let fetched = self.through(id, 0, Access::Execute, touch);
                engine::observe(&format!("lane {lane}, operation {nth}: a fetch is {fetched:?}"));
            }
            Op::Guess => any(self.guess(lane as u64)),
            Op::ChildWrite => {
                let child = self.child(0);
                if let Some(child) = child {
                    any(mm.fault(child, at(0), Access::Write));
                }
            }
            Op::EndChild => self.end_child(0),
            Op::EndSecond => self.end_child(1),
            Op::Fork => {
                if let Ok(child) = mm.fork(id) {
                    self.spaces.borrow_mut().push(child);
                }
            }
            Op::ForkBare => {
                if let Ok(child) = mm.fork_where(id, &|_| false) {
                    self.spaces.borrow_mut().push(child);
                }
            }
            Op::Create => {
                if let Ok(other) = mm.create(None) {
                    mm.end(other).expect("nobody else knows of it");
                }
            }
            Op::Away => {
                mm.switch(None).expect("nothing can always be run");
                let _ = mm.switch(Some(id));
            }
            Op::Visit => {
                if let Some(child) = self.child(0) {
                    let _ = mm.switch(Some(child));
                    engine::border();
                    let _ = mm.switch(Some(id));
                }
            }
            Op::ReadOnly => any(mm.protect(id, whole, Flags::READ)),
            Op::Writable => any(mm.protect(id, whole, Flags::READ_WRITE)),
            Op::Executable => any(mm.protect(id, whole, Flags::READ_WRITE.with(Flags::EXEC))),
            Op::NoAccess => any(mm.protect(id, half, Flags::NONE)),
            Op::DontNeed => advise(half, Advice::DontNeed),
            Op::DropAll => advise(whole, Advice::DontNeed),
            Op::Renew => {
                advise(whole, Advice::DontNeed);
                engine::border();
                any(mm.fault(id, at(0), Access::Write));
            }
            Op::RenewZeros => {
                advise(whole, Advice::DontNeed);
                engine::border();
                any(mm.fault(id, at(0), Access::Read));
            }
            Op::Free => advise(half, Advice::Free),
            Op::Guard => advise(range(BASE, 2 * PAGE), Advice::GuardInstall),
            Op::Unguard => advise(range(BASE, 2 * PAGE), Advice::GuardRemove),
            Op::Populate => advise(range(BASE, 32 * PAGE), Advice::PopulateWrite),
            Op::PopulateRead => advise(range(BASE, 32 * PAGE), Advice::PopulateRead),
            Op::Retag => advise(half, Advice::Tag(RETAGGED)),
            Op::WantHuge => advise(whole, Advice::HugePage),
            Op::WantNone => advise(half, Advice::NoHugePage),
            Op::ForgetUse => any(mm.clear_refs(id, whole, Refs::Accessed)),
            Op::ForgetWrites => any(mm.clear_refs(id, half, Refs::SoftDirty)),
            Op::Userfault => {
                advise(range(BASE, 4 * PAGE), Advice::UserfaultArm);
                engine::border();
                advise(range(BASE, 4 * PAGE), Advice::UserfaultDisarm);
            }
            Op::UserPoison => self.user_poison(range(BASE, PAGE)),
            Op::UserTransfer => self.user_transfer(range(BASE, 2 * PAGE)),
            Op::UserTransferBlock => self.user_transfer(whole),
            Op::UserFill => {
                advise(range(BASE, 2 * PAGE), Advice::DontNeed);
                engine::border();
                advise(range(BASE, 2 * PAGE), Advice::UserfaultArm);
                engine::border();
                any(mm.fill(id, Va::new(BASE), FillWith::Copy(&[[7; PAGE as usize]])));
                engine::border();
                any(mm.fill(id, Va::new(BASE + PAGE), FillWith::Zeros(Pages::new(1))));
                engine::border();
                advise(range(BASE, 2 * PAGE), Advice::UserfaultDisarm);
            }
            Op::Watch => self.watch(range(BASE, 4 * PAGE)),
            Op::Unmap => any(mm.unmap(id, whole)),
            Op::UnmapDropped => {
                advise(whole, Advice::DontNeed);
                engine::border();
                any(mm.unmap(id, whole));
            }
            Op::UnmapPage => any(mm.unmap(id, range(BASE + PAGE, PAGE))),
            Op::MapOver => any(self.map(BASE, MB, Place::Fixed)),
            Op::Map => {
                let request = MapRequest {
                    place: Place::Hint(Va::new(ELSEWHERE + 32 * MB)),
                    bytes: Bytes::new(MB),
                    flags: Flags::READ_WRITE,
                    tag: 1,
                };
                if let Ok(mapped) = mm.map(id, &request) {
                    engine::border();
                    let _ = mm.fault(id, mapped.start(), Access::Write);
                }
            }
            Op::Grow => any(mm.remap(id, whole, Bytes::new(3 * MB), Move::Never)),
            Op::MoveAway => {
                any(mm.remap(id, whole, Bytes::new(2 * MB), Move::To(Va::new(ELSEWHERE))));
            }
            Op::MoveBack => {
                let moved = range(ELSEWHERE, 2 * MB);
                any(mm.remap(id, whole, whole.bytes(), Move::To(moved.start())));
                engine::border();
                any(mm.remap(id, moved, whole.bytes(), Move::To(whole.start())));
            }
            Op::MoveOver => any(mm.remap(id, whole, whole.bytes(), Move::To(Va::new(HUGE)))),
            Op::GrowStack => {
                let flags = Flags::READ_WRITE.with(Flags::GROWS_DOWN);
                let place = Place::NoReplace(Va::new(STACK));
                any(mm.map(id, &MapRequest { place, bytes: Bytes::new(PAGE), flags, tag: 5 }));
                engine::border();
                any(mm.fault(id, Va::new(STACK - 3 * PAGE), Access::Write));
            }
            Op::Split => any(mm.split(id, at(0), SplitInto::BASE)),
            Op::SplitFrame => self.on_frame(|frame| any(mm.split_frame(frame, SplitInto::BASE))),
            Op::SplitList => self.on_frame(|frame| {
                mm.split_list(&mut [SplitRequest::of(frame)], SplitInto::BASE);
            }),
            Op::Relocate => self.on_frame(|frame| any(mm.relocate(frame))),
            Op::ShrinkDeferred => {
                mm.shrink_deferred(Shrink { folios: 64, zeros_max: Some(Pages::new(1)) });
            }
            Op::Collapse => {
                any(mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE))
            }
            Op::CollapseSmall => {
                let is_large = |frame| mm.identity(frame).order() > Order::BASE;
                let pages = if self.frame.is_some_and(is_large) { 32 } else { 4 };
                let order = Order::fitting(Bytes::new(pages * PAGE)).expect("a size");
                any(mm.collapse(id, at(0), order, CollapseLimits::NONE));
            }
            Op::CollapseScan => {
                mm.collapse_scan(id, Va::new(BASE), 2, CollapseLimits::NONE);
            }
            Op::CutLeaf => any(mm.cut(id, at(1))),
            Op::Compact => any(mm.compact(&CompactRequest::ALL, &mut [])),
            Op::CompactLater => any(mm.compact_background(Effort::FAULT)),
            Op::Keep => self.on_frame(|frame| self.keep(frame)),
            Op::KeepNew => {
                if let Some(frame) = self.next {
                    self.keep(frame);
                }
            }
            Op::Anchor => self.anchor(at(0), Access::Read),
            Op::AnchorEmpty => self.anchor(at(3), Access::Write),
            Op::AnchorShort => {
                let anchor = mm.anchor(id, range(BASE, PAGE), Access::Write);
                engine::border();
                any(anchor.map(|anchor| anchor.frames()));
            }
            Op::AnchorHuge => self.anchor(Va::new(HUGE), Access::Read),
            Op::AnchorPooled => self.anchor(POOLED_COPY, Access::Read),
            Op::AnchorPrivate => {
                self.anchor(of(ground::Place::Private, ground::SEEN), Access::Read)
            }
            Op::AnchorObject => self.anchor(of(ground::Place::Shared, 0), Access::Write),
            Op::Poison => self.on_frame(|frame| self.poison(frame)),
            Op::Lose => self.on_frame(|frame| self.retire(frame, Damage::Done)),
            Op::Retire => self.on_frame(|frame| self.retire(frame, Damage::Foreseen)),
            Op::PoisonHuge => self.mapped_huge.into_iter().for_each(|frame| self.poison(frame)),
            Op::LoseHuge => self.retire_all(self.mapped_huge, Damage::Done),
            Op::LeaveHuge => self.retire_all(self.mapped_huge, Damage::Foreseen),
            Op::PoisonFree => self.poison(self.huge.get()),
            Op::Mappings => self.on_frame(|frame| {
                any(mm.mappings(frame));
                any(mm.page_mappings(frame));
            }),
            Op::Lend => {
                if let Ok(frame) = mm.lend(Order::BASE) {
                    mm.take_back(frame, Order::BASE).expect("it was lent");
                }
            }
            Op::Lend2m => {
                if let Ok(frame) = mm.lend(Order::SIZE_2M) {
                    self.lent.borrow_mut().push((frame, Order::SIZE_2M));
                }
            }
            Op::LendCleared => {
                let order = Order::new(2).expect("a size");
                if let Ok(frame) = mm.lend_cleared(order) {
                    mm.take_back(frame, order).expect("it was lent");
                }
            }
            Op::Reserve => {
                let last = mm.ranges().next().map_or(Frame::new(0), |range| range.end());
                let end = Frame::new(last.get() - 1);
                let frame = FrameRange::new(end, Pages::new(1)).expect("it is memory");
                any(mm.reserve(frame));
            }
            Op::AddMemory => {
                machine::touches_scene(); // the lane that comes first gets another range
                let next = self.spare.borrow_mut().pop();
                if let Some(next) = next {
                    any(mm.add_memory(next)); // another CPU may be adding some
                }
            }
            Op::ClearAhead => any(mm.clear_ahead(Nanos(100_000))),
            Op::Vmalloc => self.vmalloc(&Request::of(Bytes::new(2 * PAGE))),
            Op::VmallocKeep => {
                if let Ok(got) = mm.vmalloc(&Request::of(Bytes::new(2 * PAGE))) {
                    self.taken.borrow_mut().push(got.start());
                }
            }
            Op::VmallocHuge => self.vmalloc(&Request::of(Bytes::new(2 * MB)).huge()),
            Op::Vfree => any(mm.vfree(self.kernel().start())),
            Op::VfreeLater => {
                let _ = mm.vfree_atomic(self.kernel().start());
                mm.vmap().collect();
            }
            Op::ProtectKernel => any(mm.protect_kernel(self.kernel(), Rights::Constant)),
            Op::ReadKernel => {
                let va = self.kernel().start();
                let _ = mm.vmap().frame_at(va);
                let _ = mm.vmap().apply(range(va.get(), PAGE), |_, _| {});
            }
            Op::MapUser => {
                let place = Place::Hint(Va::new(ELSEWHERE + 16 * MB));
                let mapped = self.map_user(place);
                let is_busy = matches!(mapped, Err(UserMapError::Kernel(VmapError::Busy(_))));
                if is_busy && !self.wants_kernel_alone {
                    engine::fail("kernel memory that nobody wants alone is not lent");
                }
            }
            Op::WriteShared => any(mm.fault(id, SHARED, Access::Write)),
            Op::DropShared => advise(range(SHARED.get(), 2 * PAGE), Advice::DontNeed),
            Op::UnmapShared => any(mm.unmap(id, range(SHARED.get(), 2 * PAGE))),
            Op::MoveShared => {
                let to = Move::To(Va::new(ELSEWHERE + 24 * MB));
                any(mm.remap(id, range(SHARED.get(), 2 * PAGE), Bytes::new(2 * PAGE), to));
            }
            Op::VmapFrames => {
                if let Ok(frame) = mm.lend(Order::BASE) {
                    if let Ok(mapped) = mm.vmap_frames(&[frame], &FrameMapping::PLAIN) {
                        mm.vunmap(mapped.start()).expect("it was mapped");
                        mm.purge_vmalloc(); // before its frame has another owner
                    }
                    mm.take_back(frame, Order::BASE).expect("it was lent");
                }
            }
            Op::Ioremap => {
                if let Ok(va) = mm.ioremap(DEVICE, Bytes::new(PAGE), Caller(1)) {
                    mm.iounmap(va).expect("it was mapped");
                }
            }
            Op::Purge => any(mm.purge_vmalloc()),
            Op::MapKernel => {
                let va = kernel_at::<P>();
                let _ = mm.reach_kernel(va, Level::BASE);
                if mm.map_kernel(range(va.get(), PAGE), self.own, Attrs::WRITE).is_ok() {
                    self.is_mapped.set(true);
                }
                let _ = mm.kernel_tables().walk(va);
            }
            Op::PoolGrow => any(mm.resize_pool(Order::SIZE_2M, 3, Budget(4))),
            Op::PoolShrink => any(mm.resize_pool(Order::SIZE_2M, 0, Budget(4))),
            Op::WriteHuge => any(mm.fault(id, Va::new(HUGE + 2 * MB), Access::Write)),
            Op::CopyHuge => any(mm.fault(id, Va::new(HUGE), Access::Write)),
            Op::Surplus => {
                let _ = mm.pools().set_overcommit(Order::SIZE_2M, 1);
                let flags = Flags::READ_WRITE.with(Flags::HUGE_2M).with(Flags::NORESERVE);
                let place = Place::NoReplace(Va::new(HUGE + 32 * MB));
                let request = MapRequest { place, bytes: Bytes::new(4 * MB), flags, tag: 4 };
                if let Ok(mapped) = mm.map(id, &request) {
                    engine::border();
                    any(mm.fault(id, mapped.start(), Access::Write));
                    any(mm.fault(id, mapped.start().add(2 * MB), Access::Write));
                    engine::border();
                    any(mm.unmap(id, mapped));
                }
            }
            Op::FillHuge | Op::FillSurplus => goes_on(mm.fault(id, LAST_HUGE, Access::Write)),
            Op::RefillHuge => {
                advise(range(LAST_HUGE.get(), 2 * MB), Advice::DontNeed);
                goes_on(mm.fault(id, LAST_HUGE, Access::Write));
            }
            Op::FillFull => goes_on(mm.fault(id, FULL, Access::Write)),
            Op::DropHuge => advise(range(HUGE, 4 * MB), Advice::DontNeed),
            Op::UnmapHuge => any(mm.unmap(id, range(HUGE, 4 * MB))),
            Op::MapHuge => any(self.map_huge(Place::NoReplace(Va::new(HUGE + 8 * MB)), 1)),
            Op::MapHugeOver => any(self.map_huge(Place::Fixed(Va::new(HUGE)), 2)),
            Op::HugeInstead => {
                any(self.map_huge(Place::Fixed(Va::new(BASE)), 1));
                engine::border();
                any(mm.fault(id, at(0), Access::Write));
            }
            Op::MapOverHuge => {
                any(self.map(HUGE, 4 * MB, Place::Fixed));
                engine::border();
                any(mm.fault(id, Va::new(HUGE + 2 * MB), Access::Write));
            }
            Op::MoveHuge => {
                let to = Move::To(Va::new(HUGE + 32 * MB));
                any(mm.remap(id, range(HUGE, 4 * MB), Bytes::new(4 * MB), to));
            }
            Op::MoveHugeOver => {
                let to = Move::To(Va::new(BASE));
                any(mm.remap(id, range(HUGE, 2 * MB), Bytes::new(2 * MB), to));
                engine::border();
                any(mm.fault(id, at(0), Access::Write));
            }
            Op::HandleHuge => {
                let part = range(HUGE, 2 * MB);
                advise(part, Advice::DontNeed);
                engine::border();
                self.handle_huge(part);
            }
            Op::UserPoisonHuge => self.user_poison(range(HUGE, 2 * MB)),
            Op::WatchHuge => self.watch(range(HUGE, 4 * MB)),
            Op::LetInPooled => self.let_in(range(POOLED.get(), 2 * MB)),
            Op::WatchPooled => self.watch(range(POOLED.get(), 2 * MB)),
            Op::HandlePooled => self.handle_huge(range(POOLED.get(), 2 * MB)),
            Op::Dissolve => {
                let free = self.huge.get();
                let _ = mm.pools().dissolve(free);
            }
            Op::OwnHuge => self.own_huge(),
            Op::WritePooled => goes_on(mm.fault(id, POOLED_COPY, Access::Write)),
            Op::ReadPooled => fault(POOLED_COPY, Access::Read),
            Op::ChildPooled => {
                if let Some(child) = self.child(0) {
                    any(mm.advise(child, range(POOLED_COPY.get(), 2 * MB), Advice::DontNeed));
                    engine::border();
                    any(mm.fault(child, POOLED_COPY, Access::Write));
                }
            }
            Op::StorePooled => {
                let stored = self.store(id, page_at(POOLED), 81);
                engine::observe(&format!("lane {lane}, operation {nth}: a store is {stored:?}"));
            }
            Op::DropPooled => advise(range(POOLED_COPY.get(), 2 * MB), Advice::DontNeed),
            Op::UnmapPooled => any(mm.unmap(id, range(POOLED_COPY.get(), 2 * MB))),
            Op::PunchPooled => any(mm.punch_object(self.pooled(), Pages::new(0), Pages::new(512))),
            Op::RegrowPooled => {
                any(mm.resize_object(self.pooled(), Pages::new(0)));
                engine::border();
                any(mm.resize_object(self.pooled(), Pages::new(512)));
            }
            Op::ReservePooled => {
                any(mm.reserve_object(self.pooled(), Pages::new(0), Pages::new(512)));
            }
            Op::PromisePooled => {
                any(mm.promise_object(self.pooled(), Pages::new(0), Pages::new(512)));
            }
            Op::PageOfPooled => {
                let page = mm.object_page(self.pooled(), Pages::new(5), Access::Read);
                engine::border();
                any(page.map(|page| page.map(|page| page.frame())));
            }
            Op::LosePooled | Op::LeavePooled => {
                let page = mm.object_page(self.pooled(), Pages::new(5), Access::Read);
                let frame = page.ok().flatten().map(|page| page.frame());
                engine::border();
                let is_lost = op == Op::LosePooled;
                self.retire_all(frame, if is_lost { Damage::Done } else { Damage::Foreseen });
            }
            Op::WriteObject => fault(of(ground::Place::Shared, 0), Access::Write),
            Op::WriteObjectEmpty => fault(of(ground::Place::Shared, 100), Access::Write),
            Op::ReadObject => fault(of(ground::Place::Private, 0), Access::Read),
            Op::CopyObject => fault(of(ground::Place::Private, 0), Access::Write),
            Op::LoadObject => see(ground::Place::Shared.page(0)),
            Op::LoadPrivate => see(ground::Place::Private.page(ground::SEEN)),
            Op::StoreObject => {
                let stored = self.store(id, ground::Place::Shared.page(0), 79);
                engine::observe(&format!("lane {lane}, operation {nth}: a store is {stored:?}"));
            }
            Op::StorePrivate => {
                let stored = self.store(id, ground::Place::Private.page(ground::SEEN), 80);
                engine::observe(&format!("lane {lane}, operation {nth}: a store is {stored:?}"));
            }
            Op::ChildObject => {
                if let Some(child) = self.child(0) {
                    any(mm.fault(child, of(ground::Place::Shared, 0), Access::Write));
                    engine::border();
                    any(mm.fault(child, of(ground::Place::Private, 1), Access::Write));
                }
            }
            Op::PunchObject => any(mm.punch_object(self.object(), Pages::new(0), Pages::new(64))),
            Op::CollapseObject => {
                let va = Va::new(ground::Place::Shared.start());
                any(mm.collapse(id, va, Order::SIZE_2M, CollapseLimits::NONE))
            }
            Op::PromiseObject => {
                any(mm.promise_object(self.object(), Pages::new(90), Pages::new(106)));
                engine::border();
                let page = mm.object_page(self.object(), Pages::new(90), Access::Read);
                any(page.map(|page| page.is_some_and(|page| page.is_promised())));
            }
            Op::FillObject => {
                let part = range(of(ground::Place::Shared, 100).get(), 4 * PAGE);
                advise(part, Advice::UserfaultArm);
                engine::border();
                any(mm.fill(id, part.start(), FillWith::Copy(&[[7; PAGE as usize]])));
                engine::border();
                advise(part, Advice::UserfaultDisarm);
            }
            Op::WatchObject => {
                self.watch(range(of(ground::Place::Shared, 0).get(), 4 * PAGE));
            }
            Op::LetIn => self.let_in(range(of(ground::Place::Shared, 0).get(), 4 * PAGE)),
            Op::ShrinkObject => any(mm.resize_object(self.object(), Pages::new(10))),
            Op::RegrowObject => {
                any(mm.resize_object(self.object(), Pages::new(0)));
                engine::border();
                any(mm.resize_object(self.object(), Pages::new(OBJECT_PAGES)));
            }
            Op::UnmapObject => any(mm.unmap(id, ground::Place::Shared.all())),
            Op::UnmapPrivate => any(mm.unmap(id, ground::Place::Private.all())),
            Op::MoveObject => self.move_object((ground::Place::Shared, ground::Place::Moved), 1),
            Op::MovePrivate => {
                self.move_object((ground::Place::Private, ground::Place::MovedPrivate), 1);
            }
            Op::MoveObjectOnto => self.move_object((ground::Place::Shared, ground::Place::Onto), 2),
            Op::MapObject => {
                let flags = Flags::READ_WRITE.with(Flags::SHARED);
                if self.map_object(ground::Place::New, (0, OBJECT_PAGES), flags).is_ok() {
                    engine::border();
                    fault(of(ground::Place::New, 0), Access::Read); // the second page comes too
                    engine::border();
                    fault(of(ground::Place::New, 20), Access::Write);
                }
            }
            Op::EndObject => any(mm.end_object(self.object())),
            Op::CreateObject => {
                let request = ObjectRequest { pages: Pages::new(4), ..Default::default() };
                if let Ok(made) = mm.create_object(&request) {
                    mm.end_object(made).expect("nobody else knows of it");
                }
            }
            Op::PageOfObject => self.page_of_object(0),
            Op::NewPageOfObject => self.page_of_object(100),
            Op::SplitObject => self.on_object(|frame| any(mm.split_frame(frame, SplitInto::BASE))),
            Op::RelocateObject => self.on_object(|frame| any(mm.relocate(frame))),
            Op::LoseObject => self.on_object(|frame| self.retire(frame, Damage::Done)),
            Op::SetPolicy => {
                mm.set_policy(Policy::always(Orders::of(Order::new(2).expect("a size"))));
                engine::border();
                let _ = mm.fault(id, at(100), Access::Write);
            }
            Op::SetSwitches => {
                mm.set_flush_grain(FlushGrain::new(1).expect("one"));
                mm.set_move_grain(MoveGrain::MOST);
                mm.set_defrag(Defrag::Always);
                mm.set_clearing(mm.clearing());
                mm.set_folding(Folding::Off);
                let _ = mm.set_process_switch(id, ProcessSwitch::Off);
                mm.set_lowest_address(mm.lowest_address());
                mm.set_area_limit(mm.area_limit());
            }
            Op::FindArea => {
                let va = Va::new(TREE + self.areas * 2 / 3 * 2 * PAGE);
                let found = mm.area(id, va);
                if found.is_some_and(|area| !area.range.contains(va)) {
                    engine::fail(&format!("the area at {va:?} is {found:?}"));
                }
                let _ = mm.area_at_or_after(id, va);
                let within = VaRange::sized(va, Bytes::new(4 * PAGE)).expect("it is small");
                let room = mm.room(id, Bytes::new(PAGE), within, Edge::High);
                if room.is_some_and(|room| {
                    !within.contains(room) || !room.is_aligned(Bytes::new(PAGE))
                }) {
                    engine::fail(&format!("room for a page in {within:?} is at {room:?}"));
                }
                let around = mm.areas_around(id, va).map(|area| area.map(|area| area.range));
                let are_around = match around {
                    [below, Some(at), above] => {
                        at.end() > va
                            && below.is_none_or(|b| b.end() <= va && b.end() <= at.start())
                            && above.is_none_or(|above| at.end() <= above.start())
                    }
                    [_, None, above] => above.is_none(),
                };
                if !are_around {
                    engine::fail(&format!("the areas around {va:?} are {around:?}"));
                }
                let mut some = [None; 3];
                let count = mm.areas_at_or_after(id, va, &mut some);
                let some = || some[..count].iter().flatten();
                let is_in_order =
                    some().zip(some().skip(1)).all(|(a, b)| a.range.end() <= b.range.start());
                if !is_in_order
                    || some().count() != count
                    || some().any(|area| area.range.end() <= va)
                {
                    let some: Vec<_> = some().map(|area| area.range).collect();
                    engine::fail(&format!("the areas from {va:?} on are {some:?}"));
                }
            }
            Op::ChangeTree => self.change_tree(),
            Op::Look => self.look(),
        }
    }

    /// Works on the frame that the first page had when the scene began, whatever it belongs to by
    /// now.
    fn on_frame(&self, work: impl FnOnce(Frame)) {
        if let Some(frame) = self.frame {
            work(frame);
        }
    }
    /// The same with the frame that the object's first page had.
    fn on_object(&self, work: impl FnOnce(Frame)) {
        if let Some((_, frame)) = self.object {
            work(frame);
        }
    }
    /// Moves so great a part of one place to the other.
    fn move_object(&self, (from, to): (ground::Place, ground::Place), part: u64) {
        let bytes = Bytes::new(OBJECT_PAGES * PAGE / part);
        let to = Move::To(Va::new(to.start()));
        any(self.mm.remap(self.id, range(from.start(), bytes.get()), bytes, to));
    }
    /// Has a page of the object for a moment, in which its frame stays what it is.
    fn page_of_object(&self, page: u64) {
        let Ok(Some(page)) = self.mm.object_page(self.object(), Pages::new(page), Access::Write)
        else {
            return;
        };
        let frame = FrameRange::new(page.frame(), Pages::new(1)).expect("it lies in memory");
        self.machine.keep(frame);
        engine::border();
        self.machine.let_go(frame);
    }
    fn poison(&self, frame: Frame) {
        if self.mm.poison(frame) == Poisoned::Held {
            self.broken.borrow_mut().push(frame);
        }
    }
    fn retire(&self, frame: Frame, damage: Damage) {
        if self.mm.retire(frame, damage).is_ok() {
            self.broken.borrow_mut().push(frame);
        }
    }
    fn retire_all(&self, frames: Option<Frame>, damage: Damage) {
        frames.into_iter().for_each(|frame| self.retire(frame, damage));
    }
    fn keep(&self, frame: Frame) {
        if let Some(kept) = self.mm.reference(frame) {
            let pages = self.mm.identity(kept.head()).order().pages();
            let folio = FrameRange::new(kept.head(), pages).expect("it lies in memory");
            self.machine.keep(folio);
            self.kept.borrow_mut().push(kept);
        }
    }
    fn anchor(&self, va: Va, access: Access) {
        if let Ok(anchor) = self.mm.anchor(self.id, range(va.get(), PAGE), access) {
            self.machine.keep(anchor.frames());
            let is_own = !ground::Place::Shared.all().contains(va);
            self.anchors.borrow_mut().push((anchor, is_own));
        }
    }
    fn end_child(&self, nth: usize) {
        if let Some(child) = self.child(nth)
            && self.mm.end(child).is_ok()
        {
            self.spaces.borrow_mut().retain(|space| *space != child);
        }
    }
    fn vmalloc(&self, request: &Request) {
        if let Ok(got) = self.mm.vmalloc(request) {
            // SAFETY: it was just taken, and is nobody else's.
            #[allow(unsafe_code)]
            let stored = unsafe { self.machine.kernel_store(got.start(), 7) };
            if stored.is_err() {
                engine::fail("new kernel memory can not be written to");
            }
            self.mm.vfree(got.start()).expect("it was just taken");
        }
    }
    /// Drops a range and poisons its first place, as the handler of what is missing.
    fn user_poison(&self, part: VaRange) {
        let advise = |advice| any(self.mm.advise(self.id, part, advice));
        advise(Advice::DontNeed);
        engine::border();
        advise(Advice::UserfaultArm);
        engine::border();
        any(self.mm.fill(self.id, part.start(), FillWith::Poison));
        engine::border();
        advise(Advice::UserfaultDisarm);
        engine::border();
        advise(Advice::DontNeed);
    }
    /// Has what is in a range go to where pages are missing, and drops it there.
    fn user_transfer(&self, part: VaRange) {
        let there = range(TRANSFERRED, part.bytes().get());
        let place = Place::NoReplace(there.start());
        let (bytes, flags) = (there.bytes(), Flags::READ_WRITE);
        if self.mm.map(self.id, &MapRequest { place, bytes, flags, tag: 0 }).is_err() {
            return;
        }
        engine::border();
        any(self.mm.advise(self.id, there, Advice::UserfaultArm));
        engine::border();
        any(self.mm.transfer(self.id, part, there.start(), Holes::Skipped));
        engine::border();
        any(self.mm.unmap(self.id, there));
    }
    /// Lets the first page of a range in, dropped before, while what an object has is told.
    fn let_in(&self, part: VaRange) {
        let advise = |advice| any(self.mm.advise(self.id, part, advice));
        advise(Advice::UserfaultPresentArm);
        engine::border();
        advise(Advice::DontNeed);
        engine::border();
        any(self.mm.fill(self.id, part.start(), FillWith::Present));
        engine::border();
        advise(Advice::UserfaultPresentDisarm);
    }
    /// Has writes to a range told for a while.
    fn watch(&self, part: VaRange) {
        let arm = |advice| any(self.mm.advise(self.id, part, advice));
        arm(Advice::UserfaultWriteArm);
        engine::border();
        any(self.mm.watch(self.id, part, Watch::All));
        engine::border();
        arm(Advice::UserfaultWriteDisarm);
    }
    /// A program fills a huge page that is missing, as whoever is told of it.
    fn handle_huge(&self, part: VaRange) {
        let contents: &[[u8; PAGE as usize]] = &[[7; PAGE as usize]; 512];
        let arm = |advice| any(self.mm.advise(self.id, part, advice));
        arm(Advice::UserfaultArm);
        engine::border();
        any(self.mm.fill_huge(self.id, part.start(), &mut { contents }));
        engine::border();
        arm(Advice::UserfaultDisarm);
    }
    /// Maps huge pages, which the pool reserves for the area.
    pub(crate) fn map_huge(
        &self,
        place: Place,
        pages: u64,
    ) -> Result<VaRange, foliant::space::MapError> {
        let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
        let bytes = Bytes::new(pages * 2 * MB);
        self.mm.map(self.id, &MapRequest { place, bytes, flags, tag: 3 })
    }
    /// Maps pages `from..to` of the object at a place for it.
    pub(crate) fn map_object(
        &self,
        at: ground::Place,
        (from, to): (u64, u64),
        flags: Flags,
    ) -> Result<VaRange, foliant::space::MapError> {
        let request = MapRequest {
            place: Place::NoReplace(Va::new(at.start() + from * PAGE)),
            bytes: Bytes::new((to - from) * PAGE),
            flags,
            tag: 6,
        };
        self.mm.map_object(self.id, &request, (self.object(), Pages::new(from)))
    }
    /// Maps kernel memory to the program.
    pub(crate) fn map_user(&self, place: Place) -> Result<VaRange, UserMapError> {
        let bytes = Bytes::new(2 * PAGE);
        let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 2 };
        self.mm.map_user(self.id, &request, self.kernel().start())
    }
    fn own_huge(&self) {
        let memmap = self.mm.memmap();
        let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Folded) else { return };
        let mut batch = Batch::new(&memmap);
        batch.push(huge).expect("it is this manager's, and the first");
        let _ = memmap.unfold(&mut batch);
        let _ = memmap.fold(&mut batch);
        while batch.len() > 0 {
            let before = batch.len();
            memmap.release(&mut batch);
            if batch.len() == before {
                break; // there is no memory for its descriptors
            }
        }
        while let Some(huge) = batch.pop() {
            if memmap.free(huge).is_err() {
                engine::fail("a huge page that nobody else has can not be given back");
            }
        }
    }
    fn change_tree(&self) {
        let gone = match self.areas {
            10_000.. => 8400,
            areas => areas * 3 / 4,
        };
        let back = if self.areas > 10_000 { 600 } else { gone };
        if self.mm.unmap(self.id, range(TREE, gone * 2 * PAGE)).is_ok() {
            for nth in 0..back {
                let _ = self.map(TREE + nth * 2 * PAGE, PAGE, Place::NoReplace);
            }
        }
    }
    fn look(&self) {
        let (mm, id) = (self.mm, self.id);
        let _ = (
            mm.memory(),
            mm.pages(id),
            mm.records(id),
            mm.tables(id),
            mm.walk(id, Va::new(BASE)),
            mm.anonymous(),
            mm.known_zero(),
        );
        let _ = (mm.free_blocks(), mm.fragmentation(Order::SIZE_2M), mm.deferred(), mm.pooled());
        let _ = (mm.total(Event::Fault), mm.size_stats(Order::BASE), mm.policy(), mm.defrag());
        let _ = (mm.flush_grain(), mm.move_grain(), mm.folding(), mm.pool(Order::SIZE_2M));
        let _ = (mm.vmalloc_counters(), mm.far_caching(), mm.memmap().census());
        let _ = (mm.folios().census(), mm.size_total(Order::BASE, SizeEvent::NrAnon));
        let _ = mm.vmalloc_info().count();
        let _ = mm.with_leaves(id, range(BASE, 2 * MB), |leaves| leaves.count());
        self.on_frame(|frame| any(mm.identity(frame)));
        if let Some((object, _)) = self.object {
            let _ = (mm.object_room(object), mm.object_pages(object), mm.object_policy());
            let _ = mm.object_pages_in(object, Pages::new(0), Pages::new(2));
            let _ = mm.is_shared_writable(object);
        }
    }

    /// Stores until it gets through, or the manager says that it will not.
    pub(crate) fn store(&self, id: SpaceId, page: u64, value: u64) -> Result<(), Outcome> {
        self.through(id, page, Access::Write, || {
            let done = self.machine.sim.user_store(at(page), 8, value);
            engine::changed();
            done.is_ok().then_some(())
        })
    }
    /// What a program finds in a page.
    pub(crate) fn load(&self, id: SpaceId, page: u64) -> String {
        let read = || self.machine.sim.user_load(at(page), 8).ok();
        match self.through(id, page, Access::Read, read) {
            Ok(value) => value.to_string(),
            Err(Outcome::Refused(_)) => "refused".into(),
            Err(other) => format!("{other:?}"),
        }
    }
    fn through<R>(
        &self,
        id: SpaceId,
        page: u64,
        access: Access,
        go: impl Fn() -> Option<R>,
    ) -> Result<R, Outcome> {
        /// Faults that an access takes at most.
        const FAULTS_MAX: usize = 60;
        let mut last = Outcome::OutOfMemory;
        for _ in 0..FAULTS_MAX {
            self.walk(at(page), access == Access::Write);
            if let Some(done) = self.machine.inside(&go) {
                return Ok(done);
            }
            last = self.mm.fault(id, at(page), access);
            if matches!(
                last,
                Outcome::Refused(_)
                    | Outcome::Userfault(_)
                    | Outcome::UserfaultWrite(_)
                    | Outcome::UserfaultPresent(_)
                    | Outcome::OutOfMemory
                    | Outcome::OverLimit
                    | Outcome::NoHugePage(_)
            ) {
                return Err(last);
            }
        }
        engine::fail(&format!("an access never gets through, last {last:?}"));
        Err(last)
    }
    /// Says which words the machine is about to walk.
    fn walk(&self, va: Va, writes: bool) {
        use foliant::table::{Entry, Slot};
        let mut table = self.machine.root(self.machine.cpu());
        let (mut walked, mut reached) = (Vec::new(), None);
        for level in (0..P::LEVELS).rev().map(Level) {
            let slot = Slot::of(va, level);
            let pa = Pa::new(table.get() + 8 * slot.index() as u64);
            let Some(word) = self.machine.peek(pa) else { break };
            match P::decode(word, level, slot) {
                Entry::Table(next) => {
                    walked.push((pa, false));
                    table = next;
                }
                Entry::Leaf { pa: to, .. } => {
                    walked.push((pa, true));
                    let inside = va.get() & (level.span().get() - 1);
                    reached = Some(Pa::new(to.get() + inside));
                    break;
                }
                _ => {
                    walked.push((pa, false));
                    break;
                }
            }
        }
        self.machine.program(&walked, reached, writes);
    }
}
