//! What the areas of a process show of files.
//!
//! **Not here**: what a view is (`view`), and how an area comes to be (`map`).

use crate::errno::Errno;
use crate::pages::range;
use crate::process::Process;
use crate::situation::Situation;
use crate::view::View;
use crate::vma::{Moved, Vma};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use foliant::Access;
use foliant::space::{Advice, Flags, SpaceId};
use foliant::table::{Entry, Paging, SoftKind};
use foliant_machine::Machine;
use foliant_units::Frame;

impl<'a, 'm, M: Machine, P: Paging> Process<'a, 'm, M, P> {
    /// What a vma shows of a file, if it shows one.
    pub(crate) fn view(&self, vma: &Vma) -> Option<&View<'a, 'm, M, P>> {
        if vma.is_of_file() { self.views.get(vma.tag.moved) } else { None }
    }
    /// Does what takes areas of a range away, and lets go of files that are mapped no longer.
    pub(crate) fn letting_go<R>(
        &mut self,
        situation: &Situation,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let start = situation.start();
        let views = |part: Vma| part.is_of_file().then_some(part.tag.moved);
        let mut gone: BTreeSet<Moved> = self.parts_on(situation).filter_map(views).collect();
        let done = work(self);
        // What is left of a view lies near most of the time.
        let mut left = self.parts_from(start).chain(self.parts_in(0, start)).filter_map(views);
        while !gone.is_empty()
            && let Some(view) = left.next()
        {
            gone.remove(&view);
        }
        drop(left);
        if !gone.is_empty() {
            self.views.forget(&gone);
        }
        done
    }
    /// Lets go of files that are mapped no longer.
    pub(crate) fn forget_views(&mut self) {
        let kept = self.parts_from(0).filter(Vma::is_of_file).map(|part| part.tag.moved).collect();
        self.views.keep(&kept);
    }
    /// Whether the page at an address of a vma is the file's own, and no copy of it.
    pub(crate) fn is_files(&self, vma: &Vma, addr: u64, frame: Frame) -> bool {
        let Some(view) = self.view(vma) else { return false };
        if vma.is_huge() {
            return vma.is_shared(); // such a file shows its pages to programs alone
        }
        let (object, page) = view.page(addr);
        let page = self.mm.object_page(object, page, Access::Read);
        page.is_ok_and(|page| page.is_some_and(|page| page.frame() == frame))
    }

    /// Makes of what the parent has in a shared vma what a child gets of it: Linux copies page
    /// tables there only where guards are or were in them. **Not here**: with the guards it copies
    /// what the program has poisoned.
    pub(crate) fn copy_shared(&mut self, parent: SpaceId, vma: &Vma) -> Result<(), Errno> {
        let mut found = Vec::new();
        self.mm.with_leaves(parent, vma.range, |leaves| found.extend(leaves));
        let mut parts = Vec::new();
        for one in found {
            let how = match one.entry {
                Entry::Leaf { .. } => Advice::PopulateRead,
                Entry::Soft(soft) if soft.kind == SoftKind::Guard => Advice::GuardInstall,
                Entry::None | Entry::Table(_) | Entry::Soft(_) => continue,
            };
            let (from, to) = (one.va.get(), one.va.get() + one.level.span().get());
            let part = range(from.max(vma.start()), to.min(vma.end()));
            parts.push((part, how));
        }
        // What nobody may read is there all the same.
        let rights = vma.flags.and(Flags::RIGHTS);
        let is_shut = !parts.is_empty() && rights == Flags::NONE;
        let is_opened = is_shut && self.mm.protect(self.space, vma.range, Flags::READ).is_ok();
        for (part, how) in &parts {
            match self.mm.advise(self.space, *part, *how) {
                Err(_) if *how == Advice::PopulateRead => {} // it comes by a fault
                done => done?,
            }
        }
        if is_opened {
            self.mm.protect(self.space, vma.range, rights)?;
        }
        // A page comes with what is around it, which the parent may have dropped.
        let starts = parts.iter().map(|(part, _)| part.start().get()).chain([vma.end()]);
        let ends = [vma.start()].into_iter().chain(parts.iter().map(|(part, _)| part.end().get()));
        for (from, to) in ends.zip(starts).filter(|(from, to)| from < to) {
            self.mm.advise(self.space, range(from, to), Advice::DontNeed)?;
        }
        Ok(())
    }
}
