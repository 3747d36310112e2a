//! Areas come and go.
//!
//! Each begins with the situation of a range (`situation`): what lies there goes, and what the area
//! touches decides whether it is one with that. What is mapped, and the most that was resident, is
//! counted here (`size`).
//!
//! **Not here**: which area that is (`map`, `heap`, `remap`), and when two are one (`join`).

use crate::errno::Errno;
use crate::overcommit::Promise;
use crate::pages::PAGE;
use crate::process::Process;
use crate::situation::Situation;
use crate::vma::{Tag, Vma};
use foliant::space::{Flags, MapRequest, Place};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::Pages;

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Puts an area in, which is one with its neighbours where Linux makes one of them.
    pub(crate) fn put_beside(
        &mut self,
        situation: &Situation,
        flags: Flags,
        tag: Tag,
    ) -> Result<(), Errno> {
        let new = Vma { range: situation.range, flags, tag };
        let lower = situation.below.filter(|lower| self.would_join(lower, &new));
        let upper = situation.above.filter(|upper| self.would_join(&new, upper));
        // What becomes of the two, where it is what the one is already.
        let near = match (lower, upper) {
            (Some(near), None) | (None, Some(near)) if situation.is_free() => Some(near.tag),
            _ => None,
        };
        match near.filter(|near| near.marks.joined(tag.marks) == near.marks) {
            Some(near) => self.put_as(situation, flags, near),
            None => {
                self.put(situation, flags, tag)?;
                if lower.is_some() || upper.is_some() {
                    self.join(situation.start(), situation.end());
                }
                Ok(())
            }
        }
    }
    /// Puts an area in, apart from its neighbours.
    pub(crate) fn put(
        &mut self,
        situation: &Situation,
        flags: Flags,
        tag: Tag,
    ) -> Result<(), Errno> {
        let tag = self.coloured(situation, flags, tag);
        self.put_as(situation, flags, tag)
    }
    /// Puts an area in that is one with its neighbours where they are equal. It maps the file of
    /// the view that its tag names, if its flags say that it maps one.
    pub(crate) fn put_as(
        &mut self,
        situation: &Situation,
        flags: Flags,
        tag: Tag,
    ) -> Result<(), Errno> {
        let (at, replaced) = (situation.range, self.leaving(situation));
        let page = self.view(&Vma { range: at, flags, tag }).map(|v| v.page(at.start().get()));
        let (place, bytes, tag) = (Place::Fixed(at.start()), at.bytes(), tag.word());
        // The size of an object's pages is the object's.
        let objects = Flags::OBJECT.with(Flags::HUGE_2M).with(Flags::HUGE_1G);
        let flags = if page.is_some() { flags.without(objects) } else { flags };
        let request = MapRequest { place, bytes, flags, tag };
        let done = match page {
            None => self.mm.map(self.space, &request),
            Some(page) => self.mm.map_object(self.space, &request, page),
        };
        // Without pages for an object what lay there may be gone.
        let new = match done {
            Ok(_) => at.pages().get(),
            Err(_) => self.bytes_in(at.start().get(), at.end().get(), |_| true) / PAGE,
        };
        self.size.note(new, replaced);
        self.recount();
        done.map(drop).map_err(Errno::from)
    }

    /// Takes out what lies in a range.
    pub(crate) fn take_out(&mut self, situation: &Situation) -> Result<(), Errno> {
        let gone = self.leaving(situation);
        self.promise_no_longer(situation);
        self.letting_go(situation, |process| {
            process.mm.unmap(process.space, situation.range).map_err(Errno::from)
        })?;
        self.size.note(0, gone);
        self.recount();
        Ok(())
    }
    /// What goes was promised memory, where that is counted: the same call may ask for other
    /// memory.
    fn promise_no_longer(&mut self, situation: &Situation) {
        if let Promise::Never(left) = self.limits.promise {
            let more = self.promised_on(situation);
            self.limits.promise = Promise::Never(Pages::new(left.get().saturating_add(more)));
        }
    }
    /// Pages of areas in a range that may go: what is resident is noted before.
    fn leaving(&mut self, situation: &Situation) -> u64 {
        self.size.note_resident(self.resident());
        self.pages_on(situation)
    }
}
