//! The face of what a handler does: pages that it fills, those that it has go from one place to
//! another, and those that it watches.

use super::Manager;
use crate::fault::{
    Access, Demand, Fault, FillError, FillWith, Filling, HugeContents, Need, Offers, Outcome,
    Refusal, Unfilled,
};
use crate::space::{
    self, Area, Halt, Holes, RangeError, SpaceId, Steps, TransferError, Untransferred, Watch,
};
use crate::split::SplitInto;
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};

/// How often a folio is to be split that somebody has pinned, before it counts as shared.
const TRIES: u32 = 32;
/// No contents: of what is not huge.
const NONE: &[[u8; FRAME_BYTES as usize]] = &[];

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Puts pages where none are, from `va` on, in memory that is armed
    /// ([`Advice::UserfaultArm`](space::Advice)): as the handler does that is told of
    /// [`Outcome::Userfault`]. Each page is there for all CPUs at once, with all that is in it.
    /// In a shared area of an object it is the object's, and is refused where that has one; in a
    /// private one it is the space's own. The rights of the areas are not asked. Others may run
    /// between any two pages. What the object has already is let in by [`FillWith::Present`], as
    /// the handler does that is told of [`Outcome::UserfaultPresent`]; a huge page as a whole,
    /// from where it begins.
    pub fn fill(&self, id: SpaceId, va: Va, with: FillWith<'_>) -> Result<(), Unfilled> {
        let none = |why: RangeError| Unfilled { done: Bytes::new(0), why: why.into() };
        let pages = with.pages().get();
        let bytes = pages.checked_mul(FRAME_BYTES).map(Bytes::new);
        let range = bytes.and_then(|bytes| VaRange::sized(va, bytes));
        let range = range.ok_or(none(RangeError::Outside(va)))?;
        space::check::<P>(range).map_err(none)?;
        let mut outside = Outside::at_the_face();
        for nth in 0..pages {
            outside.yield_now(self.stock.machine);
            let done = Bytes::new(nth * FRAME_BYTES);
            let at = va.add(done.get());
            self.fill_page((id, at), (with.page(nth), &mut { NONE }), &mut outside)
                .map_err(|why| Unfilled { done, why })?;
        }
        Ok(())
    }
    /// Puts a huge page of a pool with these contents where none is, in memory that is armed
    /// ([`Advice::UserfaultArm`](space::Advice)). `va` is where it begins. The page is there for
    /// all CPUs at once, and it is the object's in a shared area of one. Without a page for it, it
    /// is refused with [`RangeError::NoMemory`]. Others may run between any two pieces.
    pub fn fill_huge(
        &self,
        id: SpaceId,
        va: Va,
        contents: &mut dyn HugeContents,
    ) -> Result<(), FillError> {
        let armed = self.area(id, va).filter(Area::is_armed);
        match armed.and_then(|area| area.flags.huge_order()) {
            Some(order) if !va.is_aligned(order.bytes()) => {
                Err(RangeError::Cuts(va, order.bytes()).into())
            }
            _ => {
                let with = Filling::Huge { is_watched: contents.is_watched() };
                self.fill_page((id, va), (with, contents), &mut Outside::at_the_face())
            }
        }
    }
    /// Has writes to the pages of a range told ([`Outcome::UserfaultWrite`]), or not any more.
    /// Areas that are armed for writes ([`Advice::UserfaultWriteArm`](space::Advice)) cover it
    /// without a hole.
    pub fn watch(&self, id: SpaceId, range: VaRange, watch: Watch) -> Result<(), RangeError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        space::watch(&self.stock, &space, range, watch, &mut Steps::at_the_face())
    }

    /// Has the pages of `from` go to addresses from `to` on, where nothing is, in memory that is
    /// armed: each keeps its frame, with all that is in it, and nothing is left where it was. Both
    /// are writable memory of the space's own with the same rights. A page that a child may have
    /// too stays, and ends the transfer; a large folio of which a part goes is split. One flush
    /// covers up to 64 pages, or a folio of 2 MiB that one leaf maps. Others may run between any
    /// two flushes.
    pub fn transfer(
        &self,
        id: SpaceId,
        from: VaRange,
        to: Va,
        holes: Holes,
    ) -> Result<(), Untransferred> {
        let (mut outside, mut done, mut tries) = (Outside::at_the_face(), 0, 0);
        while done < from.bytes().get() || done == 0 {
            outside.yield_now(self.stock.machine);
            let rest = VaRange::new(from.start().add(done), from.end()).expect("a part of it");
            let failed = |why| Err(Untransferred { done: Bytes::new(done), why });
            match self.transfer_some(id, (rest, to.add(done)), holes) {
                Ok(bytes) => {
                    done += bytes.get();
                    tries = 0;
                }
                Err(Halt::Failed(why)) => return failed(why),
                Err(Halt::Waits | Halt::Changed) => {}
                Err(Halt::Taken) => self.stock.machine.relax(),
                Err(Halt::Split(_)) if tries == TRIES => {
                    return failed(TransferError::Shared(rest.start()));
                }
                // Where it is not split somebody has it, or it is another's by now.
                Err(Halt::Split(frame)) => {
                    if self.split_frame(frame, SplitInto::BASE).is_err() {
                        self.stock.machine.relax();
                    }
                    tries += 1;
                }
            }
        }
        Ok(())
    }
    fn transfer_some(
        &self,
        id: SpaceId,
        pages: (VaRange, Va),
        holes: Holes,
    ) -> Result<Bytes, Halt> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        space::transfer(&self.stock, &space, pages, holes, &mut Steps::at_the_face())
    }

    /// Fills one page, a huge one with these contents; without memory it looks once more, and
    /// without an area behind the writer, as a fault does (fault::E7, fault::E9).
    fn fill_page(
        &self,
        (id, va): (SpaceId, Va),
        (with, contents): (Filling<'_>, &mut dyn HugeContents),
        outside: &mut Outside,
    ) -> Result<(), FillError> {
        let mut came = false;
        let mut once = |outside: &mut Outside| {
            let outcome = self.fill_once((id, va), (with, contents), &mut came, outside);
            outcome.ok_or(FillError::NoContents(va))
        };
        let outcome = loop {
            let outcome = match once(outside)? {
                Outcome::OutOfMemory | Outcome::OverLimit | Outcome::NoHugePage(_) => {
                    let _looking = self.stock.last_look(outside);
                    once(outside)?
                }
                outcome => outcome,
            };
            let suits = |area: &Area| with.suits(area, va);
            match outcome {
                Outcome::Refused(Refusal::NoArea(_))
                    if self.settled_area(id, va, outside).is_some_and(|area| suits(&area)) => {}
                outcome => break outcome,
            }
        };
        Err(match outcome {
            Outcome::Mapped(_) | Outcome::ZeroPage(_) => return Ok(()),
            Outcome::Spurious => FillError::Present(va),
            Outcome::OutOfMemory | Outcome::NoHugePage(_) => RangeError::NoMemory.into(),
            Outcome::OverLimit => self.over_limit(id).into(),
            Outcome::Refused(Refusal::NoSpace) => RangeError::NoSpace.into(),
            Outcome::Refused(Refusal::Beyond(_)) => FillError::Beyond(va),
            Outcome::Refused(Refusal::Broken(_)) => RangeError::Broken(va).into(),
            _ => FillError::Unarmed(va),
        })
    }
    /// Does so once, in a space or in that of an object; none where the contents ended. `came` is
    /// noted when the page came into the area's object.
    fn fill_once(
        &self,
        (id, va): (SpaceId, Va),
        (with, contents): (Filling<'_>, &mut dyn HugeContents),
        came: &mut bool,
        outside: &mut Outside,
    ) -> Option<Outcome> {
        let (demand, offers) = (Demand::page(va, Access::Write), Offers::default());
        let outcome = loop {
            let got = {
                let _reading = self.stock.reading_of(outside);
                let fault = |space| Fault::new(&self.stock, space, &self.switches, demand, &offers);
                match id.peek(&self.stock) {
                    Some(space) => fault(space).fill(with, *came),
                    None => Ok(Outcome::Refused(Refusal::NoSpace)),
                }
            };
            match got {
                Ok(Outcome::OutOfMemory) if self.relieve() => {}
                Ok(outcome) => break Some(outcome),
                Err(Need::PageContents) => {
                    let mut offer = offers.page.take().expect("contents are asked for with a page");
                    let had_all = offer.write(&self.stock, contents, outside);
                    offers.page.set(Some(offer));
                    if !had_all {
                        break None; // fault::fill::L5
                    }
                }
                Err(Need::OfObject(_)) if with.is_present() => break None, // fault::fill::L6
                Err(Need::OfObject(at)) => {
                    let object = offers.object.take().expect("it is asked for with its object");
                    match self.fill_once((object, at), (with, contents), &mut false, outside) {
                        Some(Outcome::Mapped(_)) => *came = true,
                        // The object ended, and so did the area.
                        Some(Outcome::Refused(Refusal::NoSpace)) => {}
                        Some(Outcome::Refused(_)) => {
                            break Some(Outcome::Refused(Refusal::Beyond(va)));
                        }
                        other => break other,
                    }
                }
                Err(need) => {
                    if let Err(outcome) = self.supply((id, va), need, &offers, outside) {
                        break Some(outcome);
                    }
                }
            }
        };
        self.withdraw_offers(&offers);
        outcome
    }
}
