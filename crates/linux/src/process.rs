//! A process, as far as its memory goes.

use crate::errno::Errno;
use crate::family::Families;
use crate::mempolicy::Policies;
use crate::overcommit::Promise;
use crate::pages::{PAGE, range};
use crate::size::Size;
use crate::switches::Switches;
use crate::told::{Change, Handler};
use crate::view::Views;
use crate::vma::{Family, Marks, Tag, Vma};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant::Manager;
use foliant::space::{Advice, Flags, SpaceId};
use foliant::table::{Half, Paging};
use foliant_machine::Machine;
use foliant_units::{Bytes, Pages, Va, VaRange};

/// Areas that are read at once. Most calls want one and the next.
const AT_ONCE: usize = 4;

/// Where things go in a process, as the loader chose it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Where the heap begins: what `brk` answers at first.
    pub heap: Va,
    /// Areas are placed below, as high as they fit.
    pub top: Va,
    /// An address in the stack that the program began with, which is called so in lists.
    pub stack: Va,
}

/// What a process may have. [`Limits::NONE`] is what a privileged process usually has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// All of its areas together (`RLIMIT_AS`).
    pub address_space: Bytes,
    /// Its private areas that may be written, and the heap (`RLIMIT_DATA`).
    pub data: Bytes,
    /// An area that grows downwards (`RLIMIT_STACK`).
    pub stack: Bytes,
    /// What it may lock (`RLIMIT_MEMLOCK`).
    pub locked: Bytes,
    /// What calls may ask for that memory has to be promised for.
    pub promise: Promise,
}

impl Limits {
    /// No limit, but for a stack of 8 MiB.
    pub const NONE: Limits = Limits {
        address_space: Bytes::new(u64::MAX),
        data: Bytes::new(u64::MAX),
        stack: Bytes::new(8 << 20),
        locked: Bytes::new(u64::MAX),
        promise: Promise::Always,
    };
}

/// A process's memory: its space, and what Linux knows of it beside. It ends with
/// [`end`](Process::end).
pub struct Process<'a, 'm, M: Machine, P: Paging> {
    pub(crate) mm: &'a Manager<'m, M, P>,
    pub(crate) space: SpaceId,
    pub(crate) layout: Layout,
    pub(crate) limits: Limits,
    /// Pages promised since the limits were set (overcommit::O2).
    granted: AtomicU64,
    /// Where the heap ends, not rounded.
    pub(crate) heap_end: u64,
    /// What new vmas are marked with: `mlockall` with `MCL_FUTURE`.
    pub(crate) future: Marks,
    pub(crate) switches: Switches,
    pub(crate) families: Families,
    /// The memory policies of its ranges (mbind::B1).
    pub(crate) policies: Policies,
    pub(crate) size: Size,
    pub(crate) views: Views<'a, 'm, M, P>,
    /// The descriptor that vmas are armed by (userfault::D1).
    pub(crate) handler: Option<Handler>,
    /// How many descriptors of `userfaultfd` there were.
    pub(crate) descriptors: u64,
    /// Changes of which handlers are to be told.
    pub(crate) changes: Vec<(u64, Change)>,
}

impl<'a, 'm, M: Machine, P: Paging> Process<'a, 'm, M, P> {
    /// A process without any area.
    pub fn new(
        mm: &'a Manager<'m, M, P>,
        layout: Layout,
        limits: Limits,
    ) -> Result<Process<'a, 'm, M, P>, Errno> {
        Ok(Self::of(mm, mm.create(None)?, layout, limits))
    }
    /// The process of a space of which nothing is known yet.
    fn of(mm: &'a Manager<'m, M, P>, space: SpaceId, layout: Layout, limits: Limits) -> Self {
        Process {
            mm,
            space,
            layout,
            limits,
            granted: AtomicU64::new(0),
            heap_end: layout.heap.get(),
            future: Marks::NONE,
            switches: Switches::NONE,
            families: Families::default(),
            policies: Policies::new(),
            size: Size::default(),
            views: Views::new(),
            handler: None,
            descriptors: 0,
            changes: Vec::new(),
        }
    }

    /// Its space, for a CPU to run.
    pub fn space(&self) -> SpaceId {
        self.space
    }
    /// The manager that it is in.
    pub fn manager(&self) -> &'a Manager<'m, M, P> {
        self.mm
    }
    /// What it may have.
    pub fn limits(&self) -> Limits {
        self.limits
    }
    /// Sets what it may have; what it has stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        *self.granted.get_mut() = 0;
    }
    /// Gives all its memory back. No CPU may run its space.
    pub fn end(self) -> Result<(), Errno> {
        Ok(self.mm.end(self.space)?)
    }

    /// A second process with the same memory. What is shared stays shared; each page of the rest is
    /// copied when either of them writes it.
    pub fn fork(&mut self) -> Result<Process<'a, 'm, M, P>, Errno> {
        self.promise_copies()?;
        // What was never written is not copied: zeros, and pages of a file, come by themselves.
        let space = self.mm.fork_where(self.space, &|area| Vma::of(area).is_copied())?;
        let mut child = Process {
            heap_end: self.heap_end,
            switches: self.switches.inherited(),
            families: self.families.clone(),
            policies: self.policies.clone(),
            size: Size::of(self.size.pages(), 0),
            views: self.views.clone(),
            ..Self::of(self.mm, space, self.layout, self.limits)
        };
        // What is one vma to the parent is one to the child, and not one with a neighbour.
        let starts: Vec<u64> = self.vmas().map(|vma| vma.start()).collect();
        let apart = |child: &mut Self| starts.iter().try_for_each(|start| child.part_at(*start));
        // Whose faults a program answered is as its neighbours to the manager by now.
        let first = if self.handler.is_some() { apart(&mut child) } else { Ok(()) };
        let made = first.and_then(|()| child.inherit(self.space)).and_then(|()| apart(&mut child));
        match made.and_then(|()| self.note_fork(&mut child)) {
            Ok(()) => {
                child.size = Size::of(child.size.pages(), child.resident());
                Ok(child)
            }
            Err(why) => {
                child.end()?;
                Err(why)
            }
        }
    }

    /// Pages of its vmas that it was promised memory for.
    pub(crate) fn promised(&self) -> Pages {
        let is_promised = |vma: &Vma| vma.tag.marks.has(Marks::ACCOUNTED);
        Pages::new(self.bytes_in(0, u64::MAX, is_promised) / PAGE)
    }
    /// Promises a child the memory for its copies, where that is counted.
    fn promise_copies(&self) -> Result<(), Errno> {
        let is_promised =
            |vma: &Vma| vma.tag.marks.has(Marks::ACCOUNTED) && !vma.tag.marks.has(Marks::DONT_FORK);
        // Linux asks for one vma after the other.
        let may = match self.limits.promise {
            Promise::Guess(all) if self.pages() <= all.get() => true, // no vma is larger
            Promise::Always => true,
            _ => {
                let pages = |vma: Vma| (vma.end() - vma.start()) / PAGE;
                self.vmas().filter(is_promised).map(pages).all(|pages| self.may_promise(pages))
            }
        };
        if may { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// Makes of a copy of the parent's areas what a child has of them.
    fn inherit(&mut self, parent: SpaceId) -> Result<(), Errno> {
        let mut known = BTreeSet::new();
        let vmas: Vec<Vma> = self.vmas().collect();
        for vma in vmas {
            if vma.tag.marks.has(Marks::DONT_FORK) {
                self.take_out(&self.situation(vma.start(), vma.end()))?;
                continue;
            }
            let is_guarded = vma.tag.marks.has(Marks::GUARDED);
            if !vma.is_copied() && self.has_leaves(vma.range) {
                // A leaf may have come with those of a neighbour.
                self.mm.advise(self.space, vma.range, Advice::DontNeed)?;
                if !vma.is_huge() {
                    self.mm.advise(self.space, vma.range, Advice::GuardRemove)?;
                }
            }
            if is_guarded && vma.is_shared() {
                self.copy_shared(parent, &vma)?;
            }
            let mut tag = vma.tag;
            tag.marks = tag.marks.without(Marks::LOCKED.with(Marks::ON_FAULT));
            if tag.marks.has(Marks::WIPE_ON_FORK) {
                tag.family = Family::default();
            }
            // Each vma of a family gets one of its own.
            if tag.family != Family::default() && !known.insert(tag.family) {
                tag.family = self.families.found();
            }
            self.set_tag(vma.range, vma.flags, tag)?;
        }
        self.families.all_inherited();
        self.recount();
        Ok(())
    }

    fn has_leaves(&self, range: VaRange) -> bool {
        let first = self.mm.with_leaves(self.space, range, |mut leaves| leaves.next());
        first.flatten().is_some()
    }

    /// The addresses that a program can have, without the last page of them: Linux's `TASK_SIZE`.
    pub(crate) fn size() -> u64 {
        P::half(Half::User).1.get() & !(PAGE - 1)
    }

    /// The first vma that ends above `addr`.
    pub fn vma_at_or_after(&self, addr: u64) -> Option<Vma> {
        let [mut below, found, mut above] = self.parts_around(addr);
        let mut vma = found?;
        while let Some(lower) = below.filter(|lower| lower.end() == vma.start())
            && lower.is_like(&vma)
        {
            vma.range = range(lower.start(), vma.end());
            below = vma.start().checked_sub(1).and_then(|last| self.part_of_vma(last));
        }
        while let Some(upper) = above.filter(|upper| upper.start() == vma.end())
            && upper.is_like(&vma)
        {
            vma.range = range(vma.start(), upper.end());
            above = self.part_of_vma(vma.end());
        }
        Some(vma)
    }
    /// The part of a vma that ends above `addr`, the lowest, between the part below it and the one
    /// above.
    pub(crate) fn parts_around(&self, addr: u64) -> [Option<Vma>; 3] {
        let around = self.mm.areas_around(self.space, Va::new(addr));
        around.map(|area| area.map(|area| Vma::of(&area)))
    }
    /// The parts of vmas that are one area each, from the one that ends above `addr` on.
    pub(crate) fn parts_from(&self, addr: u64) -> impl Iterator<Item = Vma> {
        let mut some = [None; AT_ONCE];
        let (mut next, mut count, mut at) = (0, 0, addr);
        let mut most = 1; // most walks end with the first
        core::iter::from_fn(move || {
            if next == count {
                next = 0;
                count = self.mm.areas_at_or_after(self.space, Va::new(at), &mut some[..most]);
                most = AT_ONCE;
            }
            let part = some.get(next).copied().flatten().filter(|_| next < count)?;
            next += 1;
            at = part.range.end().get();
            Some(Vma::of(&part))
        })
    }
    /// The same up to an address.
    pub(crate) fn parts_in(&self, start: u64, end: u64) -> impl Iterator<Item = Vma> {
        self.parts_from(start).take_while(move |part| part.start() < end)
    }
    /// The part of a vma that is one area, which `addr` lies in.
    pub(crate) fn part_of_vma(&self, addr: u64) -> Option<Vma> {
        self.mm.area(self.space, Va::new(addr)).map(|area| Vma::of(&area))
    }
    /// The vma that `addr` lies in.
    pub fn vma(&self, addr: u64) -> Option<Vma> {
        self.vma_at_or_after(addr).filter(|vma| vma.start() <= addr)
    }
    /// All of them, lowest first.
    pub fn vmas(&self) -> impl Iterator<Item = Vma> {
        self.vmas_in(0, u64::MAX)
    }
    /// Those with an address of `start..end`, each whole.
    pub(crate) fn vmas_in(&self, start: u64, end: u64) -> impl Iterator<Item = Vma> {
        let mut at = start;
        core::iter::from_fn(move || {
            let vma = self.vma_at_or_after(at).filter(|vma| vma.start() < end)?;
            at = vma.end();
            Some(vma)
        })
    }
    /// Hands the parts of vmas that lie in `start..end` to `work`, lowest first and each with its
    /// vma, until one fails. Work on one may change the next.
    pub(crate) fn each_part(
        &mut self,
        start: u64,
        end: u64,
        mut work: impl FnMut(&mut Self, Vma, VaRange) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut at = start;
        while at < end
            && let Some(vma) = self.vma_at_or_after(at).filter(|vma| vma.start() < end)
        {
            let part = range(vma.start().max(at), vma.end().min(end));
            work(self, vma, part)?;
            at = part.end().get();
        }
        Ok(())
    }
    /// The same without going over a hole: there it ends with ENOMEM.
    pub(crate) fn each_part_up_to_a_hole(
        &mut self,
        start: u64,
        end: u64,
        mut work: impl FnMut(&mut Self, Vma, VaRange) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut at = start;
        self.each_part(start, end, |process, vma, part| {
            if part.start().get() > at {
                return Err(Errno::NOMEM);
            }
            at = part.end().get();
            work(process, vma, part)
        })?;
        if at < end { Err(Errno::NOMEM) } else { Ok(()) }
    }
    /// Bytes of vmas in `start..end`, those that are `counted`.
    pub(crate) fn bytes_in(&self, start: u64, end: u64, counted: impl Fn(&Vma) -> bool) -> u64 {
        let inside = |part: Vma| part.end().min(end) - part.start().max(start);
        self.parts_in(start, end).filter(counted).map(inside).sum()
    }
    /// Whether vmas cover `start..end` without a hole.
    pub(crate) fn is_covered(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        for vma in self.parts_in(start, end) {
            if vma.start() > at {
                return false;
            }
            at = vma.end();
        }
        at >= end
    }

    /// Gives the areas of a range, which has no hole and these flags, another tag, apart from its
    /// neighbours.
    pub(crate) fn retag(&mut self, at: VaRange, flags: Flags, tag: Tag) -> Result<(), Errno> {
        self.set_tag(at, flags, tag)?;
        self.recount();
        Ok(())
    }
    fn set_tag(&mut self, at: VaRange, flags: Flags, tag: Tag) -> Result<(), Errno> {
        let situation = self.situation(at.start().get(), at.end().get());
        let tag = self.coloured(&situation, flags, tag);
        Ok(self.mm.advise(self.space, at, Advice::Tag(tag.word()))?)
    }
    /// Pages of all its areas.
    pub fn pages(&self) -> u64 {
        self.size.pages()
    }
    /// Whether so many more pages of such memory stay within the limits on addresses and on data.
    pub(crate) fn may_grow(&self, pages: u64, is_data: bool) -> bool {
        let limit = |bytes: Bytes| bytes.get() / PAGE;
        let (all, data) = (limit(self.limits.address_space), limit(self.limits.data));
        let none = u64::MAX / PAGE;
        if all < none && self.pages().saturating_add(pages) > all {
            return false;
        }
        let has = || self.bytes_in(0, u64::MAX, is_data_of) / PAGE;
        !is_data || data >= none || has().saturating_add(pages) <= data
    }
    /// Whether memory for so many pages can be promised. It is, then.
    pub(crate) fn may_promise(&self, pages: u64) -> bool {
        match self.limits.promise {
            Promise::Guess(all) => pages <= all.get(),
            Promise::Always => true,
            Promise::Never(left) => {
                let more = |granted: u64| {
                    granted.checked_add(pages).filter(|granted| *granted <= left.get())
                };
                let granted = &self.granted;
                granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
            }
        }
    }
    /// Whether `MAP_NORESERVE` has memory that is not promised.
    pub(crate) fn honours_no_reserve(&self) -> bool {
        !matches!(self.limits.promise, Promise::Never(_))
    }
}

/// Whether a vma counts as data: private, writable, no stack.
pub(crate) fn is_data_of(vma: &Vma) -> bool {
    vma.takes_copies() && !vma.tag.marks.has(Marks::GROWS_DOWN)
}
