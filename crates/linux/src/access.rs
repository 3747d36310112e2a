//! What a program's access that the processor refuses becomes.

use crate::errno::Errno;
use crate::pages::{PAGE, range};
use crate::process::Process;
use crate::told::{self, Told};
use crate::vma::{Family, Marks, Vma};
use foliant::fault::Refusal;
use foliant::manager::{Anchor, AnchorError};
use foliant::space::Area;
use foliant::table::{Attrs, Entry, Found, Paging, SoftKind};
use foliant::{Access, Outcome};
use foliant_machine::Machine;
use foliant_units::{Level, Order, Va, VaRange};
use linux_raw_sys::general::{
    BUS_ADRERR, BUS_MCEERR_AR, SEGV_ACCERR, SEGV_MAPERR, SIGBUS, SIGSEGV,
};

/// What stays free between an area that grows down and an accessible one below it.
const STACK_GAP: u64 = crate::place::STACK_GAP;

/// A signal to the thread that made the access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// `SIGSEGV` or `SIGBUS`.
    pub number: u32,
    /// Its `si_code`.
    pub code: u32,
    /// Its `si_addr`: the byte that was accessed.
    pub addr: u64,
    /// Its `si_addr_lsb`: the logarithm of how many bytes are broken there; 0 where none are.
    pub lsb: u16,
}

/// How an access ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is possible now: the program makes it again.
    Done,
    /// The thread gets a signal.
    Signal(Signal),
    /// The areas have to change first: call [`fault_alone`](Process::fault_alone).
    Alone,
    /// The program itself answers: its handler gets the message, and the thread waits.
    Told(Told),
    /// There is no memory for the page: a process has to end.
    OutOfMemory,
}

impl<'a, 'm, M: Machine, P: Paging> Process<'a, 'm, M, P> {
    /// Handles an access that the processor refused, beside others of the process.
    pub fn fault(&self, addr: u64, access: Access) -> Fault {
        let admits = |area: &Area| !self.may_found(&Vma::of(area), access);
        match self.mm.fault_where(self.space, Va::new(addr), access, &admits) {
            Outcome::Refused(Refusal::NotAdmitted(_)) => Fault::Alone,
            Outcome::Refused(Refusal::NoArea(_)) if self.growing(addr).is_some() => Fault::Alone,
            outcome => self.answer(addr, access, outcome),
        }
    }
    /// Whether the access may be the first that gives a vma a page of its own.
    fn may_found(&self, vma: &Vma, access: Access) -> bool {
        let is_large = || {
            if vma.is_of_file() {
                return false;
            }
            let orders = self.mm.policy().allowed(vma.flags, self.switches.folios);
            orders.contains(Order::SIZE_2M)
        };
        let is_first = vma.tag.family == Family(0) && !vma.is_shared();
        is_first && (access == Access::Write || is_large())
    }

    /// Whether a guard is in a page's place.
    pub(crate) fn is_guarded(&self, addr: u64) -> bool {
        let page = addr & !(PAGE - 1);
        let is_guard =
            |found: Found| matches!(found.entry, Entry::Soft(soft) if soft.kind == SoftKind::Guard);
        let page = range(page, page + PAGE);
        self.mm.with_leaves(self.space, page, |mut leaves| leaves.any(is_guard)).unwrap_or(false)
    }

    /// The same while nothing else of the process is at work: a stack may grow, and an area may get
    /// its first page.
    pub fn fault_alone(&mut self, addr: u64, access: Access) -> Fault {
        let vma = match self.vma(addr) {
            Some(vma) => Some(vma),
            None => self.grow(addr),
        };
        let Some(vma) = vma else { return segv(SEGV_MAPERR, addr) };
        let takes_one = access == Access::Write && vma.takes_copies() && !self.is_guarded(addr);
        if takes_one && self.adopt(vma.start()).is_err() {
            return Fault::OutOfMemory;
        }
        let outcome = self.mm.fault(self.space, Va::new(addr), access);
        // Large zeros belong to a family as pages do.
        if outcome == Outcome::ZeroPage(Order::SIZE_2M) && self.adopt(vma.start()).is_err() {
            return Fault::OutOfMemory;
        }
        self.answer(addr, access, outcome)
    }

    /// Anchors the page at an address, and those of the same folio behind it up to `end`, for
    /// whoever reaches them past the page tables: what `pin_user_pages` with `FOLL_LONGTERM` does
    /// for a part of a range. Where a fault would not have brought the page, says how that ends; a
    /// stack does not grow.
    pub fn anchor(
        &mut self,
        addr: u64,
        end: u64,
        access: Access,
    ) -> Result<Anchor<'a, 'm, M, P>, Fault> {
        let vma = self.vma(addr).ok_or(segv(SEGV_MAPERR, addr))?;
        let part = VaRange::new(Va::new(addr), Va::new(end.min(vma.end())));
        let part = part.filter(|part| !part.is_empty()).ok_or(segv(SEGV_MAPERR, addr))?;
        // It gets a page of its own, even to be read.
        if vma.takes_copies() && !self.is_guarded(addr) && self.adopt(vma.start()).is_err() {
            return Err(Fault::OutOfMemory);
        }
        loop {
            let outcome = match self.mm.anchor(self.space, part, access) {
                Ok(anchor) => return Ok(anchor),
                Err(AnchorError::NoPage(outcome)) => outcome,
                Err(AnchorError::Kernel(_)) => return Err(segv(SEGV_ACCERR, addr)),
                Err(AnchorError::TooMany(_)) => return Err(Fault::OutOfMemory),
            };
            match self.answer(addr, access, outcome) {
                Fault::Done => {} // a write that was told by itself
                fault => return Err(fault),
            }
        }
    }

    fn answer(&self, addr: u64, access: Access, outcome: Outcome) -> Fault {
        match outcome {
            Outcome::Mapped(_) | Outcome::ZeroPage(_) | Outcome::Copied => Fault::Done,
            Outcome::Reused | Outcome::Spurious => Fault::Done,
            Outcome::Refused(Refusal::NoRight(..)) => segv(SEGV_ACCERR, addr),
            Outcome::Refused(Refusal::Broken(_)) => {
                let bytes = self.vma(addr).map_or(PAGE, |vma| vma.page_bytes());
                let lsb = bytes.ilog2() as u16;
                let (number, code) = (SIGBUS, BUS_MCEERR_AR);
                Fault::Signal(Signal { number, code, addr, lsb })
            }
            Outcome::Refused(Refusal::Beyond(_)) => bus(BUS_ADRERR, addr),
            Outcome::Refused(_) => segv(SEGV_MAPERR, addr),
            Outcome::NoHugePage(_) => bus(BUS_ADRERR, addr),
            Outcome::Userfault(_) => self.told(addr, told::missing(access == Access::Write)),
            Outcome::UserfaultWrite(_) if self.lifts_by_itself() => match self.lift(addr) {
                Ok(()) => Fault::Done,
                Err(_) => Fault::OutOfMemory,
            },
            Outcome::UserfaultWrite(_) => self.told(addr, told::WATCHED),
            Outcome::UserfaultPresent(_) => self.told(addr, told::present(access == Access::Write)),
            Outcome::OutOfMemory | Outcome::OverLimit => Fault::OutOfMemory,
        }
    }

    /// What becomes of a fault that the program answers itself.
    fn told(&self, addr: u64, flags: u32) -> Fault {
        let page = self.vma(addr).map_or(PAGE, |vma| vma.page_bytes());
        let told = self.handler.and_then(|handler| handler.told(addr, page, flags));
        told.map_or(bus(BUS_ADRERR, addr), Fault::Told)
    }

    /// The vma that would have to grow for an access where none is, if nothing is in its way.
    fn growing(&self, addr: u64) -> Option<Vma> {
        let vma = self.vma_at_or_after(addr).filter(|v| v.tag.marks.has(Marks::GROWS_DOWN))?;
        let start = addr & !(PAGE - 1);
        let below = start.checked_sub(1).and_then(|last| self.vma_before(last));
        let is_near = |below: &Vma| {
            let grows = below.tag.marks.has(Marks::GROWS_DOWN);
            !grows && below.is_accessible() && start - below.end() < STACK_GAP
        };
        let is_low = start < self.mm.lowest_address().get();
        (!is_low && !below.as_ref().is_some_and(is_near)).then_some(vma)
    }
    /// Whether the limits allow a vma to grow down to `start`.
    fn may_reach(&self, vma: &Vma, start: u64) -> bool {
        let more = vma.start() - start;
        vma.end() - start <= self.limits.stack.get()
            && self.may_grow(more / PAGE, false)
            && (!vma.tag.marks.has(Marks::ACCOUNTED) || self.may_promise(more / PAGE))
            && self.may_lock(vma.tag.marks, more).is_ok()
    }
    /// The last vma that begins at or below `addr`, if it is so near that it could stand in the
    /// way.
    fn vma_before(&self, addr: u64) -> Option<Vma> {
        self.vmas_in(addr.saturating_sub(STACK_GAP), addr + 1).last()
    }
    /// Extends a stack to an access below it.
    fn grow(&mut self, addr: u64) -> Option<Vma> {
        let vma = self.growing(addr)?;
        // Linux gives it a family first, and asks then whether it may grow so far.
        self.adopt(vma.start()).ok()?;
        let vma = self.vma(vma.start())?;
        if !self.may_reach(&vma, addr & !(PAGE - 1)) {
            return None;
        }
        let more = range(addr & !(PAGE - 1), vma.start());
        // What it grows down to is another, however equal.
        let tag = self.coloured(&self.situation(more.start().get(), vma.end()), vma.flags, vma.tag);
        if tag != vma.tag {
            self.retag(vma.range, vma.flags, tag).ok()?;
        }
        self.put_as(&self.situation(more.start().get(), more.end().get()), vma.flags, tag).ok()?;
        self.vma(addr)
    }

    /// Gives families to the vmas of a range that large zeros were mapped in.
    pub(crate) fn adopt_where_zeros_are_large(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<(), Errno> {
        self.each_part(start, end, |process, vma, part| {
            if vma.tag.family != Family(0) || !process.may_found(&vma, Access::Read) {
                return Ok(());
            }
            let is_large = |found: &Found| match found.entry {
                Entry::Leaf { attrs, .. } => found.level > Level::BASE && attrs.has(Attrs::SPECIAL),
                _ => false,
            };
            let has_large = process.mm.with_leaves(process.space, part, |mut leaves| {
                leaves.any(|found| is_large(&found))
            });
            if has_large == Some(true) { process.adopt(vma.start()) } else { Ok(()) }
        })
    }
}

fn segv(code: u32, addr: u64) -> Fault {
    Fault::Signal(Signal { number: SIGSEGV, code, addr, lsb: 0 })
}
fn bus(code: u32, addr: u64) -> Fault {
    Fault::Signal(Signal { number: SIGBUS, code, addr, lsb: 0 })
}
