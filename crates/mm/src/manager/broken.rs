//! The face of memory that breaks (`split::broken`, `space::broken`).

use super::Manager;
use crate::folio::ReserveError;
use crate::frame::{Flag, Identity, Kind};
use crate::pool::{Ground, NotDissolved, Taken};
use crate::space;
use crate::split::{RelocateError, SplitError};
use crate::stock::{Event, NoBlock};
use crate::sync::Outside;
use crate::table::Paging;
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Frame, FrameRange, Pages};

/// How often what may be over in a moment is tried: a fault or another holder pins a folio, or has
/// taken memory that is in no folio yet.
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
    /// It is in no folio: a table, a record, the kernel's own, or no memory at all. Or it is on its
    /// way to a program or back, or being retired: its caller may try again.
    NoFolio(Frame),
    /// It is used by other ways than entries ([`Manager::anchor`], [`Manager::reference`]): its
    /// caller tries again, or marks it ([`Manager::poison`]), so that it is not used again.
    Pinned(Frame),
    /// It is in a huge page of a pool that is free, as are others, but all of these are reserved.
    Reserved(Frame),
    /// There is no memory to move it to.
    NoBlock(NoBlock),
}

impl fmt::Display for NotRetired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRetired::NoFolio(frame) => write!(f, "{frame} is in no program's memory"),
            NotRetired::Pinned(frame) => {
                write!(f, "the folio of {frame} is pinned: try again when it is let go")
            }
            NotRetired::Reserved(frame) => {
                write!(f, "{frame} is in a huge page that is reserved: make its pool larger first")
            }
            NotRetired::NoBlock(none) => none.fmt(f),
        }
    }
}
impl error::Error for NotRetired {}

/// How one try to retire a frame ended.
enum Try {
    Done(Retired),
    /// It was retired before.
    Before,
    Not(NotRetired),
    /// It is something else by now, or others are at work on it.
    Again,
    /// This may be over in a moment.
    Later(NotRetired),
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
    /// than this page, whatever folio it is in. A huge page of a pool is lost as a whole to those
    /// that map it, and what is sound of it is free as soon as nobody has it. All that map it lose
    /// it, wherever it is mapped; when this returns no CPU has a translation to it. It waits for
    /// all that is being done with it, and a little for pins; what is not retired is as it was.
    pub fn retire(&self, frame: Frame, damage: Damage) -> Result<Retired, NotRetired> {
        let (mut tries, mut outside) = (TRIES, Outside::at_the_face());
        let mut moved = None; // a huge page is moved first, and what it had is given up then
        loop {
            let identity = self.stock.look(frame);
            let tried = match identity.kind() {
                Kind::Plain => self.retire_free(frame),
                Kind::Space | Kind::Kernel => Try::Not(NotRetired::NoFolio(frame)),
                Kind::Anon | Kind::Tail => match damage {
                    Damage::Done => self.retire_lost(frame),
                    Damage::Foreseen => self.retire_moved(frame),
                },
                Kind::Huge | Kind::HugeTail => match damage {
                    Damage::Done => self.retire_huge(frame, &mut outside),
                    Damage::Foreseen => self.leave_huge(frame, &mut moved, &mut outside),
                },
            };
            match tried {
                Try::Done(retired) => {
                    self.stock.count(Event::Retired);
                    return Ok(moved.map_or(retired, Retired::Moved));
                }
                Try::Before => return Ok(Retired::Lost),
                Try::Not(why) => return Err(why),
                Try::Later(why) if tries == 0 => return Err(why),
                Try::Later(_) => tries -= 1,
                Try::Again => {}
            }
            self.stock.machine.relax();
            outside.yield_now(self.stock.machine);
        }
    }
    fn retire_free(&self, frame: Frame) -> Try {
        let one = FrameRange::new(frame, Pages::new(1));
        match one.map(|one| self.reserve(one)) {
            Some(Ok(())) => Try::Done(Retired::Free),
            Some(Err(ReserveError::InUse(_))) => Try::Later(NotRetired::NoFolio(frame)),
            None | Some(Err(ReserveError::Foreign(_))) => Try::Not(NotRetired::NoFolio(frame)),
        }
    }
    fn retire_lost(&self, frame: Frame) -> Try {
        let _work = self.stock.at_work(); // with the pieces that nothing maps
        match self.splitter().withdraw(frame) {
            Ok(()) => Try::Done(Retired::Lost),
            Err(why) => self.stays(frame, why),
        }
    }
    fn retire_moved(&self, frame: Frame) -> Try {
        let _work = self.stock.at_work();
        match self.splitter().evacuate(frame) {
            Ok(target) => Try::Done(Retired::Moved(target)),
            // It broke before.
            Err(RelocateError::Stays(SplitError::Broken(_))) => self.retire_lost(frame),
            Err(RelocateError::NoBlock(none)) => Try::Not(NotRetired::NoBlock(none)),
            Err(RelocateError::Stays(why)) => self.stays(frame, why),
        }
    }
    fn stays(&self, frame: Frame, why: SplitError) -> Try {
        match why {
            SplitError::Pinned(_) => Try::Later(NotRetired::Pinned(frame)),
            _ if self.stock.is_lost(frame) => Try::Before,
            _ => Try::Again,
        }
    }
    /// Gives the huge page that holds `frame` up where it is free, and takes the frame out. Where
    /// it is in use it is moved before, which notes where to.
    fn leave_huge(&self, frame: Frame, moved: &mut Option<Frame>, outside: &mut Outside) -> Try {
        let leaving = self.pools().leave();
        let done = match self.pools().dissolve(frame) {
            Ok(_) => return self.retire_free(frame),
            Err(NotDissolved::NotHuge(_)) => return Try::Again,
            Err(NotDissolved::Broken(_)) => return Try::Before,
            Err(NotDissolved::Reserved(_)) => return Try::Not(NotRetired::Reserved(frame)),
            Err(NotDissolved::Busy(_)) => self.move_huge(frame),
        };
        match done {
            Ok(target) => {
                *moved = Some(target);
                self.retire_free(frame)
            }
            Err(RelocateError::Stays(SplitError::Broken(_))) => {
                drop(leaving);
                self.retire_huge(frame, outside)
            }
            Err(RelocateError::Stays(why)) => self.stays(frame, why),
            Err(RelocateError::NoBlock(none)) => Try::Not(NotRetired::NoBlock(none)),
        }
    }
    /// Moves the huge page that holds `frame` to another one of its pool, or to one that is made
    /// for it and that the pool has in its place. What it had is given up.
    fn move_huge(&self, frame: Frame) -> Result<Frame, RelocateError> {
        let _work = self.stock.at_work();
        let order = self.splitter().movable_huge(frame).map_err(RelocateError::Stays)?;
        let to = match self.pools().take_to_replace(order) {
            Taken::Page(to) => to,
            Taken::Wait => return Err(RelocateError::Stays(SplitError::Busy(frame))),
            Taken::Nothing => return Err(RelocateError::NoBlock(NoBlock { order })),
        };
        match self.splitter().relocate_huge(frame, to) {
            Ok((target, old)) => {
                self.pools().give_up_taken(old);
                Ok(target)
            }
            Err((why, to)) => {
                if let Some(to) = to {
                    self.pools().put_back(to, Ground::FREE);
                }
                Err(RelocateError::Stays(why))
            }
        }
    }
    fn retire_huge(&self, frame: Frame, outside: &mut Outside) -> Try {
        let head = |identity: Identity| self.stock.look(identity.head(frame));
        let was_marked = head(self.stock.look(frame)).has(Flag::Poisoned);
        if self.poison(frame) == Poisoned::NotInUse {
            return Try::Again;
        }
        // Kept, it is a huge page until nobody maps it. What nobody keeps nobody maps, for the one
        // that makes an entry sees the mark (space::broken::Y1).
        if let Some(kept) = self.stock.pin_huge(frame) {
            let order = self.stock.identity(kept.head()).order();
            space::withdraw(&self.stock, (kept.head(), order), outside);
        } else if !matches!(self.stock.look(frame).kind(), Kind::Huge | Kind::HugeTail) {
            return Try::Again;
        }
        self.collect(); // its pool loses it
        self.pools().salvage();
        if was_marked { Try::Before } else { Try::Done(Retired::Lost) }
    }
}
