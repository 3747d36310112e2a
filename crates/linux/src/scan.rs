//! `PAGEMAP_SCAN`: which pages of a process are of which kinds, and a watch over those that were
//! written.
//!
//! ```text
//!   pm_scan_arg ─▶ Scan ─▶ Process::scan, round by round: pages ─▶ runs alike ─▶ regions that fit
//!                                                                        └─ those to be watched
//! ```
//!
//! **Invariants**
//! - K1. A region is made of pages that lie side by side and are alike in what is asked to be told.
//! - K2. A page that is told as written and is to be watched is watched when the round is over. So
//!   a write that comes later is told by the next scan, and one that came before is in the page for
//!   whoever reads it after this one.
//! - K3. A round ends where the next region does not fit; the next round begins there.
//!
//! A page that is missing counts as written where there is a table for it, and as nothing where
//! there is none.
//!
//! **Not here**: the descriptor, and how regions come to the program.

use crate::errno::Errno;
use crate::pagemap::{FILE, GUARD, PRESENT, SOFT_DIRTY, SWAPPED, WRITE_PROTECTED};
use crate::pages::{PAGE, is_aligned, range};
use crate::process::Process;
use crate::vma::{Marks, Vma};
use alloc::vec::Vec;
use core::iter;
use foliant::space::{Flags, Watch};
use foliant::table::{Attrs, Entry, Found, Paging, SoftKind};
use foliant_machine::Machine;
use foliant_units::{Level, Va};
use linux_raw_sys::general::{
    PAGE_IS_FILE, PAGE_IS_GUARD, PAGE_IS_HUGE, PAGE_IS_PFNZERO, PAGE_IS_PRESENT,
    PAGE_IS_SOFT_DIRTY, PAGE_IS_SWAPPED, PAGE_IS_WPALLOWED, PAGE_IS_WRITTEN, PM_SCAN_CHECK_WPASYNC,
    PM_SCAN_WP_MATCHING, page_region, pm_scan_arg,
};

const CATEGORIES: u64 = 2 * PAGE_IS_GUARD as u64 - 1;
const WRITTEN: u64 = PAGE_IS_WRITTEN as u64;
const HUGE: u64 = PAGE_IS_HUGE as u64;
/// What a vma may have, and not its pages.
const OF_VMAS: u64 = PAGE_IS_WPALLOWED as u64;
/// What a word of `pagemap` says of a page.
const SAID: [(u64, u32); 5] = [
    (PRESENT, PAGE_IS_PRESENT),
    (SWAPPED, PAGE_IS_SWAPPED),
    (FILE, PAGE_IS_FILE),
    (GUARD, PAGE_IS_GUARD),
    (SOFT_DIRTY, PAGE_IS_SOFT_DIRTY),
];

/// A scan that is under way.
#[derive(Debug)]
pub struct Scan {
    asked: pm_scan_arg,
    /// Where the next round begins.
    at: u64,
    /// Pages that were told.
    found: u64,
    /// A huge page of a pool that was passed over last, for only a part of it was to be watched.
    passed: Option<u64>,
    is_over: bool,
}

/// Pages side by side of one kind.
struct Run {
    start: u64,
    end: u64,
    categories: u64,
    large: Large,
}

/// What Linux does with pages of which only a part is to be watched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Large {
    /// They are small: it watches that part.
    No,
    /// One large page: it takes it apart first.
    Folio,
    /// Huge pages of a pool, of so many bytes: it passes over the one that is cut.
    Pool(u64),
}

impl Scan {
    /// Checks what a program asks, whose addresses end at `highest`.
    fn new(asked: &pm_scan_arg, highest: u64) -> Result<Scan, Errno> {
        let mut asked = *asked;
        let (masks, flags) = (
            asked.category_inverted
                | asked.category_mask
                | asked.category_anyof_mask
                | asked.return_mask,
            u64::from(PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC),
        );
        if asked.size != size_of::<pm_scan_arg>() as u64
            || asked.flags & !flags != 0
            || masks & !CATEGORIES != 0
            || !is_aligned(asked.start)
        {
            return Err(Errno::INVAL);
        }
        let is_in = |start: u64, bytes: Option<u64>| {
            bytes.and_then(|bytes| start.checked_add(bytes)).is_some_and(|end| end <= highest)
        };
        if !is_in(asked.start, asked.end.checked_sub(asked.start)) {
            return Err(Errno::FAULT);
        }
        if asked.vec == 0 && asked.vec_len != 0 {
            return Err(Errno::INVAL);
        }
        let room = asked.vec_len.checked_mul(size_of::<page_region>() as u64);
        if asked.vec != 0 && !is_in(asked.vec, room) {
            return Err(Errno::FAULT);
        }
        asked.end = asked.end.next_multiple_of(PAGE);
        if asked.max_pages == 0 {
            asked.max_pages = u64::MAX;
        }
        let is_over = asked.start >= asked.end;
        Ok(Scan { asked, at: asked.start, found: 0, passed: None, is_over })
    }
    /// Whether all was gone over, or what was asked for was found.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
    /// Up to where it went.
    pub fn walk_end(&self) -> u64 {
        self.passed.unwrap_or(self.at)
    }

    fn watches(&self) -> bool {
        self.asked.flags & u64::from(PM_SCAN_WP_MATCHING) != 0
    }
    fn tells(&self) -> bool {
        self.asked.vec_len != 0
    }
    fn wants(&self, categories: u64) -> bool {
        let it = &self.asked;
        let categories = categories ^ it.category_inverted;
        categories & it.category_mask == it.category_mask
            && (it.category_anyof_mask == 0 || categories & it.category_anyof_mask != 0)
    }
    fn wants_vma(&self, categories: u64) -> bool {
        let needed = self.asked.category_mask & OF_VMAS;
        (categories ^ self.asked.category_inverted) & needed == needed
    }
}

/// What a round has found.
struct Round<'r> {
    scan: &'r mut Scan,
    regions: &'r mut [page_region],
    used: usize,
    /// Ranges to be watched.
    watched: Vec<(u64, u64)>,
}

impl Round<'_> {
    /// Takes a run, as far as there is room. Says whether the round goes on.
    fn take(&mut self, run: &Run) -> Result<bool, Errno> {
        if !self.scan.wants(run.categories) {
            return Ok(true);
        }
        let (start, mut end, mut goes_on) = (run.start, run.end, true);
        let is_watched = self.scan.watches() && run.categories & WRITTEN != 0;
        if self.scan.tells() {
            let left = self.scan.asked.max_pages - self.scan.found;
            if (end - start) / PAGE > left {
                (end, goes_on) = (start + left * PAGE, false);
            }
            if let Large::Pool(bytes) = run.large
                && is_watched
                && end > start
                && !(start | end).is_multiple_of(bytes)
            {
                self.scan.passed = Some(start);
                return Ok(true);
            }
            let is_cut = end < run.end && run.large == Large::Folio && self.scan.watches();
            let categories = if is_cut { run.categories & !HUGE } else { run.categories };
            if end > start && !self.tell(start, end, categories & self.scan.asked.return_mask) {
                (end, goes_on) = (start, false);
            }
            self.scan.found += (end - start) / PAGE;
            if !goes_on {
                (self.scan.at, self.scan.passed) = (end, None);
            }
        }
        let is_hole = run.categories & !(OF_VMAS | u64::from(PAGE_IS_SOFT_DIRTY)) == 0;
        if end > start && (is_watched || is_hole && self.scan.watches()) {
            self.watch(start, end)?;
        }
        Ok(goes_on)
    }
    fn tell(&mut self, start: u64, end: u64, categories: u64) -> bool {
        if let Some(last) = self.regions[..self.used].last_mut()
            && (last.end, last.categories) == (start, categories)
        {
            last.end = end;
            return true;
        }
        let Some(next) = self.regions.get_mut(self.used) else { return false };
        *next = page_region { start, end, categories };
        self.used += 1;
        true
    }
    fn watch(&mut self, start: u64, end: u64) -> Result<(), Errno> {
        match self.watched.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => {
                self.watched.try_reserve(1).map_err(|_| Errno::NOMEM)?;
                self.watched.push((start, end));
            }
        }
        Ok(())
    }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// A scan, if the program asks for one that can be.
    pub fn begin_scan(&self, asked: &pm_scan_arg) -> Result<Scan, Errno> {
        Scan::new(asked, Self::size())
    }
    /// Goes on with a scan, until there is no room for a region. Says how many there are.
    pub fn scan(&self, scan: &mut Scan, regions: &mut [page_region]) -> Result<usize, Errno> {
        let (at, end) = (scan.at, scan.asked.end);
        let mut round = Round { scan, regions, used: 0, watched: Vec::new() };
        let mut done = Ok(true);
        for vma in self.vmas_in(at, end) {
            done = self.scan_vma(&mut round, &vma, vma.start().max(at), vma.end().min(end));
            if done != Ok(true) {
                break;
            }
        }
        let Round { used, watched, scan, .. } = round;
        for (start, end) in watched {
            self.mm.watch(self.space, range(start, end), Watch::All)?; // K2
        }
        let is_cut = done == Ok(false);
        if !is_cut {
            scan.at = end;
        }
        scan.is_over = !is_cut || scan.found == scan.asked.max_pages;
        done.map(|_| used)
    }
    fn scan_vma(
        &self,
        round: &mut Round<'_>,
        vma: &Vma,
        start: u64,
        end: u64,
    ) -> Result<bool, Errno> {
        let may_watch = vma.flags.has(Flags::USERFAULT_WRITE) && self.lifts_by_itself();
        if !may_watch && round.scan.asked.flags & u64::from(PM_SCAN_CHECK_WPASYNC) != 0 {
            return Err(Errno::PERM);
        }
        if !may_watch && round.scan.watches() {
            return Ok(true);
        }
        let dirty = !vma.tag.marks.has(Marks::CLEAN);
        let when = |is: bool, category: u32| if is { u64::from(category) } else { 0 };
        let own = when(may_watch, PAGE_IS_WPALLOWED) | when(dirty, PAGE_IS_SOFT_DIRTY);
        if !round.scan.wants_vma(own) {
            return Ok(true);
        }
        // Nobody looks at pages one by one where none is told.
        if round.scan.watches() && !round.scan.tells() && !vma.is_huge() {
            let is_all = round.scan.wants(own);
            for (low, high, is_begun) in self.blocks(start, end) {
                if is_all || is_begun {
                    round.watch(low, high)?;
                }
            }
            return Ok(true);
        }
        let mut at = start;
        let done = self.mm.with_leaves(self.space, range(start, end), |leaves| {
            for found in leaves {
                let (low, high) = (found.va.get(), found.va.get() + found.level.span().get());
                let (low, high) = (low.max(start), high.min(end));
                if !self.scan_hole(round, vma, own, (at, low))? {
                    return Ok(false);
                }
                at = high;
                if !self.scan_found(round, (vma, own), &found, (low, high))? {
                    return Ok(false);
                }
            }
            self.scan_hole(round, vma, own, (at, end))
        });
        done.unwrap_or(Ok(true))
    }
    fn scan_hole(
        &self,
        round: &mut Round<'_>,
        vma: &Vma,
        own: u64,
        (start, end): (u64, u64),
    ) -> Result<bool, Errno> {
        let run = |start, end, kind, large| Run { start, end, categories: own | kind, large };
        if vma.is_huge() && start < end {
            return round.take(&run(start, end, HUGE, Large::Pool(vma.page_bytes())));
        }
        for (low, high, is_begun) in self.blocks(start, end) {
            let kind = if is_begun { WRITTEN } else { 0 };
            if !round.take(&run(low, high, kind, Large::No))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
    /// The parts of a range of small pages, each with whether something is or was there, or beside:
    /// a table, or a large page in its place.
    fn blocks(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, bool)> {
        let mut at = start;
        iter::from_fn(move || {
            let low = at;
            let found = self.mm.walk(self.space, Va::new(low)).filter(|_| low < end)?;
            let is_begun = found.level == Level::BASE || found.entry != Entry::None;
            let span = found.level.max(Level::SIZE_2M).span().get();
            at = (low - low % span).saturating_add(span).min(end);
            Some((low, at, is_begun))
        })
    }
    fn scan_found(
        &self,
        round: &mut Round<'_>,
        (vma, own): (&Vma, u64),
        found: &Found,
        (low, high): (u64, u64),
    ) -> Result<bool, Errno> {
        let leaf = range(found.va.get(), found.va.get() + found.level.span().get());
        let is_inside = vma.start() <= leaf.start().get() && leaf.end().get() <= vma.end();
        let is_large = is_inside && found.level > Level::BASE;
        let is_cut = high - low < leaf.bytes().get() && round.scan.watches();
        let large = match vma.is_huge() {
            true => Large::Pool(vma.page_bytes()),
            false if is_large => Large::Folio,
            false => Large::No,
        };
        let is_swapped = matches!(found.entry, Entry::Soft(soft)
            if matches!(soft.kind, SoftKind::Guard | SoftKind::Marker | SoftKind::Poison));
        let step = if is_large { high - low } else { PAGE };
        for start in (low..high).step_by(step as usize) {
            let (word, _) = self.word(vma, found, start, is_large);
            let said = SAID.iter().filter(|(bit, _)| word & bit != 0);
            let mut categories = said.fold(own, |all, (_, category)| all | u64::from(*category));
            // Of a huge page of a pool `pagemap` says nothing where none is there.
            if is_swapped {
                categories |= u64::from(PAGE_IS_SWAPPED);
            }
            if (is_swapped || word & PRESENT != 0) && word & WRITE_PROTECTED == 0 {
                categories |= WRITTEN;
            }
            if is_zero(found) {
                categories &= !u64::from(PAGE_IS_FILE);
                if found.level == Level::BASE {
                    categories |= u64::from(PAGE_IS_PFNZERO);
                }
            }
            if vma.is_huge() || is_large && !is_cut {
                categories |= HUGE;
            }
            let run = Run { start, end: start + step, categories, large };
            if !round.take(&run)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_zero(found: &Found) -> bool {
    matches!(found.entry, Entry::Leaf { attrs, .. } if attrs.has(Attrs::SPECIAL))
}
