//! Advice: wishes for folio sizes, contents dropped, guards.

use super::area::{Area, Flags};
use super::attach;
use super::error::RangeError;
use super::huge;
use super::ops::{Rewrite, check, covered};
use super::prepaid;
use super::record::Space;
use super::split_leaf;
use super::steps::Steps;
use super::walk::{self, Noting, Uncached, Unchanged};
use super::watch::{self, Watch};
use super::zap::{Guards, Zap, behind};
use crate::flush::Gather;
use crate::stock::{NoTable, Stock, Supply};
use crate::table::{At, Attrs, Blocked, Edit, Paging, Soft, SoftKind, Tables, Verdict};
use core::cell::Cell;
use foliant_machine::Machine;
use foliant_units::{Level, Pa, Va, VaRange};

/// What a program says of a range of its memory. Names follow Linux's `madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Large folios are welcome.
    HugePage,
    /// No large folios.
    NoHugePage,
    /// Missing pages are handed to the program. Huge pages of a pool are so as a whole.
    UserfaultArm,
    /// Missing pages are no longer handed to the program.
    UserfaultDisarm,
    /// Writes to pages that are watched are handed to the program. Refused where the format of page
    /// tables has no bit that says so ([`Attrs::UFFD_WP`]), and of what is not memory of the
    /// space's own.
    UserfaultWriteArm,
    /// Writes are no longer handed to the program, and no page is watched any more.
    UserfaultWriteDisarm,
    /// Faults of pages that are not mapped and that the object has are handed to the program, which
    /// lets them in ([`FillWith::Present`](crate::fault::FillWith)). Refused of what maps no
    /// object.
    UserfaultPresentArm,
    /// They are no longer handed to the program.
    UserfaultPresentDisarm,
    /// The contents are dropped now; the next touch finds zeros.
    DontNeed,
    /// The contents may be dropped; until they are, they stay. Nothing is reclaimed yet, so they
    /// always stay. Poison has none, and goes.
    Free,
    /// Every page is made present for reading, as faults would.
    PopulateRead,
    /// Every page is made present for writing, as faults would.
    PopulateWrite,
    /// The contents are dropped, and a touch is refused from now on. That happens to each page in
    /// one step, so a program that reads it meanwhile finds what it held, or is refused.
    GuardInstall,
    /// Guards are taken out.
    GuardRemove,
    /// The areas' tag becomes this. Neighbours of different tags are areas of their own, so no
    /// fault maps memory of both.
    Tag(u64),
}

/// Carries advice out, but for the two kinds of populating, which are the face's (they fault). Says
/// how many places lost a huge page, whose reservations are the face's too (`huge::regain`).
pub(crate) fn advise<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    advice: Advice,
    steps: &mut Steps,
) -> Result<u64, RangeError> {
    check::<P>(range)?;
    let mut dropped = 0;
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let keeps_watch = Cell::new(false);
    covered(stock, space, range, |area| match advice {
        Advice::DontNeed => {
            keeps_watch.set(keeps_watch.get() || area.keeps_watch());
            huge::uncut(area, range)
        }
        Advice::UserfaultArm | Advice::UserfaultWriteArm | Advice::UserfaultPresentArm => {
            attach::note_armed(stock, area); // before a page can be watched (watch::H6)
            huge::uncut(area, range)
        }
        Advice::Tag(_)
        | Advice::HugePage
        | Advice::NoHugePage
        | Advice::UserfaultDisarm
        | Advice::UserfaultWriteDisarm
        | Advice::UserfaultPresentDisarm => huge::uncut(area, range),
        Advice::PopulateRead | Advice::PopulateWrite => Ok(()),
        _ => huge::small(area, range),
    })?;
    let change = |change: &dyn Fn(Area) -> (Flags, u64)| -> Result<(), RangeError> {
        let change = |area| Some(change(area));
        space.admit(stock, range, change, (None, 0))?;
        space.areas.prepare(stock, &space.charge)?;
        space.areas.change(stock.machine, range, change);
        Ok(())
    };
    let all = |suits: &dyn Fn(&Area) -> bool| {
        covered(stock, space, range, |area| match suits(area) {
            true => Ok(()),
            false => Err(RangeError::Hole(area.range.start().max(range.start()))),
        })
    };
    let flags = |set: Flags, clear| change(&|a| (a.flags.without(clear).with(set), a.tag));
    let mut gather = Gather::new(stock, &space.member.target);
    match advice {
        Advice::HugePage => flags(Flags::HUGEPAGE, Flags::NOHUGEPAGE)?,
        Advice::NoHugePage => flags(Flags::NOHUGEPAGE, Flags::HUGEPAGE)?,
        Advice::UserfaultArm | Advice::UserfaultPresentArm => {
            match advice {
                Advice::UserfaultArm => flags(Flags::USERFAULT, Flags::NONE)?,
                _ => {
                    all(&|area| area.flags.has(Flags::OBJECT))?;
                    flags(Flags::USERFAULT_PRESENT, Flags::NONE)?;
                }
            }
            // A fault that looked at its area before fills its page under the lock of a table: each
            // is taken once, so what is missing afterwards stays missing (S1), or not let in.
            let mut sink = Uncached { machine: stock.machine, steps };
            walk::edit(stock, space, range, &Unchanged, &mut sink);
        }
        Advice::UserfaultWriteArm => {
            all(&watch::is_watchable::<P>)?;
            flags(Flags::USERFAULT_WRITE, Flags::NONE)?;
        }
        Advice::UserfaultPresentDisarm => flags(Flags::NONE, Flags::USERFAULT_PRESENT)?,
        Advice::UserfaultWriteDisarm => {
            flags(Flags::NONE, Flags::USERFAULT_WRITE)?;
            watch::change(stock, space, range, &mut gather, Watch::Nothing, steps);
            gather.settle();
        }
        Advice::Tag(tag) => change(&|area| (area.flags, tag))?,
        Advice::UserfaultDisarm => flags(Flags::NONE, Flags::USERFAULT)?,
        Advice::DontNeed => {
            let zap = Zap::new(stock, space, Guards::Keep).reclaiming();
            match keeps_watch.get() {
                true => {
                    for area in space.areas.overlapping(stock.machine, range) {
                        let part = area.range.intersect(range);
                        match area.keeps_watch() {
                            true => zap.range_watched(&mut gather, part, None, steps),
                            false => zap.range(&mut gather, part, steps),
                        }
                    }
                }
                false => zap.range(&mut gather, range, steps),
            }
            dropped = zap.kept();
        }
        Advice::Free => {
            let clean = |old: Attrs| old.without(Attrs::DIRTY);
            let replace = stock.machine.rules().replace;
            let edit = Freeing(Rewrite { range, change: clean, replace });
            let mut sink = Noting { machine: stock.machine, gather: &mut gather, steps };
            walk::edit(stock, space, range, &edit, &mut sink);
            gather.settle();
        }
        Advice::PopulateRead | Advice::PopulateWrite => {}
        Advice::GuardInstall => {
            // All tables are charged before anything goes, so a refused charge leaves no trace.
            // Where no frame is left for a table, the guards put in so far stay.
            let supply = prepaid(stock, space, range, steps)?;
            guard(stock, space, &mut gather, range, supply, steps)?;
        }
        Advice::GuardRemove => {
            let mut sink = Uncached { machine: stock.machine, steps };
            walk::edit(stock, space, range, &Unguard, &mut sink);
        }
    }
    gather.flush();
    Ok(dropped)
}

/// Takes the leaf of 2 MiB apart that lies over an address, if one does (S4).
pub(crate) fn cut<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    va: Va,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    let page = va.align_down(Level::BASE.span());
    let range = VaRange::new(page, page.add(Level::BASE.span().get())).expect("one page");
    check::<P>(range)?;
    let _writer = space.writer.lock(stock.machine, steps.outside());
    covered(stock, space, range, |area| huge::small(area, range))?;
    let leaf = va.align_down(Level::SIZE_2M.span());
    split_leaf(stock, space, &space.tables(stock), leaf, Level::SIZE_2M);
    Ok(())
}

/// Puts guards in the place of whatever is there. Each page becomes one in one step, so a load
/// beside this finds what was there, or the guard. Without memory for a table it ends early: the
/// guards put in so far stay, and so do the pages behind them. Each guard is good by itself.
fn guard<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    gather: &mut Gather<'s, 'm, M, P>,
    range: VaRange,
    mut supply: Supply<'_, 'm, M, P>,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let zap = Zap::new(stock, space, Guards::Put);
    let (mut va, mut done) = (range.start(), Ok(()));
    while va < range.end() && done.is_ok() {
        match supply.ensure(&tables, va, Level::BASE) {
            Ok(()) => {
                let end = behind(va, Level::SIZE_2M).min(range.end());
                zap.entries(gather, VaRange::new(va, end).expect("a part of it"), steps);
                va = end;
            }
            Err(NoTable::Record(why)) => done = Err(why.into()),
            Err(NoTable::Blocked(Blocked::Leaf(level))) => {
                split_leaf(stock, space, &tables, va, level)
            }
            Err(NoTable::Blocked(Blocked::Soft(level))) => {
                // A leaf is being replaced here, unless that is over by now.
                tables.lock(va, level).into_iter().for_each(|locked| locked.let_go().wait());
            }
            Err(NoTable::Blocked(why)) => {
                panic!("{range:?} was checked, and yet: {why}")
            }
        }
    }
    gather.settle();
    done
}

/// Other attributes for leaves whose contents may be dropped; poison goes.
struct Freeing<C>(Rewrite<C>);

impl<P: Paging, C: Fn(Attrs) -> Attrs> Edit<P> for Freeing<C> {
    fn ignores(&self) -> u64 {
        Edit::<P>::ignores(&self.0)
    }
    fn leaf(&self, at: At, word: u64, pa: Pa, attrs: Attrs) -> Verdict {
        Edit::<P>::leaf(&self.0, at, word, pa, attrs)
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        match soft.kind {
            SoftKind::Poison => Verdict::Put(0),
            _ => Edit::<P>::soft(&self.0, at, soft),
        }
    }
}

/// Takes guards out.
struct Unguard;

impl<P: Paging> Edit<P> for Unguard {
    fn leaf(&self, _: At, _: u64, _: Pa, _: Attrs) -> Verdict {
        Verdict::Keep
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        let is_guard = at.level == Level::BASE && soft.kind == SoftKind::Guard;
        if is_guard { Verdict::Put(0) } else { Verdict::Keep }
    }
}
