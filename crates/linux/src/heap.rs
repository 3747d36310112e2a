//! `brk`.

use crate::pages::{PAGE, page_align};
use crate::place::gap_end;
use crate::process::Process;
use crate::vma::{Marks, Tag};
use foliant::space::Flags;
use foliant::table::Paging;
use foliant_machine::Machine;

/// What stays free between the heap and what lies above it.
const ABOVE: u64 = PAGE;

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Moves the end of the heap, where that can be done. The answer is where it ends now.
    pub fn brk(&mut self, addr: u64) -> u64 {
        if self.heap_moves(addr).is_some() {
            self.heap_end = addr;
        }
        self.heap_end
    }

    fn heap_moves(&mut self, addr: u64) -> Option<()> {
        let heap = self.layout.heap.get();
        let bytes = addr.checked_sub(heap)?;
        if bytes > self.limits.data.get() {
            return None;
        }
        let (new, old) = (page_align(addr), page_align(self.heap_end));
        if new == old {
            return Some(());
        }
        if addr <= self.heap_end {
            // The program may have unmapped the end of its heap, and then it cannot shrink.
            self.vma_at_or_after(new).filter(|vma| vma.start() < old)?;
            return self.unmapping((new, old), |process| process.take_out_unsealed(new, old)).ok();
        }
        if new < old || new > Self::size() {
            return None;
        }
        self.may_lock(self.future, new - old).ok()?;
        let above = self.vma_at_or_after(old);
        if above.is_some_and(|above| new + ABOVE > gap_end(&above)) {
            return None;
        }
        let pages = (new - old) / PAGE;
        if !self.may_grow(pages, true) || !self.may_promise(pages) {
            return None;
        }
        let tag = Tag { marks: self.future.with(Marks::ACCOUNTED), ..Tag::default() };
        self.put_beside(&self.situation(old, new), Flags::READ_WRITE, tag).ok()?;
        if self.future.has(Marks::LOCKED) {
            self.bring_what_can(old, new);
        }
        Some(())
    }
}
