//! The face of what a handler does: pages that it fills, and those that it watches.

use super::Manager;
use crate::fault::{
    Access, Demand, Fault, FillError, FillWith, Filling, HugeContents, Need, Offers, Outcome,
    Refusal, Unfilled,
};
use crate::space::{self, Flags, RangeError, SpaceId, Steps, Watch};
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Puts pages where none are, from `va` on, in memory that is armed
    /// ([`Advice::UserfaultArm`](space::Advice)): as the handler does that is told of
    /// [`Outcome::Userfault`]. Each page is there for all CPUs at once, with all that is in it.
    /// In a shared area of an object it is the object's, and is refused where that has one; in a
    /// private one it is the space's own. The rights of the areas are not asked. Others may run
    /// between any two pages.
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
            let why = match self.fill_page(id, at, with.page(nth), &mut outside) {
                Outcome::Mapped(_) | Outcome::ZeroPage(_) => continue,
                Outcome::Spurious => FillError::Present(at),
                Outcome::OutOfMemory => RangeError::NoMemory.into(),
                Outcome::OverLimit => self.over_limit(id).into(),
                Outcome::Refused(Refusal::NoSpace) => RangeError::NoSpace.into(),
                Outcome::Refused(Refusal::Beyond(_)) => FillError::Beyond(at),
                _ => FillError::Unarmed(at),
            };
            return Err(Unfilled { done, why });
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
        let (mut outside, mut came) = (Outside::at_the_face(), false);
        let outcome = loop {
            let outcome = match self.fill_huge_once((id, va), contents, &mut came, &mut outside) {
                Some(Outcome::OutOfMemory | Outcome::OverLimit | Outcome::NoHugePage(_)) => {
                    let _looking = self.stock.last_look(&mut outside);
                    self.fill_huge_once((id, va), contents, &mut came, &mut outside)
                }
                outcome => outcome,
            };
            match outcome {
                Some(Outcome::Refused(Refusal::NoArea(_)))
                    if let Some(area) = self.settled_area(id, va, &mut outside)
                        && let Some(order) = area.flags.huge_order()
                        && area.flags.has(Flags::USERFAULT) =>
                {
                    if !va.is_aligned(order.bytes()) {
                        return Err(RangeError::Cuts(va, order.bytes()).into());
                    }
                }
                outcome => break outcome,
            }
        };
        match outcome {
            Some(Outcome::Mapped(_)) => Ok(()),
            Some(Outcome::Spurious) => Err(FillError::Present(va)),
            Some(Outcome::OutOfMemory | Outcome::NoHugePage(_)) => Err(RangeError::NoMemory.into()),
            Some(Outcome::OverLimit) => Err(self.over_limit(id).into()),
            Some(Outcome::Refused(Refusal::NoSpace)) => Err(RangeError::NoSpace.into()),
            Some(Outcome::Refused(Refusal::Beyond(_))) => Err(FillError::Beyond(va)),
            Some(_) => Err(FillError::Unarmed(va)),
            None => Err(FillError::NoContents(va)),
        }
    }
    /// Does so once, in a space or in that of an object; none where the contents ended. `came` is
    /// noted when the page came into the area's object.
    fn fill_huge_once(
        &self,
        (id, va): (SpaceId, Va),
        contents: &mut dyn HugeContents,
        came: &mut bool,
        outside: &mut Outside,
    ) -> Option<Outcome> {
        let (demand, offers) = (Demand::page(va, Access::Write), Offers::default());
        let outcome = loop {
            let got = {
                let _reading = self.stock.reading_of(outside);
                match id.peek(&self.stock) {
                    None => Ok(Outcome::Refused(Refusal::NoSpace)),
                    Some(space) => {
                        let switches = &self.switches;
                        Fault::new(&self.stock, space, switches, demand, &offers).fill_huge(*came)
                    }
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
                Err(Need::OfObject(at)) => {
                    let object = offers.object.take().expect("it is asked for with its object");
                    match self.fill_huge_once((object, at), contents, &mut false, outside) {
                        Some(Outcome::Mapped(_)) => *came = true,
                        // The object ended, and so did the area.
                        Some(Outcome::Refused(Refusal::NoSpace)) => {}
                        Some(Outcome::Refused(_)) => {
                            break Some(Outcome::Refused(Refusal::Beyond(va)));
                        }
                        other => break other,
                    }
                }
                Err(need) => match self.supply((id, va), need, &offers, outside) {
                    Ok(()) => {}
                    Err(outcome) => break Some(outcome),
                },
            }
        };
        self.withdraw_offers(&offers);
        outcome
    }
    /// Has writes to the pages of a range told ([`Outcome::UserfaultWrite`]), or not any more.
    /// Areas that are armed for writes ([`Advice::UserfaultWriteArm`](space::Advice)) cover it
    /// without a hole.
    pub fn watch(&self, id: SpaceId, range: VaRange, watch: Watch) -> Result<(), RangeError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        space::watch(&self.stock, &space, range, watch, &mut Steps::at_the_face())
    }

    /// Fills one page; without memory it looks once more, and without an area behind the writer, as
    /// a fault does (fault::E7, fault::E9).
    fn fill_page(&self, id: SpaceId, va: Va, with: Filling<'_>, outside: &mut Outside) -> Outcome {
        let mut came = false;
        loop {
            let outcome = match self.fill_once((id, va), with, &mut came, outside) {
                Outcome::OutOfMemory | Outcome::OverLimit => {
                    let _looking = self.stock.last_look(outside);
                    self.fill_once((id, va), with, &mut came, outside)
                }
                outcome => outcome,
            };
            match outcome {
                Outcome::Refused(Refusal::NoArea(_))
                    if self.settled_area(id, va, outside).is_some_and(|area| with.suits(&area)) => {
                }
                outcome => return outcome,
            }
        }
    }
    /// Does so once; `came` is noted when the page came into the area's object.
    fn fill_once(
        &self,
        (id, va): (SpaceId, Va),
        with: Filling<'_>,
        came: &mut bool,
        outside: &mut Outside,
    ) -> Outcome {
        let (demand, offers) = (Demand::page(va, Access::Write), Offers::default());
        loop {
            let got = {
                let _reading = self.stock.reading_of(outside);
                let Some(space) = id.peek(&self.stock) else {
                    return Outcome::Refused(Refusal::NoSpace);
                };
                Fault::new(&self.stock, space, &self.switches, demand, &offers).fill(with, *came)
            };
            match got {
                Ok(Outcome::OutOfMemory) if self.relieve() => {}
                Ok(outcome) => return outcome,
                Err(Need::Wait) => {
                    self.stock.machine.relax();
                    outside.yield_now(self.stock.machine);
                }
                Err(Need::OfObject(at)) => {
                    let object = offers.object.take().expect("it is asked for with its object");
                    match self.fill_once((object, at), with, &mut false, outside) {
                        Outcome::Mapped(_) => *came = true,
                        // The object ended, and so did the area.
                        Outcome::Refused(Refusal::NoSpace) => {}
                        Outcome::Refused(_) => return Outcome::Refused(Refusal::Beyond(va)),
                        other => return other,
                    }
                }
                Err(need) => unreachable!("a page is filled with what is at hand, not {need:?}"),
            }
        }
    }
}
