//! What a record says of its area besides its place: one word.
//!
//! ```text
//!   state (8) │ kind (8) │ marks (8) │ levels of its leaves, a bit each (8) │ calls that lend it out (32)
//! ```
//!
//! ```text
//!   Building ──▶ InUse ◀──▶ Working          Building, Working: one call's alone; in use, calls that lend it to programs
//!                                            may be at work together, and nobody else
//!       └──────────┴──────────┴──▶ Lazy ──▶ gone, with a purge
//! ```

use super::opened::Opened;
use super::record::{Record, RecordWord};
use super::{Vmap, VmapError};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Level, Va};

/// Which calls may touch it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AreaState {
    /// It is being made.
    Building = 1,
    /// It was handed out.
    InUse,
    /// A call works on it.
    Working,
    /// It was given back and waits for a purge.
    Lazy,
}

/// What is behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Pages of its own.
    Pages,
    /// Frames of the caller's.
    Frames,
    /// A device.
    Device,
}

/// A mark that an area keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// Its pages may be mapped into programs.
    Users = 1 << 16,
    /// Attributes of it were changed: it is flushed before its frames go.
    Changed = 1 << 17,
}

const LEVELS: u32 = 24;
const LENDERS: u32 = 32;

/// The word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AreaWord(u64);

impl Record<'_> {
    /// How far into its first page what was asked for begins: a device need not begin at a page.
    pub(super) fn inside(&self) -> u64 {
        match AreaWord::of(self).kind() {
            Backing::Device => self.get(RecordWord::Phys) % FRAME_BYTES,
            Backing::Pages | Backing::Frames => 0,
        }
    }
    /// The address that its owner was given, which names it.
    pub(super) fn name(&self) -> Va {
        self.start().add(self.inside())
    }
}

impl AreaWord {
    pub(super) const fn new(kind: Backing) -> AreaWord {
        AreaWord(AreaState::Building as u64 | (kind as u64) << 8)
    }
    pub(super) fn of(record: &Record<'_>) -> AreaWord {
        AreaWord(record.get(RecordWord::Word))
    }
    pub(super) fn put(self, record: &Record<'_>) {
        record.set(RecordWord::Word, self.0);
    }
    pub(super) const fn state(self) -> AreaState {
        match self.0 as u8 {
            2 => AreaState::InUse,
            3 => AreaState::Working,
            4 => AreaState::Lazy,
            _ => AreaState::Building,
        }
    }
    pub(super) const fn kind(self) -> Backing {
        match (self.0 >> 8) as u8 {
            0 => Backing::Pages,
            1 => Backing::Frames,
            _ => Backing::Device,
        }
    }
    pub(super) const fn has(self, mark: Mark) -> bool {
        self.0 & mark as u64 != 0
    }
    pub(super) const fn with(self, mark: Mark) -> AreaWord {
        AreaWord(self.0 | mark as u64)
    }
    pub(super) const fn has_leaves(self, level: Level) -> bool {
        self.0 >> (LEVELS + level.0 as u32) & 1 == 1
    }
    pub(super) const fn with_leaves(self, level: Level) -> AreaWord {
        AreaWord(self.0 | 1 << (LEVELS + level.0 as u32))
    }
    /// How many calls are lending it to programs.
    const fn lenders(self) -> u64 {
        self.0 >> LENDERS
    }
    const fn with_lenders(self, count: u64) -> AreaWord {
        AreaWord(self.0 & ((1 << LENDERS) - 1) | count << LENDERS)
    }
    pub(super) const fn turned(self, state: AreaState) -> AreaWord {
        AreaWord(self.0 & !0xff | state as u64)
    }
}

/// Which kinds a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    /// Memory of its own.
    Memory,
    /// Mappings of other frames.
    Mappings,
    /// Both.
    Any,
}

/// The area that contains `va`, if no call has it for its own.
fn standing<'m, M: Machine>(
    opened: &Opened<'_, 'm, M>,
    va: Va,
) -> Result<(Record<'m>, AreaWord), VmapError> {
    let area = opened.find(va).ok_or(VmapError::NoArea(va))?;
    let word = AreaWord::of(&area);
    match word.state() {
        AreaState::InUse => Ok((area, word)),
        AreaState::Lazy => Err(VmapError::Freed(area.start())),
        AreaState::Building | AreaState::Working => Err(VmapError::Busy(area.start())),
    }
}

impl<'m, M: Machine, P: Paging> Vmap<'_, 'm, M, P> {
    /// The area in use that contains `va`, from now on this call's alone, if `check` has nothing
    /// against it.
    pub(super) fn seize(
        &self,
        va: Va,
        what: For,
        check: impl FnOnce(&Record<'m>) -> Result<(), VmapError>,
    ) -> Result<Record<'m>, VmapError> {
        let opened = self.open();
        let (area, word) = standing(&opened, va)?;
        if word.lenders() > 0 {
            return Err(VmapError::Busy(area.start()));
        }
        let memory = word.kind() == Backing::Pages;
        if what == For::Memory && !memory || what == For::Mappings && memory {
            return Err(VmapError::OtherKind(area.start()));
        }
        check(&area)?;
        word.turned(AreaState::Working).put(&area);
        Ok(area)
    }
    /// The same by the address that was given out only. A call with another one takes the area from
    /// nobody.
    pub(super) fn seize_named(
        &self,
        va: Va,
        what: For,
        check: impl FnOnce(&Record<'m>) -> Result<(), VmapError>,
    ) -> Result<Record<'m>, VmapError> {
        self.seize(va, what, |area| match area.name() {
            start if start == va => check(area),
            start => Err(VmapError::NotStart { va, start }),
        })
    }
    /// The area of memory in use that contains `va`, for a call that lends it to a program: it
    /// stays, and so does everything about it, until [`take_back`](Self::take_back).
    pub(super) fn lend(&self, va: Va) -> Result<Record<'m>, VmapError> {
        let opened = self.open();
        let (area, word) = standing(&opened, va)?;
        if word.kind() != Backing::Pages {
            return Err(VmapError::OtherKind(area.start()));
        }
        word.with_lenders(word.lenders() + 1).put(&area);
        Ok(area)
    }
    /// Ends what [`lend`](Self::lend) began.
    pub(super) fn take_back(&self, area: &Record<'m>) {
        let _tree = self.open();
        let word = AreaWord::of(area);
        word.with_lenders(word.lenders() - 1).put(area);
    }
    /// Ends this call's work on an area, or its making.
    pub(super) fn let_go(&self, area: &Record<'m>) {
        let _tree = self.open();
        AreaWord::of(area).turned(AreaState::InUse).put(area);
    }
}
