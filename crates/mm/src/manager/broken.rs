//! The face of memory that breaks (`split::broken`, `space::broken`).

use super::Manager;
use crate::folio::ReserveError;
use crate::frame::{Flag, Identity, Kind};
use crate::space;
use crate::split::{RelocateError, SplitError};
use crate::stock::{Event, NoBlock};
use crate::sync::Outside;
use crate::table::Paging;
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Frame, FrameRange, Pages};

/// How often a folio is tried whose mappings change meanwhile, or that others work on.
const TRIES: u32 = 32;

/// What became of a broken frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poisoned {
    /// It is in use, or kept for use in a pool, and will not be used again.
    Held,
    /// It is not part of a folio: take it out with [`Manager::reserve`].
    NotInUse,
}

/// What is known of memory that is to be retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Its contents are lost.
    Done,
    /// Its contents are good, and may soon be lost.
    Foreseen,
}

/// What became of memory that was retired. It will not be used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retired {
    /// Nobody had it.
    Free,
    /// Nobody has it any more: an access to it is refused
    /// ([`Refusal::Broken`](crate::fault::Refusal::Broken)).
    Lost,
    /// Those that had it have other memory instead, with the same contents: its folio is now here.
    Moved(Frame),
}

/// Why memory was not retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotRetired {
    /// It is no program's: a table, a record, the kernel's own, or no memory at all.
    Kernel(Frame),
    /// It is used by other ways than entries ([`Manager::anchor`], [`Manager::reference`]). What is
    /// lost stays mapped, and is not used again when it is let go.
    Pinned(Frame),
    /// Others were at work on it each time that it was tried; of what is lost the same holds.
    Busy(Frame),
    /// It is in a huge page of a pool that is in use, and those do not move.
    Huge(Frame),
    /// There is no memory to move it to.
    NoBlock(NoBlock),
}

impl fmt::Display for NotRetired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRetired::Kernel(frame) => write!(f, "{frame} is in no program's memory"),
            NotRetired::Pinned(frame) => {
                write!(f, "the folio of {frame} is pinned: try again when it is let go")
            }
            NotRetired::Busy(frame) => {
                write!(f, "the folio of {frame} is being worked on: try again")
            }
            NotRetired::Huge(frame) => {
                write!(f, "{frame} is in a huge page of a pool that is in use: unmap that")
            }
            NotRetired::NoBlock(none) => none.fmt(f),
        }
    }
}
impl error::Error for NotRetired {}

/// How a try ended.
enum Tried {
    Done(Retired),
    /// It was retired before.
    Before,
    Not(NotRetired),
    /// It is something else by now, or for this reason may soon be.
    Again(fn(Frame) -> NotRetired),
}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Marks a frame as broken: the folio that holds it is never given back. It stays mapped, and
    /// it is for callers that cannot wait for more; [`retire`](Manager::retire) takes it away, and
    /// if it comes after this then the whole folio, for the mark does not say which frame it is.
    pub fn poison(&self, frame: Frame) -> Poisoned {
        if !self.stock.poison(frame) {
            // A page of a pool that is being cut is nobody's for a moment.
            self.pools().wait_for_demotion();
            if !self.stock.poison(frame) {
                return Poisoned::NotInUse;
            }
        }
        self.pools().retire(frame);
        Poisoned::Held
    }

    /// Takes a frame out of use for good, with as little harm as can be: of what is lost no more
    /// than this page, whatever folio it is in, but of a pool the whole huge page. All that map it
    /// lose it, wherever it is mapped; when this returns no CPU has a translation to it.
    pub fn retire(&self, frame: Frame, damage: Damage) -> Result<Retired, NotRetired> {
        let (mut tries, mut outside) = (TRIES, Outside::at_the_face());
        let done = loop {
            let identity = self.stock.look(frame);
            let tried = match identity.kind() {
                Kind::Plain => self.retire_free(frame),
                Kind::Space | Kind::Kernel => Tried::Not(NotRetired::Kernel(frame)),
                Kind::Anon | Kind::Tail => match damage {
                    Damage::Done => self.retire_lost(frame),
                    Damage::Foreseen => self.retire_moved(frame),
                },
                Kind::Huge | Kind::HugeTail => self.retire_huge(frame, damage, &mut outside),
            };
            tries -= 1;
            match tried {
                Tried::Done(retired) => {
                    self.stock.count(Event::Retired);
                    break Ok(retired);
                }
                Tried::Before => break Ok(Retired::Lost),
                Tried::Not(why) => break Err(why),
                Tried::Again(why) if tries == 0 => break Err(why(frame)),
                Tried::Again(_) => {
                    self.stock.machine.relax();
                    outside.yield_now(self.stock.machine);
                }
            }
        };
        if done.is_err() && damage == Damage::Done {
            self.poison(frame);
        }
        done
    }
    fn retire_free(&self, frame: Frame) -> Tried {
        let Some(one) = FrameRange::new(frame, Pages::new(1)) else {
            return Tried::Not(NotRetired::Kernel(frame));
        };
        match self.reserve(one) {
            Ok(()) => Tried::Done(Retired::Free),
            Err(ReserveError::InUse(_)) if self.stock.look(frame).kind() != Kind::Plain => {
                Tried::Again(NotRetired::Busy)
            }
            Err(_) => Tried::Not(NotRetired::Kernel(frame)),
        }
    }
    fn retire_lost(&self, frame: Frame) -> Tried {
        let _work = self.stock.at_work(); // with the pieces that nothing maps
        match self.splitter().withdraw(frame) {
            Ok(()) => Tried::Done(Retired::Lost),
            Err(why) => self.stays(frame, why),
        }
    }
    fn retire_moved(&self, frame: Frame) -> Tried {
        let _work = self.stock.at_work();
        match self.splitter().evacuate(frame) {
            Ok(target) => Tried::Done(Retired::Moved(target)),
            Err(RelocateError::NoBlock(none)) => Tried::Not(NotRetired::NoBlock(none)),
            Err(RelocateError::Stays(why)) => self.stays(frame, why),
        }
    }
    fn stays(&self, frame: Frame, why: SplitError) -> Tried {
        match why {
            // The pin may be that of another CPU which tries to hold it.
            SplitError::Pinned(_) => Tried::Again(NotRetired::Pinned),
            _ if self.is_broken_for_good(frame) => Tried::Before,
            _ => Tried::Again(NotRetired::Busy),
        }
    }
    /// Whether a folio was retired already.
    fn is_broken_for_good(&self, frame: Frame) -> bool {
        let head = self.stock.look(frame).head(frame);
        let is_marked = self.stock.look(head).has(Flag::Poisoned);
        is_marked && self.stock.get_own(frame).is_none()
    }
    fn retire_huge(&self, frame: Frame, damage: Damage, outside: &mut Outside) -> Tried {
        if damage == Damage::Foreseen {
            return match self.pools().dissolve(frame) {
                Ok(_) => Tried::Again(NotRetired::Busy), // it is free
                Err(_) => Tried::Not(NotRetired::Huge(frame)),
            };
        }
        let head = |identity: Identity| self.stock.look(identity.head(frame));
        let was_marked = head(self.stock.look(frame)).has(Flag::Poisoned);
        if self.poison(frame) == Poisoned::NotInUse {
            return Tried::Again(NotRetired::Busy);
        }
        let marked = self.stock.look(frame);
        if !matches!(marked.kind(), Kind::Huge | Kind::HugeTail) {
            return Tried::Again(NotRetired::Busy);
        }
        space::withdraw(&self.stock, (marked.head(frame), marked.order()), outside);
        self.collect(); // its pool loses it
        if was_marked { Tried::Before } else { Tried::Done(Retired::Lost) }
    }
}
