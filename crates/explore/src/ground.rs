//! What operations work on: one manager, what a scene has put there, and where.

use crate::machine::Explored;
use foliant::manager::Anchor;
use foliant::pool::SubpoolId;
use foliant::space::{self, Flags, MapError, MapRequest, ObjectId, SpaceId};
use foliant::table::Paging;
use foliant::{Access, Manager, Outcome, Reference};
use foliant_units::{Bytes, Frame, FrameRange, Order, Va, VaRange};
use std::cell::{Cell, RefCell};

pub(crate) const MB: u64 = 1 << 20;
pub(crate) const PAGE: u64 = 4096;
/// Where the pages are that all lanes work on.
pub(crate) const BASE: u64 = 0x10_0000_0000;
/// Where they move to.
pub(crate) const ELSEWHERE: u64 = BASE + 64 * MB;
/// Where huge pages of the pool are.
pub(crate) const HUGE: u64 = BASE + 256 * MB;
/// Where there is an area of 2 MiB, in a scene without free memory.
pub(crate) const FULL: Va = Va::new(HUGE + 128 * MB);
/// Where the last huge page of the pool may be.
pub(crate) const LAST_HUGE: Va = Va::new(HUGE + 64 * MB);
/// Where memory is that nobody works on before a guess comes there, a block for each lane.
pub(crate) const GUESSES: u64 = BASE + 400 * MB;
pub(crate) const GUESSES_BYTES: u64 = 16 * MB;
/// Which place is guessed for by the lane of this number.
pub(crate) fn guessed(nth: u64) -> u64 {
    GUESSES + (2 * nth + 1) * 2 * MB
}
/// Pages side by side behind which memory grows.
pub(crate) const RUN: u64 = 4;
/// Where pages come one by one, and how many at most.
pub(crate) const SINGLE: u64 = BASE + 100 * MB;
pub(crate) const SINGLE_MAX: u64 = 5000;
/// Where a stack ends.
pub(crate) const STACK: u64 = BASE + 192 * MB;
/// Where kernel memory is mapped to the program.
pub(crate) const SHARED: Va = Va::new(BASE + 128 * MB);
/// Where objects are mapped: so many places, each of two blocks of 2 MiB.
pub(crate) const OBJECTS: u64 = BASE + 336 * MB;
pub(crate) const OBJECT_PLACE: u64 = 4 * MB;
/// Pages that the object has room for.
pub(crate) const OBJECT_PAGES: u64 = 512;
/// A page of the object that nothing maps but the private area.
pub(crate) const SEEN: u64 = 60;
/// Where an object of one huge page is mapped shared, and privately.
pub(crate) const POOLED: Va = Va::new(BASE + 480 * MB);
pub(crate) const POOLED_COPY: Va = Va::new(BASE + 484 * MB);
/// Where the program has pages go to.
pub(crate) const TRANSFERRED: u64 = BASE + 488 * MB;
/// Where further areas are.
pub(crate) const TREE: u64 = 0x8_0000_0000;

pub(crate) fn range(start: u64, bytes: u64) -> VaRange {
    VaRange::sized(Va::new(start), Bytes::new(bytes)).expect("a scene's range")
}
pub(crate) fn at(page: u64) -> Va {
    Va::new(BASE + page * PAGE)
}
/// The page behind `BASE` at an address.
pub(crate) fn page_at(va: Va) -> u64 {
    (va.get() - BASE) / PAGE
}

/// Where an area of the object is, or may come to be. In each page n of the object is the n-th.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Shared.
    Shared,
    /// Private.
    Private,
    /// Where the shared one moves.
    Moved,
    /// Where the private one moves.
    MovedPrivate,
    /// A part is mapped here, and another one moves in.
    Onto,
    /// Where another one comes.
    New,
}

impl Place {
    pub(crate) const ALL: [Place; 6] =
        [Place::Shared, Place::Private, Place::Moved, Place::MovedPrivate, Place::Onto, Place::New];
    pub(crate) fn start(self) -> u64 {
        OBJECTS + self as u64 * OBJECT_PLACE
    }
    /// Where a page of the object is, as a page behind `BASE`.
    pub(crate) fn page(self, page: u64) -> u64 {
        (self.start() - BASE) / PAGE + page
    }
    pub(crate) fn all(self) -> VaRange {
        range(self.start(), OBJECT_PAGES * PAGE)
    }
}

pub(crate) type Mm<P> = Manager<'static, Explored, P>;

/// A world that was built for a plan.
pub(crate) struct Scene<P: Paging> {
    pub(crate) machine: &'static Explored,
    pub(crate) mm: &'static Mm<P>,
    pub(crate) id: SpaceId,
    /// How many further areas there are.
    pub(crate) areas: u64,
    pub(crate) cpus: usize,
    pub(crate) children: Vec<SpaceId>,
    /// All spaces that are left.
    pub(crate) spaces: RefCell<Vec<SpaceId>>,
    /// The frame that the first page is in before any lane acts.
    pub(crate) frame: Option<Frame>,
    /// The frame that the next fault where nothing is takes.
    pub(crate) next: Option<Frame>,
    /// Whether an operation works on kernel memory while no other does.
    pub(crate) wants_kernel_alone: bool,
    pub(crate) kept: RefCell<Vec<Reference<'static, 'static, Explored, P>>>,
    /// What is anchored, and whether it is the program's alone.
    pub(crate) anchors: RefCell<Vec<(Anchor<'static, 'static, Explored, P>, bool)>>,
    pub(crate) broken: RefCell<Vec<Frame>>,
    pub(crate) lent: RefCell<Vec<(Frame, Order)>>,
    /// All free memory, in a scene that has none left.
    pub(crate) hoard: RefCell<Vec<Frame>>,
    /// Kernel memory that lanes keep.
    pub(crate) taken: RefCell<Vec<Va>>,
    /// Memory that can be added.
    pub(crate) spare: RefCell<Vec<FrameRange>>,
    pub(crate) kernel: Option<VaRange>,
    /// A free page of the pool.
    pub(crate) huge: Cell<Frame>,
    /// A page of the pool that is mapped.
    pub(crate) mapped_huge: Option<Frame>,
    /// A frame of the embedder's, and whether it has mapped it.
    pub(crate) own: Frame,
    /// The object, and the frame of its first page.
    pub(crate) object: Option<(ObjectId, Frame)>,
    /// The object of huge pages.
    pub(crate) pooled: Option<(ObjectId, SubpoolId)>,
    pub(crate) is_mapped: Cell<bool>,
}

impl<P: Paging> Scene<P> {
    pub(crate) fn map(
        &self,
        start: u64,
        bytes: u64,
        place: fn(Va) -> space::Place,
    ) -> Result<VaRange, MapError> {
        let request = MapRequest {
            place: place(Va::new(start)),
            bytes: Bytes::new(bytes),
            flags: Flags::READ_WRITE,
            tag: 0,
        };
        self.mm.map(self.id, &request)
    }
    /// A page of its own comes, and the time of guesses goes on.
    pub(crate) fn single(&self, nth: u64) -> Outcome {
        self.mm.fault(self.id, Va::new(SINGLE + nth * PAGE), Access::Write)
    }
    /// A fault in a block of 2 MiB where nothing is, behind pages of the block before.
    pub(crate) fn guess(&self, nth: u64) -> Outcome {
        self.mm.fault(self.id, Va::new(guessed(nth)), Access::Write)
    }
    pub(crate) fn object(&self) -> ObjectId {
        self.object.expect("the plan says that it is needed").0
    }
    pub(crate) fn pooled(&self) -> ObjectId {
        self.pooled.expect("the plan says that it is needed").0
    }
    pub(crate) fn child(&self, nth: usize) -> Option<SpaceId> {
        self.children.get(nth).copied()
    }
    /// Kernel memory of four pages.
    pub(crate) fn kernel(&self) -> VaRange {
        self.kernel.expect("the plan says that it is needed")
    }
}
